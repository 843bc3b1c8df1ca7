"""The services that `scripts/services up` started, for tests that use them."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import forked_imgtool
from tests.integration.push_world import Project, Wheels, make_base
from tests.local.project import Project as ScriptProject
from tests.local.project import unique
from tests.make.engines.support import shared_engine
from tests.outputs import check_output
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import list_tags, run_registry
from training_imgtool.make.engines.docker.engine import DockerEngine

CHECKOUT = Path(__file__).resolve().parents[2]
BASE = "library/python:3.11-slim-bookworm"
MNIST = CHECKOUT / "images/mnist"
Run = Callable[..., "subprocess.CompletedProcess[str]"]
MakeCluster = Callable[..., ScriptProject]


@dataclass(frozen=True)
class Mnist:
    """images/mnist in the registry: each role's image by digest, and the environment that finds them."""

    images: dict[str, str]
    env: dict[str, str]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerEngine]:
    """A Docker Engine for the tests of one file."""
    with shared_engine(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture
def cluster(engine: DockerEngine, tmp_path: Path) -> Iterator[MakeCluster]:
    """Makes projects whose images are scripts; at the end, no container of theirs is left."""
    made: list[ScriptProject] = []

    def make(scripts: dict[str, str], **changes: Any) -> ScriptProject:
        made.append(ScriptProject(tmp_path, engine, scripts, **{"name": unique(tmp_path), **changes}))
        return made[-1]

    yield make
    for one in made:
        left = one.left()
        one.remove()
        assert not left


@pytest.fixture(scope="session")
def registry_address() -> str:
    """`HOST:PORT` of the registry that holds the stand-in bases; skips where there is none."""
    try:
        address = str(json.loads((CHECKOUT / ".services/state.json").read_text())["registry"])
    except (OSError, ValueError, KeyError):
        address = "127.0.0.1:5000"
    repository, _, tag = BASE.partition(":")
    if tag not in list_tags(address, repository):
        pytest.skip(f"no registry with {BASE} answers at {address} (scripts/services up)")
    return address


@pytest.fixture(scope="session")
def services_env(registry_address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment for an `imgtool` of its own: bases from the local registry, images to a repository below it.

    The user's cache is used where it is, so that wheels are downloaded once; IMGTOOL_CACHE of a test overrides it.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IMGTOOL_")}
    place = tmp_path_factory.getbasetemp().name.replace("_", "-").lower()
    return {
        **kept,
        "IMGTOOL_MIRRORS": f"docker.io={registry_address}",
        "IMGTOOL_REGISTRY": f"{registry_address}/test/{place}",
    }


@pytest.fixture(scope="session")
def imgtool(services_env: dict[str, str]) -> Run:
    """Runs `imgtool ARGUMENTS…` as a process; keyword arguments: env (added), cwd, timeout, check."""

    def run(
        *arguments: str | Path,
        env: dict[str, str] | None = None,
        cwd: Path = CHECKOUT,
        timeout: float = 600,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "imgtool"), *map(str, arguments)]
        environ = {**services_env, **(env or {})}
        if forked_imgtool.reads_late(environ):
            code, out, err = forked_imgtool.run(arguments, environ, cwd, timeout)
            done = subprocess.CompletedProcess(command, code, out.decode(), err.decode())
        else:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
            done = subprocess.run(command, env=environ, cwd=cwd, timeout=timeout, check=False, **options)
        check_output(arguments, done.stdout)
        if check and done.returncode:
            pytest.fail(f"imgtool {' '.join(map(str, arguments))} exited with {done.returncode}:\n{done.stderr}")
        return done

    return run


@pytest.fixture(scope="session")
def mnist(imgtool: Run, registry_address: str, tmp_path_factory: pytest.TempPathFactory) -> Mnist:
    """images/mnist, pushed once for all processes of a run, to a repository that no other run has."""
    mine = tmp_path_factory.getbasetemp()
    shared = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    env = {"IMGTOOL_REGISTRY": f"{registry_address}/test/mnist-{shared.stat().st_ino}"}
    images = shared / "mnist.json"
    with (shared / "mnist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not images.exists():
            lines = imgtool("build", "--push", MNIST, "--progress", "plain", env=env).stdout.splitlines()
            images.write_text(json.dumps(dict(line.split(" ", 1) for line in lines)))
    return Mnist(json.loads(images.read_text()), env)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`HOST:PORT` of a registry of the module's own, with a made base."""
    with run_registry(tmp_path_factory.mktemp("registry")) as running:
        make_base().put(running.host)
        yield running.host


@pytest.fixture
def proxy(registry: str) -> Iterator[FaultProxy]:
    """Counts, delays and breaks what goes to that registry."""
    with FaultProxy(registry) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project on the made base, with wheels of its own."""
    return Project(tmp_path / "project", Wheels(tmp_path / "wheels"), make_base())
