"""Keyless signatures: the real sigstore client against Fulcio's and Rekor's requests on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.servers.registry_process import run_registry
from tests.servers.sigstore import ISSUER, FakeSigstore, make_token

pytestmark = pytest.mark.registry
IDENTITY = "https://ci.example.com/team/repo/.github/workflows/train.yml@refs/heads/main"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project", Wheels(tmp_path / "wheels"), make_base())


@pytest.fixture
def machine(tmp_path: Path, project: Project) -> Iterator[Machine]:
    with run_registry(tmp_path / "registry") as registry, FakeSigstore() as sigstore:
        project.base.put(registry.host)
        env = {"IMGTOOL_SIGSTORE_CONFIG": str(sigstore.write_config(tmp_path / "sigstore.json"))}
        made = Machine(tmp_path / "machine", f"{registry.host}/team", registry.host, **env)
        made.give(project.wheels)
        made.push(project)
        yield made


def test_an_identity_signs_and_is_required(machine: Machine, project: Project, tmp_path: Path) -> None:
    def config(identity: str, issuer: str, code: int = 0) -> str:
        arguments = ("config", "--require-signature", identity, "--issuer", issuer)
        return "".join(machine.run(*arguments, cwd=project.folder, code=code))

    assert "is not signed by" in config(IDENTITY, ISSUER, code=10)
    out, _ = machine.run("sign", cwd=project.folder, env={"SIGSTORE_ID_TOKEN": make_token(IDENTITY)})
    assert len(out.splitlines()) == 3
    assert all(line.partition(" ")[2] in config(IDENTITY, ISSUER) for line in out.splitlines())
    assert "no valid signature" in config(IDENTITY.replace("main", "fork"), ISSUER, code=10)
    assert "no valid signature" in config(IDENTITY, "https://other.example.com", code=10)
    with FakeSigstore() as other:  # whose certificates and log entries nobody trusts
        machine.env["IMGTOOL_SIGSTORE_CONFIG"] = str(other.write_config(tmp_path / "other.json"))
        assert "no valid signature" in config(IDENTITY, ISSUER, code=10)


def test_tokens_that_cannot_be_used(machine: Machine, project: Project, tmp_path: Path) -> None:
    for token in ("nonsense", make_token(IDENTITY, minutes=-1)):
        _, said = machine.run("sign", cwd=project.folder, code=7, env={"SIGSTORE_ID_TOKEN": token})
        assert "the OIDC token cannot be used" in said
        assert token not in said
    _, said = machine.run("sign", cwd=project.folder, code=7)
    assert "no OIDC token" in said
    machine.env["IMGTOOL_SIGSTORE_CONFIG"] = str(tmp_path / "nowhere.json")
    machine.run("sign", cwd=project.folder, code=9)
