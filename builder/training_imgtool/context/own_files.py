"""imgtool's own files beside the code: they belong to no image, and would change its key each time they change."""

from __future__ import annotations

from pathlib import Path

JOB_MARK = ".imgtool-job"  # the empty file in a job directory that `imgtool run` made
_LOCK = b"# Made by `imgtool lock`"
_JOB = b"# Written by imgtool "
_FOLDER_MARKS = (JOB_MARK, "pyvenv.cfg")
_SPECS = (".yaml", ".yml")


def list_own_files(folder: Path) -> frozenset[str]:
    """Lists the names in `folder` that an image of the whole folder leaves out.

    These are every lock with its spec, every job file that imgtool wrote, the job directories of `imgtool run`,
    `.dockerignore`, and virtual environments (folders with a `pyvenv.cfg`). What cannot be read is not left out:
    reading it fails later, by name.
    """
    names = {".dockerignore"}
    for path in folder.iterdir():
        try:
            if path.is_dir():
                names |= {path.name} if any((path / name).is_file() for name in _FOLDER_MARKS) else set()
            elif path.suffix == ".lock" and _begins_with(path, _LOCK):
                names |= {path.name, *(f"{path.stem}{suffix}" for suffix in _SPECS)}
            elif path.suffix in _SPECS and _begins_with(path, _JOB):
                names.add(path.name)
        except OSError:
            continue
    return frozenset(names)


def _begins_with(path: Path, text: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(text)) == text
