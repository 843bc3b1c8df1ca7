"""A stream of blocks as a file, for readers that want one."""

from __future__ import annotations

import io
from collections.abc import Iterator


class BlockFile(io.RawIOBase):
    """A read-only file over blocks of any size."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""
        self._at = 0

    def readable(self) -> bool:
        """Says yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fills a part of `buffer`; 0 at the end."""
        while self._at == len(self._rest):
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest, self._at = block, 0
        count = min(len(buffer), len(self._rest) - self._at)
        buffer[:count] = self._rest[self._at : self._at + count]
        self._at += count
        return count
