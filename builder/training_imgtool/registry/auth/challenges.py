"""The WWW-Authenticate header (RFC 9110, section 11.6.1) and Docker's token scopes. No network."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = rf'(?s)\s*({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD}[^,\s]*|[^,\s"]+))\s*(?:,|\Z)'
_SCHEME = rf"[\s,]*({_WORD})(?:[ \t]+|\s*(?:,|\Z))"
_LONGEST_HEADER = 8192


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to authenticate that a server offers; the scheme and the parameters' names are lower case."""

    scheme: str
    parameters: dict[str, str] = field(default_factory=dict)


def parse_challenges(headers: Iterable[str]) -> tuple[Challenge, ...]:
    """The challenges of all WWW-Authenticate headers, in order. What cannot be read ends its header."""
    return tuple(challenge for header in headers for challenge in _parse(header[:_LONGEST_HEADER]))


def _parse(header: str) -> list[Challenge]:
    scheme_at, parameter_at = re.compile(_SCHEME).match, re.compile(_PARAMETER).match  # no start needs them
    challenges = []
    position = 0
    while match := scheme_at(header, position):
        position = match.end()
        parameters: dict[str, str] = {}
        while parameter := parameter_at(header, position):
            name, quoted, plain = parameter.groups()
            parameters[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            position = parameter.end()
        challenges.append(Challenge(match.group(1).lower(), parameters))
    return challenges


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """The right to do one thing with one repository (`path` is without the host)."""

    path: str
    action: str


Scopes = frozenset[Access]


def pull(path: str) -> Scopes:
    """The right to read a repository."""
    return frozenset({Access(path, "pull")})


def push(path: str) -> Scopes:
    """The right to read and write a repository."""
    return frozenset({Access(path, "pull"), Access(path, "push")})


def scope_texts(scopes: Scopes) -> tuple[str, ...]:
    """`repository:PATH:ACTION,ACTION` per repository, sorted: the `scope` parameters of a token request."""
    paths = sorted({access.path for access in scopes})
    return tuple(
        f"repository:{path}:{','.join(sorted(access.action for access in scopes if access.path == path))}"
        for path in paths
    )


def parse_scope(text: str) -> Scopes:
    """The repository scopes of a challenge; other resource types are left out."""
    scopes = set()
    for part in text.split():
        kind, _, rest = part.partition(":")
        path, _, actions = rest.rpartition(":")
        if kind == "repository" and path:
            scopes |= {Access(path, action) for action in actions.split(",") if action}
    return frozenset(scopes)
