"""Group C: what can be wrong with the files that go into an image. Exit 3 with the path; nothing leaves the machine."""

from __future__ import annotations

import json

import pytest

from tests.faults.project import SPEC, Project


def test_secrets_of_a_folder_beside_the_specs(project: Project) -> None:
    project.spec(SPEC.replace("source: trainer", "source: ../home"), lock=False)
    says = "../home: 1 file looks like a secret in the build context: .docker/config.json"
    project.refused("show", "--json", code=3, says=says, hint=".dockerignore")


@pytest.mark.registry
def test_data_beside_the_code_is_pointed_out(pushing: Project) -> None:
    """Once there is something to make; and the bytes that go up are shown as the role's, not the packages'."""
    (pushing.folder / "trainer/weights.bin").write_bytes(bytes(101_000_000))
    note = "101 MB of files go into the images with the code, 101 MB of it trainer/weights.bin; data belongs in"
    dry = pushing.run("push", "--dry-run")
    assert "weights.bin" not in dry.err
    ended = pushing.run("push", "--progress", "json")
    assert ended.code == 0, ended.err
    assert note in ended.err
    events = [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]
    large = [event for event in events if event["event"] == "transfer" and event["done"] > 50_000]
    assert {event["subject"] for event in large} <= {"master", "worker"}
    assert large
    again = pushing.run("push")
    assert "weights.bin" not in again.err
