"""The loader's cache is ldconfig's, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from imgtool_debian_layers import NeedsAptError, Node
from imgtool_debian_layers.layer import list_base_libraries, name_link
from imgtool_debian_layers.loader_cache import CachedLibrary, LoaderCache, list_folders, read_cache, write_cache

_CACHE = Path("/etc/ld.so.cache")


def test_this_machines_cache_is_written_again_as_it_is() -> None:
    if not _CACHE.exists():
        pytest.skip("this machine has no /etc/ld.so.cache")
    data = _CACHE.read_bytes()
    try:
        cache = read_cache(data)
    except NeedsAptError as error:
        pytest.skip(str(error))
    shuffled = LoaderCache(tuple(sorted(cache.libraries, key=lambda row: row.path)), cache.generator)
    assert write_cache(shuffled) == data


def test_libraries_of_one_name_come_by_their_flags() -> None:
    rows = tuple(CachedLibrary("liba.so.1", f"/lib/{flags}", flags) for flags in (0x0303, 0x0003))
    for ordered in (rows, rows[::-1]):
        assert read_cache(write_cache(LoaderCache(ordered, b"ldconfig"))) == LoaderCache(rows, b"ldconfig")


@pytest.mark.parametrize("data", [b"", b"ld.so-1.7.0" + bytes(80), b"glibc-ld.so.cache1.1" + b"\xff" * 60])
def test_other_formats_need_apt(data: bytes) -> None:
    with pytest.raises(NeedsAptError, match=r"ld\.so\.cache"):
        read_cache(data)


def test_folders_come_in_the_order_of_the_configuration() -> None:
    texts = {
        "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/b.conf": "/b # comment\n",
        "/etc/ld.so.conf.d/a.conf": "# a\n/a/\n\n/usr/lib\n",
        "/etc/ld.so.conf.d/ignored": "/c\n",
    }
    assert list_folders(texts) == ("/a", "/usr/lib", "/b", "/lib", "/usr/lib")


@pytest.mark.parametrize(
    ("link", "soname", "name"),
    [
        ("libz.so", "libz.so.1", "libz.so"),
        ("libz.so.1", "libz.so.1", "libz.so.1"),
        ("libpython3.11.so.1", "libpython3.11.so.1.0", "libpython3.11.so.1.0"),
        ("libother.so", "libz.so.1", "libz.so.1"),
        ("libplain.so", "", "libplain.so"),
    ],
)
def test_links_have_the_names_that_ldconfig_gives_them(link: str, soname: str, name: str) -> None:
    assert name_link(link, soname) == name


def test_a_library_of_the_base_has_the_soname_that_its_cache_names() -> None:
    """A package for developers links to it, and the base's own files are not read again."""
    nodes = {"/usr/lib/libz.so.1.2": Node("f"), "/usr/lib/libz.so.1": Node("l", target="libz.so.1.2")}
    nodes["/usr/lib/libz.so"] = Node("l", target="libz.so.1")
    rows = [CachedLibrary(name, f"/lib/{name}", 0x0303) for name in ("libz.so.1", "libz.so")]
    nodes["/lib"] = Node("l", target="usr/lib")
    libraries = list_base_libraries(LoaderCache(tuple(rows), b""), nodes)
    assert libraries == {"/usr/lib/libz.so.1.2": ("libz.so.1", 62)}
