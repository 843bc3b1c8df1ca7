"""Compresses layers, and decompresses layers in every format that engines read.

For gzip, imgtool uses level 2 of the library ISA-L, which takes a sixth of zlib's time for output of the same size. In
tests, level 2 gave the same bytes on all x86-64 processors (isal 1.9.1 under QEMU, Nehalem to Skylake-Server; levels 0
and 3 did not) and with isal 1.7.0 to 1.9.1. A layer is a single gzip member, because some programs that fetch parts of
layers, such as SOCI before 0.14, read only the first member.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.inflate import inflate_errors, load_fast_library
from training_imgtool.oci.registry.manifests import OCI_LAYER_GZIP, OCI_LAYER_ZSTD

_GZIP_ONLY = zlib.MAX_WBITS + 16  # wbits for the gzip format
_GZIP_LEVEL = 2
_PIECE = 1 << 20  # bytes to compress or inflate at once
_ZSTD_LEVEL = 3  # TensorFlow's wheels: 174 MB in 6 s of CPU; level 9 has 152 MB in 18 s
_ZSTD_PIECE = 1 << 10  # bytes to pass to zstd at once, since one byte can be 32 KiB of content
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPED_FIRST, _ZSTD_SKIPPED = 0x5, b"\x2a\x4d\x18"  # a skippable frame begins with 0x50 to 0x5f
_LONGEST_MAGIC = 4
_LARGEST_WINDOW = 27  # 128 MiB as a power of two, the largest window that engines accept


class Compression(StrEnum):
    """How layers are compressed."""

    GZIP = "gzip"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """A method of compressing layers: `name` has format and level, `start` makes an object as `zlib.compressobj` does.

    A codec's name is part of each layer record's key. The library's version is not part of the key, so a layer keeps
    the bytes of the first push.
    """

    name: str
    media_type: str
    start: Callable[[], Any]

    def compress(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Compresses `blocks`, and yields no empty block.

        ISA-L's output depends on the sizes of the pieces that it gets. So imgtool always passes pieces of the same
        size, and the result does not depend on the sizes of `blocks`.
        """
        engine = self.start()
        for piece in _cut(blocks):
            if out := engine.compress(piece):
                yield out
        yield engine.flush()


def join_pieces(blocks: Iterable[bytes], least: int = _PIECE) -> Iterator[bytes]:
    """Joins blocks into pieces of at least `least` bytes; the last piece may be smaller."""
    parts: list[bytes] = []
    size = 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size >= least:
            yield b"".join(parts)
            parts, size = [], 0
    if size:
        yield b"".join(parts)


def _cut(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Cuts blocks of any size into pieces of exactly `_PIECE` bytes; the last piece may be smaller."""
    left = b""
    for block in join_pieces(blocks):
        data = left + block
        whole = len(data) - len(data) % _PIECE
        yield from (data[at : at + _PIECE] for at in range(0, whole, _PIECE))
        left = data[whole:]
    yield left


def choose_codec(compression: Compression) -> Codec:
    """Chooses the codec for layers."""
    return _make_zstd_codec() if compression is Compression.ZSTD else _make_gzip_codec()


def _make_gzip_codec() -> Codec:
    return Codec(
        name=f"gzip-{_GZIP_LEVEL}",
        media_type=OCI_LAYER_GZIP,
        start=lambda: load_fast_library().compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_ONLY),
    )


def _make_zstd_codec() -> Codec:
    def start() -> Any:
        zstd = _load_zstd()
        level, checksum = zstd.CompressionParameter.compression_level, zstd.CompressionParameter.checksum_flag
        return zstd.ZstdCompressor(options={level: _ZSTD_LEVEL, checksum: 1})

    return Codec(name=f"zstd-{_ZSTD_LEVEL}", media_type=OCI_LAYER_ZSTD, start=start)


def _load_zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def decompress(blocks: Iterable[bytes], *, several: bool = True) -> Iterator[bytes]:
    """Yields the tar archive of a layer that is compressed with gzip or zstd, or uncompressed; uses bounded memory.

    The layer's first bytes decide the format. Engines do the same, and ignore the layer's media type. Raises
    VerificationError if the layer is damaged, or if it has several streams and `several` is false.
    """
    stream, head = iter(blocks), b""
    while len(head) < _LONGEST_MAGIC and (block := next(stream, None)) is not None:
        head += block
    whole = chain((head,) if head else (), stream)
    if head.startswith(_ZSTD_MAGIC) or (head[1:4] == _ZSTD_SKIPPED and head[0] >> 4 == _ZSTD_SKIPPED_FIRST):
        zstd = _load_zstd()
        pieces = (block[at : at + _ZSTD_PIECE] for block in whole for at in range(0, len(block), _ZSTD_PIECE))
        options = {zstd.DecompressionParameter.window_log_max: _LARGEST_WINDOW}
        yield from _inflate(
            pieces, lambda: zstd.ZstdDecompressor(options=options), (zstd.ZstdError,), "zstd", several=several
        )
    elif head.startswith(_GZIP_MAGIC):
        yield from _inflate(
            whole, lambda: load_fast_library().decompressobj(_GZIP_ONLY), inflate_errors(), "gzip", several=several
        )
    else:
        yield from whole


def decompress_strictly(blocks: Iterable[bytes], media_type: str) -> Iterator[bytes]:
    """Yields the tar archive of a layer that is exactly one compressed stream, as this module writes layers.

    Raises VerificationError for all other layers: a format that is not `media_type`'s, a second stream, trailing bytes,
    or a gzip header with a name.
    """
    stream = iter(blocks)
    head = next(stream, b"")
    while len(head) < _LONGEST_MAGIC and (block := next(stream, b"")):
        head += block
    magic = _ZSTD_MAGIC if media_type == OCI_LAYER_ZSTD else _GZIP_MAGIC + b"\0"
    if not head.startswith(magic):
        raise VerificationError(f"the layer is not one stream of {media_type}")
    yield from decompress(chain((head,), stream), several=False)


def _inflate(
    blocks: Iterable[bytes], new: Callable[[], Any], errors: tuple[type[Exception], ...], name: str, *, several: bool
) -> Iterator[bytes]:
    """Decompresses consecutive streams; yields the content of gzip streams in pieces of limited size."""
    limit = (_PIECE,) if name == "gzip" else ()
    engine: Any = None
    is_over = False
    try:
        for block in chain(blocks, (b"",)):
            data = block
            while data or engine:
                if is_over:
                    raise VerificationError(f"a layer has data after the end of its {name} stream")
                engine = engine or new()
                out = engine.decompress(data, *limit)
                if out:
                    yield out
                data = engine.unused_data if engine.eof else engine.unconsumed_tail if limit else b""
                if engine.eof:
                    engine, is_over = None, not several
                elif not data and not out:
                    break
    except errors as error:
        raise VerificationError(f"a layer is not valid {name} data: {error}") from error
    if engine is not None:
        raise VerificationError("a layer ends in the middle of its compressed stream")
