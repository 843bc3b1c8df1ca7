"""What ELF files need, read as readelf does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.resolve.wheels.libraries import make_library
from training_imgtool.base.elf import Library, read_library


def _read(data: bytes) -> Library | None:
    return read_library(lambda at, size: data[at : at + size])


def test_a_library_says_what_it_needs() -> None:
    for moved in (True, False):
        data = make_library("liba.so.1", ["libGL.so.1", "libc.so.6"], moved=moved)
        assert _read(data) == Library("liba.so.1", 62, ("libGL.so.1", "libc.so.6"))
    assert _read(make_library()) == Library("", 62)
    assert _read(make_library(needed=["b.so"])) == Library("", 62, ("b.so",))


def test_other_files_are_none() -> None:
    library = make_library("liba.so.1", ["libGL.so.1"])
    for data in (b"", b"text" * 100, library[:100], library[:-40], make_library("a", kind=2), b"\x7fELF\x02\x01" * 99):
        assert _read(data) is None


def test_this_machines_libraries_are_read_as_readelf_reads_them() -> None:
    if shutil.which("readelf") is None:
        pytest.skip("this machine has no readelf")
    import lzma  # of which a part is an extension module, which needs a library in most Pythons

    folders = {
        Path(sys.modules[name].__file__ or "").parent for name in ("_ctypes", "_ssl", "_lzma") if name in sys.modules
    }
    assert lzma
    paths = sorted(path for folder in folders for path in folder.glob("*.so"))[:40]
    if not paths:
        pytest.skip("this Python has its extension modules built in")
    for path in paths:
        text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        library = _read(path.read_bytes())
        assert library is not None, path
        assert list(library.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", text), path
