"""`imgtool sign`, and what checks signatures: verify, config and cosign, whose signatures imgtool checks too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, Wheels, document, make_base
from tests.registry.support import machine as settings_of
from tests.servers.memory_registry import MemoryRegistry, like_distribution
from tests.servers.registry_process import WITH_REFERRERS, run_registry, run_with_referrers
from training_imgtool.core.reference import parse_repository
from training_imgtool.registry.connect import Registries

pytestmark = pytest.mark.registry
COSIGN = shutil.which("cosign")
ORAS = shutil.which("oras")
ATTESTED = {"slsaprovenance1": "https://slsa.dev/provenance/v1", "cyclonedx": "https://cyclonedx.org/bom"}


def is_cosign_3() -> bool:
    """Whether cosign is installed, and writes bundles of the new kind by default."""
    if COSIGN is None:
        return False
    return subprocess.run([COSIGN, "signing-config"], capture_output=True, check=False).returncode == 0


def make_keys(folder: Path, password: bytes | None = None) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = form.BestAvailableEncryption(password) if password else form.NoEncryption()
    private, public = folder / "image.key", folder / "image.pub"
    private.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, encryption))
    public.write_bytes(key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@dataclass
class World:
    host: str
    machine: Machine
    project: Project
    images: dict[str, str]
    private: Path
    public: Path

    def sign(self, *arguments: str | Path) -> list[dict[str, object]]:
        out, _ = self.machine.run("sign", "--key", self.private, "--json", *arguments, cwd=self.project.folder)
        return list(json.loads(out)["images"])

    def config(self, key: Path, code: int = 0) -> tuple[str, str]:
        return self.machine.run("config", "--require-signature", key, cwd=self.project.folder, code=code)

    def findings(self, key: Path) -> dict[str, str]:
        """What verify finds of the signatures; the images of these tests hold no Python, so it ends with 10."""
        arguments = ("verify", "--engine", "direct", "--signature", key, "--json")
        out, _ = self.machine.run(*arguments, cwd=self.project.folder, code=10)
        found = {}
        for image in json.loads(out)["images"]:
            (finding,) = (row for row in image["checks"] if row["check"] == "signature")
            found[image["role"]] = finding["status"]
        return found


def _world(folder: Path, host: str) -> World:
    base = make_base()
    base.put(host)
    project = Project(folder / "project", Wheels(folder / "wheels"), base)
    machine = Machine(folder / "machine", f"{host}/team", host)
    machine.give(project.wheels)
    return World(host, machine, project, machine.push(project), *make_keys(folder / "keys"))


@pytest.fixture(params=["tag", "api", "crane"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Images in docker-registry, and in two registries with the referrers API: ours for tests, and crane's."""
    if request.param == "tag":
        with run_registry(tmp_path / "registry") as registry:
            yield _world(tmp_path, registry.host)
    elif request.param == "crane":
        if not WITH_REFERRERS.exists():
            pytest.skip("no registry with the referrers API (scripts/services up referrers)")
        with run_with_referrers(tmp_path / "registry") as host:
            yield _world(tmp_path, host)
    else:
        with MemoryRegistry(like_distribution, referrers=10) as server:
            yield _world(tmp_path, server.host)


def _cosign(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COSIGN), *map(str, arguments)], env={**os.environ, **env}, capture_output=True, text=True, check=False
    )


def test_signed_images_pass_and_others_do_not(world: World) -> None:
    _, said = world.config(world.public, code=10)
    assert "3 of 3 images have no valid signature" in said
    assert world.findings(world.public) == dict.fromkeys(world.images, "MISMATCH")
    rows = world.sign()
    assert {str(row["role"]): row["reference"] for row in rows} == world.images
    assert all(row["signed"] and sorted(row["attestations"]) == sorted(ATTESTED.values()) for row in rows)  # type: ignore[call-overload]
    assert world.findings(world.public) == dict.fromkeys(world.images, "ok")
    out, _ = world.config(world.public)
    assert all(reference in out for reference in world.images.values())
    _, other = make_keys(world.private.parent / "other")
    _, said = world.config(other, code=10)
    assert "no valid signature by this key" in said
    assert [(row["signed"], row["attestations"]) for row in world.sign()] == [(False, [])] * 3


