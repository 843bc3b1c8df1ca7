"""E1, E2: what answers as an engine and is none, for the verbs that need one. The real engine's part is in
tests/integration/test_faults_engine.py."""

from __future__ import annotations

import threading

import pytest

from tests.faults.project import NO_ENGINE, Project
from tests.servers.scripted import Asked, Reply, ScriptedServer


def test_e01_none(project: Project) -> None:
    """`build` without --push goes to an engine; `auto` says so as well as `docker` does."""
    says = [f"Docker Engine not reachable at {NO_ENGINE} (from DOCKER_HOST): No such file or directory"]
    for engine in ("auto", "docker"):
        project.refused("build", "--engine", engine, "--json", code=5, says=says, hint="start it")
    project.refused("build", "--dry-run", code=5, says=says, hint="start it")


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(200, b"<html>hello</html>"), "answers, but not as a Docker Engine"),
        (Reply(200, b"OK", {"Api-Version": "1.20"}), "speaks API 1.20; 1.32 (Docker 17.09) or newer is needed"),
        (Reply(503, b"<html>busy</html>"), "503"),
        (Reply(200, b"OK", {"Api-Version": "1.41"}, length=999), "Docker Engine"),
    ],
)
def test_e02_no_engine_at_all(project: Project, reply: Reply, says: str) -> None:
    with ScriptedServer([reply]) as server:
        env = {"DOCKER_HOST": f"tcp://{server.host}"}
        project.refused("build", "--json", code=5, says=[says, server.host], env=env)


def test_e02_garbage_after_the_greeting(project: Project) -> None:
    def script(asked: Asked) -> Reply:
        if asked.target.endswith("/_ping"):
            return Reply(200, b"OK", {"Api-Version": "1.41"})
        return Reply(200, b"<html>not JSON</html>")

    with ScriptedServer(script) as server:
        project.refused("build", "--json", code=5, says=[server.host], env={"DOCKER_HOST": f"tcp://{server.host}"})


def test_e02_hangs(project: Project) -> None:
    ended = threading.Event()

    def script(asked: Asked) -> Reply:
        del asked
        ended.wait(120)
        return Reply(200)

    with ScriptedServer(script) as server:
        env = {"DOCKER_HOST": f"tcp://{server.host}"}
        project.refused("build", "--json", code=5, says=["no answer in time"], env=env)
        ended.set()


def test_e07_the_engines_disk_is_full(project: Project) -> None:
    """Not tried again, and told apart from a step that fails."""
    full = b'{"message":"write /var/lib/docker/tmp/x: no space left on device"}'

    def script(asked: Asked) -> Reply:
        if asked.target.endswith("/_ping"):
            return Reply(200, b"OK", {"Api-Version": "1.41"})
        return Reply(500, full, {"Content-Type": "application/json"})

    with ScriptedServer(script) as server:
        env = {"DOCKER_HOST": f"tcp://{server.host}"}
        project.refused("build", "--json", code=5, says=["no space left on device"], hint="docker system df", env=env)
