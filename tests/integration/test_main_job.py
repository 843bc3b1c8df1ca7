"""The main job on real services: one spec becomes three pushed images and a job file that names them.

Then what a change costs with the real TensorFlow, here and on machines that have nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import CHECKOUT, MNIST
from tests.integration.push_world import Machine
from tests.integration.test_run_mnist import accuracy
from tests.servers.fault_proxy import Exchange, FaultProxy

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

Imgtool = Callable[..., "subprocess.CompletedProcess[str]"]
ROLES = ["master", "worker", "ps"]
NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
HOME = Path(os.environ.get("IMGTOOL_CACHE") or Path.home() / ".cache/imgtool")
# Requests of three roles after a change of code: 33 for the images, 19 of them questions for layers that they share;
# 6 for the attestations of each. A machine without state sends one more.
CHANGED = 51


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """images/mnist in a folder of its own, where its lock may be written."""
    folder = tmp_path_factory.mktemp("project") / "mnist"
    ours = shutil.ignore_patterns("__pycache__", "*.lock", "config.yaml", "job")
    shutil.copytree(MNIST, folder, ignore=ours)
    return folder


@pytest.fixture(scope="module")
def proxy(registry_address: str) -> Iterator[FaultProxy]:
    """Counts what goes to the registry."""
    with FaultProxy(registry_address) as running:
        yield running


@pytest.fixture(scope="module")
def place(proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Images go through the proxy to a repository that nobody has used; what is remembered is nobody's either."""
    name = tmp_path_factory.getbasetemp().parent.name.replace("_", "-").lower()
    return {"IMGTOOL_REGISTRY": f"{proxy.host}/main/{name}-{tmp_path_factory.mktemp('x').stat().st_ino}"}


def sent(proxy: FaultProxy) -> int:
    """Bytes that went up."""
    return sum(exchange.received for exchange in proxy.log)


