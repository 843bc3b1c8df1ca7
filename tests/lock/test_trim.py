"""Which files a lock calls unused."""

from __future__ import annotations

import json

from training_imgtool.core.resources import data_file
from training_imgtool.lock.trim import unused_paths
from training_imgtool.lock.wheel_contents import ALWAYS, WheelContents, contents_of

NCCL = WheelContents(paths={"nvidia/nccl/lib/libnccl.so.2": (9, "nccl")}, names={"nccl": frozenset({"nccl", "curand"})})
CURAND = WheelContents(paths={"nvidia/curand/lib/libcurand.so.10": (5, "curand")})


def _user(*names: str) -> WheelContents:
    return WheelContents(names={ALWAYS: frozenset(names)})


def _paths(*rows: WheelContents) -> list[str]:
    return [unused.path for unused in unused_paths(rows)]


def test_what_nothing_names_is_unused() -> None:
    assert _paths(NCCL, CURAND) == ["nvidia/curand/lib/libcurand.so.10", "nvidia/nccl/lib/libnccl.so.2"]


def test_a_user_keeps_it_and_what_it_opens() -> None:
    assert _paths(NCCL, CURAND, _user("nccl")) == []
    assert _paths(NCCL, CURAND, _user("curand")) == ["nvidia/nccl/lib/libnccl.so.2"]


def test_the_shipped_table_says_what_was_measured() -> None:
    rows = {
        row["wheel"].partition("-cp")[0]: row
        for row in json.loads(data_file("wheel_contents.json").read_bytes()).values()
    }
    assert all(contents_of(row) for row in rows.values())
    assert rows["tensorflow-2.15.1"]["names"] == {}  # holds NCCL's code itself
    assert rows["tensorflow-2.20.0"]["names"] == {"": ["nccl"]}  # looks for libnccl.so at run time
