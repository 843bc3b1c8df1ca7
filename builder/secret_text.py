"""Recognises secrets that were typed where they do not belong: in a spec, whose values end up in images and job files.

Two ways: a value that has the shape of a known credential, and a name such as `DB_PASSWORD` with a value.
A value is never part of the answer.
"""

from __future__ import annotations

import re

# Shapes, each with what it is called. Sources: the issuers' own documentation of their token prefixes.
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a URL with a password", re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")),
    ("a GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("a GitLab token", re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}")),
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("an Alibaba Cloud access key", re.compile(r"\bLTAI[A-Za-z0-9]{16,}\b")),
    ("a Google API key", re.compile(r"\bAIza[0-9A-Za-z_-]{35}")),
    ("a Google access token", re.compile(r"\bya29\.[0-9A-Za-z_-]{20,}")),
    ("a Slack token", re.compile(r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}")),
    ("a Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{30,}")),
    ("an API key", re.compile(r"\bsk-[A-Za-z0-9_-]{20,}")),
    ("a PyPI token", re.compile(r"\bpypi-[A-Za-z0-9_-]{50,}")),
    ("a JSON Web Token", re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.")),
)
# The last words of a name; what follows them (PASSWORD_FILE, TOKEN_LENGTH) names something else.
_SECRET_NAME = re.compile(
    r"(?:^|[_.-])(?:password|passwd|passphrase|pwd|secret|credentials?|"
    r"(?:api|access|account|auth|private|secret|signing|encryption)[_-]?key|token)$",
    re.IGNORECASE,
)
_TOKEN_NAME = re.compile(r"token$", re.IGNORECASE)
_TOKEN_VALUE = re.compile(r"[A-Za-z0-9_\-.=/+]{12,}\Z")  # a model's "[PAD]" or "</s>" is a token too
# Not the secret itself but where it is: a path, a variable, a resource name, a URL without a password; or a switch.
_POINTER = re.compile(
    r"(?:[./~].*|\$.*|projects/.+|[a-z][a-z0-9+.-]*://.*|true|false|yes|no|none|null|[0-9]{1,6})\Z", re.IGNORECASE
)
_ASSIGNMENT = re.compile(r"""([A-Za-z0-9][\w.-]*)["']?\s*[:=]\s*["']?(?=([^\s"',}\]]+))""")
_OPTION = re.compile(r"--?([A-Za-z0-9][A-Za-z0-9_.-]*)\Z")


def secret_in(text: str) -> str | None:
    """What kind of credential `text` holds, such as "a GitHub token"; None when it holds none."""
    return next((kind for kind, shape in _SHAPES if shape.search(text)), None)


def named_secret(name: str, value: str) -> str | None:
    """What kind of credential `value` is when it is given under `name` (PASSWORD, --api-key); None for none."""
    if kind := secret_in(value):
        return kind
    if not value or not _SECRET_NAME.search(name) or _POINTER.match(value):
        return None
    if _TOKEN_NAME.search(name) and not _TOKEN_VALUE.match(value):
        return None
    return "a secret by its name"


def secret_in_line(line: str) -> str | None:
    """What kind of credential a line of a file holds, such as `password: …` or `--token=…`; None for none."""
    if kind := secret_in(line):
        return kind
    found = (named_secret(name, value) for name, value in _ASSIGNMENT.findall(line))
    return next((kind for kind in found if kind), None)


def argument_secrets(arguments: tuple[str, ...]) -> dict[int, str]:
    """Which arguments hold a credential: index and kind. Knows `--name=value` and `--name` followed by the value."""
    found: dict[int, str] = {}
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        before = _OPTION.match(arguments[index - 1]) if index else None
        kind = secret_in(argument)
        if not kind and equals and (match := _OPTION.match(option)):
            kind = named_secret(match[1], value)
        if not kind and before and not argument.startswith("-"):
            kind = named_secret(before[1], argument)
        if kind:
            found[index] = kind
    return found
