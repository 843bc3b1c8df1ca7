"""Building source archives with uv: no secret within reach, an end, and a clear word when it fails."""

from __future__ import annotations

import ast
import io
import os
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.resolve.wheels.archives import source_archive, source_files
from tests.servers.simple_index import SimpleIndex, serving, tiny_wheel
from training_imgtool.base.errors import CredentialsError, TemporaryError
from training_imgtool.resolve.wheels.sources.build import SourceBuildError, build_wheel
from training_imgtool.resolve.wheels.uv import Indexes

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
NOWHERE = Indexes((), ())


def build(
    folder: Path, data: bytes, *, name: str = "pure-1.0.tar.gz", indexes: Indexes = NOWHERE, **options: Any
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    (folder / "out").mkdir(exist_ok=True)
    environ = {**os.environ, "UV_CACHE_DIR": str(folder / "uv"), "UV_HTTP_RETRIES": "0", **options.pop("environ", {})}
    return build_wheel(folder / name, PYTHON, folder / "out", indexes=indexes, environ=environ, **options)


def content(wheel: Path, name: str = "pure.py") -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode()


def test_a_build_sees_no_secret_in_its_variables(tmp_path: Path) -> None:
    """Neither the machine's own, nor those that uv has for its indexes and proxies."""
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "UV_INDEX_URL": "http://robot:s3cret@127.0.0.1:9/",
        "UV_INDEX_TEAM_PASSWORD": "s3cret",
        "HTTPS_PROXY": "http://robot:s3cret@127.0.0.1:9",
    }
    body = "CONTENT = repr(sorted(os.environ.items()))"
    indexes = Indexes(("http://robot:s3cret@127.0.0.1:9/simple",), ())
    wheel = build(tmp_path, source_archive("pure", "1.0", body=body), indexes=indexes, environ=secrets)
    seen = dict(ast.literal_eval(content(wheel)))
    assert "s3cret" not in str(seen)
    assert seen["HOME"] == os.environ["HOME"]
    assert seen["CC"] == "/bin/false"


def test_build_requirements_come_from_the_indexes_with_their_logins(tmp_path: Path) -> None:
    index = SimpleIndex(login=("robot", "s3/cret"))
    index.add("helper", "helper-1.0-py3-none-any.whl", tiny_wheel("helper", "1.0"))
    archive = source_archive("pure", "1.0", body="import helper", needs=("helper",))
    with serving(index):
        named = {
            "UV_INDEX": f"team={index.url}",
            "UV_INDEX_TEAM_USERNAME": "robot",
            "UV_INDEX_TEAM_PASSWORD": "s3/cret",
        }
        indexes = Indexes((index.url,), ())
        assert build(tmp_path / "a", archive, indexes=indexes, environ=named).name == "pure-1.0-py3-none-any.whl"
        with pytest.raises(CredentialsError):
            build(tmp_path / "b", archive, indexes=indexes)
        lacks = source_archive("pure", "1.0", needs=("nothing-of-that-name",))
        with pytest.raises(SourceBuildError, match="no wheels for its build requirements"):
            build(tmp_path / "c", lacks, indexes=indexes, environ=named)
    with pytest.raises(TemporaryError):
        build(tmp_path / "d", archive, indexes=indexes, environ=named)


def test_build_requirements_come_from_any_index_where_the_user_says_so(tmp_path: Path) -> None:
    indexes = SimpleIndex(), SimpleIndex()
    for index, version in zip(indexes, ("1.0", "2.0"), strict=True):
        index.add("helper", f"helper-{version}-py3-none-any.whl", tiny_wheel("helper", version))
    archive = source_archive("pure", "1.0", needs=("helper>=2",))
    with serving(indexes[0]), serving(indexes[1]):
        both = Indexes(tuple(index.url for index in indexes), ())
        with pytest.raises(SourceBuildError):
            build(tmp_path / "a", archive, indexes=both)
        any_index = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
        assert build(tmp_path / "b", archive, indexes=both, environ=any_index).is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tag": "cp311-cp311-linux_x86_64"}, "it needs a compiler: its wheel works only on machines like this one"),
        ({"body": "raise SystemExit(\"error: command '/bin/false' failed with exit code 1\")"}, "it needs a compiler"),
        ({"body": "raise ValueError('no such thing')"}, "its build fails: ValueError: no such thing"),
        ({"body": "os._exit(3)"}, "its build fails: "),
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


def test_code_in_another_language_beside_a_pure_package_does_not_matter(tmp_path: Path) -> None:
    files = ("native/CMakeLists.txt", "bench/Cargo.toml", "pure/fast.pyx")
    assert build(tmp_path, source_archive("pure", "1.0", files=files)).name == "pure-1.0-py3-none-any.whl"


def test_an_archive_of_an_older_setuptools_is_built_with_one(tmp_path: Path) -> None:
    index = SimpleIndex()
    for version, body in (("70.0", "raise ValueError('no use_2to3')"), ("57.0", "pass")):
        data = io.BytesIO(tiny_wheel("setuptools", version, module="setuptools/__init__"))
        backend = source_files("pure", "1.0", body=body)["backend.py"]
        with zipfile.ZipFile(data, "a") as wheel:
            wheel.writestr("setuptools/build_meta.py", f"{backend}\nimport sys\n__legacy__ = sys.modules[__name__]\n")
        index.add("setuptools", f"setuptools-{version}-py3-none-any.whl", data.getvalue())
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("pure-1.0/setup.py", "")
    with serving(index):
        indexes = Indexes((index.url,), ())
        built = build(tmp_path, archive.getvalue(), name="pure-1.0.zip", indexes=indexes)
    assert built.name == "pure-1.0-py3-none-any.whl"


def test_backends_that_read_tags_get_the_version_that_is_given(tmp_path: Path) -> None:
    body = "global VERSION; VERSION = os.environ['SETUPTOOLS_SCM_PRETEND_VERSION']"
    for path, text in source_files("pure", "1.0", body=body).items():
        (tmp_path / path).write_text(text)
    environ = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "uv")}
    wheel = build_wheel(tmp_path, PYTHON, tmp_path / "out", indexes=NOWHERE, environ=environ, version="2.1")
    assert wheel.name == "pure-2.1-py3-none-any.whl"


def test_a_build_without_an_end_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_imgtool.resolve.wheels.sources.build._SECONDS", 3)
    script = f"import time, pathlib; time.sleep(6); pathlib.Path({str(tmp_path / 'late')!r}).touch()"
    body = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {script!r}]); time.sleep(60)"
    start = time.monotonic()
    with pytest.raises(SourceBuildError, match="takes more than 3 seconds"):
        build(tmp_path, source_archive("pure", "1.0", body=body))
    assert time.monotonic() - start < 30
    time.sleep(6)
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(SourceBuildError, match="its build fails"):
        build(tmp_path, data)
