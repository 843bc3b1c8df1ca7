"""`imgtool sign` and `verify --signature`, with cosign 2 and 3 as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cosign import PASSWORD, Recorder, find_program, make_keys
from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.oci.registry.support import machine as settings_of
from tests.servers.registry_process import run_registry
from tests.verify import images
from training_imgtool.base.reference import Digest, Tag, parse_reference
from training_imgtool.oci.registry.connect import Registries

pytestmark = pytest.mark.registry


@dataclass
class World:
    machine: Machine
    project: Project
    images: dict[str, str]

    def run(self, *arguments: str | Path, code: int = 0) -> tuple[str, str]:
        return self.machine.run(*arguments, cwd=self.project.folder, code=code)

    def findings(self, *signatory: str | Path) -> dict[str, str]:
        """What verify finds of the signatures."""
        arguments = ("verify", "--signature", *signatory, "--json")
        process = self.machine.start(*arguments, cwd=self.project.folder)
        out, _ = process.communicate(timeout=120)
        found = {}
        for image in json.loads(out)["images"]:
            (finding,) = (row for row in image["checks"] if row["check"] == "signature")
            found[image["role"]] = finding["status"]
        assert (process.returncode == 0) is (set(found.values()) == {"ok"})
        return found


@contextmanager
def _open(folder: Path, program: Path) -> Iterator[World]:
    base = make_base()
    project = Project(folder / "project", Wheels(folder / "wheels"), base)
    with run_registry(folder / "registry") as registry:
        host = registry.host
        base.put(host)
        machine = Machine(folder / "machine", f"{host}/team", host, COSIGN_PASSWORD=PASSWORD)
        machine.env["PATH"] = f"{program}:{machine.env['PATH']}"
        machine.give(project.wheels)
        yield World(machine, project, machine.push(project))


@pytest.mark.parametrize("name", ["cosign3", pytest.param("cosign2", marks=pytest.mark.long)])
def test_signed_images_pass_and_others_do_not(tmp_path: Path, name: str) -> None:
    program = find_program(name)
    private, public = make_keys(tmp_path / "keys", program)
    _, other = make_keys(tmp_path / "other", program)
    with _open(tmp_path, program) as world:
        assert world.findings(public) == dict.fromkeys(world.images, "MISMATCH")
        out, _ = world.run("sign", "--key", private)
        assert dict(line.split() for line in out.splitlines()) == world.images
        assert world.findings(public) == dict.fromkeys(world.images, "ok")
        assert world.findings(other) == dict.fromkeys(world.images, "MISMATCH")
        world.machine.env["COSIGN_PASSWORD"] = "battery"
        _, said = world.run("sign", "--key", private, code=7)
        assert "decrypt" in said


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[tuple[World, Recorder]]:
    """Images, and a stand-in for cosign: Sigstore's services cannot be reached from tests."""
    recorder = Recorder(tmp_path / "bin")
    with _open(tmp_path, recorder.folder) as world:
        world.machine.env["SIGSTORE_ID_TOKEN"] = "token"
        yield world, recorder


def test_an_identity_signs_and_is_checked(recorded: tuple[World, Recorder]) -> None:
    world, recorder = recorded
    out, _ = world.run("sign", "--role", "worker", "--json")
    assert json.loads(out)["images"] == [{"role": "worker", "reference": world.images["worker"]}]
    options = ["--yes", "--fulcio-auth-flow=token", "--allow-http-registry=true"]
    assert [call["arguments"] for call in recorder.calls()] == [["sign", *options, world.images["worker"]]]
    recorder.answer("verify", 1, "", "Error: none of the expected identities matched\n")
    identity = ("https://ci.example.com/train.yml", "--issuer", "https://issuer.example.com")
    assert world.findings(*identity) == dict.fromkeys(world.images, "MISMATCH")
    (call, *_) = recorder.calls()
    assert call["arguments"][1:4] == [
        "--output=json",
        "--certificate-identity=https://ci.example.com/train.yml",
        "--certificate-oidc-issuer=https://issuer.example.com",
    ]


def test_what_is_not_proven_is_not_signed(recorded: tuple[World, Recorder]) -> None:
    """An image under the worker's tag that somebody else put there."""
    world, recorder = recorded
    out, _ = world.run("push", "--json", "--locked")
    tag = next(row["tag"] for row in json.loads(out)["images"] if row["role"] == "worker")
    good, target = parse_reference(world.images["worker"]), parse_reference(tag)
    assert isinstance(good, Digest)
    assert isinstance(target, Tag)
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        other = images.derive(registries, good, [{"usr/local/sbin/uname": b"#!/bin/sh\n"}], target)
    _, said = world.run("sign", "--role", "worker", code=10)
    assert "worker: layers: found " in said
    assert not recorder.calls()
    out, _ = world.run("sign", "--role", "worker", "--unproven")
    assert out == f"worker {other}\n"


def test_a_gate_without_a_value_is_no_open_gate(recorded: tuple[World, Recorder]) -> None:
    world, recorder = recorded
    for arguments, code in (
        (("sign", "--key", ""), 2),
        (("sign", "--key", "nowhere.key"), 9),
        (("verify", "--signature", ""), 2),
        (("verify", "--signature", "", "--issuer", "https://issuer"), 2),
        (("verify", "--signature", "me@example.com", "--issuer", ""), 2),
        (("verify", "--issuer", "https://issuer"), 2),
        (("verify", "--signature", "me@example.com"), 2),
        (("verify", "--signature", "nowhere.pub"), 9),
    ):
        world.run(*arguments, code=code)
        assert not recorder.calls(of_help=True), arguments
