"""Builds a locked wheel from its locked source archive."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.core.errors import LocalFileError, VerificationError
from training_imgtool.core.interpreters import find_interpreter
from training_imgtool.core.progress import Progress, Step
from training_imgtool.core.settings import Settings
from training_imgtool.plan import Source, Wheel
from training_imgtool.wheels.sources.build import build_wheel
from training_imgtool.wheels.sources.git import Git
from training_imgtool.wheels.sources.pack import PackedCode, Packer

if TYPE_CHECKING:
    from training_imgtool.wheels.store import WheelStore


@contextmanager
def rebuild_wheel(
    wheel: Wheel, source: Source, store: WheelStore, *, settings: Settings, folder: Path, progress: Progress
) -> Iterator[Path]:
    """The wheel's file, until the block ends.

    Args:
        wheel: what the lock says.
        source: what it is built from.
        store: keeps archives and build requirements.
        settings: the machine's.
        folder: the spec's folder, for code that lies below it.
        progress: receives the build.

    Raises SourceBuildError, LocalFileError without the interpreter that the lock names, VerificationError when other
    bytes come out than the lock says, and what fetching the archive raises.
    """
    interpreter = find_interpreter(source.python, settings.environ)
    if interpreter is None:
        raise LocalFileError(
            f"{wheel.file} is built from {source.archive.file} with Python {source.python}, which this machine lacks",
            hint=f"uv python install {source.python}; or push once from a machine that has it: the registry keeps it",
        )
    progress(Step(f"wheel {wheel.name}", f"building {source.archive.file}"))
    store.fetch(source.requires if source.origin else (source.archive, *source.requires), progress)
    with tempfile.TemporaryDirectory(prefix="imgtool-wheel-") as temporary:
        code = _pack(source, settings, folder, Path(temporary)) if source.origin else None
        archive = code.path if code else store.require(source.archive)
        required = [store.require(requirement) for requirement in source.requires]
        (output := Path(temporary, "out")).mkdir()
        tagged = code.version if code else ""
        path = build_wheel(archive, Path(interpreter.path), lambda _: required, output, version=tagged)
        with path.open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
        if digest != wheel.sha256:
            raise VerificationError(
                f"{source.archive.file} builds {path.name} with sha256 {digest} here, the lock says {wheel.sha256}",
                hint=f"its build depends on the machine; imgtool lock --upgrade-package {wheel.name} locks this one",
            )
        yield path


def _pack(source: Source, settings: Settings, folder: Path, work: Path) -> PackedCode:
    """The code that no index has; raises VerificationError when it is not what the lock says."""
    git = Git(settings.environ, ca_file=settings.ca_file)
    code = Packer(folder, git, work).pack(source.origin, source.commit)
    if code.sha256 != source.archive.sha256:
        raise VerificationError(
            f"{source.origin} is not what the lock says: sha256 {code.sha256}, locked {source.archive.sha256}",
            hint="imgtool lock pins the present code",
        )
    return code
