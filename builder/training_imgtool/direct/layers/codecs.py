"""Chooses the library that deflates, inflates or makes zstd, and its name in cache keys.

Every library inflates to the same bytes, so imgtool takes the fastest one that is installed. What
compresses decides the bytes of a layer, so its name goes into the key. For what is made in every run of a stage,
bytecode, that is ISA-L: at level 2 it took a sixth of zlib's time for the same size, and gave the same bytes on every
x86-64 processor since Nehalem (isal 1.9.1 under QEMU: Nehalem to Skylake-Server; levels 0 and 3 differ between them).
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from training_imgtool.core.errors import VerificationError
from training_imgtool.core.inflate import find_isal, inflate_errors, load_fast_library
from training_imgtool.registry.manifests import OCI_LAYER_GZIP, OCI_LAYER_ZSTD

_GZIP_ONLY = zlib.MAX_WBITS + 16  # wbits of gzip framing
_LEVEL = 6  # of whole layers that zlib compresses
_PIECE = 1 << 20  # bytes that are inflated at once
_ZSTD_LEVEL = 9  # cuSPARSE: 0.48 of its size at 95 MB/s; level 3 has 0.57, level 15 is ten times slower for 3 % less
_ZSTD_PIECE = 1 << 10  # bytes that are given to zstd at once: each can be 32 KiB of content
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPED_FIRST, _ZSTD_SKIPPED = 0x5, b"\x2a\x4d\x18"  # a frame to pass over begins with 0x50 to 0x5f
_LONGEST_MAGIC = 4
_LARGEST_WINDOW = 27  # 128 MiB as a power of two; the largest that engines take
_ISAL_LEVEL = 2  # the best that is the same on every processor
_ZLIB_LEVEL = 3  # bytecode: 0.35 at 101 MB/s, where level 6 has 0.33 at 50 MB/s


class Compression(StrEnum):
    """How layers made from wheels are compressed."""

    SPLICE = "splice"
    GZIP = "gzip"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """A way to compress a whole layer; `name` says library, version and level, `start` makes a `zlib.compressobj`."""

    name: str
    media_type: str
    start: Callable[[], Any]

    def compress(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yields the compressed blocks of `blocks`, without empty ones."""
        engine = self.start()
        for block in blocks:
            if out := engine.compress(block):
                yield out
        yield engine.flush()


def make_zlib_codec() -> Codec:
    """Makes gzip by the standard library, the one codec of every machine, so that digests agree."""
    return Codec(
        name=f"zlib-{zlib.ZLIB_RUNTIME_VERSION}-{_LEVEL}",
        media_type=OCI_LAYER_GZIP,
        start=lambda: zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_ONLY),
    )


def choose_codec(compression: Compression) -> Codec:
    """Chooses the codec for whole layers; splicing has none, what it must compress goes through zlib."""
    if compression is Compression.ZSTD:
        return _make_zstd_codec()
    if compression is Compression.GZIP:
        return _find_isal_codec() or make_zlib_codec()
    return make_zlib_codec()


def _find_isal_codec() -> Codec | None:
    found = find_isal()
    if found is None:
        return None
    version, isal_zlib = found
    return Codec(
        name=f"isal-{version}-{_ISAL_LEVEL}",
        media_type=OCI_LAYER_GZIP,
        start=lambda: isal_zlib.compressobj(_ISAL_LEVEL, isal_zlib.DEFLATED, _GZIP_ONLY),
    )


def name_piece_codec() -> str:
    """Says for keys what `deflated` compresses with."""
    library = load_fast_library()
    return f"zlib-{_ZLIB_LEVEL}" if library is zlib else f"isal-{_ISAL_LEVEL}"


def deflate(data: bytes) -> bytes:
    """Compresses a piece of a layer: blocks of which none is the last one, up to a byte's end."""
    library = load_fast_library()
    engine = library.compressobj(_ZLIB_LEVEL if library is zlib else _ISAL_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return bytes(engine.compress(data) + engine.flush(library.Z_SYNC_FLUSH))


def _make_zstd_codec() -> Codec:
    zstd = _load_zstd()
    options = {zstd.CompressionParameter.compression_level: _ZSTD_LEVEL, zstd.CompressionParameter.checksum_flag: 1}
    return Codec(
        name=f"zstd-{zstd.zstd_version}-{_ZSTD_LEVEL}",
        media_type=OCI_LAYER_ZSTD,
        start=lambda: zstd.ZstdCompressor(options=options),
    )


def _load_zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def decompress(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields a layer's archive: out of gzip of one member or several, zstd, or neither; in bounded memory.

    The first bytes decide, as in engines, which unpack a layer whatever its media type says. Raises VerificationError
    when it is damaged.
    """
    stream, head = iter(blocks), b""
    while len(head) < _LONGEST_MAGIC and (block := next(stream, None)) is not None:
        head += block
    whole = chain((head,) if head else (), stream)
    if head.startswith(_ZSTD_MAGIC) or (head[1:4] == _ZSTD_SKIPPED and head[0] >> 4 == _ZSTD_SKIPPED_FIRST):
        zstd = _load_zstd()
        pieces = (block[at : at + _ZSTD_PIECE] for block in whole for at in range(0, len(block), _ZSTD_PIECE))
        options = {zstd.DecompressionParameter.window_log_max: _LARGEST_WINDOW}
        yield from _inflate(pieces, lambda: zstd.ZstdDecompressor(options=options), (zstd.ZstdError,), "zstd")
    elif head.startswith(_GZIP_MAGIC):
        yield from _inflate(whole, lambda: load_fast_library().decompressobj(_GZIP_ONLY), inflate_errors(), "gzip")
    else:
        yield from whole


def _inflate(
    blocks: Iterable[bytes], new: Callable[[], Any], errors: tuple[type[Exception], ...], name: str
) -> Iterator[bytes]:
    """Yields the content of compressed streams, one after the other; of gzip in pieces, as zlib takes a limit."""
    limit = (_PIECE,) if name == "gzip" else ()
    engine: Any = None
    try:
        for block in chain(blocks, (b"",)):
            data = block
            while data or engine:
                engine = engine or new()
                out = engine.decompress(data, *limit)
                if out:
                    yield out
                data = engine.unused_data if engine.eof else engine.unconsumed_tail if limit else b""
                if engine.eof:
                    engine = None
                elif not data and not out:
                    break
    except errors as error:
        raise VerificationError(f"a layer is not {name}: {error}") from error
    if engine is not None:
        raise VerificationError("a layer ends in the middle of its compressed stream")
