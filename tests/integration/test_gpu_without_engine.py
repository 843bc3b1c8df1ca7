"""The GPU examples on a machine without a docker program, whose DOCKER_HOST is a port that counts connections.

`scripts/services up cuda` makes the bases. Where there is an Engine, the images then import TensorFlow in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest
import yaml

from tests.conftest import engine_missing
from tests.integration.conftest import CHECKOUT, Run
from tests.integration.push_world import document
from tests.sampling import campaign
from tests.servers.running import running

pytestmark = [pytest.mark.registry, pytest.mark.network, pytest.mark.slow, pytest.mark.long]

BASES = {"nvidia/cuda": "12.2.2-cudnn8-runtime-ubuntu22.04", "library/python": "3.10-slim-bookworm"}
IMPORT = "import tensorflow as tf; print(tf.__version__, tf.sysconfig.get_build_info().get('cuda_version'))"


class _Counted(ThreadingTCPServer):
    """Accepts connections, counts them, and answers nothing."""

    def __init__(self) -> None:
        self.connections = 0
        super().__init__(("127.0.0.1", 0), BaseRequestHandler)

    def process_request(self, request: object, client_address: object) -> None:
        self.connections += 1
        self.shutdown_request(request)  # type: ignore[arg-type]  # a socket
        del client_address


@pytest.fixture
def dead_engine() -> Iterator[_Counted]:
    with running(server := _Counted()):
        yield server


def _programs(folder: Path) -> str:
    """A PATH with every program of this machine's but docker's."""
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in sorted(Path(place).iterdir()) if Path(place).is_dir() else ():
            target = folder / program.name
            if not program.name.startswith(("docker", "podman", "buildah", "nerdctl")) and not target.is_symlink():
                target.symlink_to(program)
    return str(folder)


def _need(registry: str, repository: str, tag: str) -> None:
    try:
        with urllib.request.urlopen(f"http://{registry}/v2/{repository}/tags/list", timeout=10) as answer:
            tags = json.load(answer)["tags"]
    except (urllib.error.URLError, ValueError, KeyError):
        tags = []
    if tag not in tags:
        pytest.skip(f"no {repository}:{tag} in {registry} (scripts/services up cuda)")


@pytest.mark.parametrize("spec", campaign(["gpu.yaml", "gpu-wheels.yaml"], ["gpu.yaml"]))
def test_the_example_needs_no_engine(
    spec: str, registry_address: str, imgtool: Run, dead_engine: _Counted, tmp_path: Path
) -> None:
    for repository, tag in BASES.items() if spec == "gpu.yaml" else ():
        _need(registry_address, repository, tag)
    folder = tmp_path / "mnist"
    shutil.copytree(CHECKOUT / "images/mnist", folder, ignore=shutil.ignore_patterns("__pycache__", "*.lock"))
    env = {
        "PATH": _programs(tmp_path / "bin"),
        "DOCKER_HOST": f"tcp://127.0.0.1:{dead_engine.server_address[1]}",
        "IMGTOOL_REGISTRY": f"{registry_address}/test/gpu-{time.time_ns()}",
    }
    assert shutil.which("docker", path=env["PATH"]) is None
    imgtool("lock", folder / spec, env=env, timeout=1500)
    images = dict(
        line.split() for line in imgtool("build", "--push", folder / spec, env=env, timeout=1500).stdout.splitlines()
    )
    assert sorted(images) == ["master", "ps", "worker"]
    for image in images.values():  # on a base of one layer; python:slim has five, nvidia/cuda ten
        assert len(document(registry_address, image)["layers"]) <= (30 if spec == "gpu.yaml" else 35)
    imgtool("config", folder / spec, "-o", tmp_path / "job.yaml", env=env)
    pools = yaml.safe_load((tmp_path / "job.yaml").read_text())["workerPoolSpecs"]
    assert {pool["containerSpec"]["imageUri"] for pool in pools if pool} == {*images.values()}
    checked = imgtool("verify", folder / spec, env=env, timeout=1500)
    assert "MISMATCH" not in checked.stdout
    assert dead_engine.connections == 0
    if engine_missing() is None:
        _import_in_docker({images["master"]: "2.15.1 12.2", images["ps"]: "2.15.1 None"})


def _import_in_docker(expected: dict[str, str]) -> None:
    for image, text in expected.items():
        command = ["docker", "run", "--rm", "--network=none", "--entrypoint=/opt/venv/bin/python", image, "-c", IMPORT]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert done.stdout.split()[-2:] == text.split()
        finally:
            subprocess.run(["docker", "rmi", "-f", image], capture_output=True, check=False)
