"""Packages become the entries that dpkg would leave, or need apt itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from imgtool_debian_layers import BaseSystem, DamagedError, Entry, NeedsAptError, Node, Package, make_layer
from imgtool_debian_layers.loader_cache import CachedLibrary, read_cache
from tests.debian_layers.packages import STATUS, make_package, needs_dpkg, system

pytestmark = needs_dpkg
Made = tuple[Package, Path]
STATES = "/var/lib/apt/extended_states"
LIBRARY = "libx.so.1"
LDCONFIG = {
    "/etc/ld.so.cache": "glibc-ld.so.cache1.1" + 28 * "\0",
    "/var/lib/dpkg/triggers/ldconfig": "libc-bin\n",
}


def mark(name: str) -> str:
    """What apt's list has about a package that apt chose itself."""
    return f"Package: {name}\nArchitecture: amd64\nAuto-Installed: 1\n\n"


def read_library(data: bytes) -> tuple[str, int]:
    """What a library says of itself: here its content is its name."""
    return data.decode(), 62


def install(
    base: BaseSystem, *made: Made, sonames: tuple[str, ...] = (), requested: tuple[str, ...] = ("first",)
) -> Mapping[str, Entry]:
    """The layer's entries by path."""
    entries = [*make_layer(base, made, requested, "amd64", read_library, sonames=sonames)]
    assert len({entry.path for entry in entries}) == len(entries), "no path appears twice"
    return {entry.path: entry for entry in entries}


@pytest.mark.parametrize("compression", ["xz", "gzip", "none"])
def test_files_follow_the_links_of_the_base_and_the_database_has_them(tmp_path: Path, compression: str) -> None:
    first = make_package(
        tmp_path,
        "first",
        {"/bin/tool": "#!/bin/sh\n", "/etc/tool.conf": "a=b\n", "/lib/tool/link": "-> ../../bin/tool"},
        {"conffiles": "/etc/tool.conf\n"},
        fields="Multi-Arch: same\nSection: misc\n",
        compression=compression,
    )
    layer = install(system(), first)
    assert {"usr/bin/tool", "etc/tool.conf", "usr/lib/tool", "usr/lib/tool/link"} <= set(layer)
    assert not {"bin", "usr", "usr/bin", "etc"} & set(layer), "folders that exist stay as they are"
    assert [layer[path].node for path in ("usr/bin/tool", "usr/lib/tool", "usr/lib/tool/link")] == [
        Node("f", 0o644, 0, 0),
        Node("d", 0o755, 0, 0),
        Node("l", 0o777, 0, 0, target="../../bin/tool"),
    ]
    status = layer["var/lib/dpkg/status"].data.decode()
    assert status == (
        "Package: first\nStatus: install ok installed\nSection: misc\nMaintainer: Nobody <nobody@example.com>\n"
        "Architecture: amd64\nMulti-Arch: same\nVersion: 1.0-1\nConffiles:\n"
        " /etc/tool.conf MD5\nDescription: first\n more text\n\n"
        "Package: libc-bin\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\n\n"
    ).replace("MD5", hashlib.md5(b"a=b\n", usedforsecurity=False).hexdigest())
    listed = layer["var/lib/dpkg/info/first:amd64.list"].data.decode().splitlines()
    assert sorted(listed) == [
        "/.",
        "/bin",
        "/bin/tool",
        "/etc",
        "/etc/tool.conf",
        "/lib",
        "/lib/tool",
        "/lib/tool/link",
    ]


def test_what_apt_chose_itself_is_marked(tmp_path: Path) -> None:
    """In a section of metapackages too: apt 2 heeds Never-MarkAuto-Sections only when it removes a package."""
    layer = install(
        system({STATES: mark("gone") + mark("libc-bin")}),
        make_package(tmp_path, "second", {"/usr/share/second/x": ""}, fields="Section: metapackages\n"),
        make_package(tmp_path, "first", {"/usr/share/first/x": ""}),
    )
    assert layer[STATES.lstrip("/")].data.decode() == mark("libc-bin") + mark("second")


def test_a_requested_package_of_the_base_is_no_longer_apts_choice(tmp_path: Path) -> None:
    package = make_package(tmp_path, "first", {"/usr/share/first/x": ""})
    base = system({STATES: mark("libc-bin")})
    assert install(base, package, requested=("first", "libc-bin:amd64"))[STATES.lstrip("/")].data == b""
    alone = install(base, requested=("libc-bin",))
    assert alone[STATES.lstrip("/")].data == b""
    assert "var/lib/dpkg/status" not in alone, "dpkg does not run"


def test_excluded_paths_stay_out_and_whiteouts_clean_what_the_stage_removes(tmp_path: Path) -> None:
    excludes = "path-exclude /usr/share/doc/*\npath-include /usr/share/doc/*/copyright\n# no\nforce-unsafe-io\n"
    base = system({"/etc/dpkg/dpkg.cfg.d/docker": excludes}, {"/var/lib/apt/lists/lock": Node("f")})
    files = {"/usr/share/doc/first/copyright": "c", "/usr/share/doc/first/README": "r", "/usr/share/doc/first/a/b": "b"}
    layer = install(base, make_package(tmp_path, "first", files))
    assert "usr/share/doc/first/copyright" in layer
    assert "usr/share/doc/first/README" not in layer
    assert "usr/share/doc/first/a/b" not in layer
    assert "var/lib/apt/lists/.wh.lock" in layer
    assert b"/usr/share/doc/first/README\n" in layer["var/lib/dpkg/info/first.list"].data


