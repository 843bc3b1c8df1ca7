"""A repository with only a config.yaml for AI Platform gets to Vertex AI with one command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.push_world import Machine, Project, Wheels, check_whole, make_base
from tests.servers.google_jobs import gcloud_environment, serving
from tests.servers.registry_process import run_registry

pytestmark = pytest.mark.registry
CONFIG = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: complex_model_m
  workerType: standard
  workerCount: 2
  scheduling: {maxRunningTime: 7200s}
"""
SUBMITTED = """\
gcloud ai-platform jobs submit training census_1 \\
    --config config.yaml --region us-central1 --runtime-version 2.15 --package-path trainer/ \\
    --module-name trainer.task --job-dir gs://my-bucket/census --labels team=vision -- --epochs 3 "a b"
"""


def test_from_config_yaml_to_a_job_that_gcloud_submits(tmp_path: Path) -> None:
    folder = tmp_path / "census"
    convert = ("config", "--from", "config.yaml", "--flags", SUBMITTED)
    with run_registry(tmp_path / "registry") as running:
        make_base().put(running.host)
        project = Project(folder, Wheels(tmp_path / "wheels"), make_base())
        machine = Machine(tmp_path / "machine", f"{running.host}/team", running.host)
        machine.give(project.wheels)
        (folder / "image.yaml").unlink()
        (folder / "image.lock").unlink()
        project.write("config.yaml", CONFIG)
        machine.run(*convert, "--spec", "image.yaml", cwd=folder)
        project.lock()  # there is no index here to make one from
        pushed = (*convert, "--set", "job.display_name=census two", "--push")
        _, errors = machine.run(*pushed, "-o", "vertex.yaml", cwd=folder)
        assert errors.count(" appended ") == 3  # the layers of the packages, and two roles
        pools = yaml.safe_load((folder / "vertex.yaml").read_text())["workerPoolSpecs"]
        images = [pool["containerSpec"]["imageUri"] for pool in pools]
        check_whole(running.host, images)
        command, again = machine.run(*pushed, "--command", "-o", "vertex.yaml", cwd=folder)
    assert again.count(" found ") == 2
    assert [pool["containerSpec"]["args"] for pool in pools] == [
        ["--epochs", "3", "a b", "--job-dir=gs://my-bucket/census"]
    ] * 2
    _submit(command, folder, images)


def _submit(command: str, folder: Path, images: list[str]) -> None:
    with serving() as server:
        env = {**os.environ, **gcloud_environment(server, folder / ".gcloud")}
        done = subprocess.run(["bash", "-c", command], env=env, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        body: Any = server.bodies[-1]
    assert body["labels"].pop("imgtool-job")
    assert (body["displayName"], body["labels"]) == ("census two", {"team": "vision"})
    pools = body["jobSpec"]["workerPoolSpecs"]
    assert [pool["containerSpec"]["imageUri"] for pool in pools] == images
    assert [pool["machineSpec"]["machineType"] for pool in pools] == ["n1-highcpu-16", "n1-standard-4"]
    assert [int(pool["replicaCount"]) for pool in pools] == [1, 2]
    assert body["jobSpec"]["scheduling"] == {"timeout": "7200s"}
