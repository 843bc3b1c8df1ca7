"""`imgtool verify` with engines of today, on a base that has Python: a good image passes, tampered ones end with 10.

`make test` has Docker 28 with containerd's store and one tampered image; `make long` has all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engines.support import PrivateEngine, private_engine, private_podman
from tests.integration.conftest import BASE
from tests.integration.verify_world import Toy, open_toy
from tests.servers.registry_process import PROGRAM, run_registry
from tests.verify.images import Layer
from tests.verify.tampering import CODE, OTHERS, VENV
from training_imgtool.core.reference import parse_repository
from training_imgtool.core.settings import from_environment
from training_imgtool.registry.connect import Registries

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow]
CONTAINERD, GRAPH, PODMAN = "Docker 28, containerd's store", "Docker 28, graph drivers", "Podman 5"
TAMPERED: dict[str, tuple[tuple[Layer | bytes, ...], str]] = {
    "code": ((CODE["other-code"][0],), "trainer"),
    "wheel": ((VENV["file-gone"][0],), "wheels"),
    **{name: (OTHERS[name][0], OTHERS[name][2]) for name in ("twice", "hard-none", "garbage", "diff-id", "arm64")},
}


@dataclass(frozen=True)
class World:
    """An engine and a registry in a network of their own, and the environments of the images in it."""

    toy: Toy
    before: tuple[str, ...]
    tampered: dict[str, dict[str, str]]

    def verify(self, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs `imgtool verify` there."""
        program = str(Path(sys.executable).parent / "imgtool")
        command = [*self.before, program, "verify", "--engine", "docker", "--locked", str(self.toy.folder)]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(
    scope="module",
    params=[CONTAINERD, pytest.param(GRAPH, marks=pytest.mark.long), pytest.param(PODMAN, marks=pytest.mark.long)],
)
def world(
    request: pytest.FixtureRequest, registry_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    root = tmp_path_factory.mktemp("world")
    with run_registry(root / "registry") as registry:
        _copy_base(registry_address, registry.host, root)
        env = {"HOME": str(root), "PATH": os.environ["PATH"], "IMGTOOL_MIRRORS": f"docker.io={registry.host}"}
        with open_toy(registry.host, {**env, "IMGTOOL_REGISTRY": f"{registry.host}/test"}, root) as toy:
            tampered = {
                name: {**env, **toy.faulty(name, layers, OTHERS[name][1] if name in OTHERS else None)}
                for name, (layers, _) in TAMPERED.items()
            }
    with _engine(request.param, registry.host) as engine, (root / "registry/log").open("ab") as log:
        before = ("nsenter", f"--net=/proc/{engine.process.pid}/ns/net", "--")
        command = [*before, PROGRAM, "serve", str(root / "registry/config.yml")]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            host = {"DOCKER_HOST": engine.host}
            toy.env.update({**env, **toy.env, **host})
            try:
                yield World(toy, before, {name: {**one, **host} for name, one in tampered.items()})
            finally:
                process.kill()


def _copy_base(source: str, target: str, home: Path) -> None:
    repository, _, tag = BASE.partition(":")
    with Registries(from_environment({"HOME": str(home)}), keep_tokens=False) as registries:
        theirs, ours = (parse_repository(f"{host}/{repository}") for host in (source, target))
        manifest = registries.at(theirs).manifest(theirs.tag(tag), "linux/amd64")
        for blob in (manifest.config, *manifest.layers):
            registries.copy_blob(theirs, blob, ours)
        registries.at(ours).put_manifest(ours.tag(tag), manifest.media_type, manifest.body)


def _engine(name: str, registry: str) -> AbstractContextManager[PrivateEngine]:
    if name == PODMAN:
        return private_podman(registry)
    return private_engine("engine28", options="", daemon={"features": {"containerd-snapshotter": name == CONTAINERD}})


@pytest.mark.long
def test_a_good_image_passes(world: World) -> None:
    done = world.verify(world.toy.env)
    assert done.returncode == 0, done.stderr
    assert "MISMATCH" not in done.stdout
    assert "on /CPU:0" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name if name == "code" else pytest.param(name, marks=pytest.mark.long) for name in TAMPERED]
)
def test_a_tampered_image_ends_with_10(world: World, name: str) -> None:
    done = world.verify(world.tampered[name])
    assert done.returncode == 10, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert sum(line.startswith(f"Error: master: {TAMPERED[name][1]}: found ") for line in lines) == 1, lines
