"""In which order wheels are fetched while layers are made of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests import plans
from training_imgtool.base.errors import TemporaryError
from training_imgtool.base.progress import silent
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.wheels.prefetch import WheelPrefetcher


class Store:
    """Fetches when it is told to; keeps what began."""

    def __init__(self, failing: str = "") -> None:
        self.began: list[str] = []
        self.here: set[str] = set()
        self.changed = threading.Condition()
        self._may: dict[str, threading.Event] = {}
        self._failing = failing

    def may(self, name: str) -> threading.Event:
        return self._may.setdefault(name, threading.Event())

    def path(self, wheel: Wheel) -> Path | None:
        return Path(wheel.name) if wheel.name in self.here else None

    def fetch(self, wheels: Iterable[Wheel], progress: object) -> None:
        (wheel,) = wheels
        with self.changed:
            self.began.append(wheel.name)
            self.changed.notify_all()
        assert self.may(wheel.name).wait(10)
        if wheel.name == self._failing:
            raise TemporaryError("the index is gone")
        self.here.add(wheel.name)

    def require(self, wheel: Wheel) -> Path:
        return Path(wheel.name)

    def wait_for(self, count: int) -> list[str]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.began) >= count, 10)
            return list(self.began)


def wheels(**sizes: int) -> tuple[Wheel, ...]:
    return tuple(
        replace(plans.wheel(name, "1"), size=size, sha256=f"{number:064x}")
        for number, (name, size) in enumerate(sizes.items())
    )


def test_one_that_outweighs_the_others_goes_alone() -> None:
    store = Store()
    paths = WheelPrefetcher(cast("Any", lambda: store), silent)
    every = wheels(pip=2, small=10, tensorflow=230, medium=90)
    paths.expect(every)
    assert sorted(store.wait_for(2)) == ["pip", "tensorflow"]
    threading.Event().wait(0.1)
    assert len(store.began) == 2
    store.may("pip").set()
    store.may("small").set()
    store.may("medium").set()
    store.may("tensorflow").set()
    assert [str(paths.path(one)) for one in every] == ["pip", "small", "tensorflow", "medium"]
    paths.close()


def test_few_large_ones_come_side_by_side_and_small_ones_do_not_wait_for_them() -> None:
    store = Store()
    paths = WheelPrefetcher(cast("Any", lambda: store), silent)
    large = {"cudnn": 720 << 20, "tensorflow": 475 << 20, "cublas": 412 << 20, "cusparse": 195 << 20}
    paths.expect(wheels(pip=2 << 20, numpy=18 << 20, **large))
    assert sorted(store.wait_for(4)) == ["cudnn", "numpy", "pip", "tensorflow"]
    threading.Event().wait(0.1)
    assert len(store.began) == 4
    store.may("tensorflow").set()
    assert store.wait_for(5)[4] == "cublas"
    for name in ("pip", "numpy", *large):
        store.may(name).set()
    paths.close()


def test_what_is_here_is_not_fetched() -> None:
    store = Store()
    store.here = {"tensorflow", "small"}
    paths = WheelPrefetcher(cast("Any", lambda: store), silent)
    every = wheels(small=10, tensorflow=230, medium=90)
    store.may("medium").set()
    paths.expect(every)
    assert [str(paths.path(one)) for one in every] == ["small", "tensorflow", "medium"]
    assert store.began == ["medium"]
    paths.close()


def test_when_it_fails_nothing_else_is_begun() -> None:
    store = Store(failing="tensorflow")
    paths = WheelPrefetcher(cast("Any", lambda: store), silent)
    first, *others = wheels(pip=1, small=10, tensorflow=230)
    paths.expect((first, *others))
    store.may("tensorflow").set()
    for one in others:
        with pytest.raises(TemporaryError, match="the index is gone"):
            paths.path(one)
    assert sorted(store.began) == ["pip", "tensorflow"]
    store.may("pip").set()
    paths.close()
