"""What a layer is to everyone else, and how wheels are split into layers.

Several medium layers beat one large: they are pushed and unpacked side by side, and a change sends one of
them again. Each large wheel has its own; the others go into a fixed number of buckets by the hash of
their names, so that adding, dropping or renewing a package touches one bucket only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from training_imgtool.model.plan import Wheel
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind
from training_imgtool.oci.registry.manifests import Descriptor

MTIME = 315_619_200
"""1980-01-02T00:00:00Z, of every entry unless SOURCE_DATE_EPOCH says otherwise.

Zip files cannot say anything before 1980 in local time, so code that zips its own files (packaging a
trainer, exporting a model) fails on 1970; a day later is 1980 in every time zone.
"""
FOLDER_MODE = 0o755
LARGEST_PART = 80_000_000
"""Bytes of a layer of wheels, compressed; only a file that is larger itself makes a larger layer.

Nodes fetch and unpack layers side by side, and this is less than a quarter of every image with TensorFlow. It does not
depend on the image, so that images with different packages share the layers of a wheel.
"""
_MOST_PARTS = 6  # of one group, about
_FEW = 1 << 20  # bytes that are not worth a layer
_LARGE = 16 << 20  # bytes of wheel: a layer of its own
_MEDIUM = 1 << 20
_MOST_LARGE = 32  # layers; with bytecode twice as many, and 127 is the kernel's and Docker's limit
_MEDIUM_BUCKETS, _SMALL_BUCKETS = 2, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSource:
    """A layer ready to be pushed.

    Attributes:
        descriptor: of the blob; the type is an OCI one.
        diff_id: `sha256:` of the tar.
        history: what made it, for the config.
        open: the blob's bytes from the first on, as often as it is called; not kept in memory. It raises
            VerificationError at the end when they are not those of the digest.
        is_bytecode: whether it depends on the release of Python that compiled it.
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
        """Bytes of its wheels."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def is_large(self) -> bool:
        """Whether it has the bytes that give a wheel a layer of its own."""
        return self.size >= _LARGE

    @property
    def largest_part(self) -> int:
        """Bytes at which its files are split into layers."""
        return max(LARGEST_PART, self.size // _MOST_PARTS)


def group_wheels(wheels: tuple[Wheel, ...]) -> tuple[Group, ...]:
    """Splits wheels into layers, the largest first, then the buckets; every group has at least one wheel."""
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
    """Lists the folders that hold `paths`, from `top` (a relative path, included) downwards, sorted."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder not in folders and (folder == top or folder.startswith(f"{top}/")):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return tuple(sorted(folders))


def list_parents(path: str) -> Iterator[str]:
    """Yields the folders that a relative path lies in, from the top."""
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def make_folder_item(path: str, mode: int = FOLDER_MODE, uid: int = 0, gid: int = 0) -> Item:
    """Makes a folder's entry."""
    return Item(Entry(path=path, kind=Kind.FOLDER, mode=mode, uid=uid, gid=gid))


def split(items: Iterable[Item], top: str, largest: int) -> Iterator[list[Item]]:
    """Splits a layer's files at a size: consecutive ones share a part, with the folders that they lie in.

    Args:
        items: in a layer's order.
        top: the folder below which a layer names folders.
        largest: bytes of a part, compressed as the wheel has it. A larger file has a part of its own, which takes the
            others too if they are few bytes.
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
    """Yields consecutive items, together at most `largest` bytes."""
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
    """Items as they stand in a layer: by path, so every folder is before what is in it."""
    return sorted(items, key=lambda item: item.entry.path)
