"""Reading wheels: what is carried over is right, what is damaged is named."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.oci.direct.wheels import as_wheel, make_wheel
from training_imgtool.base.errors import InputError, LocalFileError, NeedsEngineError, VerificationError
from training_imgtool.base.wheel_zip import (
    MemberReader,
    WheelFile,
    check_hash,
    open_descriptor,
    open_wheel,
    read,
    read_content,
    stream,
)
from training_imgtool.oci.wheel_layers.install import Environment, install

FILES = {"pack/__init__.py": b"", "pack/a.py": b"x = 1\n" * 500, "pack/b.bin": bytes(range(256)) * 9000}


def _opened(path: Path) -> WheelFile:
    return open_wheel(path, as_wheel(path).sha256)


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("stored", [(), ("pack/b.bin", "pack/a.py")])
def test_contents(tmp_path: Path, zip64: bool, stored: tuple[str, ...]) -> None:
    wheel = _opened(make_wheel(tmp_path, "pack", FILES, stored=stored, zip64=zip64))
    check_hash(wheel)
    found = {member.name: read(wheel, member) for member in wheel.members}
    assert FILES.items() <= found.items()
    assert {member.name for member in wheel.members if not member.deflated} == set(stored)


@pytest.mark.parametrize("stored", [(), ("pack/b.bin",)])
def test_parts_of_a_member(tmp_path: Path, stored: tuple[str, ...]) -> None:
    data = random.Random(5).randbytes(3_000_000)
    wheel = _opened(make_wheel(tmp_path, "pack", {"pack/b.bin": data}, stored=stored))
    member = next(member for member in wheel.members if member.name == "pack/b.bin")
    with open_descriptor(wheel) as descriptor:
        read_part = MemberReader(wheel, member, descriptor)
        for at, size in ((0, 64), (2_900_000, 999), (100, 2_000_000), (2_000_100, 1), (5, 0), (2_999_990, 64), (0, 9)):
            assert read_part(at, size) == data[at : at + size]


def test_data_descriptors(tmp_path: Path) -> None:
    class NoSeek:
        """A stream that zipfile cannot go back in, so it writes sizes after the data (flag bit 3)."""

        def __init__(self, path: Path) -> None:
            self.file = path.open("wb")

        def write(self, data: bytes) -> int:
            return self.file.write(data)

        def flush(self) -> None:
            self.file.flush()

    path = tmp_path / "pack-1.0-py3-none-any.whl"
    unseekable: Any = NoSeek(path)
    with zipfile.ZipFile(unseekable, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    unseekable.file.close()
    with zipfile.ZipFile(path) as archive:
        assert all(info.flag_bits & 8 for info in archive.infolist())
    wheel = _opened(path)
    assert {member.name: read(wheel, member) for member in wheel.members} == FILES


def test_another_hash_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "pack", FILES)
    with pytest.raises(VerificationError, match="the lock says"):
        check_hash(open_wheel(path, "0" * 64))


def test_damage_is_named(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "pack", FILES, stored=["pack/a.py"])
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        deflated, stored = (archive.getinfo(name).header_offset for name in ("pack/b.bin", "pack/a.py"))
    for name, offset in (("pack/b.bin", deflated + 600), ("pack/a.py", stored + 600)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0xFF]) + whole[offset + 1 :])
        wheel = open_wheel(path, "0" * 64)
        with pytest.raises(VerificationError, match=f"damaged wheel: {name}"):
            read(wheel, next(member for member in wheel.members if member.name == name))
    path.write_bytes(whole[:deflated] + b"XX" + whole[deflated + 2 :])
    wheel = open_wheel(path, "0" * 64)
    with pytest.raises(VerificationError, match="no local header"):
        read(wheel, next(member for member in wheel.members if member.name == "pack/b.bin"))


def test_a_stream_that_goes_on_after_its_end_is_damaged(tmp_path: Path) -> None:
    wheel = _opened(make_wheel(tmp_path, "pack", FILES))
    member = next(member for member in wheel.members if member.name == "pack/b.bin")
    with open_descriptor(wheel) as descriptor:
        blocks = list(stream(descriptor, wheel, member))
    assert b"".join(read_content(wheel, member, iter(blocks))) == FILES[member.name]
    with pytest.raises(VerificationError, match="longer or shorter"):
        list(read_content(wheel, member, iter([*blocks, b"x"])))


@pytest.mark.parametrize(
    "name", [".wh.keras", "numpy/.wh..wh..opq", "p-1.0.data/data/bin/.wh.python", "a\nb", "a\x1bb"]
)
def test_a_name_that_means_something_else_in_a_layer_is_refused(tmp_path: Path, name: str) -> None:
    """`.wh.keras` would delete another package from the image; pip installs a plain file of that name."""
    with pytest.raises(InputError, match="not a name that a file in an image can have"):
        _opened(make_wheel(tmp_path, "pack", {**FILES, name: b""}))


def test_a_local_header_with_another_name_is_refused(tmp_path: Path) -> None:
    """As pip and uv do; else two readers of one wheel see different files."""
    path = make_wheel(tmp_path, "pack", FILES)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"pack/a.py", b"pack/z.py", 1))
    wheel = _opened(path)
    with pytest.raises(VerificationError, match=r"pack/a\.py has another name in its local header"):
        read(wheel, next(member for member in wheel.members if member.name == "pack/a.py"))


def test_a_wheel_that_is_another_version_than_its_file_says_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "pack", FILES)
    environment = Environment(prefix="/opt/venv", python="3.11", script="")
    assert install(_opened(path), "pack", environment)
    renamed = path.rename(tmp_path / "pack-2.0-py3-none-any.whl")
    with pytest.raises(VerificationError, match=r"its METADATA names pack 1\.0"):
        install(_opened(renamed), "pack", environment)


@pytest.mark.parametrize(
    ("named", "left"),
    [
        ("pip easy_install", "pip pip3 pip3.11 easy_install easy_install-3.11 pip-x other"),
        ("pip", "pip pip3 pip3.11 easy_install-2.7 pip-x other"),
        ("easy_install", "easy_install easy_install-3.11 pip2 pip3.9 pip-x other"),
        ("", "pip2 pip3.9 easy_install-2.7 pip-x other"),
    ],
)
def test_pips_own_scripts_are_named_for_the_environments_python(tmp_path: Path, named: str, left: str) -> None:
    names = f"{named} pip2 pip3.9 easy_install-2.7 pip-x other".split()
    entry_points = "".join(["[console_scripts]\n", *(f"{name} = a:b\n" for name in names)])
    environment = Environment(prefix="/opt/venv", python="3.11", script="%(module)s%(import_name)s%(func)s")
    files = install(_opened(make_wheel(tmp_path, "pack", FILES, entry_points=entry_points)), "pack", environment)
    made = [file.path.rpartition("/bin/")[2] for file in files if file.path.startswith("/opt/venv/bin/")]
    assert sorted(made) == sorted(left.split())


def test_what_is_no_wheel(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match=r"none\.whl"):
        open_wheel(tmp_path / "none.whl", "")
    (tmp_path / "text.whl").write_text("not a zip")
    with pytest.raises(VerificationError, match="damaged wheel"):
        open_wheel(tmp_path / "text.whl", "")
    with zipfile.ZipFile(tmp_path / "lzma.whl", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"a")
    with pytest.raises(NeedsEngineError, match="method 14"):
        open_wheel(tmp_path / "lzma.whl", "")
