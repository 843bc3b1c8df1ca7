"""Keyless signatures: the real sigstore client against Fulcio's and Rekor's requests on loopback."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project
from tests.integration.test_sign import is_cosign_3
from tests.registry.support import machine as settings_of
from tests.servers.registry_process import run_registry
from tests.servers.sigstore import ISSUER, FakeSigstore, make_token
from training_imgtool.attest.keyless import MEDIA_TYPE
from training_imgtool.core.reference import parse_reference
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_EMPTY, OCI_INDEX

pytestmark = pytest.mark.registry
COSIGN = shutil.which("cosign")
IDENTITY = "https://ci.example.com/team/repo/.github/workflows/train.yml@refs/heads/main"


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
    for line in out.splitlines():
        _list_as_cosign(line.partition(" ")[2])
    assert all(line.partition(" ")[2] in config(IDENTITY, ISSUER) for line in out.splitlines())
    assert "no valid signature" in config(IDENTITY.replace("main", "fork"), ISSUER, code=10)
    assert "no valid signature" in config(IDENTITY, "https://other.example.com", code=10)
    with FakeSigstore() as other:  # whose certificates and log entries nobody trusts
        machine.env["IMGTOOL_SIGSTORE_CONFIG"] = str(other.write_config(tmp_path / "other.json"))
        assert "no valid signature" in config(IDENTITY, ISSUER, code=10)


def _list_as_cosign(reference: str) -> None:
    """Rewrites an image's list of referrers as cosign 3.1 does, with the config's type and without annotations."""
    image = parse_reference(reference)
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        registry = registries.at(image.repository)
        tag = image.repository.tag(reference.partition("@")[2].replace(":", "-"))
        document = json.loads(registry.manifest(tag).body)
        bundles = [entry for entry in document["manifests"] if entry["artifactType"] == MEDIA_TYPE]
        assert len(bundles) == 3
        for entry in bundles:
            entry["artifactType"] = OCI_EMPTY
            del entry["annotations"]
        registry.put_manifest(tag, OCI_INDEX, json.dumps(document).encode())


def test_cosign_verifies_an_identity_and_is_verified(machine: Machine, project: Project, tmp_path: Path) -> None:
    if not is_cosign_3():
        pytest.skip("cosign 3 is not installed")
    trust = json.loads(Path(machine.env["IMGTOOL_SIGSTORE_CONFIG"]).read_text())
    for name in ("trustedRoot", "signingConfig"):
        (tmp_path / name).write_text(json.dumps(trust[name]))
    (tmp_path / "token").write_text(make_token(IDENTITY))

    def cosign(*arguments: str | Path) -> int:
        command = [COSIGN, *arguments, "--trusted-root", tmp_path / "trustedRoot", "--allow-http-registry"]
        return subprocess.run([*map(str, command)], capture_output=True, check=False, cwd=tmp_path).returncode

    def identity(name: str) -> tuple[str, ...]:
        return ("--certificate-identity", name, "--certificate-oidc-issuer", ISSUER)

    out, _ = machine.run(
        "sign", "--role", "worker", cwd=project.folder, env={"SIGSTORE_ID_TOKEN": make_token(IDENTITY)}
    )
    worker = out.split()[1]
    assert cosign("verify", *identity(IDENTITY), worker) == 0
    assert cosign("verify", *identity(f"{IDENTITY}x"), worker) != 0
    for kind in ("slsaprovenance1", "cyclonedx"):
        assert cosign("verify-attestation", "--type", kind, *identity(IDENTITY), worker) == 0
    pushed, _ = machine.run("push", "--locked", cwd=project.folder)
    arguments = ("--yes", "--identity-token", tmp_path / "token", "--signing-config", tmp_path / "signingConfig")
    for line in pushed.splitlines():
        assert cosign("sign", *arguments, line.split()[1]) == 0
    machine.run("config", "--require-signature", IDENTITY, "--issuer", ISSUER, cwd=project.folder)


def test_tokens_that_cannot_be_used(machine: Machine, project: Project, tmp_path: Path) -> None:
    for token in ("nonsense", make_token(IDENTITY, minutes=-1)):
        _, said = machine.run("sign", cwd=project.folder, code=7, env={"SIGSTORE_ID_TOKEN": token})
        assert "the OIDC token cannot be used" in said
        assert token not in said
    _, said = machine.run("sign", cwd=project.folder, code=7)
    assert "no OIDC token" in said
    machine.env["IMGTOOL_SIGSTORE_CONFIG"] = str(tmp_path / "nowhere.json")
    machine.run("sign", cwd=project.folder, code=9)
