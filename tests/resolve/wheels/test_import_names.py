"""What a lock's wheels provide: read from the cache, else from the end of the file on an index."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.simple_index import SimpleIndex, serving
from training_imgtool.base.settings import Settings
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.wheels.import_names import ImportNames, find_root_modules
from training_imgtool.resolve.wheels.index.index import Index
from training_imgtool.resolve.wheels.store import WheelStore
from training_imgtool.resolve.wheels.uv import Indexes

STORAGE = (
    "google/cloud/storage/__init__.py",
    "google/cloud/storage/client.py",
    "google_cloud_storage-1.dist-info/METADATA",
)
FILES = {
    "storage-lib": STORAGE,
    "odd-name": ("_core.cpython-311-x86_64-linux-gnu.so", "other/__init__.py", "other/deep/x.py", "data/readme.txt"),
    "platform-part": ("platform_part-1.data/platlib/fast/__init__.py", "platform_part-1.data/scripts/tool.py"),
}


@pytest.fixture
def index() -> Iterator[SimpleIndex]:
    with serving(SimpleIndex()) as running:
        yield running


def _wheel(index: SimpleIndex, name: str, members: tuple[str, ...], padding: int = 400_000) -> Wheel:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("padding.txt", bytes(padding))
        for member in members:
            archive.writestr(member, "")
    file = f"{name.replace('-', '_')}-1-py3-none-any.whl"
    data = stream.getvalue()
    return Wheel(name=name, version="1", file=file, sha256=index.add(name, file, data), size=len(data))


def _names(index: SimpleIndex, folder: Path, wheels: tuple[Wheel, ...]) -> ImportNames:
    settings = Settings(cache=folder, mirrors={}, docker_config=folder, proxies={}, environ={})
    remote = Index(lambda: Indexes((index.url,), ()), environ={}, proxies={}, pause=lambda _: None)
    return ImportNames(wheels, WheelStore(settings, index=remote), folder, "3.11")


def test_wheels_that_are_not_on_this_machine(index: SimpleIndex, tmp_path: Path) -> None:
    wheels = tuple(_wheel(index, name, members) for name, members in FILES.items())
    names = _names(index, tmp_path, wheels)
    for module in ("google", "google.cloud", "google.cloud.storage.client", "_core", "other.deep.x", "fast", "json"):
        assert names.provides(module), module
    for module in ("google.cloud.bigquery", "google.auth", "tool", "data", "othe", "storage_lib"):
        assert names.provides(module) is (module == "storage_lib"), module
    assert len(index.ranges_asked) == len(wheels), "the end of each file, and nothing else"
    index.ranges_asked.clear()
    assert _names(index, tmp_path, wheels).provides("google.cloud.bigquery") is False
    assert not index.ranges_asked


@pytest.mark.parametrize("fault", ["gone", "no ranges", "damaged", "adds paths"])
def test_what_cannot_be_read_is_unknown(fault: str, index: SimpleIndex, tmp_path: Path) -> None:
    wheel = _wheel(index, "x", ("a.py", *(["paths.pth"] if fault == "adds paths" else [])))
    if fault == "gone":
        index.files.clear()
    index.ranges = fault != "no ranges"
    if fault == "damaged":
        index.served[wheel.file] = bytes(wheel.size)
    assert _names(index, tmp_path, (wheel,)).provides("other") is None


def test_modules_of_namespaces() -> None:
    members = ["a/b/__init__.py", "a/b/c.py", "a/d.py", "e.py", "f/g/h.abi3.so", "x-1.dist-info/RECORD", "y/"]
    assert sorted(set(find_root_modules(members))) == ["a.b", "a.d", "e", "f.g.h"]
