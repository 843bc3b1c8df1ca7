"""Which texts of dpkg a base's layers hold, read as engines unpack them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from training_imgtool.core.errors import NeedsEngineError, VerificationError
from training_imgtool.debian.base_system import BaseSystem, read_base
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.registry.manifests import OCI_LAYER_GZIP, Descriptor, sha256_digest

STATUS = "var/lib/dpkg/status"
Entry = tuple[str, bytes, str | None]  # path, content, target of a hard link


def archive(*entries: Entry) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content, target in entries:
            info = tarfile.TarInfo(path)
            info.size = len(content)
            if target is not None:
                info.type, info.linkname = tarfile.LNKTYPE, target
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., BaseSystem]:
    def read(*layers: bytes) -> BaseSystem:
        blobs = {Descriptor(OCI_LAYER_GZIP, sha256_digest(data), len(data)): data for data in layers}
        return read_base(tuple(blobs), lambda blob: iter((blobs[blob],)), LayerCache(tmp_path))

    return read


def test_a_text_may_be_a_hard_link_to_another(read: Callable[..., BaseSystem]) -> None:
    first = archive((STATUS, b"Package: a\n", None), ("var/lib/dpkg/arch", b"", STATUS))
    assert read(first).texts == {f"/{STATUS}": b"Package: a\n", "/var/lib/dpkg/arch": b"Package: a\n"}


def test_a_hard_link_to_what_is_not_read_needs_an_engine(read: Callable[..., BaseSystem]) -> None:
    with pytest.raises(NeedsEngineError, match="/var/lib/dpkg/status of the base is a hard link to /srv/status"):
        read(archive(("srv/status", b"Package: a\n", None), (STATUS, b"", "srv/status")))


@pytest.mark.parametrize("name", [f"/{STATUS}", f"./{STATUS}", f"../{STATUS}"])
def test_every_spelling_of_a_path_counts(read: Callable[..., BaseSystem], name: str) -> None:
    upper = archive((name, b"Package: b\n", None))
    assert read(archive((STATUS, b"Package: a\n", None)), upper).text(f"/{STATUS}") == "Package: b\n"


def test_a_damaged_layer_is_named(read: Callable[..., BaseSystem]) -> None:
    with pytest.raises(VerificationError, match=r"layer \w+ of the base: it ends in the middle of a file"):
        read(archive((STATUS, b"x" * 2000, None))[:1024])
