"""Finds credentials in a job file, because everyone who can read the file or the job can read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training_imgtool.base.secret_text import detect_line_secret, detect_named_secret
from training_imgtool.jobs.model import Finding, Path, Severity
from training_imgtool.jobs.rules.images import PLACEHOLDER


def secret_findings(value: Any, path: Path = ()) -> Iterator[Finding]:
    """Finds values that look like credentials, because of their form or because of their key's name."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from secret_findings(item, (*path, key))
        if isinstance(given := value.get("value"), str):
            yield from _finding(detect_named_secret(str(value.get("name")), given), given, (*path, "value"))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from secret_findings(item, (*path, index))
    elif isinstance(value, str) and path:
        named = isinstance(path[-1], str) and "\n" not in value
        yield from _finding(
            detect_named_secret(str(path[-1]), value) if named else detect_line_secret(value), value, path
        )


def line_secrets(lines: list[str]) -> Iterator[tuple[int, Finding]]:
    """Finds credentials in the lines of a script, each with the line's index."""
    for index, line in enumerate(lines):
        yield from ((index, finding) for finding in _finding(detect_line_secret(line), line, ()))


def _finding(kind: str | None, value: Any, path: Path) -> Iterator[Finding]:
    if kind and not PLACEHOLDER.search(str(value)):
        message = f"the value (not shown here) looks like {kind}, and everyone who reads the file sees it"
        hint = "let the file refer to a secret instead: a spec has job.secrets for that"
        yield Finding(path=path, message=message, hint=hint, severity=Severity.WARNING)
