"""Writes an image as the tar archive that `docker load` reads; `imgtool build` sends the archive to an engine's socket.

The format is Docker's image specification 1.2 (`manifest.json` with Config, RepoTags, Layers). Engines detect how a
layer is compressed, so the archive contains gzip layers unchanged. Docker before 23.0 cannot read zstd, so the archive
contains zstd layers uncompressed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO

from training_imgtool.base.errors import LocalFileError
from training_imgtool.oci.image.image import DirectImage
from training_imgtool.oci.layers.codecs import decompress
from training_imgtool.oci.layers.tarhead import END_OF_ARCHIVE, Entry, Kind, count_padding, make_header
from training_imgtool.oci.registry.manifests import Descriptor

ReadBlob = Callable[[Descriptor], Iterator[bytes]]
_BLOCK = 1 << 18


def load_archive(name: str, image: DirectImage, read_base: ReadBlob, held: int = 0) -> Iterator[bytes]:
    """Yields the archive's bytes.

    Args:
        name: the image's full `REPOSITORY:TAG` in the engine.
        image: the image.
        read_base: reads a layer of the base.
        held: the number of lowest layers that the engine already has, which the archive leaves out.

    Raises LocalFileError if the temporary folder has too little space for a layer.
    """
    blobs: list[tuple[Descriptor, Callable[[], Iterator[bytes]]]] = [
        (layer, partial(read_base, layer)) for layer in image.base_layers
    ]
    blobs += [(layer.descriptor, layer.open) for layer in image.layers]
    for descriptor, read in {blob[0].digest: blob for blob in blobs[held:]}.values():
        yield from _write_layer(descriptor, read())
    config = f"{_strip_algorithm(image.config_descriptor.digest)}.json"
    yield from _write_file(config, len(image.config), iter((image.config,)))
    listed = [{"Config": config, "RepoTags": [name], "Layers": [_name(layer.digest) for layer, _ in blobs]}]
    document = json.dumps(listed, separators=(",", ":")).encode()
    yield from _write_file("manifest.json", len(document), iter((document,)))
    yield END_OF_ARCHIVE


def _strip_algorithm(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _name(digest: str) -> str:
    return f"{_strip_algorithm(digest)}/layer.tar"


def _write_layer(descriptor: Descriptor, blocks: Iterator[bytes]) -> Iterator[bytes]:
    path = _name(descriptor.digest)
    if not descriptor.media_type.endswith("zstd"):
        yield from _write_file(path, descriptor.size, blocks)
        return
    with _unpack(blocks) as file:
        size = file.tell()
        file.seek(0)
        yield from _write_file(path, size, iter(partial(file.read, _BLOCK), b""))


def _unpack(blocks: Iterator[bytes]) -> IO[bytes]:
    """Decompresses a layer into a temporary file, because in a tar the size of a file comes before the content."""
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        for block in decompress(blocks):
            file.write(block)
        for _ in blocks:  # the digest also covers bytes after the end of the stream
            pass
    except OSError as error:
        why = f"{tempfile.gettempdir()}: {error.strerror}"
        raise LocalFileError(
            f"cannot decompress a layer into {why}", hint="free space there, or set TMPDIR to another folder"
        ) from error
    return file


def _write_file(path: str, size: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield make_header(Entry(path=path, kind=Kind.FILE, mode=0o644, size=size), 0)
    yield from blocks
    yield bytes(count_padding(size))
