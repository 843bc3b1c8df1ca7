"""The loader's cache is ldconfig's, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.debian.formats.elf import read_library
from training_imgtool.debian.formats.loader_cache import LoaderCache, list_folders, read_cache, write_cache

_CACHE = Path("/etc/ld.so.cache")


def test_this_machines_cache_is_written_again_as_it_is() -> None:
    if not _CACHE.exists():
        pytest.skip("this machine has no /etc/ld.so.cache")
    data = _CACHE.read_bytes()
    try:
        cache = read_cache(data)
    except NeedsEngineError as error:
        pytest.skip(str(error))
    shuffled = LoaderCache(tuple(sorted(cache.libraries, key=lambda row: row.path)), cache.generator)
    assert write_cache(shuffled) == data


@pytest.mark.parametrize("data", [b"", b"ld.so-1.7.0" + bytes(80), b"glibc-ld.so.cache1.1" + b"\xff" * 60])
def test_other_formats_are_an_engines_work(data: bytes) -> None:
    with pytest.raises(NeedsEngineError, match=r"ld\.so\.cache"):
        read_cache(data)


def test_folders_come_in_the_order_of_the_configuration() -> None:
    texts = {
        "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/b.conf": "/b # comment\n",
        "/etc/ld.so.conf.d/a.conf": "# a\n/a/\n\n/usr/lib\n",
        "/etc/ld.so.conf.d/ignored": "/c\n",
    }
    assert list_folders(texts) == ("/a", "/usr/lib", "/b", "/lib", "/usr/lib")


def test_only_shared_libraries_have_a_soname() -> None:
    import _ctypes

    assert read_library(b"\x7fELF\x02\x01") is None
    assert read_library(b"text") is None
    library = read_library(Path(_ctypes.__file__).read_bytes())
    assert library is not None
    assert library.machine > 0
