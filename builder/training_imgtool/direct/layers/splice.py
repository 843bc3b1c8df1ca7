"""Layers as gzip members: the DEFLATE streams of wheels carried over, our own small members between them.

A gzip file may be a chain of members (RFC 1952, 2.2), and a wheel's member is a raw DEFLATE stream whose
CRC-32 and size the zip directory knows, which is all that a gzip member needs. So nothing is compressed
again, and the bytes depend on the wheel and on the coder in `direct.layers.deflate` alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_imgtool.direct.layers.deflate import GZIP_HEADER, encode_fixed, encode_stored, make_member, make_trailer
from training_imgtool.direct.layers.tarhead import END_OF_ARCHIVE, Entry, count_padding, make_header

if TYPE_CHECKING:
    from training_imgtool.direct.layers.wheel_zip import Member, WheelFile

VERSION = "splice-1"  # part of every cache key: change it when the bytes change
_CODED_MOST = 1024  # bytes of content that go through the coder together with their header
_COMPRESS_FROM = 4096  # bytes: a member that the wheel stores and that is this large is worth compressing
_LEVEL = 6

Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Item:
    """An entry with its content: a wheel's member, bytes of our own, or (in `tar` only) what `blocks` opens."""

    entry: Entry
    data: bytes = b""
    wheel: WheelFile | None = None
    member: Member | None = None
    blocks: Callable[[], Iterator[bytes]] | None = None


Part = bytes | Item
"""Of a spliced layer: gzip members of our own, or an item whose stream is carried over as one."""


def splice(
    items: Iterable[Item], mtime: int, sink: Sink | None = None, keep: Callable[[Part], object] | None = None
) -> Iterator[bytes]:
    """The layer's bytes, in blocks of any size.

    Args:
        items: in the layer's order.
        mtime: of every entry, in seconds since 1970.
        sink: takes the bytes of the tar, for the diff ID. Without it nothing is inflated or checked.
        keep: takes the layer's parts, which `joined` makes the same bytes of with less work.

    Raises:
        VerificationError: a wheel is damaged (with a sink; without one only where a stream is cut short).
        LocalFileError: a wheel cannot be read.
    """
    parts = _make_parts(items, mtime, sink)
    return join(_show(parts, keep) if keep else parts, sink)


def join(parts: Iterable[Part], sink: Sink | None = None) -> Iterator[bytes]:
    """The layer that consists of `parts`. Raises as `splice` does; the sink takes the content of streams alone."""
    with ExitStack() as stack:
        descriptors: dict[WheelFile, int] = {}
        for part in parts:
            if isinstance(part, bytes):
                yield part
            elif part.wheel is not None and part.member is not None:
                if part.wheel not in descriptors:
                    from training_imgtool.direct.layers.wheel_zip import (
                        open_descriptor,  # loads zipfile, and a trainer's code needs none
                    )

                    descriptors[part.wheel] = stack.enter_context(open_descriptor(part.wheel))
                yield from _carry(descriptors[part.wheel], part.wheel, part.member, sink)


def _show(parts: Iterable[Part], keep: Callable[[Part], object]) -> Iterator[Part]:
    for part in parts:
        keep(part)
        yield part


def _make_parts(items: Iterable[Item], mtime: int, sink: Sink | None) -> Iterator[Part]:
    ours: list[bytes] = []  # tar bytes for our next member
    for item in items:
        ours.append(make_header(item.entry, mtime))
        if item.wheel is None or item.member is None:
            if len(item.data) > _CODED_MOST:
                yield _make_own_member(ours, sink)
                yield _store_member(item.data, sink)
            else:
                ours.append(item.data)
        elif item.member.size:
            yield _make_own_member(ours, sink)
            yield item
        ours.append(bytes(count_padding(item.entry.size)))
    ours.append(END_OF_ARCHIVE)
    yield _make_own_member(ours, sink)


def tar(items: Iterable[Item], mtime: int) -> Iterator[bytes]:
    """The same layer as a plain tar, for codecs that compress all of it."""
    with ExitStack() as stack:
        descriptors: dict[WheelFile, int] = {}
        for item in items:
            yield make_header(item.entry, mtime)
            if item.blocks is not None:
                yield from item.blocks()
            elif item.wheel is None or item.member is None:
                yield item.data
            else:
                from training_imgtool.direct.layers.wheel_zip import open_descriptor, read_content, stream  # as above

                if item.wheel not in descriptors:
                    descriptors[item.wheel] = stack.enter_context(open_descriptor(item.wheel))
                yield from read_content(
                    item.wheel, item.member, stream(descriptors[item.wheel], item.wheel, item.member)
                )
            yield bytes(count_padding(item.entry.size))
        yield END_OF_ARCHIVE


def _make_own_member(parts: list[bytes], sink: Sink | None) -> bytes:
    data = b"".join(parts)
    parts.clear()
    if sink:
        sink(data)
    return make_member(data, encode_fixed(data))


def _store_member(data: bytes, sink: Sink | None) -> bytes:
    if sink:
        sink(data)
    return make_member(data, encode_stored(data))


def _carry(descriptor: int, wheel: WheelFile, source: Member, sink: Sink | None) -> Iterator[bytes]:
    from training_imgtool.direct.layers.wheel_zip import read_content, stream

    blocks = stream(descriptor, wheel, source)
    if not source.deflated:
        blocks = _deflate_blocks(blocks, source.compressed)
    yield GZIP_HEADER
    if sink is None:
        yield from blocks
    elif source.deflated:
        yield from _check(blocks, wheel, source, sink)
    else:
        for block in read_content(wheel, source, stream(descriptor, wheel, source)):
            sink(block)
        yield from blocks
    yield make_trailer(source.crc, source.size)


def _check(blocks: Iterator[bytes], wheel: WheelFile, source: Member, sink: Sink) -> Iterator[bytes]:
    """Passes the stream on and its content to the sink."""
    from training_imgtool.direct.layers.wheel_zip import read_content

    passed: list[bytes] = []

    def noted() -> Iterator[bytes]:
        for block in blocks:
            passed.append(block)
            yield block

    for plain in read_content(wheel, source, noted()):
        sink(plain)
        if passed:
            yield b"".join(passed)
            passed.clear()
    yield b"".join(passed)


def _deflate_blocks(blocks: Iterator[bytes], size: int) -> Iterator[bytes]:
    if size < _COMPRESS_FROM:
        yield encode_stored(b"".join(blocks))
        return
    engine = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    for block in blocks:
        yield engine.compress(block)
    yield engine.flush()
