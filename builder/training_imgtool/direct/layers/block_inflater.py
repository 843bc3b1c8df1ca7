"""Inflates raw DEFLATE streams and finds where their last block begins; zlib's own library, by ctypes.

A stream becomes part of a longer one when the bit that marks its last block is cleared, so a spliced layer needs that
bit's place. zlib stops between blocks if asked to (`Z_BLOCK`, zlib.h, which also documents `data_type`); Python's own
module does not offer that. Every Linux that runs Python wheels has libz.so.1: the manylinux profiles require it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import zlib
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from training_imgtool.core.errors import UsageError

_NAME = "libz.dylib" if sys.platform == "darwin" else "libz.so.1"
_Z_BLOCK, _Z_OK, _Z_STREAM_END, _Z_BUF_ERROR = 5, 0, 1, -5
_LOCAL = threading.local()
_UNUSED_BITS, _BETWEEN_BLOCKS = 0x07, 0x80  # in data_type


class _Stream(ctypes.Structure):
    """zlib's `z_stream`."""

    _fields_ = (
        ("next_in", ctypes.c_void_p),
        ("avail_in", ctypes.c_uint),
        ("total_in", ctypes.c_ulong),
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint),
        ("total_out", ctypes.c_ulong),
        ("msg", ctypes.c_char_p),
        ("state", ctypes.c_void_p),
        ("zalloc", ctypes.c_void_p),
        ("zfree", ctypes.c_void_p),
        ("opaque", ctypes.c_void_p),
        ("data_type", ctypes.c_int),
        ("adler", ctypes.c_ulong),
        ("reserved", ctypes.c_ulong),
    )


@dataclass(frozen=True, slots=True)
class Seam:
    """Where a stream can be opened, so that another one can follow it.

    Attributes:
        offset: the byte that has the mark of the last block.
        bit: the mark's bit in that byte, the least significant one being 0.
        unused: how many high bits of the stream's last byte are not the stream's.
    """

    offset: int
    bit: int
    unused: int


@functools.cache
def _load_library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_NAME)
    except OSError as error:
        raise UsageError(
            f"compression splice needs zlib's library, and {_NAME} cannot be loaded",
            hint="install it (zlib1g on Debian), or write `compression: gzip` in the spec",
        ) from error
    library.zlibVersion.restype = ctypes.c_char_p
    library.crc32_combine.restype = ctypes.c_ulong
    library.crc32_combine.argtypes = (ctypes.c_ulong, ctypes.c_ulong, ctypes.c_long)
    for name in ("inflate", "inflateEnd", "inflateInit2_"):
        getattr(library, name).restype = ctypes.c_int
    library.inflate.argtypes = (ctypes.POINTER(_Stream), ctypes.c_int)
    library.inflateEnd.argtypes = (ctypes.POINTER(_Stream),)
    library.inflateInit2_.argtypes = (ctypes.POINTER(_Stream), ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
    return library


def _find_buffer(size: int) -> ctypes.Array[ctypes.c_char]:
    """Returns this thread's buffer: a new one of 1 MiB costs more than most members, which are small."""
    buffer: ctypes.Array[ctypes.c_char] | None = getattr(_LOCAL, "buffer", None)
    if buffer is None or len(buffer) < size:
        buffer = _LOCAL.buffer = ctypes.create_string_buffer(size)
    return buffer


def combine_crc32(first: int, second: int, size: int) -> int:
    """Returns the CRC-32 of two pieces in a row from those of each; `size` is that of the second, in bytes."""
    return int(_load_library().crc32_combine(first, second, size))


class BlockInflater:
    """A decompressor with `zlib.decompressobj`'s interface, and `seam` once the stream has ended.

    It holds memory of the library until the `with` block ends. `mark` is the byte and the bit that mark the last block,
    None until that is reached.
    """

    def __init__(self) -> None:
        self.eof = False
        self.unconsumed_tail = b""
        self.unused_data = b""
        self._library = _load_library()
        self._stream = _Stream()
        self._before = 0  # bytes of the stream that earlier calls consumed
        self.mark: tuple[int, int] | None = None
        self._unused = 0
        self._newest = 0  # the byte that was taken last
        self._at_header = True  # a block's header begins with the next byte
        status = self._library.inflateInit2_(
            self._stream, -zlib.MAX_WBITS, self._library.zlibVersion(), ctypes.sizeof(_Stream)
        )
        if status != _Z_OK:
            raise MemoryError(f"inflateInit2: {status}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.inflateEnd(self._stream)

    @property
    def seam(self) -> Seam:
        """Where the stream that has ended can be opened."""
        if self.mark is None or not self.eof:
            raise ValueError("the stream has not ended")
        return Seam(*self.mark, unused=self._unused)

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Inflates `data` to at most `limit` bytes; what is left is in `unconsumed_tail`. Raises zlib.error."""
        stream = self._stream
        output = _find_buffer(limit)
        stream.next_in, stream.avail_in = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data)
        stream.next_out, stream.avail_out = ctypes.addressof(output), limit
        if self._at_header and data:
            self._read_header(data[0], 0, 0)
        while not self.eof:
            status = self._library.inflate(stream, _Z_BLOCK)
            if status not in {_Z_OK, _Z_STREAM_END, _Z_BUF_ERROR}:
                raise zlib.error(f"Error {status} while decompressing data: {(stream.msg or b'').decode()}")
            self.eof = status == _Z_STREAM_END
            if not self.eof and stream.data_type & _BETWEEN_BLOCKS:
                consumed, unused = len(data) - stream.avail_in, stream.data_type & _UNUSED_BITS
                if self.mark is not None:
                    self._unused = unused  # at the end of the stream zlib has dropped these bits
                elif unused:  # the header begins in the byte that was taken last, perhaps by an earlier call
                    self._read_header(data[consumed - 1] if consumed else self._newest, consumed - 1, 8 - unused)
                elif stream.avail_in:
                    self._read_header(data[consumed], consumed, 0)
                else:
                    self._at_header = True
            if status == _Z_BUF_ERROR or not stream.avail_out or not (stream.avail_in or self.eof):
                break
        if stream.avail_in < len(data):
            self._newest = data[len(data) - stream.avail_in - 1]
        rest = data[len(data) - stream.avail_in :]
        self.unused_data, self.unconsumed_tail = (rest, b"") if self.eof else (b"", rest)
        self._before += len(data) - len(rest)
        return ctypes.string_at(output, limit - stream.avail_out)

    def _read_header(self, byte: int, index: int, bit: int) -> None:
        """Notes the mark of the last block if the block whose header begins in `byte` has it."""
        self._at_header = False
        if byte >> bit & 1:
            self.mark = (self._before + index, bit)
