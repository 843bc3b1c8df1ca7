"""`imgtool prune` as a command: what it says, what it takes, and that the next run is none the worse for it."""

from __future__ import annotations

import pytest

from tests.faults.project import Project

pytestmark = pytest.mark.registry


def test_everything_goes_and_the_next_push_is_the_same(pushing: Project) -> None:
    before = pushing.images(pushing.run("push"))
    looked = pushing.run("prune", "--all", "--dry-run")
    assert looked.code == 0
    assert "would free " in looked.out
    assert list(pushing.cache.rglob("*.whl"))
    ended = pushing.run("prune", "--all", "--json")
    assert (ended.code, ended.document["ok"], ended.document["engine"]) == (0, True, None)
    assert ended.document["freedBytes"] > 0
    assert not [path for path in pushing.cache.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert pushing.images(pushing.run("push")) == before
    pushing.lock()  # which puts the wheels back
    pushing.env["IMGTOOL_REGISTRY"] += "again"
    again = pushing.images(pushing.run("push"))
    assert [name.partition("@")[2] for name in again.values()] == [name.partition("@")[2] for name in before.values()]
