"""The layers of one COPY: the same tree in parts that change as little as the files do."""

from __future__ import annotations

import hashlib
import random

import pytest

from training_imgtool.oci.layers.layers import make_folder_item
from training_imgtool.oci.layers.split import MOST_PARTS, Contents, split
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind

MB = 1 << 20


def _contents(files: dict[str, int], changed: str = "") -> Contents:
    folders = {path[:end] for path in files for end in range(len(path)) if path[end] == "/"}
    items = [make_folder_item(path) for path in folders]
    items += [Item(Entry(path=path, kind=Kind.FILE, mode=0o644, size=size)) for path, size in files.items()]
    hashes = {path: hashlib.sha256(f"{path}{path == changed}".encode()).hexdigest() for path in files}
    return tuple((item, hashes.get(item.entry.path, "")) for item in sorted(items, key=lambda item: item.entry.path))


def _names(part: Contents) -> list[str]:
    return [item.entry.path for item, _ in part]


def test_code_is_one_layer() -> None:
    contents = _contents({"app/a.py": 1000, "app/b/c.py": 3 * MB})
    assert split(contents) == (contents,)


def test_a_large_file_has_a_layer_before_that_of_the_code() -> None:
    contents = _contents({"app/data/large.bin": 300 * MB, "app/task.py": 1000, "app/z/model.h5": 20 * MB})
    *large, code = map(_names, split(contents))
    assert large == [["app", "app/data", "app/data/large.bin"], ["app", "app/z", "app/z/model.h5"]]
    assert code == ["app", "app/data", "app/task.py", "app/z"]


@pytest.mark.parametrize("seed", range(8))
def test_the_parts_are_the_tree_and_a_change_stays_in_one_of_them(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.choice([100, 5_000, 200_000, 2 * MB])
    files = {f"app/{chance.randrange(9)}/{n}.x": chance.randrange(1, 2 * size) for n in range(chance.randrange(3000))}
    files["app/large"] = 30 * MB
    before = split(_contents(files))
    assert len(before) <= MOST_PARTS
    assert sorted({content for part in before for content in part}, key=lambda one: one[0].entry.path) == list(
        _contents(files)
    )
    for part in before:  # every folder is before what is in it, and there if the COPY has it
        assert all(name.rpartition("/")[0] in {"", *_names(part)[:at]} for at, name in enumerate(_names(part)))
    name = chance.choice(list(files))
    assert len(set(split(_contents(files, name))) - set(before)) == 1
    del files[name]
    assert len(set(split(_contents(files))) - set(before)) <= 2
    files["app/3/new"] = 10
    assert len(set(split(_contents(files))) - set(before)) <= 3


def test_how_many_layers_there_may_be_is_a_limit() -> None:
    contents = _contents({f"app/{n}": 9 * MB for n in range(200)} | {f"app/s{n}": 90_000 for n in range(2000)})
    for most in (3, 7, MOST_PARTS):
        assert 1 < len(split(contents, most)) <= most
    assert split(contents, 2) == (contents,)
