"""Layers as one gzip member: the DEFLATE streams of wheels carried over, our own small pieces between them.

A wheel's member is a raw DEFLATE stream. With the mark of its last block cleared and its last byte filled up, others
can follow it, as zlib's example gzjoin.c does with gzip files. So nothing is compressed again, and the bytes depend on
the wheel and on the coder in `direct.layers.deflate` alone. One member, because readers that fetch layers piece by
piece, such as SOCI before 0.14, read the first member only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from training_imgtool.core.errors import VerificationError
from training_imgtool.core.inflate import crc32
from training_imgtool.direct.layers.block_inflater import BlockInflater, Seam
from training_imgtool.direct.layers.deflate import (
    EMPTY_LAST,
    GZIP_HEADER,
    Ending,
    close_byte,
    encode_fixed,
    encode_stored,
)
from training_imgtool.direct.layers.last_block import MOST, guess_seam
from training_imgtool.direct.layers.tarhead import END_OF_ARCHIVE, Entry, count_padding, make_header

if TYPE_CHECKING:
    from types import TracebackType

    from training_imgtool.core.wheel_zip import Member, WheelFile

VERSION = "splice-2"  # part of every cache key: change it when the bytes change
_CODED_MOST = 1024  # bytes of content that go through the coder together with their header
_COMPRESS_FROM = 4096  # bytes: a member that the wheel stores and that is this large is worth compressing
_LEVEL = 6
_GUESS_FROM = 8 << 20  # bytes of content: ISA-L then saves more than a guess costs, 6 ms

Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Item:
    """An entry with its content: a wheel's member, bytes of our own, or (in `tar` only) what `blocks` opens."""

    entry: Entry
    data: bytes = b""
    wheel: WheelFile | None = None
    member: Member | None = None
    blocks: Callable[[], Iterator[bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of our own."""

    data: bytes
    crc: int
    size: int


@dataclass(frozen=True, slots=True)
class Carried:
    """A member of a wheel, with the seam of its stream; without one if the wheel stores it."""

    wheel: WheelFile
    member: Member
    seam: Seam | None


Part = Piece | Carried


class WrongGuessError(VerificationError):
    """A wheel is damaged, or a stream's seam is not where it was guessed to be."""


def splice(
    items: Iterable[Item], mtime: int, sink: Sink, keep: Callable[[Part], object], *, guess: bool
) -> Iterator[bytes]:
    """Yields the layer's bytes, in blocks of any size.

    Args:
        items: in the layer's order.
        mtime: of every entry, in seconds since 1970.
        sink: takes the bytes of the tar, for the diff ID.
        keep: takes the layer's parts, of which `join` makes the same bytes with less work.
        guess: whether to guess where large streams have their seams, which is faster.

    Raises:
        WrongGuessError: a guess was wrong, or a wheel is damaged; only without guesses is it known which.
        VerificationError: a wheel is damaged.
        LocalFileError: a wheel cannot be read.
    """
    ending = Ending()

    def show(part: Part) -> None:
        keep(part)
        ending.add(*_sum(part))

    yield GZIP_HEADER
    with _Descriptors() as descriptors:
        for piece in _list_pieces(items, mtime):
            if isinstance(piece, Item):
                show((yield from _carry(descriptors, piece, sink, guess=guess)))
            else:
                data, encode = piece
                sink(data)
                part = Piece(encode(data), crc32(data, 0), len(data))
                show(part)
                yield part.data
    yield ending.make()


def join(parts: Iterable[Part]) -> Iterator[bytes]:
    """Yields the bytes of the layer that consists of `parts`, which nobody inflates or checks again."""
    ending = Ending()
    yield GZIP_HEADER
    with _Descriptors() as descriptors:
        for part in parts:
            ending.add(*_sum(part))
            if isinstance(part, Piece):
                yield part.data
            elif part.seam is None:
                yield from _deflate_blocks(descriptors.stream(part.wheel, part.member), part.member.compressed)
            else:
                yield from _open_stream(descriptors.stream(part.wheel, part.member), part.seam, part.member.compressed)
    yield ending.make()


def _sum(part: Part) -> tuple[int, int]:
    """Returns CRC-32 and size of what the part contains."""
    return (part.crc, part.size) if isinstance(part, Piece) else (part.member.crc, part.member.size)


def _list_pieces(items: Iterable[Item], mtime: int) -> Iterator[Item | tuple[bytes, Callable[[bytes], bytes]]]:
    """Yields what the layer consists of: a wheel's members, and bytes of the tar with the coder for them."""
    ours: list[bytes] = []  # tar bytes for our next piece
    for item in items:
        ours.append(make_header(item.entry, mtime))
        if item.wheel is None or item.member is None:
            if len(item.data) > _CODED_MOST:
                yield b"".join(ours), encode_fixed
                yield item.data, encode_stored
                ours.clear()
            else:
                ours.append(item.data)
        elif item.member.size:
            yield b"".join(ours), encode_fixed
            ours.clear()
            yield item
        ours.append(bytes(count_padding(item.entry.size)))
    ours.append(END_OF_ARCHIVE)
    yield b"".join(ours), encode_fixed


def tar(items: Iterable[Item], mtime: int) -> Iterator[bytes]:
    """Yields the same layer as a plain tar, for codecs that compress all of it."""
    with _Descriptors() as descriptors:
        for item in items:
            yield make_header(item.entry, mtime)
            if item.blocks is not None:
                yield from item.blocks()
            elif item.wheel is None or item.member is None:
                yield item.data
            else:
                from training_imgtool.core.wheel_zip import read_content  # loads zipfile, see `_Descriptors`

                yield from read_content(item.wheel, item.member, descriptors.stream(item.wheel, item.member))
            yield bytes(count_padding(item.entry.size))
        yield END_OF_ARCHIVE


class _Descriptors:
    """The open wheels of a layer."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._open: dict[WheelFile, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def stream(self, wheel: WheelFile, member: Member, skip: int = 0) -> Iterator[bytes]:
        """Yields the member's stream as it lies in the wheel, from byte `skip` on."""
        # imported late: this loads zipfile, and the layer of a trainer's code needs none
        from training_imgtool.core.wheel_zip import open_descriptor, stream

        if wheel not in self._open:
            self._open[wheel] = self._stack.enter_context(open_descriptor(wheel))
        return stream(self._open[wheel], wheel, member, skip)


def _carry(descriptors: _Descriptors, item: Item, sink: Sink, *, guess: bool) -> Generator[bytes, None, Carried]:
    """Yields the piece that a wheel's member becomes, its content goes to the sink; returns where its seam is."""
    from training_imgtool.core.wheel_zip import read_content

    wheel, member = item.wheel, item.member
    if wheel is None or member is None:
        raise AssertionError("not of a wheel")
    if not member.deflated:
        for block in read_content(wheel, member, descriptors.stream(wheel, member)):
            sink(block)
        yield from _deflate_blocks(descriptors.stream(wheel, member), member.compressed)
        return Carried(wheel, member, None)
    if guess and member.size >= _GUESS_FROM and (seam := _guess_seam(descriptors, wheel, member)):
        yield from _carry_opened(descriptors, wheel, member, seam, sink)
        return Carried(wheel, member, seam)
    passed: list[bytes] = []

    def show() -> Iterator[bytes]:
        for block in descriptors.stream(wheel, member):
            passed.append(block)
            yield block

    with BlockInflater() as engine:
        opened = 0  # bytes of the stream that were passed on

        def take() -> bytes:
            nonlocal opened
            data = b"".join(passed)
            passed.clear()
            last = engine.seam if engine.eof else None
            opened, start = opened + len(data), opened
            return _open_block(data, start, engine.mark, last)

        for plain in read_content(wheel, member, show(), engine):
            sink(plain)
            if len(passed) > 1:  # the inflater is done with all but the last one
                newest = passed.pop()
                yield take()
                passed.append(newest)
        yield take()
        return Carried(wheel, member, engine.seam)


def _guess_seam(descriptors: _Descriptors, wheel: WheelFile, member: Member) -> Seam | None:
    end = b"".join(descriptors.stream(wheel, member, max(0, member.compressed - MOST)))
    return guess_seam(end, member.compressed)


def _carry_opened(
    descriptors: _Descriptors, wheel: WheelFile, member: Member, seam: Seam, sink: Sink
) -> Iterator[bytes]:
    """Yields the piece that a member becomes if its seam is there, and proves it: what is yielded must inflate."""
    from training_imgtool.core.wheel_zip import read_content

    passed: list[bytes] = []

    def show() -> Iterator[bytes]:
        for block in _open_stream(descriptors.stream(wheel, member), seam, member.compressed):
            passed.append(block)
            yield block
        yield EMPTY_LAST

    try:
        for plain in read_content(wheel, member, show()):
            sink(plain)
            yield from passed
            passed.clear()
    except VerificationError as error:
        raise WrongGuessError(str(error), hint=error.hint) from error
    yield from passed


def _open_stream(blocks: Iterator[bytes], seam: Seam, size: int) -> Iterator[bytes]:
    """Yields a whole stream of `size` bytes as a piece."""
    start = 0
    for block in blocks:
        yield _open_block(block, start, (seam.offset, seam.bit), seam if start + len(block) == size else None)
        start += len(block)


def _open_block(data: bytes, start: int, mark: tuple[int, int] | None, last: Seam | None) -> bytes:
    """Clears the mark of the last block in a part of a stream that begins at `start`; `last` if it ends the stream."""
    has_mark = mark is not None and 0 <= mark[0] - start < len(data)
    if not has_mark and last is None:
        return data
    changed = bytearray(data)
    if mark is not None and has_mark:
        changed[mark[0] - start] &= ~(1 << mark[1])
    if last is not None:
        changed[-1:] = bytes([changed[-1] & (0xFF >> last.unused)]) + close_byte(last.unused)
    return bytes(changed)


def _deflate_blocks(blocks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yields a piece of content that the wheel does not compress."""
    if size < _COMPRESS_FROM:
        yield encode_stored(b"".join(blocks))
        return
    engine = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    for block in blocks:
        yield engine.compress(block)
    yield engine.flush(zlib.Z_SYNC_FLUSH)
