"""Wheels made from source archives: the same bytes everywhere, and installable."""

from __future__ import annotations

import csv
import hashlib
import io
import tarfile
import time
import zipfile
from base64 import urlsafe_b64decode
from dataclasses import replace

import pytest

from training_imgtool.base.errors import VerificationError
from training_imgtool.resolve.versions.matrix import SourceArchive
from training_imgtool.resolve.wheels.sources.sdist import build_wheel, name_wheel

FILES = {
    "gast": {
        "PKG-INFO": "Metadata-Version: 1.1\nName: gast\nVersion: 0.2.2\n",
        "LICENSE": "BSD",
        "setup.py": "raise SystemExit('never run')",
        "gast/__init__.py": "value = 1\n",
        "gast/ast3.py": "",
        "tests/test_x.py": "",
    },
    "termcolor": {
        "PKG-INFO": "Metadata-Version: 1.0\nName: termcolor\nVersion: 1.1.0\n",
        "termcolor.py": "value = 2\n",
    },
    "wrapt": {
        "PKG-INFO": "Metadata-Version: 1.1\nName: wrapt\nVersion: 1.12.1\n",
        "src/wrapt/__init__.py": "value = 3\n",
        "src/wrapt/_wrappers.c": "int x;",
    },
}
VERSIONS = {"gast": "0.2.2", "termcolor": "1.1.0", "wrapt": "1.12.1"}


def archive_of(name: str, *, mtime: float = 0, mode: int = 0o644) -> tuple[SourceArchive, bytes]:
    version = VERSIONS[name]
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for path, text in FILES[name].items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size, member.mtime, member.mode = len(text), mtime, mode
            archive.addfile(member, io.BytesIO(text.encode()))
    data = stream.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    return SourceArchive(name=name, version=version, file=f"{name}-{version}.tar.gz", sha256=sha256), data


@pytest.mark.parametrize("name", FILES)
def test_same_bytes_whatever_the_archive_s_dates_and_modes(name: str) -> None:
    first = build_wheel(*archive_of(name))
    second = build_wheel(*archive_of(name, mtime=time.time(), mode=0o600))
    assert first == second


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("gast", {"gast/__init__.py", "gast/ast3.py"}),
        ("termcolor", {"termcolor.py"}),
        ("wrapt", {"wrapt/__init__.py"}),
    ],
)
def test_holds_the_modules_and_a_true_record(name: str, modules: set[str]) -> None:
    archive, data = archive_of(name)
    wheel = zipfile.ZipFile(io.BytesIO(build_wheel(archive, data)))
    info = f"{name}-{archive.version}.dist-info"
    assert {path for path in wheel.namelist() if not path.startswith(info)} == modules
    rows = list(csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())))
    assert {row[0] for row in rows} == set(wheel.namelist())
    for path, digest, size in rows:
        if path.endswith("/RECORD"):
            continue
        content = wheel.read(path)
        assert urlsafe_b64decode(digest.removeprefix("sha256=") + "=") == hashlib.sha256(content).digest()
        assert int(size) == len(content)
    assert wheel.read(f"{info}/METADATA").startswith(b"Metadata-Version: 2.1\nName: ")


def test_name() -> None:
    assert name_wheel(archive_of("gast")[0]) == "gast-0.2.2-py3-none-any.whl"


def test_another_archive_is_refused() -> None:
    archive, data = archive_of("gast")
    with pytest.raises(VerificationError, match=r"gast-0\.2\.2\.tar\.gz: sha256"):
        build_wheel(archive, data + b" ")
    other = replace(archive, name="clang")
    with pytest.raises(VerificationError, match="contains no package clang"):
        build_wheel(other, data)


def test_an_archive_without_metadata_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FILES["gast"], "PKG-INFO")
    with pytest.raises(VerificationError, match="contains no package gast"):
        build_wheel(*archive_of("gast"))
