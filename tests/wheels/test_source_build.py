"""Building source archives: the same bytes everywhere, no reach outside, and a clear word when it cannot be done."""

from __future__ import annotations

import ast
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.wheels.archives import NEEDS_LANDLOCK, source_archive
from training_imgtool.wheels.sources.build import SourceBuildError, build_wheel, read_build_system

PYTHON = Path(sys.executable)
pytestmark = NEEDS_LANDLOCK


def build(folder: Path, data: bytes, name: str = "pure-1.0.tar.gz", version: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    (folder / "out").mkdir(exist_ok=True)
    return build_wheel(folder / name, PYTHON, lambda _: (), folder / "out", version=version)


def content(wheel: Path, name: str = "pure.py") -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode()


def test_the_same_bytes_in_another_folder_with_another_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = '("HOME", "TMPDIR", "PYTHONPATH")'
    body = f'CONTENT = repr([list(set("abcdef")), sorted(os.environ.keys() - set({places})), os.environ["TZ"]])'
    archive = source_archive("pure", "1.0", body=body)
    first = build(tmp_path / "a", archive)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("SECRET", "s3cret")
    before = os.umask(0o077)
    try:
        second = build(tmp_path / "b", archive)
    finally:
        os.umask(before)
    assert first.read_bytes() == second.read_bytes()
    assert "s3cret" not in content(first)
    with zipfile.ZipFile(first) as opened:
        kinds = {(member.date_time, member.compress_type) for member in opened.infolist()}
        assert kinds == {((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED)}
        assert [member.filename for member in opened.infolist()][-1] == "pure-1.0.dist-info/RECORD"
        assert "pure.py,sha256=" in opened.read("pure-1.0.dist-info/RECORD").decode()


PROBE = """
import socket, subprocess
found = {}
def attempt(name, action):
    try:
        found[name] = action()
    except OSError as error:
        found[name] = type(error).__name__
attempt("socket", socket.socket)
attempt("read", lambda: open(%(secret)r).read())
attempt("list", lambda: os.listdir(%(folder)r))
attempt("write", lambda: open(%(folder)r + "/new", "w"))
attempt("child", lambda: subprocess.run(["cat", %(secret)r], capture_output=True).returncode)
attempt("home", lambda: open(os.environ["HOME"] + "/own", "w").write("1"))
CONTENT = repr(found)
"""


def test_a_build_reaches_neither_the_network_nor_the_user_s_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    body = PROBE % {"secret": str(secret), "folder": str(tmp_path)}
    found = ast.literal_eval(content(build(tmp_path, source_archive("pure", "1.0", body=body))))
    assert found == {
        "socket": "PermissionError",
        "read": "PermissionError",
        "list": "PermissionError",
        "write": "PermissionError",
        "child": 1,
        "home": 1,
    }
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tag": "cp311-cp311-linux_x86_64"}, "it needs a compiler: its wheel is for this machine only"),
        ({"files": ("Cargo.toml",)}, "it needs a compiler, for Cargo.toml"),
        ({"files": ("pure/fast.pyx",)}, "it needs a compiler, for pure/fast.pyx"),
        ({"body": "raise SystemExit(\"error: command '/bin/false' failed with exit code 1\")"}, "it needs a compiler"),
        ({"body": "raise ValueError('no such thing')"}, "its build fails: ValueError: no such thing"),
        ({"body": "os._exit(3)"}, "its build fails: exit status 3"),
        (
            {"body": "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')"},
            "opens a network connection",
        ),
        (
            {"body": "raise LookupError('setuptools-scm was unable to detect version. Make sure')"},
            "comes from Git tags",
        ),
        ({"body": "raise LookupError('Make sure that a README is there')"}, "its build fails: LookupError: Make sure"),
    ],
)
def test_what_does_not_become_a_pure_wheel(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceBuildError, match=message):
        build(tmp_path, source_archive("pure", "1.0", **options))


def test_backends_that_read_tags_get_the_version_of_the_tag(tmp_path: Path) -> None:
    body = "global VERSION; VERSION = os.environ['SETUPTOOLS_SCM_PRETEND_VERSION']"
    assert build(tmp_path, source_archive("pure", "1.0", body=body), version="2.1").name == "pure-2.1-py3-none-any.whl"


def test_a_build_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_imgtool.wheels.sources.build._SECONDS", 1)
    with pytest.raises(SourceBuildError, match="takes more than 1 seconds"):
        build(tmp_path, source_archive("pure", "1.0", body="import time; time.sleep(60)"))


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(SourceBuildError, match="cannot be unpacked"):
        build(tmp_path, data)


def test_a_member_that_leaves_the_archive(tmp_path: Path) -> None:
    with pytest.raises(SourceBuildError, match="cannot be unpacked"):
        build(tmp_path, source_archive("pure", "1.0", files=("../../outside.py",)))
    assert not list(tmp_path.rglob("outside.py"))


def test_an_archive_without_a_build_system_gets_setuptools(tmp_path: Path) -> None:
    assert read_build_system(tmp_path).requires == ("setuptools<81", "wheel")
    head = "[build-system]\nrequires = ['flit_core']\nbuild-backend = 'flit_core.buildapi'\n"
    (tmp_path / "pyproject.toml").write_text(head)
    assert read_build_system(tmp_path).backend == "flit_core.buildapi"
    (tmp_path / "pyproject.toml").write_text(f"{head}backend-path = ['..']\n")
    with pytest.raises(SourceBuildError, match="leaves the archive"):
        read_build_system(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[build-system")
    with pytest.raises(SourceBuildError, match="cannot be read"):
        read_build_system(tmp_path)
