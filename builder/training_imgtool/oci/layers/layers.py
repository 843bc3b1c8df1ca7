"""Defines the type of a layer that is ready to push, and distributes wheels over layers.

Several medium layers are better than one large layer: engines push and unpack layers in parallel, and after a change,
imgtool sends only the changed layer again. Each large wheel has a layer of its own. Every other wheel is in one of a
few buckets, each of which is a layer. The hash of a wheel's name chooses the bucket, so that adding, removing or
upgrading a package changes only one bucket.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from training_imgtool.model.lock import Wheel
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind
from training_imgtool.oci.registry.manifests import Descriptor

MTIME = 315_619_200
"""1980-01-02T00:00:00Z, the time of every entry unless SOURCE_DATE_EPOCH gives another one.

Zip files cannot express times before 1980 in local time, so code that zips its own files (packaging a
trainer, exporting a model) fails on files of 1970. On January 2, it is 1980 in every time zone.
"""
FOLDER_MODE = 0o755
LARGEST_PART = 80_000_000
"""The most compressed bytes of a layer of wheels; only a single larger file makes a larger layer.

Nodes fetch and unpack layers in parallel, and this size is less than a quarter of every image with TensorFlow. The size
is the same for all images, so that images with different packages share the layers of a wheel.
"""
_MOST_PARTS = 6  # of one group, approximately
_FEW = 1 << 20  # bytes too few for a layer
_LARGE = 16 << 20  # bytes of a wheel that gets a layer of its own
_MEDIUM = 1 << 20
_MOST_LARGE = 32  # layers; bytecode doubles their number, and the kernel's and Docker's limit is 127
_MEDIUM_BUCKETS, _SMALL_BUCKETS = 2, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSource:
    """A layer ready to be pushed.

    Attributes:
        descriptor: the blob's descriptor, with an OCI media type.
        diff_id: `sha256:` of the tar.
        history: the step that made the layer, for the config.
        open: yields the blob's bytes from the start, at every call, without keeping them in memory. It raises
            VerificationError at the end if the bytes do not match the digest.
        is_bytecode: whether the layer depends on the release of Python that compiled it.
    """

    descriptor: Descriptor
    diff_id: str
    history: str
    open: Callable[[], Iterator[bytes]]
    is_bytecode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Wheels that share a layer."""

    name: str
    wheels: tuple[Wheel, ...]

    @property
    def size(self) -> int:
        """The total size of the group's wheels in bytes."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def is_large(self) -> bool:
        """Whether the group has at least the size of a wheel that gets its own layer."""
        return self.size >= _LARGE

    @property
    def largest_part(self) -> int:
        """The most bytes of a layer; imgtool splits the group's files into layers of at most this size."""
        return max(LARGEST_PART, self.size // _MOST_PARTS)


def group_wheels(wheels: tuple[Wheel, ...]) -> tuple[Group, ...]:
    """Groups wheels for layers: first each large wheel, the largest first, then the buckets. No group is empty."""
    large = sorted((wheel for wheel in wheels if wheel.size >= _LARGE), key=lambda wheel: (-wheel.size, wheel.name))
    groups = [Group(name=wheel.name, wheels=(wheel,)) for wheel in large[:_MOST_LARGE]]
    alone = {group.name for group in groups}
    buckets: dict[str, list[Wheel]] = {}
    for wheel in sorted(wheels, key=lambda wheel: wheel.name):
        if wheel.name not in alone:
            buckets.setdefault(_choose_bucket(wheel), []).append(wheel)
    groups += [Group(name=name, wheels=tuple(bucket)) for name, bucket in sorted(buckets.items())]
    return tuple(groups)


def _choose_bucket(wheel: Wheel) -> str:
    number = hashlib.sha256(wheel.name.encode()).digest()[0]
    if wheel.size >= _MEDIUM:
        return f"medium-{number % _MEDIUM_BUCKETS}"
    return f"small-{number % _SMALL_BUCKETS}"


def list_folders(paths: Iterable[str], top: str) -> tuple[str, ...]:
    """Lists, sorted, the parent folders of `paths` that are `top` (a relative path) or below `top`."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder not in folders and (folder == top or folder.startswith(f"{top}/")):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return tuple(sorted(folders))


def list_parents(path: str) -> Iterator[str]:
    """Yields the parent folders of a relative path, from the top down."""
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def make_folder_item(path: str, mode: int = FOLDER_MODE, uid: int = 0, gid: int = 0) -> Item:
    """Makes a folder's entry."""
    return Item(Entry(path=path, kind=Kind.FOLDER, mode=mode, uid=uid, gid=gid))


def split(items: Iterable[Item], top: str, largest: int) -> Iterator[list[Item]]:
    """Splits a layer's files into parts of limited size; each part has consecutive files and their parent folders.

    Args:
        items: the items in a layer's order.
        top: the folder below which a layer names folders.
        largest: the most bytes of a part, as compressed in the wheel. A larger file has a part of its own, which also
            gets the other files if they have few bytes.
    """
    rows = list(items)
    folders = {item.entry.path: item for item in rows if item.entry.kind is Kind.FOLDER}
    files = [item for item in rows if item.entry.kind is not Kind.FOLDER]
    large = [[item] for item in files if _size(item) > largest]
    small = [item for item in files if _size(item) <= largest]
    if large and sum(map(_size, small)) <= _FEW:
        large[0] += small
        small = []
    parts = [*_fill_bins(small, largest), *large]
    if len(parts) <= 1:
        yield rows
        return
    for part in parts:
        above = list_folders((item.entry.path for item in part), top)
        yield sort_items([*part, *(folders[path] for path in above if path in folders)])


def _size(item: Item) -> int:
    return item.member.compressed if item.member else len(item.data)


def _fill_bins(items: Iterable[Item], largest: int) -> Iterator[list[Item]]:
    """Yields lists of consecutive items; the items of one list have at most `largest` bytes together."""
    part: list[Item] = []
    size = 0
    for item in items:
        if part and size + _size(item) > largest:
            yield part
            part, size = [], 0
        part.append(item)
        size += _size(item)
    if part:
        yield part


def sort_items(items: Iterable[Item]) -> list[Item]:
    """Sorts items by path, so that each folder comes before its contents."""
    return sorted(items, key=lambda item: item.entry.path)
