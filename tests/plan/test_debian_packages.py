"""The layer of locked packages: read from a base, fetched from an archive, equal everywhere, known by its record."""

from __future__ import annotations

import io
import tarfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.debian_layers.packages import archive, make_archive, make_package, needs_apt, needs_dpkg, offer, system
from tests.integration.push_world import BASE, BASE_TAG, wrap_layer
from tests.oci.registry.support import machine
from tests.plans import variant
from tests.servers.memory_registry import MemoryRegistry
from training_imgtool.base.errors import (
    FieldError,
    InputError,
    LocalFileError,
    NeedsEngineError,
    PackageGoneError,
    TemporaryError,
    VerificationError,
)
from training_imgtool.base.progress import silent
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.model.load import load
from training_imgtool.model.lock import DebianPackage, LockedDebian
from training_imgtool.oci.direct.debian_layer import OpenedLibraries
from training_imgtool.oci.direct.tree import find_node
from training_imgtool.oci.layers.codecs import Compression
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.registry.manifests import OCI_LAYER_GZIP, Descriptor, sha256_digest
from training_imgtool.plan.debian_layer import LayerMaker
from training_imgtool.plan.debian_packages import make_items, read_system, resolve_packages
from training_imgtool.plan.debian_stage import lock_debian
from training_imgtool.plan.debian_store import PackageStore

__all__ = ["archive"]  # a fixture
NOTHING = OpenedLibraries()


def settings(cache: Path) -> Settings:
    return from_environment({"IMGTOOL_CACHE": str(cache)})


def locked(tmp_path: Path, files: dict[str, str]) -> tuple[DebianPackage, Path]:
    package, path = make_package(tmp_path, "first", files)
    return DebianPackage(**asdict(package)), path


def store(cache: Path, *urls: str) -> PackageStore:
    return PackageStore(settings(cache), urls, silent, pause=lambda _: None)


def maker(cache: Path, package: DebianPackage, *urls: str, packing: str = "gzip") -> LayerMaker:
    sources = "".join(f"deb {url} x main\n" for url in urls)
    return LayerMaker(
        base_digest="sha256:" + "1" * 64,
        locked=LockedDebian(requested=("first",), packages=(package,)),
        platform="linux/amd64",
        read_system=lambda: system({"/etc/apt/sources.list": sources}),
        settings=settings(cache),
        progress=silent,
        cache=LayerCache(cache / "layers"),
        compression=Compression(packing),
    )


@needs_dpkg
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_two_machines_make_the_same_layer_and_remember_it(
    tmp_path: Path, archive: tuple[str, Path], packing: str
) -> None:
    url, folder = archive
    package, path = locked(tmp_path, {"/usr/bin/tool": "x", "/lib/link": "-> tool"})
    path.rename(folder / package.file)
    makers = [maker(tmp_path / name, package, f"{url}/missing", url, packing=packing) for name in ("one", "two")]
    made = [one.layer("RUN", NOTHING) for one in makers]
    assert made[0].descriptor == made[1].descriptor
    assert made[0].diff_id == made[1].diff_id
    assert len(b"".join(made[0].open())) == made[0].descriptor.size
    (folder / package.file).unlink()
    again = maker(tmp_path / "one", package, packing=packing)
    assert again.layer("RUN", NOTHING).descriptor == made[0].descriptor, "the record serves without the archive"
    assert find_node(again.tree(NOTHING), "/usr/bin/tool") is not None
    link = find_node(again.tree(NOTHING), "/usr/lib/link")
    assert link is not None
    assert link.target == "tool"
    other = maker(tmp_path / "three", package, url, packing=packing)
    with pytest.raises(PackageGoneError):
        other.layer("RUN", NOTHING)
    other.cache.given[makers[0]._hash_inputs(NOTHING)] = makers[0]._record(NOTHING)
    with pytest.raises(PackageGoneError):  # a record of the registry decides nothing
        other.layer("RUN", NOTHING)


@needs_dpkg
def test_a_package_that_is_gone_or_another_is_refused(tmp_path: Path, archive: tuple[str, Path]) -> None:
    url, folder = archive
    package, path = locked(tmp_path, {"/usr/bin/tool": "x"})
    with pytest.raises(PackageGoneError, match=r"no archive of the base has first 1\.0-1 any more") as caught:
        store(tmp_path / "cache", url).fetch((package,))
    assert "imgtool lock --upgrade-package first" in str(caught.value.hint)
    path.rename(folder / package.file)
    with pytest.raises(VerificationError, match="not the file that the lock names"):
        store(tmp_path / "cache", url).fetch((replace(package, sha256="0" * 64),))
    (held,) = store(tmp_path / "cache", url).fetch((package,))
    held.write_bytes(bytes(package.size))
    with pytest.raises(VerificationError, match="damaged, removed"):
        maker(tmp_path / "cache", package).layer("RUN", NOTHING)
    with pytest.raises(TemporaryError, match="nothing answers"):
        store(tmp_path / "other", "http://127.0.0.1:9").fetch((package,))


