"""`lint`: reads a job file and judges it, asking bash about a script and the registries about the images."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.core.errors import InputError, RegistryRefusedError
from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.settings import Settings
from training_imgtool.jobs.lint import Message, lint
from training_imgtool.jobs.model import Severity
from training_imgtool.yamlfile.reader import read_bytes

if TYPE_CHECKING:
    from training_imgtool.registry.connect import Registries

_PLATFORM = "linux/amd64"  # of every machine that the targets offer with TensorFlow's wheels


def lint_job_file(
    path: Path,
    settings: Settings,
    progress: Progress,
    *,
    allow_unknown: bool,
    region: str | None,
    strict: bool,
    images: bool,
) -> tuple[Message, ...]:
    """Judges a file, or standard input for `-`; with `images` it asks the registries for the images too.

    An image that is not there, or not for linux/amd64, is a warning, and so are layers that the target cannot read.

    Raises:
        InputError: the file cannot be read, or is a spec.
        CredentialsError, RegistryRefusedError, TemporaryError: a registry gives no answer.
    """
    data = sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)
    text, name = data.decode("utf-8", errors="replace"), "<stdin>" if str(path) == "-" else str(path)
    if re.search(r"(?m)^tensorflow:\s", text):
        hint = f"imgtool show {name} checks it; imgtool config {name} -o FILE makes its job file"
        raise InputError(f"{name} is a spec, not a job file", hint=hint)
    with ExitStack() as stack:
        types = None
        if images:
            from training_imgtool.registry.connect import connect

            registries = stack.enter_context(connect(settings, progress))

            def types(reference: Tag | Digest) -> Sequence[str] | None:
                return _layer_types(reference, registries)

        found = lint(text, name, allow_unknown=allow_unknown, region=region, strict=strict, layer_types=types)
    return (*_ask_bash(text, name), *found)


def _ask_bash(text: str, name: str) -> tuple[Message, ...]:
    """Has bash read a script without running it; a machine without bash asks nobody."""
    bash = shutil.which("bash")
    if not text.startswith("#!") or bash is None:
        return ()
    done = subprocess.run([bash, "-n"], input=text, capture_output=True, text=True, check=False)
    match = re.match(r"[^\n]*?line ([0-9]+): ([^\n]*)", done.stderr)
    if done.returncode == 0 or match is None:
        return ()
    message = Message(file=name, line=int(match[1]), column=1, field="", severity=Severity.ERROR, message=match[2])
    return (replace(message, source="bash -n"),)


def _layer_types(reference: Tag | Digest, registries: Registries) -> tuple[str, ...] | None:
    repository = registries.source(reference.repository)
    there = repository.digest(reference.digest) if isinstance(reference, Digest) else repository.tag(reference.name)
    registry = registries.at(repository)
    manifest = registry.find_manifest(there)
    if manifest is not None and manifest.is_index:
        try:
            manifest = registry.manifest(there, _PLATFORM)
        except RegistryRefusedError:
            manifest = None
    return tuple(layer.media_type for layer in manifest.layers) if manifest else None
