"""`lint`: reads a job file and judges it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from training_imgtool.base.errors import InputError
from training_imgtool.base.yamlfile.reader import read_bytes
from training_imgtool.jobs.lint import Message, lint


def lint_job_file(path: Path, *, allow_unknown: bool, region: str | None, strict: bool) -> tuple[Message, ...]:
    """Judges a file, or standard input for `-`; raises InputError for one that cannot be read, or is a spec."""
    data = sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)
    text, name = data.decode("utf-8", errors="replace"), "<stdin>" if str(path) == "-" else str(path)
    if re.search(r"(?m)^tensorflow:\s", text):
        hint = f"imgtool show {name} checks it; imgtool config {name} -o FILE makes its job file"
        raise InputError(f"{name} is a spec, not a job file", hint=hint)
    return lint(text, name, allow_unknown=allow_unknown, region=region, strict=strict)
