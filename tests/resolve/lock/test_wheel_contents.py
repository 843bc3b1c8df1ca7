"""What a lock takes from the wheels themselves: their files, their libraries and their metadata."""

from __future__ import annotations

import io
import threading
import zipfile
from dataclasses import replace
from typing import Any

import pytest

from tests.resolve.lock.place import SPEC, Events, Place, add
from tests.resolve.wheels.libraries import make_library
from tests.servers.simple_index import SimpleIndex, tiny_wheel
from training_imgtool.base.errors import FieldError, InputError
from training_imgtool.base.progress import Note
from training_imgtool.resolve.lock.lockfile import dump_lock
from training_imgtool.resolve.lock.parse import parse_lock
from training_imgtool.resolve.wheels.store import WheelStore
from training_imgtool.resolve.wheels.uv import UnreadableMetadataError, compile_requirements

WHEELS_SPEC = """\
name: mnist
tensorflow: "2.15.1"
python: "3.11"
cuda_from: wheels
roles:
  master: {gpus: {type: NVIDIA_TESLA_V100}}
  ps: {}
"""


def _add_files(index: SimpleIndex, name: str, version: str, files: dict[str, bytes]) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    stream = io.BytesIO(tiny_wheel(name.replace("-", "_"), version))
    with zipfile.ZipFile(stream, "a") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    index.add(name, f"{stem}-py3-none-any.whl", stream.getvalue())


@pytest.mark.parametrize(
    ("trim", "requirements", "unused"),
    [
        ("", "nvidia-nccl-cu12\nlibclang\n", ["clang", "nvidia/nccl/lib/libnccl.so.2"]),
        ("", "nvidia-nccl-cu12\nlibclang\nneeds-nccl\n", ["clang"]),
        ("trim: true\n", "libclang\n", ["clang"]),
        ("trim: false\n", "nvidia-nccl-cu12\nlibclang\n", []),
    ],
)
def test_the_lock_names_what_nothing_opens(place: Place, trim: str, requirements: str, unused: list[str]) -> None:
    _add_files(place.index, "nvidia-nccl-cu12", "2.16.5", {"nvidia/nccl/lib/libnccl.so.2": b"\x7fELF libnccl.so.2"})
    _add_files(place.index, "libclang", "18.1.1", {"clang/native/libclang.so": b"\x7fELF", "clang/cindex.py": b"x = 1"})
    _add_files(place.index, "needs-nccl", "1.0", {"needs_nccl_core.so": b"\x7fELF NEEDED libnccl.so.2"})
    spec_file = place.spec(WHEELS_SPEC + trim, requirements)
    lock = place.lock(spec_file)
    assert {row.variant.name: [path.path for path in row.unused] for row in lock.variants} == {
        "gpu": unused,
        "cpu": unused,
    }
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock
    assert place.lock(spec_file) == lock  # the second time out of the machine's memory


@pytest.mark.parametrize(
    ("trim", "view", "needed"),
    [
        ("", make_library(needed=["libc.so.6", "libGL.so.1", "libown.so"]), ("libGL.so.1",)),
        ("", make_library(needed=["libm.so.6"]), ()),
        ("trim: false\n", make_library(needed=["libGL.so.1"]), None),
    ],
)
def test_the_lock_names_the_libraries_that_no_wheel_brings(
    place: Place, trim: str, view: bytes, needed: tuple[str, ...] | None
) -> None:
    _add_files(place.index, "view", "1.0", {"view_core.so": view})
    _add_files(place.index, "own", "1.0", {"own.libs/libown.so": make_library("libown.so")})
    lock = place.lock(place.spec(WHEELS_SPEC + trim, "view\nown\n"))
    assert [row.needed_libraries for row in lock.variants] == [needed, needed]
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock


def test_an_index_that_says_less_than_its_wheels_is_found_out(place: Place) -> None:
    add(place.index, "scipy", "1.11.9", ("numpy<1.26",))
    place.index.metadata["scipy-1.11.9-py3-none-any.whl"] = b"Metadata-Version: 2.1\nName: scipy\nVersion: 1.11.9\n"
    with pytest.raises(InputError, match=r"scipy 1\.11\.9 requires numpy<1\.26, but 1\.26\.4 is there"):
        place.lock(place.spec(SPEC, "scipy\n"))


def test_releases_for_older_pythons_are_passed_over(place: Place) -> None:
    for version, python in (("1.0", ""), ("1.1", ">=3.6,<3.8"), ("1.2", ">=3.6,<3.9")):
        add(place.index, "typed", version, python=python)
    locked = place.lock(place.spec(SPEC, "typed\n")).variants[0]
    assert [wheel.version for wheel in locked.wheels if wheel.name == "typed"] == ["1.0"]
    with pytest.raises(InputError, match=r"typed 1\.1 requires Python >=3\.6,<3\.8"):
        place.lock(place.spec(SPEC, "typed>1\n"))
    with pytest.raises(InputError, match=r"typed 1\.2 requires Python >=3\.6,<3\.9"):
        place.lock(place.spec(SPEC, "typed==1.2\n"))


