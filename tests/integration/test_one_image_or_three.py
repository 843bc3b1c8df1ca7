"""Roles with the same inputs share an image, roles with different ones do not; the real gcloud sends their digests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.push_world import ROLES, Machine, Project, Wheels, make_base
from tests.servers.google_jobs import gcloud_environment, serving
from tests.servers.registry_process import run_registry

JOB = "job: {region: us-central1}\n"
MACHINE = "machine: n1-standard-4"
FIELDS = ("masterConfig", "workerConfig", "parameterServerConfig")


@pytest.mark.registry
@pytest.mark.parametrize(("differs", "count"), [(False, 1), (True, 3)], ids=["one", "three"])
def test_the_digests_of_three_roles(tmp_path: Path, *, differs: bool, count: int) -> None:
    with run_registry(tmp_path / "registry") as registry, serving() as service:
        base = make_base()
        base.put(registry.host)
        project = Project(tmp_path / "project", Wheels(tmp_path / "wheels"), base)
        text = (project.folder / "image.yaml").read_text().partition("roles:")[0]
        roles = [f"{role}: {{{MACHINE}, env: {{KIND: {role if differs else 'any'}}}}}" for role in ROLES]
        project.write("image.yaml", f"{text}roles: {{{', '.join(roles)}}}\n{JOB}")
        project.lock()
        machine = Machine(tmp_path / "home", f"{registry.host}/demo", registry.host)
        machine.give(project.wheels)
        pushed = machine.push(project)
        file = tmp_path / "config.yaml"
        machine.run("config", "--locked", "--target", "ai-platform", "-o", file, cwd=project.folder)
        command = file.read_text().partition("imgtool submit, or:\n")[2].partition("\njobId:")[0]
        env = {**os.environ, **gcloud_environment(service, tmp_path / "gcloud")}
        subprocess.run(["bash", "-c", command.replace("#", " ")], env=env, check=True, capture_output=True)
        training = service.bodies[-1]["trainingInput"]
        images = [training[field]["imageUri"] for field in FIELDS]
        assert images == list(pushed.values())
        assert len(set(images)) == count
