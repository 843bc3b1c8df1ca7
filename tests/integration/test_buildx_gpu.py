"""A GPU image of images/mnist whose `run` lines BuildKit runs: with apt, on the stand-in nvidia/cuda base.

`scripts/services up cuda engine28 buildx` fetches two gigabytes first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.project import IMGTOOL, NO_ENGINE
from tests.integration.buildkit_world import BUILDX
from tests.make.engines.support import private_engine
from tests.sampling import campaign
from tests.servers.buildkit_proxy import BuildKitProxy, buildkit_proxy
from tests.servers.network_bridge import forward_port, proxy_http
from tests.servers.registry_process import list_tags

pytestmark = [pytest.mark.registry, pytest.mark.network, pytest.mark.slow, pytest.mark.long]

CHECKOUT = Path(__file__).resolve().parents[2]
CUDA_TAG = "12.2.2-cudnn8-runtime-ubuntu22.04"
DOCKER0 = "172.17.0.1"
HELLO = "apt-get update && apt-get install --yes hello"  # the Debian packages of the spec alone need no engine


@dataclass
class Gpu:
    """A copy of images/mnist with a GPU master, the environment of a machine without an engine, and its builder."""

    folder: Path
    environ: dict[str, str]
    proxy: BuildKitProxy
    options: tuple[str, ...]

    def push(self, *options: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Runs `imgtool push`, which must succeed."""
        command = [str(IMGTOOL), "push", "--progress", "plain", *options, str(self.folder)]
        done = subprocess.run(command, env={**self.environ, **changes}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(params=campaign(["remote", "docker"], ["remote"]))
def gpu(
    request: pytest.FixtureRequest, registry_address: str, services_env: Mapping[str, str], tmp_path: Path
) -> Iterator[Gpu]:
    if not (BUILDX / "docker-buildx").exists():
        pytest.skip("no buildx (scripts/services up buildx)")
    if CUDA_TAG not in list_tags(registry_address, "nvidia/cuda"):
        pytest.skip(f"no nvidia/cuda:{CUDA_TAG} in {registry_address} (scripts/services up cuda)")
    folder = tmp_path / "mnist"
    shutil.copytree(CHECKOUT / "images/mnist", folder, ignore=shutil.ignore_patterns("__pycache__", "*.lock"))
    lines = (folder / "gpu.yaml").read_text().splitlines()
    master = [line for line in lines if not line.startswith(("  worker:", "  ps:"))]
    (folder / "image.yaml").write_text("\n".join([*master, f"run: [{HELLO}]", ""]))
    with ExitStack() as stack:
        daemon = {"features": {"containerd-snapshotter": True}}
        engine = stack.enter_context(private_engine("engine28", options="", daemon=daemon))
        pid = engine.process.pid
        stack.enter_context(forward_port(registry_address, beside=pid))
        proxy = stack.enter_context(buildkit_proxy(engine.host, beside=os.getpid()))
        http = stack.enter_context(proxy_http(DOCKER0, beside=pid))
        (tmp_path / "docker").mkdir()
        (tmp_path / "docker/config.json").write_text(json.dumps({"proxies": {"default": {"httpProxy": http}}}))
        environ = {
            **services_env,
            "PATH": f"{BUILDX}:{os.environ['PATH']}",
            "DOCKER_CONFIG": str(tmp_path / "docker"),
            "DOCKER_HOST": engine.host if request.param == "docker" else NO_ENGINE,
            "IMGTOOL_REGISTRY": f"{registry_address}/test/buildx-gpu-{time.time_ns()}",
            "IMGTOOL_BUILDER_REGISTRIES": f"docker.io={registry_address}",
        }
        options: tuple[str, ...] = ()
        if request.param == "remote":
            create = [str(BUILDX / "docker-buildx"), "create", "--name", "team", "--driver", "remote", proxy.address]
            subprocess.run(create, env=environ, check=True, capture_output=True)
            options = (*options, "--builder", "team")
        yield Gpu(folder, environ, proxy, options)


def test_the_lines_of_a_gpu_image(gpu: Gpu, tmp_path: Path) -> None:
    first = gpu.push(*gpu.options)
    pushed = [line for line in first.stderr.splitlines() if line.startswith("[run gpu] pushed")]
    assert len(pushed) == 1, first.stderr
    assert "master: needs an engine" not in first.stderr
    assert gpu.proxy.received < 1_000_000  # the wheels are 500 MB
    machine = {"IMGTOOL_CACHE": str(tmp_path / "cache"), "DOCKER_HOST": NO_ENGINE, "PATH": "/usr/bin:/bin"}
    assert gpu.push(**machine).stdout == first.stdout