def test_cosign_verifies_what_imgtool_signed(world: World) -> None:
    if COSIGN is None or ORAS is None:
        pytest.skip("cosign and oras are not installed")
    world.sign()
    reference = world.images["worker"]
    key = ("--key", world.public, "--insecure-ignore-tlog")
    assert "cosign container image signature" in _cosign("verify", *key, reference).stdout
    oci = _cosign("verify", *key, "--experimental-oci11", reference, COSIGN_EXPERIMENTAL="1")
    assert oci.returncode == 0, oci.stderr
    for kind, predicate in ATTESTED.items():
        done = _cosign("verify-attestation", "--type", kind, *key, reference)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["payloadType"] == "application/vnd.in-toto+json", predicate
    listed = subprocess.run(
        [ORAS, "discover", "--plain-http", "--format", "json", reference], capture_output=True, text=True, check=True
    )
    names = [entry["reference"] for entry in json.loads(listed.stdout)["manifests"]]
    kinds = sorted(document(world.host, name)["artifactType"] for name in names)  # crane lists the configs' types
    assert kinds == [
        "application/vnd.cyclonedx+json",
        "application/vnd.dev.cosign.artifact.sig.v1+json",
        "application/vnd.dsse.envelope.v1+json",
    ]


def test_imgtool_verifies_what_cosign_signed(world: World) -> None:
    if COSIGN is None:
        pytest.skip("cosign is not installed")
    folder = world.private.parent
    secret = {"COSIGN_PASSWORD": "horse"}
    made = subprocess.run([COSIGN, "generate-key-pair"], cwd=folder, env={**os.environ, **secret}, check=False)
    assert made.returncode == 0
    private = ("--tlog-upload=false", *(("--use-signing-config=false",) if is_cosign_3() else ()))
    for reference in world.images.values():
        done = _cosign("sign", *private, "--key", folder / "cosign.key", reference, **secret)
        assert done.returncode == 0, done.stderr
    assert world.findings(folder / "cosign.pub") == dict.fromkeys(world.images, "ok")
    world.config(folder / "cosign.pub")
    world.private = folder / "cosign.key"
    _, said = world.machine.run("sign", "--key", world.private, cwd=world.project.folder, code=2)
    assert "IMGTOOL_KEY_PASSWORD" in said
    world.machine.env["COSIGN_PASSWORD"] = "battery"
    _, said = world.machine.run("sign", "--key", world.private, cwd=world.project.folder, code=2)
    assert "wrong password" in said
    world.machine.env |= secret
    assert [row["signed"] for row in world.sign()] == [is_cosign_3()] * 3  # cosign 2, which reads no bundle, did
    ours = ("--new-bundle-format=false",) if is_cosign_3() else ()  # beside a bundle, cosign 3 looks for bundles only
    checked = ("--key", folder / "cosign.pub", "--insecure-ignore-tlog", *ours)
    done = _cosign("verify-attestation", "--type", "cyclonedx", *checked, reference)
    assert done.returncode == 0, done.stderr


def test_an_encrypted_key_of_openssl(world: World) -> None:
    world.private, world.public = make_keys(world.private.parent / "secret", b"horse")
    world.machine.env["IMGTOOL_KEY_PASSWORD"] = "horse"
    world.sign()
    world.config(world.public)


@pytest.mark.parametrize("suffix", ["sig", "att"])
def test_one_changed_byte_fails(world: World, suffix: str) -> None:
    """What is stored next to an image, rewritten by somebody who may push."""
    world.sign()
    repository = parse_repository(world.images["worker"].partition("@")[0])
    tag = repository.tag(world.images["worker"].partition("@")[2].replace(":", "-") + f".{suffix}")
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        registry = registries.at(repository)
        manifest = registry.manifest(tag)
        document = json.loads(manifest.body)
        content = bytearray(registry.read(repository, manifest.layers[0]))
        content[content.index(b"sha256" if suffix == "sig" else b'payload":"') + 12] ^= 1
        from training_imgtool.registry.manifests import Descriptor, sha256_digest

        changed = Descriptor(manifest.layers[0].media_type, sha256_digest(bytes(content)), len(content))
        registry.upload(repository, changed, lambda: iter((bytes(content),)))
        document["layers"][0] |= changed.document()
        registry.put_manifest(tag, manifest.media_type, json.dumps(document).encode())
    assert world.findings(world.public)["worker"] == "MISMATCH"
    _, said = world.config(world.public, code=10)
    assert "1 of 3 images have no valid signature: worker" in said


def test_keys_of_other_kinds_are_refused(world: World) -> None:
    text = world.project.folder / "notes.txt"
    text.write_text("no key\n")
    for key, arguments in (
        (text, ("sign", "--key")),
        (world.public, ("sign", "--key")),
        (text, ("config", "--require-signature")),
        (world.private, ("config", "--require-signature")),
    ):
        _, said = world.machine.run(*arguments, key, cwd=world.project.folder, code=2)
        assert str(key) in said
    world.machine.run("sign", "--key", "nowhere.key", cwd=world.project.folder, code=9)
