"""Wheels for tests: made here member by member, or downloaded as the index has them; and trees to compare."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests import plans
from training_imgtool.model.lock import LockedVariant, Wheel


@dataclass(frozen=True)
class Node:
    """One path of a tree: type, mode, owner, size, content."""

    kind: str
    mode: int
    size: int = 0
    content: str = ""
    owner: tuple[int, int] = (0, 0)


def make_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, bytes],
    *,
    version: str = "1.0",
    entry_points: str = "",
    executable: Iterable[str] = (),
    stored: Iterable[str] = (),
    zip64: bool = False,
    requires_python: str = "",
    requires: Iterable[str] = (),
) -> Path:
    """A wheel with a right RECORD, unless `files` has another; `executable` and `stored` name members."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires_python:
        metadata += f"Requires-Python: {requires_python}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    members = {
        **files,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if entry_points:
        members[f"{info}/entry_points.txt"] = entry_points.encode()
    rows = [f"{path},sha256={hashlib.sha256(data).hexdigest()},{len(data)}\n" for path, data in members.items()]
    members[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    members |= {path: data for path, data in files.items() if path in members}
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            zipped = zipfile.ZipInfo(member, (2020, 1, 1, 0, 0, 0))
            zipped.compress_type = zipfile.ZIP_STORED if member in stored else zipfile.ZIP_DEFLATED
            zipped.external_attr = (stat.S_IFREG | (0o755 if member in executable else 0o644)) << 16
            with archive.open(zipped, "w", force_zip64=zip64) as file:
                file.write(data)
    return path


INIT_VERSION = "1.2.5.post1"
INIT_SCRIPT = b'#!/bin/sh\n[ "$1" = --single-child ] && shift\nexec "$@"\n'


def make_init(folder: Path) -> Path:
    """The init's wheel, with a script that becomes the program: enough where no test sends a signal."""
    member = f"dumb_init-{INIT_VERSION}.data/scripts/dumb-init"
    return make_wheel(folder, "dumb_init", {member: INIT_SCRIPT}, version=INIT_VERSION, executable=[member])


def as_wheel(path: Path) -> Wheel:
    """The lock's line for a wheel's file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    name, version = path.name.split("-")[:2]
    return Wheel(
        name=name.replace("_", "-").lower(), version=version, file=path.name, sha256=digest, size=path.stat().st_size
    )


def locked(
    wheels: Iterable[Path], pip: Path, *, executable: str = "/usr/local/bin/python3.11", python: str = "3.11"
) -> LockedVariant:
    """A variant of these wheels."""
    variant = plans.variant(python_executable=executable, python=python)
    return LockedVariant(
        variant=variant,
        base_digest="sha256:" + "0" * 64,
        installer=as_wheel(pip),
        wheels=tuple(sorted(map(as_wheel, wheels), key=lambda wheel: wheel.name)),
    )


def download(folder: Path, *requirements: str, binary: bool = True) -> list[Path]:
    """What the index has for `requirements` and what they need, as wheels for Python 3.11 on linux/amd64."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--python-version=3.11", "--only-binary=:all:", "--implementation=cp"]
    options += [f"--platform=manylinux_{level}_x86_64" for level in ("2_17", "2_28", "2_34")]
    options += ["--platform=manylinux2014_x86_64", "--platform=linux_x86_64", "--disable-pip-version-check"]
    command = [str(Path(sys.executable).parent / "uv"), "tool", "run", "--quiet", "pip", "download"]
    subprocess.run([*command, *options, "--dest", str(folder), *requirements], check=True, capture_output=True)
    return sorted(folder.glob("*.whl"))


def tree(folder: Path) -> dict[str, Node]:
    """Everything below a folder of this machine, by absolute path."""
    found = {str(folder): Node("folder", stat.S_IMODE(folder.stat().st_mode))}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                found[str(path)] = Node("link", 0, content=str(path.readlink()))
            elif stat.S_ISDIR(status.st_mode):
                found[str(path)] = Node("folder", stat.S_IMODE(status.st_mode))
            else:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path)] = Node("file", stat.S_IMODE(status.st_mode), status.st_size, digest)
    return found


def tar_tree(stream: IO[bytes], found: dict[str, Node], *, mtime: int | None = None) -> None:
    """Adds a tar's entries, by absolute path; with `mtime` they are also checked to be ours."""
    here: set[str] = set()
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for one in archive:
            path = "/" + one.name.rstrip("/")
            if mtime is not None:
                assert path not in here, f"twice in one layer: {path}"
                assert one.mtime == mtime
                assert (one.uname, one.gname) == ("", "")
            here.add(path)
            owner = (one.uid, one.gid)
            if one.isdir():
                found[path] = Node("folder", one.mode, owner=owner)
            elif one.issym():
                found[path] = Node("link", 0, content=one.linkname, owner=owner)
            elif one.islnk():
                found[path] = found["/" + one.linkname]
            elif one.isfile():
                content = archive.extractfile(one)
                assert content
                digest = hashlib.sha256(content.read()).hexdigest()
                found[path] = Node("file", one.mode, one.size, digest, owner)
            else:
                found[path] = Node("special", one.mode, owner=owner)
