"""Writes the tar archives of layers, with contents from memory, from wheels or from the build context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from training_imgtool.oci.layers.tarhead import END_OF_ARCHIVE, Entry, count_padding, make_header

if TYPE_CHECKING:
    from types import TracebackType

    from training_imgtool.base.wheel_zip import Member, WheelFile

VERSION = "tar-1"  # part of every cache key; change it when the bytes of archives change

Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Item:
    """An entry with its content: a wheel's member, the blocks that `blocks` returns, or `data`."""

    entry: Entry
    data: bytes = b""
    wheel: WheelFile | None = None
    member: Member | None = None
    blocks: Callable[[], Iterator[bytes]] | None = None


def write_tar(items: Iterable[Item], mtime: int) -> Iterator[bytes]:
    """Yields the archive of `items` in their order.

    Args:
        items: the entries.
        mtime: of every entry, in seconds since 1970.

    Raises:
        VerificationError: a wheel is damaged.
        LocalFileError: a wheel cannot be read.
    """
    with _Descriptors() as descriptors:
        for item in items:
            yield make_header(item.entry, mtime)
            if item.blocks is not None:
                yield from item.blocks()
            elif item.wheel is None or item.member is None:
                yield item.data
            else:
                from training_imgtool.base.wheel_zip import read_content  # loads zipfile, see `_Descriptors`

                yield from read_content(item.wheel, item.member, descriptors.stream(item.wheel, item.member))
            yield bytes(count_padding(item.entry.size))
        yield END_OF_ARCHIVE


class _Descriptors:
    """The open file descriptors of the wheels whose files a layer contains."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._open: dict[WheelFile, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def stream(self, wheel: WheelFile, member: Member) -> Iterator[bytes]:
        """Yields the member's compressed stream from the wheel."""
        # imported late: this loads zipfile, and the layer of a trainer's code needs none
        from training_imgtool.base.wheel_zip import open_descriptor, stream

        if wheel not in self._open:
            self._open[wheel] = self._stack.enter_context(open_descriptor(wheel))
        return stream(self._open[wheel], wheel, member)
