"""Which imports load an extension module whose libraries nothing brings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.oci.direct.wheels import as_wheel, make_wheel
from tests.resolve.wheels.libraries import make_library
from training_imgtool.base.context.python_source import Import, Module, read_module
from training_imgtool.base.settings import Settings
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.wheels.libraries import WheelLibraries, choose_package, name_packages
from training_imgtool.resolve.wheels.store import WheelStore

GL = "libGL.so.1"
VIEW = {"view/__init__.py": b"", "view/_gl.abi3.so": make_library(needed=[GL, "libc.so.6"])}


def _open(folder: Path, wheels: Mapping[str, Mapping[str, bytes]]) -> WheelLibraries:
    settings = Settings(cache=folder / "cache", mirrors={}, docker_config=folder, proxies={}, environ={})
    store = WheelStore(settings)
    locked: list[Wheel] = []
    for name, files in wheels.items():
        path = make_wheel(folder, name, files)
        with path.open("rb") as stream:
            locked.append(store.put(path.name, stream))
    return WheelLibraries(locked, store, settings.cache, frozenset())


@pytest.mark.parametrize(
    ("code", "reached"),
    [
        (b"from . import _gl\n", True),
        (b"from view import _gl\n", False),  # the text binds the name; who knows to what
        (b"from ._gl import draw\n", True),
        (b"from . import inner\n", True),
        (b"from .inner import draw\n", True),
        (b"try:\n    from . import _gl\nexcept ImportError:\n    _gl = None\n", False),
        (b"def late():\n    from . import _gl\n", False),
        (b"import sys\nif sys.platform == 'linux':\n    from . import _gl\n", False),
        (b"_gl = None\nfrom view import _gl\n", False),
        (b"def __getattr__(name):\n    return 1\nfrom view import _gl\n", False),
    ],
)
def test_what_an_import_loads(tmp_path: Path, code: bytes, reached: bool) -> None:
    inner = {"view/inner/__init__.py": b"from .deep import draw\n", "view/inner/deep.py": b"from .. import _gl\n"}
    if b"view import" in code or b"from . import _gl" in code:
        inner = {}
    files = {**VIEW, **inner, "view/__init__.py": code, "other/__init__.py": b""}
    with _open(tmp_path, {"view": files}) as libraries:
        missing = libraries.find_missing(frozenset())
        assert missing == {"view/_gl.abi3.so": frozenset({GL})}
        found = libraries.reach(Import(1, "view"), missing)
    assert [(row.soname, row.module) for row in found] == ([(GL, "view")] if reached else [])


def test_what_the_program_takes_from_a_package(tmp_path: Path) -> None:
    with _open(tmp_path, {"view": VIEW, "user": {"user/__init__.py": b"import view._gl\n"}}) as libraries:
        missing = libraries.find_missing(frozenset())
        for item in (Import(1, "view._gl"), Import(1, "view", names=("_gl",)), Import(1, "user.more")):
            assert [row.module for row in libraries.reach(item, missing)] == ["view"], item
        for item in (Import(1, "view"), Import(1, "view", names=("other",)), Import(1, "numpy"), Import(1, "viewer")):
            assert libraries.reach(item, missing) == (), item


def test_what_the_program_takes_from_a_folder_without_init(tmp_path: Path) -> None:
    with _open(tmp_path, {"view": {"view/_gl.abi3.so": VIEW["view/_gl.abi3.so"]}}) as libraries:
        found = libraries.reach(Import(1, "view", names=("_gl",)), libraries.find_missing(frozenset()))
    assert [row.soname for row in found] == [GL]


def test_what_other_wheels_the_image_and_glibc_bring(tmp_path: Path) -> None:
    inner = {"gl/libGL-1.so.1": make_library(GL, ["libX11.so.6"])}
    wheels = {"view": VIEW, "gl": inner}
    with _open(tmp_path, wheels) as libraries:
        through = frozenset({"libX11.so.6"})
        assert libraries.find_missing(frozenset()) == {"view/_gl.abi3.so": through, "gl/libGL-1.so.1": through}
        assert libraries.find_missing(through) == {}
    (tmp_path / "plain").mkdir()
    usual = ["ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libcuda.so.1", "libz.so.1"]
    with _open(tmp_path / "plain", {"view": {"view.so": make_library(needed=usual)}}) as libraries:
        assert libraries.find_missing(frozenset()) == {}


def test_libraries_that_need_each_other(tmp_path: Path) -> None:
    files = {
        "a.libs/liba.so": make_library("liba.so", ["libb.so", GL]),
        "b/libb.so": make_library("libb.so", ["liba.so"]),
    }
    with _open(tmp_path, {"a": files}) as libraries:
        assert libraries.find_missing(frozenset()) == dict.fromkeys(files, frozenset({GL}))


def test_modules_that_open_their_library_by_its_path(tmp_path: Path) -> None:
    files = {"cv2/__init__.py": b"def bootstrap(): ...\n", "cv2/cv2.abi3.so": make_library(needed=[GL])}
    with _open(tmp_path, {"opencv": files}) as libraries:
        missing = libraries.find_missing(frozenset())
        assert [row.soname for row in libraries.reach(Import(1, "cv2"), missing)] == [GL]


def test_what_was_read_is_remembered_and_a_wheel_that_is_not_here_is_unknown(tmp_path: Path) -> None:
    with _open(tmp_path, {"view": VIEW}) as libraries:
        assert libraries.find_missing(frozenset())
    assert libraries.is_complete
    path = make_wheel(tmp_path, "view", VIEW)
    settings = Settings(cache=tmp_path / "cache", mirrors={}, docker_config=tmp_path, proxies={}, environ={})
    for wheel in (tmp_path / "cache/wheels").rglob("*.whl"):
        wheel.write_bytes(bytes(wheel.stat().st_size))  # only what is remembered tells
    store = WheelStore(settings)
    with WheelLibraries([as_wheel(path)], store, settings.cache, frozenset()) as again:
        assert again.find_missing(frozenset()) == {"view/_gl.abi3.so": frozenset({GL})}
    for folder, complete in ((tmp_path / "empty", False), (settings.cache, False)):
        with WheelLibraries([as_wheel(path)], store, folder, frozenset()) as damaged:
            assert damaged.find_missing(frozenset()) == {} or folder == settings.cache
            assert damaged.is_complete is complete or folder == settings.cache
    known = frozenset({as_wheel(path).sha256})
    with WheelLibraries([as_wheel(path)], store, tmp_path / "empty", known) as trusted:
        assert (trusted.find_missing(frozenset()), trusted.is_complete) == ({}, True)


@pytest.mark.parametrize(
    ("distribution", "version", "name"),
    [
        ("debian", "12", "libglib2.0-0"),
        ("debian", "13", "libglib2.0-0t64"),
        ("debian", "", "libglib2.0-0t64"),
        ("ubuntu", "22.04", "libglib2.0-0"),
        ("ubuntu", "24.04", "libglib2.0-0t64"),
        ("alpine", "3", "libglib2.0-0"),
    ],
)
def test_a_package_has_the_name_of_the_release(distribution: str, version: str, name: str) -> None:
    assert choose_package("libgthread-2.0.so.0", distribution, version) == name
    assert name in name_packages("libgthread-2.0.so.0")
    assert choose_package(GL, distribution, version) == "libgl1"
    assert choose_package("libnobodyknows.so.1", distribution, version) is None


def test_a_library_that_cannot_be_read_has_its_name(tmp_path: Path) -> None:
    files = {"view/_gl.so": make_library(needed=["_internal.so"]), "view/_internal.so": b"\x7fELF, and no more"}
    with _open(tmp_path, {"view": files}) as libraries:
        assert libraries.find_missing(frozenset()) == {}


def test_a_wheel_that_is_not_read_may_bring_what_no_package_has(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "view", {"view/_gl.so": make_library(needed=[GL, "libframework.so.2"])})
    settings = Settings(cache=tmp_path / "cache", mirrors={}, docker_config=tmp_path, proxies={}, environ={})
    store = WheelStore(settings)
    with wheel.open("rb") as stream:
        locked = store.put(wheel.name, stream)
    framework = as_wheel(make_wheel(tmp_path, "framework", {"libframework.so.2": make_library()}))
    for known in (frozenset({framework.sha256}), frozenset[str]()):  # the store does not have it
        with WheelLibraries([locked, framework], store, settings.cache, known) as libraries:
            assert libraries.find_missing(frozenset()) == {"view/_gl.so": frozenset({GL})}


def test_modules_are_parsed_once_for_all_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**VIEW, "view/__init__.py": b"from . import _gl\n"}
    for parsed in (1, 0):
        with _open(tmp_path, {"view": files}) as libraries:
            missing = libraries.find_missing(frozenset())
            seen: list[bytes] = []

            def read(data: bytes, seen: list[bytes] = seen) -> Module:
                seen.append(data)
                return read_module(data)

            monkeypatch.setattr("training_imgtool.resolve.wheels.libraries.read_module", read)
            assert [row.soname for row in libraries.reach(Import(1, "view"), missing)] == [GL]
            assert len(seen) == parsed
    with _open(tmp_path, {"view": {**files, "view/__init__.py": b""}}) as changed:
        assert changed.reach(Import(1, "view"), changed.find_missing(frozenset())) == ()
