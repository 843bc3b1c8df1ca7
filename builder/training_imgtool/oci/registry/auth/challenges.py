"""Reads the WWW-Authenticate header (RFC 9110, section 11.6.1) and Docker's token scopes. No network."""

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
    """One method of authentication that a server offers. The scheme and the parameters' names are in lower case."""

    scheme: str
    parameters: dict[str, str] = field(default_factory=dict)


def parse_challenges(headers: Iterable[str]) -> tuple[Challenge, ...]:
    """Reads the challenges of all WWW-Authenticate headers, in order. Ignores the rest of a header after an error."""
    return tuple(challenge for header in headers for challenge in _parse(header[:_LONGEST_HEADER]))


def _parse(header: str) -> list[Challenge]:
    scheme_at, parameter_at = re.compile(_SCHEME).match, re.compile(_PARAMETER).match  # late: few runs need them
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


Scopes = frozenset[str]  # rights to do one thing with one repository, as PATH:ACTION (the path is without the host)


def pull(path: str) -> Scopes:
    """Returns the scope for reading a repository."""
    return frozenset({f"{path}:pull"})


def push(path: str) -> Scopes:
    """Returns the scopes for reading and writing a repository."""
    return frozenset({f"{path}:pull", f"{path}:push"})


def scope_texts(scopes: Scopes) -> tuple[str, ...]:
    """Joins the scopes of each repository into one text, as token servers expect: `repository:PATH:ACTION,ACTION`."""
    actions: dict[str, list[str]] = {}
    for scope in sorted(scopes):
        path, _, action = scope.rpartition(":")
        actions.setdefault(path, []).append(action)
    return tuple(f"repository:{path}:{','.join(actions[path])}" for path in sorted(actions))


def parse_scope(text: str) -> Scopes:
    """Reads the scopes of repositories in a challenge; ignores other types of resources."""
    scopes = set()
    for part in text.split():
        kind, _, rest = part.partition(":")
        path, _, actions = rest.rpartition(":")
        if kind == "repository" and path:
            scopes |= {f"{path}:{action}" for action in actions.split(",") if action}
    return frozenset(scopes)
