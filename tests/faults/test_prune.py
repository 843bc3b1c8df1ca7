"""`imgtool prune` as a command: what it says, what it takes, and that the next run is none the worse for it."""

from __future__ import annotations

import os
import time

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


def test_what_was_used_lately_stays(pushing: Project) -> None:
    assert pushing.run("push").code == 0
    ended = pushing.run("prune", "--json")
    assert {row["freed"] for row in ended.document["kinds"]} == {0}
    then = time.time() - 8 * 86_400
    for path in pushing.cache.rglob("*.whl"):
        os.utime(path, (then, then))
    ended = pushing.run("prune", "--unused-for", "7", "--json")
    assert {row["kind"]: row["freed"] for row in ended.document["kinds"]}["wheels"] > 0


@pytest.mark.parametrize("days", ["-1", "nan", "soon"])
def test_days_that_are_none(pushing: Project, days: str) -> None:
    pushing.refused("prune", "--unused-for", days, code=2, says=["--unused-for"])
