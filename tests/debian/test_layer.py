"""The layer of packages: fetched from an archive, the same bytes everywhere, known by its record."""

from __future__ import annotations

import functools
import http.server
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.debian.packages import make_package, needs_dpkg, system
from tests.servers.running import running
from training_imgtool.core.errors import TemporaryError, VerificationError
from training_imgtool.core.settings import Settings, from_environment
from training_imgtool.debian.archives import list_archives, make_private_sources
from training_imgtool.debian.layer import LayerMaker
from training_imgtool.debian.store import PackageStore
from training_imgtool.direct.debian_layer import OpenedLibraries
from training_imgtool.direct.layers.codecs import Compression
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.tree import find_node
from training_imgtool.plan import DebianPackage, LockedDebian

NOTHING = OpenedLibraries()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An archive's address, and its folder."""
    folder = tmp_path / "archive"
    (folder / "pool/main").mkdir(parents=True)
    handler = functools.partial(_Quiet, directory=str(folder))
    with running(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as host:
        yield f"http://{host}", folder


def settings(cache: Path, mirrors: str = "") -> Settings:
    return from_environment({"IMGTOOL_CACHE": str(cache), "IMGTOOL_DEBIAN_MIRRORS": mirrors})


def store(cache: Path, *urls: str) -> PackageStore:
    return PackageStore(LayerCache(cache), settings(cache), lambda: urls, lambda _: None, pause=lambda _: None)


def maker(cache: Path, packages: tuple[DebianPackage, ...], *urls: str, packing: str = "gzip") -> LayerMaker:
    return LayerMaker(
        base_digest="sha256:" + "1" * 64,
        locked=LockedDebian(requested=("first",), packages=packages),
        architecture="amd64",
        read_system=system,
        store=store(cache, *urls),
        cache=LayerCache(cache),
        compression=Compression(packing),
        mtime=0,
    )


@needs_dpkg
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_two_machines_make_the_same_layer_and_remember_it(
    tmp_path: Path, archive: tuple[str, Path], packing: str
) -> None:
    url, folder = archive
    package, path = make_package(tmp_path, "first", {"/usr/bin/tool": "x", "/lib/link": "-> tool"})
    path.rename(folder / package.file)
    made = [
        maker(tmp_path / name, (package,), f"{url}/missing", url, packing=packing).layer("RUN", NOTHING)
        for name in ("one", "two")
    ]
    assert made[0].descriptor == made[1].descriptor
    assert made[0].diff_id == made[1].diff_id
    assert len(b"".join(made[0].open())) == made[0].descriptor.size
    (folder / package.file).unlink()
    again = maker(tmp_path / "one", (package,), packing=packing)
    assert again.layer("RUN", NOTHING).descriptor == made[0].descriptor, "the record serves without the archive"
    assert find_node(again.tree(NOTHING), "/usr/bin/tool") is not None
    link = find_node(again.tree(NOTHING), "/usr/lib/link")
    assert link is not None
    assert link.target == "tool"


@needs_dpkg
def test_a_package_that_is_gone_or_another_is_refused(tmp_path: Path, archive: tuple[str, Path]) -> None:
    url, folder = archive
    package, path = make_package(tmp_path, "first", {"/usr/bin/tool": "x"})
    with pytest.raises(VerificationError, match="no archive of the base has first") as caught:
        store(tmp_path / "cache", url).fetch((package,))
    assert "imgtool lock --upgrade-package first" in str(caught.value.hint)
    path.rename(folder / package.file)
    other = replace(package, sha256="0" * 64)
    with pytest.raises(VerificationError, match="another file than the lock's"):
        store(tmp_path / "cache", url).fetch((other,))
    store(tmp_path / "cache", url).fetch((package,))
    held = store(tmp_path / "cache").path(package)
    held.write_bytes(bytes(package.size))
    with pytest.raises(VerificationError, match="damaged, removed"):
        maker(tmp_path / "cache", (package,)).layer("RUN", NOTHING)
    with pytest.raises(TemporaryError, match="nothing answers"):
        store(tmp_path / "other", "http://127.0.0.1:9").fetch((package,))


def test_mirrors_replace_the_archives_of_a_base_and_keys_lie_in_the_private_folder(tmp_path: Path) -> None:
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
    machine = settings(tmp_path, "http://archive.ubuntu.com/ubuntu=http://mirror.example/u")
    assert list_archives(base, machine) == ("http://deb.example/debian", "http://mirror.example/u")
    files = dict(make_private_sources(base, machine, Path("/private")))
    assert b"URIs: http://mirror.example/u/\n" in files["etc/apt/sources.list.d/ubuntu.sources"]
    assert b"Signed-By: /private/usr/share/keyrings/ubuntu-" in files["etc/apt/sources.list.d/ubuntu.sources"]
    assert files["usr/share/keyrings/ubuntu-archive-keyring.gpg"] == b"key"
    assert not any("apt.conf" in path for path in files), "a base's settings run nothing on this machine"
