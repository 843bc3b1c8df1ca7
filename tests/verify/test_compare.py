"""What `verify` reads and compares where nothing is wrong, and how it names the place that differs."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

import pytest

from tests.verify.images import tar
from tests.verify.planted.world import Forgery, World, open_world
from training_imgtool.oci.registry.manifests import sha256_digest
from training_imgtool.verify.findings import Accepted

OURS = range(1, 5)  # the layers above the base; the last but one is bytecode


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(tmp_path_factory.mktemp("world")) as made:
        yield made


def test_no_blob_of_the_same_image_is_read(world: World) -> None:
    world.server.clear()
    assert world.complaints() == ""
    assert not [one for one in world.server.requests if one.method == "GET" and "/team/demo/blobs/" in one.target]


def _compress(data: bytes, level: int, strategy: int) -> bytes:
    engine = zlib.compressobj(level, zlib.DEFLATED, 31, 9, strategy)
    return engine.compress(data) + engine.flush()


@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY])
def test_layers_that_another_library_compressed_pass(world: World, strategy: int) -> None:
    for level in range(10):
        with world.undone():
            forgery = Forgery(world)
            for number in OURS:
                forgery.put_stream(_compress(forgery.archive(number), level, strategy), number)
            forgery.put()
            (report,) = world.verify()
            assert "4 of them compressed otherwise" in str(report.findings)
            assert world.complaints() == ""


def test_bytecode_of_another_release_is_not_proven(tmp_path_factory: pytest.TempPathFactory) -> None:
    with open_world(tmp_path_factory.mktemp("release"), release="3.11.99") as other:
        forgery = Forgery(other)
        compiled = forgery.archive(3).replace(b"2.15.1", b"2.15.2")
        forgery.put_archive(compiled, 3)
        forgery.put()
        says = "worker: bytecode: not proven: 1 files in 1 layers differ (opt/venv/lib/python3.11/site-packages/"
        assert other.complaints().startswith(says)
        assert other.complaints(frozenset({Accepted.BYTECODE})) == ""
        for name in ("usr/bin/evil", "opt/venv/lib/python3.11/site-packages/evil.pth", "opt/venv/__pycache__/../x.pyc"):
            with other.undone():
                forgery.put_archive(tar({name: b"evil"}), 3)
                forgery.put()
                assert "is no bytecode" in other.complaints(frozenset({Accepted.BYTECODE})), name
        forgery.put_archive(compiled, 3)
        forgery.diff_ids[3] = sha256_digest(b"another archive")
        forgery.put()
        assert "config: found rootfs differ" in other.complaints(frozenset({Accepted.BYTECODE}))
        forgery.put_archive(compiled + bytes(100 << 20), 3)
        forgery.put()
        assert "its content is over 1000 times" in other.complaints(frozenset({Accepted.BYTECODE}))


def test_every_bit_counts(world: World) -> None:
    plain = Forgery(world).archive()
    chosen = random.Random(4)
    for position in [*range(0, 512, 32), *(chosen.randrange(len(plain)) for _ in range(16))]:
        with world.undone():
            forgery = Forgery(world)
            forgery.put_archive(plain[:position] + bytes([plain[position] ^ 1]) + plain[position + 1 :])
            forgery.put()
            assert "layers: found layer 5" in world.complaints(), position


def test_the_path_that_differs_is_named(world: World) -> None:
    with world.undone():
        forgery = Forgery(world)
        forgery.put_archive(forgery.archive(2).replace(b"= '2.15.1'", b"= '2.15.2'"), 2)
        forgery.put()
        assert "/tensorflow/__init__.py differs; expected the 4 layers made here" in world.complaints()