@needs_apt
def test_errors_of_the_package_are_imgtools_own(tmp_path: Path, archive: tuple[str, Path]) -> None:
    url, _ = archive
    package, path = locked(tmp_path, {"/usr/bin/tool": "x"})
    debian = LockedDebian(requested=("first",), packages=(package,))

    def make(file: Path) -> None:
        list(make_items(system(), debian, (file,), "linux/amd64", NOTHING))

    make(path)
    with pytest.raises(LocalFileError, match="missing: cannot be read"):
        make(tmp_path / "missing")
    path.write_bytes(b"no package")
    with pytest.raises(VerificationError, match="not a Debian package"):
        make(path)
    _, taken = make_package(tmp_path / "taken", "first", {"/opt/venv/x": ""})
    with pytest.raises(NeedsEngineError, match="a package has /opt/venv/x"):
        make(taken)
    with pytest.raises(NeedsEngineError, match="this machine has no apt-get"):
        resolve_packages(system(), ("first",), "linux/amd64", machine(tmp_path, PATH="/nowhere"))
    base = system({"/etc/apt/sources.list": f"deb [trusted=yes] {url} ./\n"})
    here = machine(tmp_path)
    with pytest.raises(TemporaryError, match="the base's package archives") as caught:
        resolve_packages(base, ("first",), "linux/amd64", here)
    assert "IMGTOOL_DEBIAN_MIRRORS" in str(caught.value.hint)
    (tmp_path / "archive/Packages").touch()
    with pytest.raises(InputError, match="Unable to locate package first"):
        resolve_packages(base, ("first",), "linux/amd64", here)


@needs_apt
def test_a_lock_names_the_packages_or_why_an_engine_installs_them(tmp_path: Path, archive: tuple[str, Path]) -> None:
    url, folder = archive
    package = offer(folder)
    base = wrap_layer(make_archive(system({"/etc/apt/sources.list": f"deb [trusted=yes] {url} ./\n"})), {})
    here = machine(tmp_path)
    (tmp_path / "train.py").touch()

    def lock(*requested: str, **changes: str) -> LockedDebian | None:
        (tmp_path / "image.yaml").write_text(
            f"name: m\ntensorflow: 2.15.1\nroles: {{master: {{}}}}\ntrainer: train.py\n"
            f"system_packages: [{', '.join(requested)}]\n"
        )
        spec = load(tmp_path / "image.yaml").spec
        chosen = variant(base=f"{server.host}/{BASE}:{BASE_TAG}", **changes)
        return lock_debian(chosen, base.digest, spec=spec, machine=opened)

    with MemoryRegistry() as server, Machine.open(here) as opened:
        base.put(server.host)
        assert lock() is None
        expected = LockedDebian(requested=("first",), packages=(DebianPackage(**asdict(package)),))
        assert lock("first") == expected
        with pytest.raises(FieldError, match="system_packages: apt: Unable to locate package second"):
            lock("second")
        by_engine = lock("first", python_from="deadsnakes")
        assert by_engine is not None
        assert by_engine.engine.startswith("Python comes from the deadsnakes archive")


def test_a_base_is_read_once_and_a_damaged_layer_is_named(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("var/lib/dpkg/status")
        info.size = 2000
        tar.addfile(info, io.BytesIO(b"x" * 2000))
        info.name, info.size, info.type, info.linkname = "etc/passwd", 0, tarfile.LNKTYPE, "var/lib/dpkg/status"
        tar.addfile(info)
    data = buffer.getvalue()
    layer, cut = (Descriptor(OCI_LAYER_GZIP, sha256_digest(part), len(part)) for part in (data, data[:1024]))
    first = read_system((layer,), lambda _: iter((data,)), settings(tmp_path))
    assert first.text("/var/lib/dpkg/status") == first.text("/etc/passwd") == "x" * 2000
    assert read_system((layer,), lambda _: iter(()), settings(tmp_path)) == first
    with pytest.raises(VerificationError, match=r"layer \w+ of the base: it ends in the middle of a file"):
        read_system((cut,), lambda _: iter((data[:1024],)), settings(tmp_path))