def test_a_limit_of_old_that_uv_does_not_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, is_told = threading.Lock(), threading.Event()

    def compile_in_order(*args: Any, **kwargs: Any) -> Any:
        """Lets the second variant fail only when the first has learned what uv cannot read."""
        if kwargs["metadata"]:
            is_told.set()
        try:
            return compile_requirements(*args, **kwargs)
        except UnreadableMetadataError:
            assert failed.acquire(blocking=False) or is_told.wait(30)
            raise

    monkeypatch.setattr("training_imgtool.resolve.lock.update.compile_requirements", compile_in_order)
    requires = ("numpy (>=2011k)", "scipy (>=1.0.dev) ; python_version > '3'")
    add(place.index, "older", "0.24.2", requires)
    for locked in place.lock(place.spec(SPEC, "older==0.24.2\n")).variants:
        assert {"older", "numpy", "scipy"} <= {wheel.name for wheel in locked.wheels}


def test_a_yanked_release_is_said(place: Place) -> None:
    add(place.index, "scipy", "1.12.0")
    place.index.yanked["scipy-1.12.0-py3-none-any.whl"] = "deletes\x1b[31m files"
    events = Events()
    lock = place.lock(place.spec(SPEC, "scipy\n"), events)
    assert {wheel.version for wheel in lock.variants[0].wheels if wheel.name == "scipy"} == {"1.11.4"}
    assert not [event for event in events if isinstance(event, Note) and "yanked" in event.text]
    lock = place.lock(place.spec(SPEC, "scipy==1.12.0\n"), events)
    assert "cpu: scipy 1.12.0 was yanked: deletes files; imgtool lock --upgrade takes another if it can" in [
        event.text for event in events if isinstance(event, Note)
    ]
    (wheel,) = (wheel for wheel in lock.variants[0].wheels if wheel.name == "scipy")
    heard = Events()
    WheelStore(replace(place.settings, cache=place.folder / "another machine's")).fetch((wheel,), heard)
    (note,) = (event for event in heard if isinstance(event, Note))
    assert note.text.startswith("scipy-1.12.0-py3-none-any.whl was yanked: deletes")


def test_a_release_that_the_table_does_not_know(place: Place) -> None:
    for name in ("tensorflow", "tensorflow-cpu"):
        file = f"{name.replace('-', '_')}-9.9.0rc0-cp312-cp312-manylinux_2_27_x86_64.whl"
        needs = ("numpy<2", "big ; extra == 'and-cuda'")
        place.index.add(name, file, tiny_wheel(name.replace("-", "_"), "9.9.0rc0", requires=needs))
    add(place.index, "tensorboard", "2.21.0")
    text = SPEC.replace("2.15.1", "9.9.0rc0").replace("{gpus: {type: NVIDIA_TESLA_V100}}", "{}")
    events = Events()
    lock = place.lock(place.spec(text), events)
    (locked,) = lock.variants
    assert (locked.variant.python, locked.variant.package) == ("3.12", "tensorflow-cpu")
    assert {wheel.name: wheel.version for wheel in locked.wheels}["tensorflow-cpu"] == "9.9.0rc0"
    (note,) = (event.text for event in events if isinstance(event, Note) and "9.9.0rc0 is newer" in event.text)
    assert "nobody has tried" in note
    assert parse_lock(dump_lock(lock).encode(), "image.lock") == lock
    with pytest.raises(FieldError, match=r"neither imgtool's table of .* nor the package index has TensorFlow 9\.9\.0"):
        place.lock(place.spec(text.replace("rc0", "")))


def test_a_release_that_nobody_can_ask_about(place: Place) -> None:
    environ = {**place.settings.environ, "UV_INDEX_URL": "http://127.0.0.1:9/simple"}
    place.settings = replace(place.settings, environ=environ)
    with pytest.raises(FieldError, match=r"table of .* has no TensorFlow 2\.99\.0, and"):
        place.lock(place.spec(SPEC.replace("2.15.1", "2.99.0")))


def test_the_metadata_of_a_server_that_sends_no_parts(place: Place) -> None:
    place.index.ranges = False
    padded = tiny_wheel("scipy", "1.11.9", requires=("numpy<1.26",), padding=300_000)
    place.index.add("scipy", "scipy-1.11.9-py3-none-any.whl", padded)
    place.index.metadata["scipy-1.11.9-py3-none-any.whl"] = b"Metadata-Version: 2.1\nName: scipy\nVersion: 1.11.9\n"
    with pytest.raises(InputError, match=r"scipy 1\.11\.9 requires numpy<1\.26, but 1\.26\.4 is there"):
        place.lock(place.spec(SPEC, "scipy\n"))
