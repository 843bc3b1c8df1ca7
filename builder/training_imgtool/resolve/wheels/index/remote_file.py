"""Opens a file on an index, and reads only the requested parts."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, BinaryIO
from zipfile import BadZipFile

_TAIL = 128 << 10  # bytes at the end of a wheel, which mostly contain the directory and METADATA
_LONGEST = 8 << 20  # bytes of any other part; every directory is shorter
_BLOCK = 64 << 10

ReadFrom = Callable[[int], Generator[bytes, None, None]]
"""Yields the bytes of the file from an offset on."""


def open_remote(size: int, read: ReadFrom) -> BinaryIO:
    """Opens a remote file for zipfile. Requests the end first, other parts when needed; raises what `read` raises."""
    return io.BufferedReader(_RemoteFile(size, read), _BLOCK)


class _RemoteFile(io.RawIOBase):
    def __init__(self, size: int, read: ReadFrom) -> None:
        self._size, self._read, self._at = size, read, 0
        self._tail_at = max(0, size - _TAIL)
        self._tail = self._take(self._tail_at, size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if self._at < 0:
            raise OSError("a position before the start of the file")
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        end = min(self._at + len(view), self._size)
        if self._at >= self._tail_at:
            data = self._tail[self._at - self._tail_at : end - self._tail_at]
        else:
            data = self._take(self._at, min(end, self._at + _LONGEST + 1))
            if len(data) > _LONGEST:
                raise BadZipFile(f"a part of more than {_LONGEST} bytes")
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _take(self, start: int, end: int) -> bytes:
        taken = bytearray()
        with closing(self._read(start)) as blocks:
            for block in blocks:
                taken += block
                if len(taken) >= end - start:
                    break
        return bytes(taken[: end - start])
