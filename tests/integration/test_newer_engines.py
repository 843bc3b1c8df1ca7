"""Engines of this machine and of today: everything that imgtool does with an engine, by the command line.

`make test` fetches Docker Engine 28, and `make long` tries the others. For Podman 5: `scripts/services up podman5`.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from tests.engines.support import BUSYBOX, PrivateEngine, private_engine, private_podman, settings
from tests.faults.private import Private, private_project
from tests.faults.project import SPEC, Ended
from training_imgtool.engines.docker.client import connect

pytestmark = [pytest.mark.registry, pytest.mark.slow]
OTHERS = ("this machine's Docker", "Docker 28, graph drivers", "Podman 5")  # the first one has tests of its own
OWN_STEP = """\
{% extends "base.Dockerfile.j2" %}
{% block BLOCK %}
RUN STEP
{% endblock %}
"""


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


def write_step(world: Private, block: str, step: str = "echo begun > /begun") -> None:
    """Gives the worker a RUN of its own: before its code, or in the stage below the wheels."""
    world.project.write("own.j2", OWN_STEP.replace("BLOCK", block).replace("STEP", step))
    world.project.spec(SPEC.replace("  worker: {machine", "  worker: {template: own.j2, machine"))


def outcomes(ended: Ended) -> dict[str, str]:
    return {image["role"]: image["outcome"] for image in ended.document["images"]}


def test_an_image_that_the_engine_builds_and_pushes(world: Private) -> None:
    write_step(world, "before_code")
    assert outcomes(run(world, "push", "--engine", "docker", "--role", "worker")) == {"worker": "built"}
    assert outcomes(run(world, "push", "--role", "worker")) == {"worker": "found"}
    assert outcomes(run(world, "build", "--role", "worker")) == {"worker": "found"}  # in the engine's own store
    checks = run(world, "verify", "--role", "worker", code=10).document["images"][0]["checks"]
    assert [(check["check"], check["status"]) for check in checks] == [("blobs", "ok"), ("image", "NOT PROVEN")]


def test_a_step_that_fails(world: Private) -> None:
    write_step(world, "before_code", "echo oh no; exit 7")
    error = run(world, "build", "--role", "worker", code=4).document["error"]
    assert error["message"].startswith("worker: RUN echo oh no; exit 7 (line ")
    assert error["message"].endswith("exit code 7")
    assert error["details"] == ["oh no"]


@pytest.mark.long
def test_an_image_on_a_stage_that_the_engine_pushes(world: Private) -> None:
    write_step(world, "system_extra")
    ended = run(world, "push")
    assert outcomes(ended) == {"master": "appended", "worker": "appended"}
    assert "[system cpu] pushed" in ended.err
    ran = run(world, "run")  # it pulls both images
    assert {replica["state"] for replica in ran.document["replicas"]} <= {"exited", "stopped"}


@pytest.mark.long
def test_an_image_that_is_loaded(world: Private) -> None:
    """`build` and `run` find it in the engine by its key."""
    world.project.write("trainer/task.py", "print('loaded')\n")
    world.project.spec(SPEC.replace("  worker: {machine: n1-standard-4}\n", ""))
    assert outcomes(run(world, "build", "--engine", "direct", "--load")) == {"master": "appended"}
    assert outcomes(run(world, "build")) == {"master": "found"}
    ran = run(world, "run")
    assert "stage " not in ran.err
    assert "[master] found" in ran.err


def push_at_once(world: Private, caches: list[Path]) -> list[tuple[str, str]]:
    """Pushes the worker from each cache, each once the one before runs its step; returns their digests and logs."""
    running: list[subprocess.Popen[bytes]] = []
    for cache in caches:
        env = {"IMGTOOL_CACHE": str(cache)}
        if running:
            assert any(line.startswith(b"[system") for line in running[-1].stderr or ())
        running.append(world.project.start("push", "--role", "worker", "--json", env=env, before=world.before))
    ended = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * len(running), ended
    return [(json.loads(out)["images"][0]["digest"], err.decode()) for out, err in ended]


@pytest.mark.long
def test_two_pushes_at_once_end_with_one_digest(world: Private) -> None:
    """What the step makes differs from run to run."""
    write_step(world, "system_extra", "head -c 100000 /dev/urandom > /noise; sleep 5")
    (first, _), (second, log) = push_at_once(world, [world.project.cache] * 2)
    assert first == second
    assert "waiting for process" in log
    assert "another run has pushed it" in log


@pytest.mark.long
def test_two_machines_that_push_at_once_end_with_one_digest(world: Private, tmp_path: Path) -> None:
    """Their caches, and so their locks, are others: the slower one finds the stage when it has run the step too.

    It stands still from its step on until the other one has pushed.
    """
    write_step(world, "system_extra", "head -c 100000 /dev/urandom > /noise; sleep 6")
    shutil.copytree(world.project.cache, tmp_path / "cache")
    pushes = []
    for cache in (world.project.cache, tmp_path / "cache"):
        env = {"IMGTOOL_CACHE": str(cache)}
        pushes.append(world.project.start("push", "--role", "worker", "--json", env=env, before=world.before))
        assert any(line.startswith(b"[system") for line in pushes[-1].stderr or ())
    first, second = pushes
    second.send_signal(signal.SIGSTOP)
    try:
        out, _ = first.communicate(timeout=120)
    finally:
        second.send_signal(signal.SIGCONT)
    other, log = second.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (0, 0)
    assert json.loads(out)["images"][0]["digest"] == json.loads(other)["images"][0]["digest"]
    assert b"another run has pushed it" in log or b"sent 0 B" in log


@pytest.mark.long
def test_prune_frees_what_pushes_left_in_the_engine(world: Private, tmp_path: Path) -> None:
    size = 20_000_000
    write_step(world, "system_extra", f"head -c {size} /dev/urandom > /noise")
    run(world, "push")
    with closing(connect(settings(tmp_path, DOCKER_HOST=world.engine.host))) as engine, engine.api.ask("") as client:
        names = {name for image in client.images() for name in image["RepoTags"] or ()}
        assert not [name for name in names if "system-" in name], "a name that only the push needed"
    ended = world.project.run("prune", "--all", "--json", env={"IMGTOOL_CACHE": str(tmp_path)}, before=world.before)
    stages = ended.document["engine"]
    assert stages["freed"] == stages["count"] > 0
    assert stages["freedBytes"] >= size


@pytest.mark.long
def test_the_engine_runs_one_stage_on_the_packages_that_imgtool_pushed(world: Private) -> None:
    """Also where the engine has made the stage `packages` before."""
    write_step(world, "before_code", "echo one stage > /stage")
    world.project.write("trainer/task.py", "print('one stage')\n")
    ended = run(world, "push")
    assert outcomes(ended) == {"master": "appended", "worker": "built"}
    assert "RUN set -eu" not in ended.err, "the engine installed the wheels too"
