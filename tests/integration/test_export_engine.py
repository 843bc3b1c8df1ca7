"""What `render -o` writes, built by plain Docker: the stages of the design, run for real."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plans import locked, role_plan
from training_imgtool.commands.render import RenderedRole, export
from training_imgtool.context.context import Context, scan
from training_imgtool.core.reference import parse_repository
from training_imgtool.core.settings import from_environment
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.parse import parse
from training_imgtool.dockerfile.render import TemplateRoots, render
from training_imgtool.pipeline.content_key import stage_keys
from training_imgtool.plan import LockedVariant, RolePlan, Wheel
from training_imgtool.spec.model import Role
from training_imgtool.wheels.store import WheelStore

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

SIX = Wheel(
    name="six",
    version="1.16.0",
    file="six-1.16.0-py2.py3-none-any.whl",
    sha256="8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254",
    size=11053,
)
PIP = Wheel(
    name="pip",
    version="24.3.1",
    file="pip-24.3.1-py3-none-any.whl",
    sha256="3790624780082365f47549d032f3770eeb2b1e8bd1f7b2e02dace1afa361b4ed",
    size=1822182,
)
TASK = "import os, six\nprint(six.__version__, os.environ['A'], os.getuid(), os.getcwd())\n"
VALUE = "q\"u$o'te \\ `x` #é "


@pytest.fixture(scope="module")
def variant() -> LockedVariant:
    return dataclasses.replace(locked(wheels=(SIX,)), installer=PIP)


@pytest.fixture(scope="module")
def plan(registry_address: str, variant: LockedVariant) -> RolePlan:
    request = urllib.request.Request(
        f"http://{registry_address}/v2/library/python/manifests/3.11-slim-bookworm",
        method="HEAD",
        headers={
            "Accept": "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
        },
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        digest = answer.headers["Docker-Content-Digest"]
    base = parse_repository(f"{registry_address}/library/python").digest(digest)
    return role_plan(Role.WORKER, locked_variant=variant, base=base, env={"A": VALUE}, user="1000")


@pytest.fixture(scope="module")
def exported(plan: RolePlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spec")
    (folder / "trainer").mkdir()
    (folder / "trainer" / "__init__.py").write_text("")
    (folder / "trainer" / "task.py").write_text(TASK)
    context = with_wheels(scan(folder), plan.locked)
    key = stage_keys(parse(render(plan, roots=TemplateRoots(), key=None)), context, plan.platform, "gzip", {})["image"]
    text = render(plan, roots=TemplateRoots(), key=key)
    output = tmp_path_factory.mktemp("out")
    role = RenderedRole(role="worker", text=text, tags=(f"imgtool-test/export:{key[:32]}",))
    export(output, (role,), context, plan.platform)
    return output


def with_wheels(context: Context, variant: LockedVariant) -> Context:
    store = WheelStore(from_environment(os.environ))
    store.fetch((SIX, PIP))
    place = install_step.context_folder(variant)
    files = {f"{place}/{SIX.file}": SIX, f"{place}/installer/{PIP.file}": PIP}
    for path, wheel in files.items():
        context = context.with_known(path, sha256=wheel.sha256, size=wheel.size)
    context = context.with_bytes(
        f"{place}/{install_step.REQUIREMENTS}", install_step.requirements_text(variant).encode()
    )
    return context.with_files({path: store.require(wheel) for path, wheel in files.items()})


@pytest.fixture(scope="module")
def image(exported: Path) -> Iterator[Any]:
    import docker

    client = docker.from_env(timeout=300)
    built, _ = client.images.build(
        path=str(exported / "context"), dockerfile=str(exported / "worker.Dockerfile"), rm=True, forcerm=True
    )
    yield built
    client.images.remove(str(built.id), force=True)
    client.close()


@pytest.mark.long
def test_the_image_runs(image: Any) -> None:
    output = image.client.containers.run(image.id, remove=True, network_mode="none")
    assert output.decode() == f"1.16.0 {VALUE} 1000 /app\n"


def test_its_config_is_what_was_planned(image: Any, plan: RolePlan, exported: Path) -> None:
    config = image.attrs["Config"]
    env = dict(entry.split("=", 1) for entry in config["Env"])
    assert env["A"] == VALUE
    assert env["PATH"].startswith("/opt/venv/bin:")
    assert config["Entrypoint"] == list(plan.entrypoint)
    assert (config["User"], config["WorkingDir"]) == ("1000", "/app")
    labels = config["Labels"]
    assert labels.items() >= plan.labels.items()
    assert labels["org.opencontainers.image.base.digest"] == plan.base.digest
    assert labels["org.opencontainers.image.base.name"] == plan.base_name
    assert labels["dev.imgtool.key"] in (exported / "worker.Dockerfile").read_text()


def test_only_the_environment_and_the_code_are_new_layers(image: Any, plan: RolePlan) -> None:
    base = image.client.images.get(str(plan.base))
    layers, below = image.attrs["RootFS"]["Layers"], base.attrs["RootFS"]["Layers"]
    assert layers[: len(below)] == below
    assert len(layers) == len(below) + 2
    assert len(set(layers)) == len(layers)


def test_neither_pip_nor_wheels_stay(image: Any) -> None:
    find = ["find", "/opt/venv", "/wheels", "-maxdepth", "5"]
    output = image.client.containers.run(
        image.id, entrypoint=["sh", "-c", f"{' '.join(find)} 2>/dev/null || true"], remove=True, network_mode="none"
    ).decode()
    assert "/opt/venv/lib/python3.11/site-packages/six.py\n" in output
    assert "site-packages/__pycache__" in output
    assert "site-packages/pip" not in output
    assert "/wheels" not in output


def test_bake_makes_the_same_image(image: Any, exported: Path) -> None:
    docker = shutil.which("docker")
    probe = [docker or "docker", "buildx", "version"]
    if docker is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no docker buildx")
    subprocess.run([docker, "buildx", "bake"], cwd=exported, check=True, capture_output=True)
    key = image.attrs["Config"]["Labels"]["dev.imgtool.key"]
    baked = image.client.images.get(f"imgtool-test/export:{key[:32]}")
    try:
        for name in ("Env", "Labels", "Entrypoint", "User", "WorkingDir"):
            assert baked.attrs["Config"][name] == image.attrs["Config"][name]
    finally:
        image.client.images.remove(baked.id, force=True)