@pytest.mark.parametrize(
    ("files", "control", "reason"),
    [
        ({}, {"postinst": "#!/bin/sh\nset -e\nuseradd someone\n"}, "the package first has a postinst script"),
        ({}, {"preinst": "#!/bin/sh\nrm -rf /srv\n"}, "the package first has a preinst script"),
        ({"/usr/bin/there": ""}, {}, "/usr/bin/there of the package first already exists in the image"),
        ({"/srv/x": ""}, {}, None),
        ({"/home/x": ""}, {}, "the package first has the path /home"),
        ({"/run/x": ""}, {}, "the package first has the path /run/x"),
        ({}, {"triggers": "activate something\n"}, None),
        ({}, {"triggers": "activate known\n"}, "the trigger known runs the postinst script of libc-bin"),
        ({"/usr/share/watched/x": ""}, {}, "the trigger /usr/share/watched runs the postinst script of libc-bin"),
    ],
)  # fmt: skip
def test_what_is_not_known_needs_apt(
    tmp_path: Path, files: dict[str, str], control: dict[str, str], reason: str | None
) -> None:
    triggers = {
        "/var/lib/dpkg/triggers/File": "/usr/share/watched libc-bin/noawait\n",
        "/var/lib/dpkg/triggers/known": "libc-bin\n",
    }
    base = system(triggers, {"/usr/bin/there": Node("f")})
    package = make_package(tmp_path, "first", files, control)
    if reason is None:
        install(base, package)
        return
    with pytest.raises(NeedsAptError, match=reason):
        install(base, package)


def test_generated_blocks_and_comments_need_no_engine(tmp_path: Path) -> None:
    script = (
        "#!/bin/sh\nset -e\n\n# nothing\n# Automatically added by dh_installdeb/13.11.4\n"
        'dpkg-maintscript-helper rm_conffile /etc/old 1.0\\~ -- "$@"\n# End automatically added section\n\nexit 0\n'
    )
    layer = install(
        system(), make_package(tmp_path, "first", {}, {"preinst": script, "postrm": "#!/bin/sh\nrm -rf /\n"})
    )
    names = ("info/first.postrm", "info/first.list", "status")
    assert [layer[f"var/lib/dpkg/{name}"].node.mode for name in names] == [0o755, 0o644, 0o644]
    evil = script.replace('-- "$@"', '-- "$@"; rm -rf /srv -- "$@"')
    with pytest.raises(NeedsAptError, match="the package other has a preinst script"):
        install(system(), make_package(tmp_path, "other", {}, {"preinst": evil}))


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"/var/lib/dpkg/status": "Package: x\nStatus: install ok half-configured\n\n"}, "the package x of the base"),
        ({"/var/lib/dpkg/status": ""}, "no dpkg database"),
        ({"/var/lib/dpkg/statoverride": "root root 755 /x\n"}, "statoverride"),
        ({"/var/lib/dpkg/diversions": "/usr/bin/tool\n/usr/bin/tool.real\nother\n"}, "/usr/bin/tool of .* is diverted"),
        ({"/etc/dpkg/dpkg.cfg.d/x": "force-all\n"}, "the option force-all"),
        ({"/var/lib/dpkg/status": STATUS.replace("libc-bin", "first")}, "replaces first"),
    ],
)  # fmt: skip
def test_some_bases_need_apt(tmp_path: Path, texts: dict[str, str], reason: str) -> None:
    with pytest.raises(NeedsAptError, match=reason):
        install(system(texts), make_package(tmp_path, "first", {"/usr/bin/tool": ""}))


def test_another_package_or_a_damaged_one_is_found(tmp_path: Path) -> None:
    package, path = make_package(tmp_path, "first", {"/usr/bin/tool": "x" * 5000})
    with pytest.raises(DamagedError, match=r"not other 1\.0-1 amd64"):
        install(system(), (replace(package, name="other"), path))
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(DamagedError, match="damaged"):
        install(system(), (package, path))
    path.write_bytes(b"no package")
    with pytest.raises(DamagedError, match="not a Debian package"):
        install(system(), (package, path))


def test_a_library_gets_its_link_and_its_line_in_the_loaders_cache(tmp_path: Path) -> None:
    files = {"/lib/libx.so.1.2": LIBRARY, "/lib/libx.so": "-> libx.so.1.2", "/opt/liby.so.1": "liby.so.1"}
    package = make_package(tmp_path, "first", files, {"triggers": "activate-noawait ldconfig\n"})
    layer = install(system(LDCONFIG), package, sonames=(LIBRARY,))
    assert layer["usr/lib/libx.so.1"].node.target == "libx.so.1.2"
    cache = read_cache(layer["etc/ld.so.cache"].data)
    assert cache.libraries == tuple(CachedLibrary(name, f"/lib/{name}", 0x0303) for name in (LIBRARY, "libx.so"))
    with pytest.raises(NeedsAptError, match=r"the loader does not find libother\.so\.1"):
        install(system(LDCONFIG), package, sonames=("libother.so.1",))
