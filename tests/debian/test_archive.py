"""Resolving with the machine's apt against an archive on loopback, which drops a version as Debian's archives do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.debian.packages import make_package, needs_dpkg, system
from tests.debian.test_layer import archive, maker, settings, store
from training_imgtool.core.errors import InputError, NeedsEngineError, PackageGoneError
from training_imgtool.debian.apt import resolve_packages
from training_imgtool.debian.base_system import BaseSystem
from training_imgtool.direct.debian_layer import OpenedLibraries
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.plan import DebianPackage

__all__ = ["archive"]  # a fixture
pytestmark = [needs_dpkg, pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed")]


def offer(tmp_path: Path, folder: Path, version: str) -> DebianPackage:
    """Has the archive offer one version of the package `first`, and no other."""
    shutil.rmtree(folder)
    folder.mkdir()
    place = tmp_path / version
    place.mkdir()
    package, path = make_package(place, "first", {"/usr/bin/tool": version}, version=version)
    path.rename(folder / path.name)
    (folder / "Packages").write_text(
        f"Package: first\nVersion: {version}\nArchitecture: amd64\nFilename: ./{path.name}\nSize: {package.size}\n"
        f"SHA256: {package.sha256}\nDescription: first\n\n"
    )
    return replace(package, file=f"./{path.name}")


def base(url: str) -> BaseSystem:
    return system({"/etc/apt/sources.list": f"deb [trusted=yes] {url} ./\n"})


def test_a_dropped_version_is_named_and_the_next_lock_has_the_new_one(
    tmp_path: Path, archive: tuple[str, Path]
) -> None:
    url, folder = archive
    old = offer(tmp_path, folder, "1.0-1")
    machine = settings(tmp_path / "cache")
    assert resolve_packages(base(url), ("first",), "amd64", machine).packages == (old,)
    new = offer(tmp_path, folder, "1.0-2")
    with pytest.raises(PackageGoneError, match=r"no archive of the base has first 1\.0-1 any more"):
        store(tmp_path / "cache", url).fetch((old,))
    assert resolve_packages(base(url), ("first",), "amd64", machine).packages == (new,)
    store(tmp_path / "cache", url).fetch((new,))
    with pytest.raises(InputError, match="second"):
        resolve_packages(base(url), ("second",), "amd64", machine)


def test_a_record_in_the_registry_serves_a_machine_that_no_archive_serves_any_more(
    tmp_path: Path, archive: tuple[str, Path]
) -> None:
    url, folder = archive
    old = offer(tmp_path, folder, "1.0-1")
    nothing = OpenedLibraries()
    first = replace(maker(tmp_path / "one", (old,), url), cache=LayerCache(tmp_path / "one"))
    made = first.layer("RUN", nothing)
    offer(tmp_path, folder, "1.0-2")
    second = replace(maker(tmp_path / "two", (old,), url), cache=LayerCache(tmp_path / "two"))
    second.cache.given |= first.cache.records_of([made.descriptor.digest])
    assert second.layer("RUN", nothing).descriptor == made.descriptor
    alone = maker(tmp_path / "three", (old,), url)
    with pytest.raises(PackageGoneError):
        alone.layer("RUN", nothing)


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ('APT::Install-Suggests "true";', "APT::Install-Suggests"),
        ('APT { Default-Release "sid"; };', "APT::Default-Release"),
        ('DPkg::Options { "--force-confnew"; };', "DPkg::Options"),
        ('DPkg::Post-Invoke { "touch /x"; };', "DPkg::Post-Invoke"),
        ('APT::Update::Post-Invoke { "rm -f /var/cache/apt/*.bin || true"; }; Dir::Cache::pkgcache "";', None),
        ('DPkg::Pre-Install-Pkgs {"/usr/sbin/dpkg-preconfigure --apt || true";}; Acquire::GzipIndexes "true";', None),
        (
            'Acquire::Check-Valid-Until "false"; APT::Install-Suggests "0"; APT::AutoRemove::SuggestsImportant "no";',
            None,
        ),
    ],
)
def test_a_base_whose_configuration_makes_apt_choose_otherwise_is_an_engines_work(
    tmp_path: Path, archive: tuple[str, Path], configuration: str, reason: str | None
) -> None:
    url, folder = archive
    package = offer(tmp_path, folder, "1.0-1")
    texts = {
        "/etc/apt/sources.list": f"deb [trusted=yes] {url} ./\n",
        "/etc/apt/apt.conf.d/99own": configuration,
        "/etc/apt/apt.conf.d/99own.old": 'APT::Default-Release "nothing";',  # apt does not read it
    }
    if reason is None:
        assert resolve_packages(system(texts), ("first",), "amd64", settings(tmp_path)).packages == (package,)
        return
    with pytest.raises(NeedsEngineError, match=rf"configuration of apt has {reason}$"):
        resolve_packages(system(texts), ("first",), "amd64", settings(tmp_path))


def test_a_name_that_stands_for_packages_is_an_engines_work(tmp_path: Path, archive: tuple[str, Path]) -> None:
    """apt marks the package that it selects as wanted, and the lock would not know which one."""
    url, folder = archive
    package = offer(tmp_path, folder, "1.0-1")
    index = folder / "Packages"
    index.write_text(index.read_text().replace("Version", "Provides: a-tool\nVersion"))
    assert resolve_packages(base(url), ("first:amd64=1.0-1",), "amd64", settings(tmp_path)).packages == (package,)
    with pytest.raises(NeedsEngineError, match="a-tool is the name of no package"):
        resolve_packages(base(url), ("a-tool",), "amd64", settings(tmp_path))
