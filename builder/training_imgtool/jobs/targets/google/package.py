"""The trainer as a source distribution, for AI Platform jobs with a runtime version instead of images.

The archive depends only on its files: the same trainer gives the same bytes, name and place in Cloud Storage.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.errors import FieldError, InputError, LocalFileError
from training_imgtool.model.spec import ImageSpec

_SETUP = """\
from setuptools import find_packages, setup

setup(name={name!r}, version={version!r}, packages=find_packages(), include_package_data=True)
"""
_VERSION = "0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A source distribution: its file name and bytes."""

    file: str
    data: bytes


def trainer_package(spec: ImageSpec, files: Mapping[str, bytes]) -> Package:
    """Packs the trainer.

    Args:
        spec: names the package and the module that the job runs.
        files: the trainer's files by path relative to the spec, such as `trainer/task.py`.

    Raises:
        InputError: the module that the job runs is not among the files.
    """
    named = spec.trainer.module or "trainer.task"
    module = named.replace(".", "/")
    if not {f"{module}.py", f"{module}/__main__.py"} & set(files):
        raise InputError(
            f"trainer.module: {named} is not in the package: expected {module}.py",
            hint=f"the package holds {', '.join(sorted(files)[:5]) or 'nothing'}",
        )
    name = spec.name.replace(".", "-")
    folders = {path.rpartition("/")[0] for path in files if path.endswith(".py")} - {""}
    packages = {folder[:end] for folder in folders for end in (*_slashes(folder), len(folder))}
    missing = {f"{folder}/__init__.py": b"" for folder in packages if f"{folder}/__init__.py" not in files}
    content = {**files, **missing, "setup.py": _SETUP.format(name=name, version=_VERSION).encode()}
    content |= {"PKG-INFO": f"Metadata-Version: 1.0\nName: {name}\nVersion: {_VERSION}\n".encode()}
    data = _archive(f"{name}-{_VERSION}", content)
    return Package(file=f"{name}-{_VERSION}.tar.gz", data=data)


def build_package(spec: ImageSpec, folder: Path) -> Package:
    """Packs the trainer of the spec in `folder`.

    Leaves out hidden files, caches and links. Raises InputError as `trainer_package` does, and LocalFileError for an
    unreadable file.
    """
    source = folder / spec.trainer.source
    files: dict[str, bytes] = {}
    try:
        for path in sorted(source.rglob("*")):
            parts = path.relative_to(source).parts
            hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
            if not hidden and path.is_file() and not path.is_symlink():
                files[path.relative_to(folder).as_posix()] = path.read_bytes()
    except OSError as error:
        raise LocalFileError(f"{error.filename}: {error.strerror}") from error
    return trainer_package(spec, files)


def staged_uri(spec: ImageSpec, package: Package) -> str:
    """Returns the URL of the package: below `job.staging`, in a folder with the package's hash as its name."""
    if not spec.job.staging:
        raise FieldError("is missing: imgtool uploads the package to this folder of Cloud Storage", field="job.staging")
    digest = hashlib.sha256(package.data).hexdigest()
    return f"{spec.job.staging.rstrip('/')}/{digest[:32]}/{package.file}"


def _slashes(folder: str) -> list[int]:
    return [index for index, character in enumerate(folder) if character == "/"]


def _archive(folder: str, files: Mapping[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files):
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size, entry.mode, entry.mtime = len(files[path]), 0o644, 0
            tar.addfile(entry, io.BytesIO(files[path]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream:  # gzip.compress differs by Python
        stream.write(plain.getvalue())
    return packed.getvalue()
