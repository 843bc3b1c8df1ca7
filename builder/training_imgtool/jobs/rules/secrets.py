"""Credentials in a job file that someone wrote: whoever can read the file, or ask the service for the job, has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training_imgtool.base.secret_text import (
    detect_argument_secrets,
    detect_line_secret,
    detect_named_secret,
    detect_secret,
)
from training_imgtool.jobs.model import Finding, Path, Severity
from training_imgtool.jobs.rules.images import PLACEHOLDER

_VARIABLES = {"env", "envs", "environment", "secrets", "build_args", "args"}  # keys of mappings of variables
_COMMANDS = {"args", "command", "entrypoint", "containerArgs", "containerCommand"}


def secret_findings(value: Any, path: Path = ()) -> Iterator[Finding]:
    """Finds values that look like credentials, by their shape or by the name that they are given."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from secret_findings(item, (*path, key))
        variable, given = value.get("name"), value.get("value")
        if isinstance(variable, str) and isinstance(given, str):
            yield from _named(variable, given, (*path, "value"))
    elif isinstance(value, list):
        texts = tuple(item if isinstance(item, str) else "" for item in value)
        found = detect_argument_secrets(texts) if path and path[-1] in _COMMANDS else {}
        yield from (_finding(kind, (*path, index)) for index, kind in found.items())
        for index, item in enumerate(value):
            yield from secret_findings(item, (*path, index)) if index not in found else ()
    elif isinstance(value, str) and path:
        parent = path[-2] if len(path) > 1 else None
        if parent in _VARIABLES:
            name, equals, rest = value.partition("=") if isinstance(path[-1], int) else (str(path[-1]), "=", value)
            yield from _named(name, rest, path) if equals else ()
        elif kind := detect_line_secret(value) if "\n" in value else detect_secret(value):
            yield _finding(kind, path)


def line_secrets(lines: list[str]) -> Iterator[tuple[int, Finding]]:
    """Does so for the lines of a script, each with its index."""
    for index, line in enumerate(lines):
        if (kind := detect_line_secret(line)) and not PLACEHOLDER.search(line):
            yield index, _finding(kind, ())


def _named(name: str, value: str, path: Path) -> Iterator[Finding]:
    if (kind := detect_named_secret(name, value)) and not PLACEHOLDER.search(value):
        yield _finding(kind, path)


def _finding(kind: str, path: Path) -> Finding:
    message = f"the value looks like {kind}, so it is not shown: whoever reads the file has it"
    hint = "let the file refer to the secret: a spec has job.secrets for that"
    return Finding(path=path, message=message, hint=hint, severity=Severity.WARNING)