def make_machine(folder: Path, place: dict[str, str], proxy: FaultProxy, *, wheels: bool) -> Machine:
    """A machine that shares nothing but the registry; with `wheels` also this one's wheels, else it cannot get any."""
    made = Machine(folder, place["IMGTOOL_REGISTRY"], proxy.host)
    if wheels:
        (HOME / "wheels").mkdir(parents=True, exist_ok=True)
        made.cache.mkdir()
        (made.cache / "wheels").symlink_to(HOME / "wheels")
        del made.env["UV_INDEX_URL"]
        made.env |= {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_"))}
    return made


@pytest.fixture(scope="module")
def first(
    services_env: dict[str, str],
    place: dict[str, str],
    proxy: FaultProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Machine:
    """The machine that pushes first: it has the wheels or fetches them, and an engine."""
    machine = make_machine(tmp_path_factory.mktemp("machines") / "first", place, proxy, wheels=True)
    machine.env["DOCKER_HOST"] = services_env.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    return machine


@dataclass(frozen=True)
class Built:
    """What came of the first pushes: a reference by role, and what went to the registry."""

    images: dict[str, str]
    log: tuple[Exchange, ...]


@pytest.fixture(scope="module")
def pushed(first: Machine, spec: Path, proxy: FaultProxy) -> Built:
    """The worker first, then all roles."""
    proxy.clear()
    worker = push(first, spec, "--role", "worker")
    assert list(worker) == ["worker"]
    names = [exchange.path for exchange in proxy.log]
    assert any("worker-" in name for name in names)
    assert not any("master-" in name or "/ps-" in name for name in names)
    everything = push(first, spec)
    assert everything["worker"] == worker["worker"]
    return Built(everything, tuple(proxy.log))


def push(machine: Machine, spec: Path, *options: str) -> dict[str, str]:
    """`imgtool build --push`: a reference by role."""
    # Takes minutes for TensorFlow beside other tests: this ends what hangs.
    out, _ = machine.run("build", "--push", *options, cwd=spec, timeout=1500)
    return dict(line.split(" ", 1) for line in out.splitlines())


@pytest.fixture(scope="module")
def built(pushed: Built) -> dict[str, str]:
    """The images of the first pushes."""
    return pushed.images


def test_each_digest_answers(built: dict[str, str]) -> None:
    assert list(built) == ROLES
    assert len({image.partition("@")[2] for image in built.values()}) == 1  # their inputs are the same
    for reference in built.values():
        host, _, rest = reference.partition("/")
        path, _, digest = rest.partition("@")
        request = urllib.request.Request(f"http://{host}/v2/{path}/manifests/{digest}", method="HEAD")
        request.add_header("Accept", "application/vnd.docker.distribution.manifest.v2+json")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.headers["Docker-Content-Digest"] == digest


def test_again_is_found_by_reading_manifests_and_without_an_engine(
    imgtool: Imgtool, spec: Path, place: dict[str, str], proxy: FaultProxy, built: dict[str, str]
) -> None:
    """Blobs are asked for where nothing of this machine's told yet whether the registry checks manifests."""
    proxy.clear()
    done = imgtool("build", "--push", "--json", spec, env={**place, **NO_ENGINE})
    assert [(image["role"], image["outcome"]) for image in json.loads(done.stdout)["images"]] == [
        (role, "found") for role in ROLES
    ]
    asked = Counter((exchange.method, "blobs" in exchange.path.split("/")) for exchange in proxy.log)
    asked.pop(("HEAD", True), None)
    assert asked == {("HEAD", False): 3, ("GET", False): 1}
    assert sent(proxy) == 0


def test_the_job_file_names_the_digests_and_passes_the_schema(
    imgtool: Imgtool, spec: Path, place: dict[str, str], built: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "config.yaml"
    done = imgtool("config", spec, "--target", "ai-platform", "-o", output, env={**place, **NO_ENGINE})
    assert "2025-01-31" in done.stderr
    assert "--target vertex" in done.stderr
    job = yaml.safe_load(output.read_text())
    assert job["trainingInput"]["masterConfig"]["imageUri"] == built["master"]
    assert job["trainingInput"]["workerConfig"]["imageUri"] == built["worker"]
    assert job["trainingInput"]["parameterServerConfig"]["imageUri"] == built["ps"]
    schema = CHECKOUT.parent / "shared/schemas/ai-platform-job.schema.json"
    if schema.exists():
        import jsonschema

        jsonschema.validate(job, json.loads(schema.read_text()))


def docker(*arguments: str) -> str:
    """What a command of Docker prints."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_master_image_trains_alone_to_nine_tenths(built: dict[str, str], tmp_path: Path) -> None:
    volume = f"{tmp_path}:/job"
    out = docker("run", "--rm", "--network=none", "-v", volume, built["master"], "--job-dir=/job", "--epochs=8")
    last = out.splitlines()[-1].split()
    assert last[0] == "accuracy"
    assert float(last[1]) > 0.9
    assert (tmp_path / "model/saved_model.pb").is_file()
    assert (tmp_path / "checkpoints/checkpoint").is_file()


@pytest.mark.long
def test_the_cluster_trains_and_saves_its_model(
    imgtool: Imgtool, spec: Path, place: dict[str, str], built: dict[str, str], tmp_path: Path
) -> None:
    """ParameterServerStrategy with all replicas in containers."""
    arguments = ("run", spec.name, "--job-dir", tmp_path / "job", "--", "--epochs=8")
    done = imgtool(*arguments, env=place, cwd=spec.parent, timeout=240)
    assert accuracy(done) > 0.9
    assert (tmp_path / "job/model/saved_model.pb").is_file()
    assert (tmp_path / "job/checkpoints/checkpoint").is_file()
    lines = done.stdout.splitlines()
    assert re.match(r"mnist as vertex: succeeded, \d+ s", lines[0])
    assert [line.split()[0] for line in lines[1:5]] == ["master", "worker-0", "worker-1", "ps-0"]
    assert "next: imgtool config mnist -o config.yaml" in done.stderr.splitlines()[-1]


@pytest.mark.long
@pytest.mark.usefixtures("built")
def test_the_images_pass_verify_without_an_engine(
    imgtool: Imgtool, first: Machine, spec: Path, place: dict[str, str]
) -> None:
    env = {**place, "IMGTOOL_MIRRORS": first.env["IMGTOOL_MIRRORS"]}  # a Dockerfile names the mirror
    imgtool("verify", spec, env=env)
