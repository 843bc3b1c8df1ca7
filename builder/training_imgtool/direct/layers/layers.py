"""What a layer is to everyone else, and how wheels are split into layers.

Several medium layers beat one large: they are pushed and unpacked side by side, and a change sends one of
them again. Each large wheel has its own; the others go into a fixed number of buckets by the hash of
their names, so that adding, dropping or renewing a package touches one bucket only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from training_imgtool.direct.layers.splice import Item
from training_imgtool.direct.layers.tarhead import Entry, Kind
from training_imgtool.plan import Wheel
from training_imgtool.registry.manifests import Descriptor

MTIME = 315_619_200
"""1980-01-02T00:00:00Z, of every entry unless SOURCE_DATE_EPOCH says otherwise.

Zip files cannot say anything before 1980 in local time, so code that zips its own files (packaging a
trainer, exporting a model) fails on 1970; a day later is 1980 in every time zone.
"""
FOLDER_MODE = 0o755
_LARGE = 16 << 20  # bytes of wheel: a layer of its own
_MEDIUM = 1 << 20
_MOST_LARGE = 32  # layers; with bytecode twice as many, and 127 is the kernel's and Docker's limit
_MEDIUM_BUCKETS, _SMALL_BUCKETS = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSource:
    """A layer ready to be pushed.

    Attributes:
        descriptor: of the blob; the type is an OCI one.
        diff_id: `sha256:` of the tar.
        history: what made it, for the config.
        open: the blob's bytes from the first on, as often as it is called; not kept in memory. It raises
            VerificationError at the end when they are not those of the digest.
    """

    descriptor: Descriptor
    diff_id: str
    history: str
    open: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Wheels that share a layer."""

    name: str
    wheels: tuple[Wheel, ...]

    @property
    def size(self) -> int:
        """Bytes of its wheels."""
        return sum(wheel.size for wheel in self.wheels)


def group_wheels(wheels: tuple[Wheel, ...]) -> tuple[Group, ...]:
    """Splits wheels into layers, the largest first, then the buckets; every group has at least one wheel."""
    large = sorted((wheel for wheel in wheels if wheel.size >= _LARGE), key=lambda wheel: (-wheel.size, wheel.name))
    groups = [Group(name=wheel.name, wheels=(wheel,)) for wheel in large[:_MOST_LARGE]]
    alone = {group.name for group in groups}
    buckets: dict[str, list[Wheel]] = {}
    for wheel in sorted(wheels, key=lambda wheel: wheel.name):
        if wheel.name not in alone:
            buckets.setdefault(_bucket(wheel), []).append(wheel)
    groups += [Group(name=name, wheels=tuple(bucket)) for name, bucket in sorted(buckets.items())]
    return tuple(groups)


def _bucket(wheel: Wheel) -> str:
    number = hashlib.sha256(wheel.name.encode()).digest()[0]
    if wheel.size >= _MEDIUM:
        return f"medium-{number % _MEDIUM_BUCKETS}"
    return f"small-{number % _SMALL_BUCKETS}"


def folders_of(paths: Iterable[str], top: str) -> tuple[str, ...]:
    """The folders that hold `paths`, from `top` (a relative path, included) downwards, sorted."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder not in folders and (folder == top or folder.startswith(f"{top}/")):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return tuple(sorted(folders))


def folder_item(path: str, mode: int = FOLDER_MODE, uid: int = 0, gid: int = 0) -> Item:
    """A folder's entry."""
    return Item(Entry(path=path, kind=Kind.FOLDER, mode=mode, uid=uid, gid=gid))


def in_order(items: Iterable[Item]) -> list[Item]:
    """Items as they stand in a layer: by path, so every folder is before what is in it."""
    return sorted(items, key=lambda item: item.entry.path)
