"""imgtool's own image, made by its direct builder: who may start it, what it carries, that it pushes without Docker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, check_whole
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.core.settings import from_environment
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.referrers import list_referrers

pytestmark = [pytest.mark.long, pytest.mark.engine, pytest.mark.network, pytest.mark.registry]
SCRIPT = Path(__file__).resolve().parents[2] / "scripts/tool-image"
LOCKED_DOWN = ("--user", "12345:0", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


@pytest.fixture(scope="module")
def image(services_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    env = {**services_env, "IMGTOOL_CACHE": str(tmp_path_factory.mktemp("cache"))}
    command: list[str | Path] = [sys.executable, SCRIPT, f"{env['IMGTOOL_REGISTRY']}/imgtool:test"]
    runs = [subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert runs[0] == runs[1], "the same wheels give the same digest"
    reference, size, unit = runs[0].split()
    assert unit == "MB"
    assert float(size) < 130
    return str(reference)


def run(image: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = ["docker", "run", "--rm", "--network", "host", *LOCKED_DOWN, *options, image, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_anybody_may_start_it_with_a_root_that_cannot_be_written(image: str) -> None:
    done = run(image, "--version")
    assert (done.returncode, done.stdout[:8]) == (0, "imgtool "), done.stderr


def test_it_has_a_bill_of_every_wheel(image: str, services_env: dict[str, str]) -> None:
    reference = parse_reference(image)
    assert isinstance(reference, Digest)
    with Registries(from_environment(services_env)) as registries:
        registry = registries.at(reference.repository)
        attached = {one.artifact_type: one for one in list_referrers(registry, reference)}
        described = attached["application/vnd.cyclonedx+json"].descriptor
        manifest = registry.manifest(reference.repository.digest(described.digest))
        bill = registry.read(reference.repository, manifest.layers[0]).decode()
    assert all(f'"pkg:pypi/{name}@' in bill for name in ("training-imgtool", "jinja2", "uv", "google-auth"))


def test_it_pushes_without_docker_as_any_user(image: str, registry: str, project: Project, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", f"{registry}/team", registry)
    machine.give(project.wheels)
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o777)  # the user of the container has no name here
    names = ("IMGTOOL_REGISTRY", "IMGTOOL_MIRRORS", "UV_INDEX_URL", "NO_GCE_CHECK")
    options = [word for name in names for word in ("--env", f"{name}={machine.env[name]}")]
    options += ["--env", "IMGTOOL_CACHE=/cache", "--volume", f"{machine.cache}:/cache", "--tmpfs", "/tmp:exec"]
    options += ["--volume", f"{project.folder}:/work:ro"]
    outcomes = []
    for _ in range(2):
        done = run(image, "push", "--locked", options=tuple(options))
        assert done.returncode == 0, done.stderr
        outcomes.append(dict(line.split(" ", 1) for line in done.stdout.splitlines()))
    assert outcomes[0] == outcomes[1]
    assert set(outcomes[0]) == {"master", "worker", "ps"}
    check_whole(registry, outcomes[0].values())
