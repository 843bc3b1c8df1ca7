"""Builds a locked wheel from its locked source archive."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.core.errors import LocalFileError, VerificationError
from training_imgtool.core.interpreters import find_interpreter
from training_imgtool.core.progress import Progress, Step
from training_imgtool.plan import Source, Wheel
from training_imgtool.wheels.source_build import build_wheel

if TYPE_CHECKING:
    from training_imgtool.wheels.store import WheelStore


@contextmanager
def rebuilt(
    wheel: Wheel, source: Source, store: WheelStore, environ: Mapping[str, str], progress: Progress
) -> Iterator[Path]:
    """The wheel's file, until the block ends.

    Raises SourceBuildError, LocalFileError without the interpreter that the lock names, VerificationError when other
    bytes come out than the lock says, and what fetching the archive raises.
    """
    interpreter = find_interpreter(source.python, environ)
    if interpreter is None:
        raise LocalFileError(
            f"{wheel.file} is built from {source.archive.file} with Python {source.python}, which this machine lacks",
            hint=f"uv python install {source.python}; or push once from a machine that has it: the registry keeps it",
        )
    progress(Step(f"wheel {wheel.name}", f"building {source.archive.file}"))
    store.fetch((source.archive, *source.requires), progress)
    with tempfile.TemporaryDirectory(prefix="imgtool-wheel-") as temporary:
        required = [store.require(requirement) for requirement in source.requires]
        path = build_wheel(store.require(source.archive), Path(interpreter.path), lambda _: required, Path(temporary))
        with path.open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
        if digest != wheel.sha256:
            raise VerificationError(
                f"{source.archive.file} builds {path.name} with sha256 {digest} here, the lock says {wheel.sha256}",
                hint=f"its build depends on the machine; imgtool lock --upgrade-package {wheel.name} locks this one",
            )
        yield path
