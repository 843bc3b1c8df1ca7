"""How wheels form groups, and groups form layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import plans
from training_imgtool.model.lock import Wheel
from training_imgtool.oci.layers import layers
from training_imgtool.oci.layers.layers import group_wheels, make_folder_item, sort_items, split
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind


def test_a_part_has_the_folders_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def file(path: str, size: int) -> Item:
        return Item(Entry(path=path, kind=Kind.FILE, mode=0o644, size=size), data=bytes(size))

    monkeypatch.setattr(layers, "_FEW", 10)
    files = [file("v/a/1", 60), file("v/a/2", 30), file("v/b/3", 500), file("v/c", 20), file("v/d", 5)]
    items = sort_items([*files, *map(make_folder_item, ("v", "v/a", "v/b"))])
    assert [[item.entry.path for item in part] for part in split(items, "v", 100)] == [
        ["v", "v/a", "v/a/1", "v/a/2"],
        ["v", "v/c", "v/d"],
        ["v", "v/b", "v/b/3"],
    ]
    assert list(split(items, "v", 1000)) == [items]
    monkeypatch.setattr(layers, "_FEW", 115)
    assert list(split(items, "v", 100)) == [items]  # few bytes beside a large file


def test_groups() -> None:
    def wheel(name: str, size: int) -> Wheel:
        return replace(plans.wheel(name, "1"), size=size)

    assert group_wheels(()) == ()
    many = tuple(wheel(f"big-{n}", 20 << 20) for n in range(60)) + tuple(wheel(f"s{n}", 10) for n in range(90))
    groups = group_wheels(many)
    assert len(groups) <= 38
    assert sorted(w.name for group in groups for w in group.wheels) == sorted(w.name for w in many)
    assert all(group.wheels for group in groups)
    fewer = group_wheels(many[:-1])
    assert sum(group not in groups for group in fewer) <= 1
