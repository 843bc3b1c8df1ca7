"""Detects credentials in text, such as a spec whose values end up in images and job files.

A value counts when it has the shape of a known credential, or when its name, such as `DB_PASSWORD`, says so. No result
contains the value itself.
"""

from __future__ import annotations

import re

# Kind, a text that every match contains, pattern. Sources: the issuers' documentation of their token prefixes.
_SHAPES: tuple[tuple[str, str, str], ...] = (
    ("a URL with a password", "@", r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@"),
    ("a private key", "-----BEGIN ", r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    ("a GitHub token", "gh", r"\bgh[pousr]_[A-Za-z0-9]{16,}"),
    ("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    ("a GitLab token", "glpat-", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    ("an AWS access key", "AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
    ("an AWS access key", "ASIA", r"\bASIA[0-9A-Z]{16}\b"),
    ("an Alibaba Cloud access key", "LTAI", r"\bLTAI[A-Za-z0-9]{16,}\b"),
    ("a Google API key", "AIza", r"\bAIza[0-9A-Za-z_-]{35}"),
    ("a Google access token", "ya29.", r"\bya29\.[0-9A-Za-z_-]{20,}"),
    ("a Slack token", "xox", r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}"),
    ("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
    ("an API key", "sk-", r"\bsk-[A-Za-z0-9_-]{20,}"),
    ("a PyPI token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{50,}"),
    ("a JSON Web Token", "eyJ", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\."),
)
# A name ends with one of these words; PASSWORD_FILE and TOKEN_LENGTH name something else.
_SECRETS_NAME = (
    r"(?i)(?:^|[_.-]|^pg)(?:password|passwd|passphrase|pwd|secret|credentials?|"
    r"(?:api|access|account|auth|private|secret|signing|encryption)[_-]?key|token)$"
)
_TOKENS_NAME = r"(?i)token$"
_TOKENS_VALUE = r"[A-Za-z0-9_\-.=/+]{12,}\Z"  # a model's "[PAD]" or "</s>" is a token too
# Values that only say where a secret is (a path, a variable, a resource name, a URL), and switches.
_POINTER = r"(?i)(?:[./~].*|\$.*|projects/.+|[a-z][a-z0-9+.-]*://.*|true|false|yes|no|none|null|[0-9]{1,6})\Z"
_ASSIGNMENT = r"""([A-Za-z0-9][\w.-]*)["']?\s*[:=]\s*["']?(?=([^\s"',}\]]+))"""
_OPTION = r"--?([A-Za-z0-9][A-Za-z0-9_.-]*)\Z"


def detect_secret(text: str) -> str | None:
    """Returns the kind of credential in `text`, such as "a GitHub token", or None."""
    return next((kind for kind, mark, shape in _SHAPES if mark in text and re.search(shape, text)), None)


def detect_named_secret(name: str, value: str) -> str | None:
    """Returns the kind of credential that `value` is under `name` (PASSWORD, --api-key), or None."""
    if kind := detect_secret(value):
        return kind
    if not value or not re.search(_SECRETS_NAME, name) or re.match(_POINTER, value):
        return None
    if re.search(_TOKENS_NAME, name) and not re.match(_TOKENS_VALUE, value):
        return None
    return "a secret by its name"


def detect_line_secret(line: str) -> str | None:
    """Returns the kind of credential in a line of a file, such as `password: …` or `--token=…`, or None."""
    if kind := detect_secret(line):
        return kind
    kinds = (detect_named_secret(name, value) for name, value in re.findall(_ASSIGNMENT, line))
    return next((kind for kind in kinds if kind), None)


def detect_argument_secrets(arguments: tuple[str, ...]) -> dict[int, str]:
    """Returns the credentials among `arguments` by index; understands `--name=value` and `--name value`."""
    secrets: dict[int, str] = {}
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        before = re.match(_OPTION, arguments[index - 1]) if index else None
        kind = detect_secret(argument)
        if not kind and equals and (match := re.match(_OPTION, option)):
            kind = detect_named_secret(match[1], value)
        if not kind and before and not argument.startswith("-"):
            kind = detect_named_secret(before[1], argument)
        if kind:
            secrets[index] = kind
    return secrets
