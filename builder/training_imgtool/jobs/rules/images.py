"""Checks image names in job files: finds tags, placeholders, and names that no runtime can pull.

No service checks image names when it accepts a job. kubectl, Compose and gcloud forward a name such as `<project>/x`,
and the pull fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from training_imgtool.base.errors import InputError
from training_imgtool.base.reference import Digest, Tag, parse_reference
from training_imgtool.jobs.model import Finding, Path, Severity

PLACEHOLDER = re.compile(r"\$\{?\w+|\$\(\w+\)|<[^<>]+>|\[[\w .-]+\]|\{+[^{}]+\}+")
_WORD = re.compile(r"(?:^|[/:])[A-Z][A-Z0-9]*(?:[_-][A-Z0-9]+)*(?=$|[/:@])")  # IMAGE_URI, gcr.io/PROJECT-ID/x


def parse_image(value: Any, path: Path) -> tuple[Tag | Digest | None, list[Finding]]:
    """Parses an image reference, and lists its faults; the reference is None if `value` is not one."""
    if not isinstance(value, str):
        return None, []
    try:
        reference = parse_reference(value)
    except InputError as error:
        return None, [_malformed_finding(value, error, path)]
    if isinstance(reference, Digest):
        return reference, []
    message = f"{value} is a tag, which can move: expected REPOSITORY@sha256:…"
    hint = "imgtool config writes digests"
    return reference, [Finding(path=path, message=message, hint=hint, severity=Severity.WARNING, is_unpinned=True)]


def image_findings(value: Any, path: Path) -> Iterator[Finding]:
    """Yields a hint for a placeholder, a warning for a tag, and a warning for a name that no runtime can pull."""
    yield from parse_image(value, path)[1]


def _malformed_finding(value: str, error: InputError, path: Path) -> Finding:
    if PLACEHOLDER.search(value) or _WORD.search(value):
        message = f"{value} is a placeholder: imgtool does not check the image"
        return Finding(path=path, message=message, severity=Severity.HINT)
    message = f"no runtime can pull it: {error.message}"
    return Finding(path=path, message=message, hint=error.hint, severity=Severity.WARNING, is_unpinned=True)
