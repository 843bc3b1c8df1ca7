"""The main job on real services: one spec becomes three pushed images and a job file that names them."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import CHECKOUT
from tests.servers.fault_proxy import FaultProxy

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

Imgtool = Callable[..., "subprocess.CompletedProcess[str]"]
ROLES = ["master", "worker", "ps"]
NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """images/mnist in a folder of its own, where its lock may be written."""
    folder = tmp_path_factory.mktemp("project") / "mnist"
    ours = shutil.ignore_patterns("__pycache__", "*.lock", "config.yaml", "job")
    shutil.copytree(CHECKOUT / "images/mnist", folder, ignore=ours)
    return folder


@pytest.fixture(scope="module")
def proxy(registry_address: str) -> Iterator[FaultProxy]:
    """Counts what goes to the registry."""
    with FaultProxy(registry_address) as running:
        yield running


@pytest.fixture(scope="module")
def place(proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory, engine: str) -> dict[str, str]:
    """Images go through the proxy to a repository that nobody has used; what is remembered is nobody's either."""
    name = tmp_path_factory.getbasetemp().parent.name.replace("_", "-").lower()
    return {"IMGTOOL_REGISTRY": f"{proxy.host}/main/{engine}/{name}-{tmp_path_factory.mktemp('x').stat().st_ino}"}


def images(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What `build` printed: a reference by role."""
    return {role: reference for role, _, reference in (line.partition(" ") for line in done.stdout.splitlines())}


def sent(proxy: FaultProxy) -> int:
    """Bytes that went up."""
    return sum(exchange.received for exchange in proxy.log)


@pytest.fixture(scope="module", params=["auto", pytest.param("docker", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> str:
    """What `--engine` names: `auto` makes these images directly."""
    return str(request.param)


@pytest.fixture(scope="module")
def built(imgtool: Imgtool, spec: Path, place: dict[str, str], proxy: FaultProxy, engine: str) -> dict[str, str]:
    """The worker first, then all roles."""
    proxy.clear()
    worker = images(imgtool("build", "--role", "worker", "--push", "--engine", engine, spec, env=place))
    assert list(worker) == ["worker"]
    names = [exchange.path for exchange in proxy.log]
    assert any("worker-" in name for name in names)
    assert not any("master-" in name or "/ps-" in name for name in names)
    everything = images(imgtool("push", "--engine", engine, spec, env=place))
    assert everything["worker"] == worker["worker"]
    return everything


def test_each_digest_answers(built: dict[str, str]) -> None:
    assert list(built) == ROLES
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
    assert asked == {("HEAD", False): 3, ("GET", False): 3}
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


def test_the_images_run_and_train(built: dict[str, str]) -> None:
    version = subprocess.run(
        [
            "docker",
            "run",
            "--rm",
            "--entrypoint",
            "python",
            built["worker"],
            "-c",
            "import tensorflow; print(tensorflow.__version__)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout.strip() == "2.15.1"
    trained = subprocess.run(
        ["docker", "run", "--rm", built["master"], "--epochs=10", "--job-dir=/tmp/job"],
        capture_output=True,
        text=True,
        check=True,
    )
    accuracy = float(trained.stdout.partition("accuracy ")[2].split()[0])
    assert accuracy > 0.9


@pytest.mark.usefixtures("built")
def test_one_character_changes_the_tags_and_sends_only_the_code(
    imgtool: Imgtool, spec: Path, place: dict[str, str], proxy: FaultProxy, engine: str
) -> None:
    source = spec / "trainer/task.py"
    text = source.read_text()
    try:
        source.write_text(text + "#")
        before = json.loads(imgtool("build", "--push", "--engine", engine, "--json", spec, env=place).stdout)["images"]
        source.write_text(text + "##")
        proxy.clear()
        after = json.loads(imgtool("build", "--push", "--engine", engine, "--json", spec, env=place).stdout)["images"]
    finally:
        source.write_text(text)
    assert not {image["tag"] for image in before} & {image["tag"] for image in after}
    assert [image["outcome"] for image in after] == ["built" if engine == "docker" else "appended"] * 3
    assert sent(proxy) < 200_000  # three configs and manifests, and one layer of code
    layers = [layers_of(image["reference"]) for image in (*before, *after)]
    assert len({layer for found in layers for layer in found[:-1]}) == len(layers[0]) - 1


def layers_of(reference: str) -> list[str]:
    """The digests of an image's layers, lowest first."""
    host, _, rest = reference.partition("/")
    path, _, digest = rest.partition("@")
    request = urllib.request.Request(f"http://{host}/v2/{path}/manifests/{digest}")
    request.add_header("Accept", "application/vnd.docker.distribution.manifest.v2+json")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [layer["digest"] for layer in json.load(answer)["layers"]]
