"""`verify` and the bytecode of the standard library: a sound layer passes, and a planted file does not."""

from __future__ import annotations

import importlib.util
import io
import marshal
import tarfile
from collections.abc import Callable, Iterator

import pytest

from tests.verify.planted.world import Forgery, World, open_world
from training_imgtool.verify.findings import Accepted

LIBRARY = "usr/local/lib/python3.11"
SOURCES = {"os.py": b"x = 1\n", "abc.py": b"y = 2\n", "json/__init__.py": b"z = 3\n"}
TEXTS = {f"{LIBRARY}/{name}": data for name, data in SOURCES.items()}
OS = f"{LIBRARY}/__pycache__/os.cpython-311.pyc"
LAYER = 1  # above the base
OTHERS = frozenset({Accepted.BYTECODE})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(tmp_path_factory.mktemp("library"), texts=TEXTS) as made:
        yield made


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """On a base with a release of Python that this machine lacks."""
    with open_world(tmp_path_factory.mktemp("other"), texts=TEXTS, release="3.11.99") as made:
        yield made


def _forge(forgery: Forgery, change: Callable[[dict[str, bytes]], None]) -> None:
    with tarfile.open(fileobj=io.BytesIO(forgery.archive(LAYER))) as tar:
        members = [(member, tar.extractfile(member)) for member in tar]
        files = {member.name: file.read() for member, file in members if file}
    change(files)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    forgery.put_archive(stream.getvalue(), LAYER)
    forgery.put()


def _compiled(source: bytes, *, flags: int = 3, of: bytes = b"") -> bytes:
    code = marshal.dumps(compile(source, f"/{LIBRARY}/os.py", "exec"))
    head = importlib.util.MAGIC_NUMBER + bytes((flags, 0, 0, 0))
    return head + importlib.util.source_hash(of or source) + code


def _other_magic(files: dict[str, bytes]) -> None:
    files[OS] = b"\x6f\x0d\r\n" + files[OS][4:]


POISONS: dict[str, Callable[[dict[str, bytes]], None]] = {
    "other code": lambda files: files.update({OS: _compiled(b"x = 666\n", of=SOURCES["os.py"])}),
    "another magic number": _other_magic,
    "unchecked, of a changed source": lambda files: files.update({OS: _compiled(b"x = 666\n", flags=1)}),
    "a file more": lambda files: files.update({f"{LIBRARY}/__pycache__/evil.cpython-311.pyc": b"evil"}),
    "a file less": lambda files: files.__delitem__(OS),
}


def test_the_layer_has_the_library(world: World, other: World) -> None:
    with tarfile.open(fileobj=io.BytesIO(Forgery(world).archive(LAYER))) as tar:
        assert OS in tar.getnames()
    assert Forgery(other).archive(LAYER) == Forgery(world).archive(LAYER)  # of equal sources and one compiler
    assert world.complaints() == other.complaints() == ""


@pytest.mark.parametrize("poison", POISONS)
def test_a_planted_file_is_found(world: World, other: World, poison: str) -> None:
    with world.undone():
        _forge(Forgery(world), POISONS[poison])
        for accept in (frozenset[Accepted](), OTHERS):
            assert "layers: found layer 2 (RUN compileall: standard library bytecode" in world.complaints(accept)
    with other.undone():
        _forge(Forgery(other), POISONS[poison])
        assert other.complaints().startswith("worker: bytecode: not proven: ")


def test_only_bytecode_is_accepted_as_bytecode(other: World) -> None:
    with other.undone():
        _forge(Forgery(other), lambda files: files.update({f"{LIBRARY}/evil.py": b"evil"}))
        assert "evil.py, which is no bytecode" in other.complaints(OTHERS)
