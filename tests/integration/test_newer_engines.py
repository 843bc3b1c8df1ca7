"""Engines of this machine and of today: they take and run what imgtool loads.

`make test` fetches Docker Engine 28, and `make long` tries the others. For Podman 5: `scripts/services up podman5`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from tests.faults.private import Private, private_project
from tests.faults.project import SPEC, Ended
from tests.make.engines.support import BUSYBOX, PrivateEngine, private_engine, private_podman

pytestmark = [pytest.mark.registry, pytest.mark.slow]
OTHERS = ("this machine's Docker", "Docker 28, graph drivers", "Podman 5")  # the first one has tests of its own


@pytest.fixture(
    scope="module",
    params=[
        "Docker 28, containerd's store",
        *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS),
    ],
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Private]:
    if not BUSYBOX.is_file():
        pytest.skip("no /bin/busybox (apt install busybox-static)")
    daemon = {"features": {"containerd-snapshotter": "containerd" in request.param}}

    def start(registry: str) -> AbstractContextManager[PrivateEngine]:
        if request.param == "Podman 5":
            return private_podman(registry)
        if "machine" in request.param:
            return private_engine(options="")
        return private_engine("engine28", options="", daemon=daemon)

    with private_project(tmp_path_factory.mktemp("project"), start) as made:
        yield made


def run(world: Private, *arguments: str, code: int = 0) -> Ended:
    """Runs imgtool where the engine and the registry are."""
    ended = world.project.run(*arguments, "--json", before=world.before, timeout=120)
    assert ended.code == code, ended.err
    return ended


def outcomes(ended: Ended) -> dict[str, str]:
    return {image["role"]: image["outcome"] for image in ended.document["images"]}


def test_an_image_that_is_loaded(world: Private) -> None:
    """`build` and `run` find it in the engine by its key; after a change the engine may have the lower layers."""
    world.project.write("trainer/task.py", "print('first')\n")
    world.project.spec(SPEC.replace("  worker: {machine: n1-standard-4}\n", ""))
    assert outcomes(run(world, "build")) == {"master": "appended"}
    world.project.write("trainer/task.py", "print('loaded')\n")
    assert outcomes(run(world, "build")) == {"master": "appended"}
    assert outcomes(run(world, "build")) == {"master": "found"}
    ran = run(world, "run")
    assert "stage " not in ran.err
    assert "[master] found" in ran.err
