"""A push whose lines a builder of buildx runs, in `make test`; test_buildx.py has the rest, for `make long`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.project import NO_ENGINE
from tests.integration.buildkit_world import BuildKitWorld, buildkit_world

pytestmark = [pytest.mark.registry, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildKitWorld]:
    with buildkit_world(tmp_path_factory.mktemp("world"), "docker") as made:
        yield made


def test_what_the_builder_ran_is_found_without_it(world: BuildKitWorld, tmp_path: Path) -> None:
    world.write_lines("echo begun > /begun", later=["cat /begun > /ended"])
    first = world.push()
    assert "[run cpu] pushed" in first.err
    assert "[setup cpu] pushed" in first.err
    assert not world.proxy.seen  # of the wheels
    fresh: dict[str, str | None] = {"IMGTOOL_CACHE": str(tmp_path), "DOCKER_HOST": NO_ENGINE, "PATH": "/usr/bin:/bin"}
    assert world.project.images(world.push(env=fresh)) == world.project.images(first)


def test_what_the_builder_ran_is_not_proven_and_may_be_accepted(world: BuildKitWorld) -> None:
    world.write_lines("true")
    world.push()
    options = ("--role", "worker")
    assert "worker: image: not proven: made by an engine: " in world.run("verify", *options, code=10).err
    assert "accepted" in world.run("verify", "--accept", "engine", *options).out
