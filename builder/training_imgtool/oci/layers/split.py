"""Splits the files of one COPY into layers, so that imgtool sends few unchanged files again after one file changes.

A few megabytes of files are one layer. For more files, imgtool puts the large files into the first layers, and the
small files into the layers after them. Where a layer ends depends only on the paths and sizes of the files near its
end, and on the total size, rounded to a power of two. So the same files give the same layers on every machine, and most
layers do not change when a file is added, changed or removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import accumulate, compress

from training_imgtool.oci.layers.layers import list_parents
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Kind

MOST_PARTS = 24
_WHOLE = 4 << 20  # bytes of files that make one layer
_LARGE = 1 << 20  # bytes of a file that is too large for code

Contents = tuple[tuple[Item, str], ...]
"""Items in a layer's order, each with the hash of its content."""


def split(contents: Contents, most: int = MOST_PARTS) -> tuple[Contents, ...]:
    """Splits the contents into at most `most` parts that together give the same tree. The last part has all folders."""
    if most < 3 or _size(contents) <= _WHOLE:
        return (contents,)
    folders = {item.entry.path: (item, digest) for item, digest in contents if item.entry.kind is Kind.FOLDER}
    files = [content for content in contents if content[0].entry.kind is not Kind.FOLDER]
    large = tuple(content for content in files if content[0].entry.size >= _LARGE)
    small = tuple(content for content in files if content[0].entry.size < _LARGE)
    *first, last = _group(small, most - most // 3) or [()]
    groups = [*_group(large, most // 3), *first]
    rest = {item.entry.path: (item, digest) for item, digest in last} | folders
    parts = [_with_folders(group, folders) for group in groups]
    return (*parts, tuple(rest[path] for path in sorted(rest))) if rest else tuple(parts)


def _group(files: Contents, most: int) -> list[Contents]:
    """Groups files with neighbouring paths into groups of similar size."""
    if not files or most == 1:
        return [files] if files else []
    aim = 1 << max(_WHOLE, _size(files) * 2 // most).bit_length() - 1
    while len(groups := list(_cut(files, aim))) > most:
        aim *= 2
    return groups


def _cut(files: Contents, aim: int) -> Iterator[Contents]:
    """Ends a group after each file whose path has a smaller hash than all files less than `aim // 2` bytes away.

    So a group has at least half of `aim` bytes, and rarely more than three times `aim`.
    """
    ends = list(accumulate(item.entry.size for item, _ in files))
    hashes = [_hash(item.entry.path) for item, _ in files]
    is_last = [True] * len(files)
    smaller: list[int] = []  # numbers of files whose hashes ascend
    for number, end in enumerate(ends):
        while smaller and hashes[smaller[-1]] > hashes[number]:
            before = smaller.pop()
            is_last[before] &= end - ends[before] >= aim // 2
        if smaller:
            is_last[number] = end - ends[smaller[-1]] >= aim // 2
        smaller.append(number)
    is_last[-1] = True
    first = 0
    for number in compress(range(len(files)), is_last):
        yield files[first : number + 1]
        first = number + 1


def _hash(path: str) -> bytes:
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()


def _with_folders(group: Contents, folders: dict[str, tuple[Item, str]]) -> Contents:
    """Adds those parent folders of the group's files that the COPY contains."""
    above = {parent for item, _ in group for parent in list_parents(item.entry.path) if parent in folders}
    chosen = {path: folders[path] for path in above} | {item.entry.path: (item, digest) for item, digest in group}
    return tuple(chosen[path] for path in sorted(chosen))


def _size(contents: Iterable[tuple[Item, str]]) -> int:
    return sum(item.entry.size for item, _ in contents)
