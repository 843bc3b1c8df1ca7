"""imgtool's own image, made by its direct builder: who may start it, what it carries, that it pushes without Docker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.cosign import PASSWORD, find_program, make_keys
from tests.integration.push_world import Machine, Project, check_whole, referrers
from tests.servers.registry_process import list_tags
from training_imgtool.base.reference import Digest, parse_reference
from training_imgtool.base.settings import from_environment
from training_imgtool.oci.registry.connect import Registries

pytestmark = [pytest.mark.long, pytest.mark.engine, pytest.mark.network, pytest.mark.registry]
CHECKOUT = Path(__file__).resolve().parents[2]
BASE = "distroless/python3-debian12"
LOCKED_DOWN = ("--user", "12345", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
(BLOCK,) = re.findall(r"```yaml\n(apiVersion:.*?)```", (CHECKOUT / "docs/ci.md").read_text(), re.DOTALL)
JOB = yaml.safe_load(BLOCK)


@pytest.fixture(scope="module")
def env(services_env: dict[str, str], registry_address: str) -> dict[str, str]:
    if "nonroot" not in list_tags(registry_address, BASE):
        pytest.skip(f"no {BASE} at {registry_address} (scripts/services up distroless)")
    return {**services_env, "IMGTOOL_MIRRORS": f"gcr.io={registry_address}", "COSIGN_PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """cosign's folder, a private and a public key."""
    program = find_program("cosign3")
    return (program, *make_keys(tmp_path_factory.mktemp("keys"), program))


@pytest.fixture(scope="module")
def image(env: dict[str, str], keys: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The signed image's reference; made twice, on machines that share nothing."""
    runs = []
    for _ in range(2):
        own = {**env, "IMGTOOL_CACHE": str(tmp_path_factory.mktemp("cache")), "PATH": f"{keys[0]}:{env['PATH']}"}
        command: list[str | Path] = [sys.executable, CHECKOUT / "scripts/tool-image", "--sign", keys[1]]
        command.append(f"{env['IMGTOOL_REGISTRY']}/imgtool:test")
        runs.append(subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout)
    assert runs[0] == runs[1], "the same wheels give the same digest"
    reference, size, unit = runs[0].split()
    assert unit == "MB"
    assert float(size) < 75
    return str(reference)


def run(image: str, *arguments: str, options: tuple[str, ...] = LOCKED_DOWN) -> subprocess.CompletedProcess[str]:
    command = ["docker", "run", "--rm", "--network", "host", *options, image, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_anybody_may_start_it_with_a_root_that_cannot_be_written(image: str) -> None:
    done = run(image, "--version")
    assert (done.returncode, done.stdout[:8]) == (0, "imgtool "), done.stderr
    shell = run(image, options=(*LOCKED_DOWN, "--entrypoint", "/bin/sh"))
    assert "no such file" in shell.stderr


def test_it_is_signed_and_has_a_bill_of_every_package(
    image: str, env: dict[str, str], keys: tuple[Path, Path, Path]
) -> None:
    reference = parse_reference(image)
    assert isinstance(reference, Digest)
    (referrer,) = (one for one in referrers(image) if "cyclonedx" in str(one["artifactType"]))
    with Registries(from_environment(env)) as registries:
        registry = registries.at(reference.repository)
        manifest = registry.manifest(reference.repository.digest(referrer["digest"]))
        bill = registry.read(reference.repository, manifest.layers[0]).decode()
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(bill) is None
    assert all(f'"pkg:pypi/{name}@' in bill for name in ("training-imgtool", "jinja2", "uv", "google-auth"))
    assert all(f'"pkg:deb/debian/{name}@' in bill for name in ("libc6", "libssl3", "python3.11-minimal"))
    assert '"pkg:oci/python3-debian12@sha256' in bill
    check = [f"--key={keys[2]}", "--insecure-ignore-tlog=true", image]
    signed = subprocess.run([keys[0] / "cosign", "verify", *check], capture_output=True, check=True)
    assert reference.digest in signed.stdout.decode()


def as_options(step: Mapping[str, Any], places: Mapping[str, Path]) -> tuple[str, ...]:
    """How Docker restricts and mounts as a pod's container says; `places` has what volumes hold, by path."""
    secured = step["securityContext"]
    assert secured["runAsNonRoot"]
    assert secured["readOnlyRootFilesystem"]
    assert not secured["allowPrivilegeEscalation"]
    words = ["--user", "12345", "--read-only", "--security-opt", "no-new-privileges", "--workdir", step["workingDir"]]
    words += [f"--cap-drop={name}" for name in secured["capabilities"]["drop"]]
    words += [f"--env={row['name']}={row['value']}" for row in step["env"]]
    words += [f"--volume={folder}:{path}:ro" for path, folder in places.items()]
    words += [f"--tmpfs={row['mountPath']}:exec" for row in step["volumeMounts"] if row["mountPath"] not in places]
    return tuple(words)


def test_the_example_pushes_without_docker(image: str, registry: str, project: Project, tmp_path: Path) -> None:
    (step,) = JOB["spec"]["template"]["spec"]["containers"]
    machine = Machine(tmp_path / "machine", f"{registry}/job", registry)
    machine.give(project.wheels)
    (tmp_path / "login").mkdir()
    (tmp_path / "login/config.json").write_text("{}")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o777)  # the user of the container has no name here
    names = ("IMGTOOL_REGISTRY", "IMGTOOL_MIRRORS", "UV_INDEX_URL", "NO_GCE_CHECK")
    given = [f"--env={name}={machine.env[name]}" for name in names]
    given += ["--env=IMGTOOL_CACHE=/cache", f"--volume={machine.cache}:/cache"]
    options = as_options(step, {"/work": project.folder, "/login": tmp_path / "login"})
    outcomes = []
    for _ in range(2):
        done = run(image, *step["args"], options=(*options, *given))
        assert done.returncode == 0, done.stderr
        outcomes.append(dict(line.split(" ", 1) for line in done.stdout.splitlines()))
    assert outcomes[0] == outcomes[1]
    assert set(outcomes[0]) == {"master", "worker", "ps"}
    check_whole(registry, outcomes[0].values())
