"""Resolving with the machine's apt against an archive on loopback, which drops a version as Debian's archives do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imgtool_debian_layers import (
    BaseSystem,
    NeedsAptError,
    NoSolutionError,
    Package,
    UnreachableError,
    list_archives,
    resolve_packages,
)
from imgtool_debian_layers.archives import make_private_sources
from tests.debian_layers.packages import archive, needs_apt, offer, system

__all__ = ["archive"]  # a fixture
pytestmark = needs_apt


def base(url: str, texts: dict[str, str] | None = None) -> BaseSystem:
    return system({"/etc/apt/sources.list": f"deb [trusted=yes] {url} ./\n", **(texts or {})})


def resolve(base: BaseSystem, requested: str = "first") -> tuple[Package, ...]:
    return resolve_packages(base, (requested,), "amd64", environ=os.environ, mirrors={})


def test_apt_chooses_what_the_archive_has_now(archive: tuple[str, Path]) -> None:
    url, folder = archive
    with pytest.raises(UnreachableError, match="the base's package archives: Failed to fetch"):
        resolve(base(url))
    for version in ("1.0-1", "1.0-2"):
        package = offer(folder, version)
        assert resolve(base(url)) == (package,)
    with pytest.raises(NoSolutionError, match="second"):
        resolve(base(url), "second")
    with pytest.raises(NeedsAptError, match="foreign architecture"):
        resolve(base(url, {"/var/lib/dpkg/arch": "amd64\ni386\n"}))


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
def test_a_base_whose_configuration_makes_apt_choose_otherwise_needs_apt(
    archive: tuple[str, Path], configuration: str, reason: str | None
) -> None:
    url, folder = archive
    package = offer(folder)
    texts = {
        "/etc/apt/apt.conf.d/99own": configuration,
        "/etc/apt/apt.conf.d/99own.old": 'APT::Default-Release "nothing";',  # apt does not read it
    }
    if reason is None:
        assert resolve(base(url, texts)) == (package,)
        return
    with pytest.raises(NeedsAptError, match=rf"configuration of apt sets {reason}$"):
        resolve(base(url, texts))


def test_a_name_that_stands_for_packages_needs_apt(archive: tuple[str, Path]) -> None:
    """apt marks the package that it selects as wanted, and nobody knows which one that is."""
    url, folder = archive
    package = offer(folder, fields="Provides: a-tool\n")
    assert resolve(base(url), "first:amd64=1.0-1") == (package,)
    with pytest.raises(NeedsAptError, match="a-tool is not the name of a package"):
        resolve(base(url), "a-tool")


def test_mirrors_replace_the_archives_of_a_base_and_keys_lie_in_the_private_folder() -> None:
    base = system(
        {
            "/etc/apt/sources.list": "# deb http://old.example/d x main\ndeb http://deb.example/debian x main\n",
            "/etc/apt/sources.list.d/ubuntu.sources": (
                "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu/\nSuites: noble\n"
                "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n"
            ),
            "/etc/apt/apt.conf.d/evil": 'APT::Update::Pre-Invoke {"touch /x";};\n',
            "/usr/share/keyrings/ubuntu-archive-keyring.gpg": "key",
        }
    )
    mirrors = {"http://archive.ubuntu.com/ubuntu": "http://mirror.example/u"}
    assert list_archives(base, mirrors) == ("http://deb.example/debian", "http://mirror.example/u")
    files = dict(make_private_sources(base, mirrors, Path("/private")))
    assert b"URIs: http://mirror.example/u/\n" in files["etc/apt/sources.list.d/ubuntu.sources"]
    assert b"Signed-By: /private/usr/share/keyrings/ubuntu-" in files["etc/apt/sources.list.d/ubuntu.sources"]
    assert files["usr/share/keyrings/ubuntu-archive-keyring.gpg"] == b"key"
    assert not any("apt.conf" in path for path in files), "a base's settings run nothing on this machine"
