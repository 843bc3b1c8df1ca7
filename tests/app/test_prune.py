"""What `prune` takes from a cache, and what it leaves."""

from __future__ import annotations

import io
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from training_imgtool.app.prune import Freed, bound_cache, prune_cache
from training_imgtool.base.atomic_files import create_temporary_file
from training_imgtool.base.errors import LocalFileError, UsageError
from training_imgtool.base.json_cache import make_file_name, write_cached
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.model.lock import Wheel
from training_imgtool.oci.layers.layer_cache import LayerCache, LayerRecord, Record
from training_imgtool.oci.registry.manifests import OCI_LAYER_GZIP, Descriptor
from training_imgtool.resolve.wheels.store import WheelStore

DAY = 86_400
KEY = "c" * 64


@dataclass
class Cache:
    """A cache that imgtool itself filled, and when."""

    folder: Path
    wheels: WheelStore
    layers: LayerCache

    def wheel(self, name: str, size: int) -> Wheel:
        content = io.BytesIO(name.encode() * (size // len(name)))
        return self.wheels.put(f"{name}-1.0-py3-none-any.whl", content)

    def grow_old(self, days: float) -> None:
        """As if nothing had been touched for so long."""
        then = time.time() - days * DAY
        for path in self.folder.rglob("*"):
            if path.is_file():
                os.utime(path, (then, then))

    def prune(self, days: float = 30, *, dry_run: bool = False) -> dict[str, Freed]:
        found = prune_cache(self.folder, time.time() - days * DAY, dry_run=dry_run)
        return {one.kind: one for one in found}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    folder = tmp_path / "cache"
    settings = Settings(cache=folder, mirrors={}, docker_config=tmp_path, proxies={}, environ={})
    return Cache(folder, WheelStore(settings), LayerCache(folder / "layers"))


def _blob(cache: Cache, data: bytes) -> Descriptor:
    digest, size = cache.layers.keep_blob([data])
    return Descriptor(OCI_LAYER_GZIP, digest, size)


def test_what_is_old_goes_and_what_is_used_stays(cache: Cache) -> None:
    old, used, fresh = cache.wheel("old", 3000), cache.wheel("used", 4000), None
    old_blob, used_blob = _blob(cache, b"old"), _blob(cache, b"used")
    record = Record((LayerRecord(name="x", blob=old_blob, diff_id=old_blob.digest),))
    cache.layers.keep(KEY, record)
    cache.layers.keep("d" * 64, record)
    cache.grow_old(40)
    fresh = cache.wheel("fresh", 5000)
    assert cache.wheels.path(used)
    assert cache.layers.has_blob(used_blob)
    assert cache.layers.find(KEY)
    freed = cache.prune()
    assert freed["wheels"] == Freed(kind="wheels", count=3, size=12000, freed=1, freed_size=3000)
    assert (freed["layers"].count, freed["layers"].freed) == (4, 2)
    assert [cache.wheels.path(wheel) is not None for wheel in (old, used, fresh)] == [False, True, True]
    assert cache.layers.has_blob(used_blob)
    assert not cache.layers.has_blob(old_blob)
    assert cache.layers.find(KEY)
    assert not cache.layers.find("d" * 64)
    assert not list(cache.folder.rglob(f"{old.sha256}*"))


def test_a_dry_run_only_looks(cache: Cache) -> None:
    wheel = cache.wheel("old", 3000)
    cache.grow_old(31)
    assert cache.prune(dry_run=True)["wheels"].freed_size == 3000
    assert cache.wheels.path(wheel)
    assert cache.prune()["wheels"].freed == 0  # looking at it was a use


def test_using_a_file_keeps_its_own_time(cache: Cache) -> None:
    """The time of its content is what exports and backups go by."""
    wheel = cache.wheel("old", 3000)
    cache.grow_old(40)
    path = next(cache.folder.rglob("*.whl"))
    before = path.stat()
    cache.wheels.path(wheel)
    after = path.stat()
    assert after.st_mtime_ns == before.st_mtime_ns
    assert time.time() - after.st_atime < 60
    os.utime(path, (time.time() - 3600, after.st_mtime))
    noted = path.stat().st_atime_ns
    cache.wheels.path(wheel)
    assert path.stat().st_atime_ns == noted  # once a day is enough


def test_what_others_keep_in_the_same_folder_stays(cache: Cache) -> None:
    """IMGTOOL_CACHE may name a folder with other things in it."""
    cache.wheel("old", 3000)
    others = (
        "wheels/README",
        "wheels/ab/notes.txt",
        f"wheels/ab/{'x' * 64}/a.whl",
        "layers/data",
        "thesis.doc",
        "specs/a",
    )
    for name in others:
        path = cache.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    elsewhere = cache.folder.parent / "elsewhere.whl"
    elsewhere.write_text("mine")
    link = cache.folder / "wheels/ab" / ("a" * 64) / "linked.whl"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    cache.grow_old(999)
    cache.prune(0)
    assert not list(cache.folder.rglob("old-*.whl"))
    assert all((cache.folder / name).exists() for name in others)
    assert link.is_symlink()
    assert elsewhere.exists()


def test_notes_and_what_killed_runs_left(cache: Cache) -> None:
    notes = [cache.folder / kind / make_file_name("registry.example.com/team/x") for kind in ("bases", "stages")]
    for path in notes:
        write_cached(path, {"a": 1})
    (cache.folder / "layers/layers/ab").mkdir(parents=True)
    left, handle = create_temporary_file(cache.folder / "layers/layers/ab")
    os.close(handle)
    cache.grow_old(40)
    freed = cache.prune()
    assert (freed["notes"].count, freed["notes"].freed) == (2, 2)
    assert not [path for path in (left, *notes) if path.exists()]


def test_a_download_that_is_under_way_stays(cache: Cache) -> None:
    part = cache.folder / "wheels/ab" / f"ab{'0' * 62}" / "part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"half")
    everything = -1.0  # days: what is as young as can be goes too
    assert cache.prune(everything)["wheels"].freed == 0
    cache.grow_old(40)
    assert cache.prune()["wheels"].freed == 1
    assert not part.parent.exists()


def test_a_file_that_is_also_elsewhere_frees_nothing(cache: Cache) -> None:
    """`render -o` links wheels into the contexts that it writes."""
    cache.wheel("old", 3000)
    path = next(cache.folder.rglob("*.whl"))
    (cache.folder.parent / "export.whl").hardlink_to(path)
    cache.grow_old(40)
    freed = cache.prune()["wheels"]
    assert (freed.freed, freed.freed_size) == (1, 0)
    assert (cache.folder.parent / "export.whl").stat().st_size == 3000


def test_what_may_not_be_removed_is_said_after_the_rest_is_gone(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = [cache.wheel(name, 3000) for name in ("one", "two", "six")]
    cache.grow_old(40)
    kept = next(cache.folder.rglob("two-*.whl"))
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == kept:
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(LocalFileError, match=r"cannot delete .*two-1\.0-py3-none-any\.whl: Permission denied"):
        cache.prune()
    assert sum((cache.folder / "wheels" / wheel.sha256[:2] / wheel.sha256).exists() for wheel in wheels) == 1


def test_no_cache_at_all(tmp_path: Path) -> None:
    found = prune_cache(tmp_path / "nothing", time.time())
    assert [(one.kind, one.count) for one in found] == [("wheels", 0), ("layers", 0), ("notes", 0)]


def test_the_cache_as_a_whole_has_a_bound(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    old, used = (cache.wheels.require(cache.wheel(name, 3000)) for name in ("old", "used"))
    blob = cache.layers.blob_path(_blob(cache, bytes(3000)).digest)
    cache.grow_old(2)
    os.utime(used)
    monkeypatch.setattr("training_imgtool.app.prune._BETWEEN", 0)
    with bound_cache(cache.folder, 10_000):
        pass
    with bound_cache(cache.folder, 5000):
        with bound_cache(cache.folder, 1):  # this run leaves the files of the other one
            pass
        assert [path.exists() for path in (old, blob, used)] == [True, True, True]
    assert [path.exists() for path in (old, blob, used)] == [False, False, True]


def test_a_size_that_is_none(tmp_path: Path) -> None:
    assert from_environment({"HOME": str(tmp_path), "IMGTOOL_CACHE_SIZE": "500M"}).cache_size == 500_000_000
    with pytest.raises(UsageError, match="not a size"):
        from_environment({"HOME": str(tmp_path), "IMGTOOL_CACHE_SIZE": "much"})
