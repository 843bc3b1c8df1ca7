"""Group E with a real Docker Engine, and without one: what it refuses, as the command line tells it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.base import put_base
from tests.faults.project import SPEC, Project
from tests.make.engines.support import BUSYBOX
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow]


@pytest.fixture(scope="session")
def registry_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A docker-registry that holds the base, which has a shell here."""
    if not BUSYBOX.is_file():
        pytest.skip("no /bin/busybox (apt install busybox-static)")
    with run_registry(tmp_path_factory.mktemp("registry")) as registry:
        put_base(registry.host)
        yield registry.host


@pytest.fixture
def proxy(registry_host: str) -> Iterator[FaultProxy]:
    """What stands between a project and the registry."""
    with FaultProxy(registry_host) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, proxy: FaultProxy) -> Iterator[Project]:
    """A project whose images go into this machine's engine."""
    made = Project(tmp_path)
    made.env["DOCKER_HOST"] = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    made.env["IMGTOOL_REGISTRY"] = f"{proxy.host}/t{made.mark[:12]}"
    made.env["IMGTOOL_MIRRORS"] = f"docker.io={proxy.host}"
    made.login(proxy.host)
    yield made
    names = docker(
        made,
        "images",
        "--format",
        "{{.Repository}}:{{.Tag}}",
        "--filter",
        f"reference={made.env['IMGTOOL_REGISTRY']}/*",
    )
    for name in names.split():
        docker(made, "rmi", "--force", name)


def docker(project: Project, *arguments: str) -> str:
    """What the docker program of the project's engine prints."""
    return subprocess.run(
        ["docker", *arguments], env=project.env, stdout=subprocess.PIPE, text=True, check=False
    ).stdout


def test_t04_values_reach_the_image(project: Project) -> None:
    """Quotes, dollars, backquotes, backslashes and spaces: the image's environment is the spec's, byte for byte."""
    env = {"A": "x\\", "B": "#$HOME \"`id`\" 'q'", "C": "  two  spaces ", "D": "${X:-y}\\n", "E": "ü€"}
    project.spec(SPEC + f"env: {json.dumps(env, ensure_ascii=False)}\n")
    ended = project.run("build", "--role", "worker", "--json")
    assert ended.code == 0, ended.err
    image = ended.document["images"][0]["image_id"]
    shown = json.loads(docker(project, "inspect", image))[0]["Config"]["Env"]
    assert env.items() <= dict(row.split("=", 1) for row in shown).items()


def test_e10_lines_need_buildx(project: Project) -> None:
    """An engine's own store takes no such image, and a push needs buildx."""
    project.spec(SPEC + "run: [make it]\n")
    says = ["the stage run needs an engine", "`run` has lines for a shell"]
    project.refused("build", "--role", "worker", "--json", code=5, says=says, hint="push to a registry")
    path = {"PATH": "/nonexistent"}
    project.refused("push", "--role", "worker", "--json", code=5, says=says, hint="buildx", env=path)
