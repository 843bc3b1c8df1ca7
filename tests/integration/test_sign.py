"""`imgtool sign` and what checks signatures, verify and config, each with cosign 2 and 3 as they are."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cosign import PASSWORD, Recorder, find_program, make_keys
from tests.integration.conftest import CHECKOUT
from tests.integration.push_world import IMGTOOL, Machine, Project, Wheels, make_base, outcomes
from tests.registry.support import machine as settings_of
from tests.servers.registry_process import WITH_REFERRERS, run_registry, run_with_referrers
from tests.servers.scripted import Asked, Reply, ScriptedServer
from tests.verify import images
from training_imgtool.core.reference import Digest, Tag, parse_reference
from training_imgtool.registry.connect import Registries

pytestmark = pytest.mark.registry
ATTESTED = {"slsaprovenance1": "https://slsa.dev/provenance/v1", "cyclonedx": "https://cyclonedx.org/bom"}


@dataclass
class World:
    machine: Machine
    project: Project
    images: dict[str, str]
    program: Path  # cosign's folder
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

    def cosign(self, verb: str, *arguments: str | Path, code: int = 0) -> str:
        """What the program says to `arguments`; without a transparency log where that is a question."""
        command = [str(self.program / "cosign"), verb, *map(str, arguments)]
        environ = {**os.environ, "COSIGN_PASSWORD": PASSWORD}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout


DPKG = b"""Package: zlib1g
Status: install ok installed
Architecture: amd64
Version: 1:1.2.13.dfsg-1

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


@contextmanager
def _run_plain(folder: Path) -> Iterator[str]:
    with run_registry(folder) as registry:
        yield registry.host


COSIGN_2 = pytest.param("cosign2", marks=pytest.mark.long)
WITH_REFERRERS_TOO = pytest.param("cosign3 with referrers", marks=pytest.mark.long)


@pytest.fixture(params=["cosign3", COSIGN_2, WITH_REFERRERS_TOO])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Images in docker-registry, where signatures are behind tags, or in crane's, with the referrers API."""
    name, _, referrers = request.param.partition(" ")
    program = find_program(name)
    if referrers and not WITH_REFERRERS.exists():
        pytest.skip("no registry with the referrers API (scripts/services up referrers)")
    base = make_base(texts={"var/lib/dpkg/status": DPKG})
    project = Project(tmp_path / "project", Wheels(tmp_path / "wheels"), base)
    with run_with_referrers(tmp_path / "registry") if referrers else _run_plain(tmp_path / "registry") as host:
        base.put(host)
        machine = Machine(tmp_path / "machine", f"{host}/team", host, COSIGN_PASSWORD=PASSWORD)
        machine.env["PATH"] = f"{program}:{machine.env['PATH']}"
        machine.give(project.wheels)
        private, public = make_keys(tmp_path / "keys", program)
        yield World(machine, project, machine.push(project), program, private, public)


def test_signed_images_pass_and_others_do_not(world: World, tmp_path: Path) -> None:
    _, said = world.config(world.public, code=10)
    assert "3 of 3 images have no valid signature" in said
    assert world.findings(world.public) == dict.fromkeys(world.images, "MISMATCH")
    rows = world.sign()
    assert {str(row["role"]): row["reference"] for row in rows} == world.images
    assert all(row["signed"] and sorted(row["attestations"]) == sorted(ATTESTED.values()) for row in rows)  # type: ignore[call-overload]
    assert world.findings(world.public) == dict.fromkeys(world.images, "ok")
    out, _ = world.config(world.public)
    assert all(reference in out for reference in world.images.values())
    _, other = make_keys(tmp_path / "other", world.program)
    _, said = world.config(other, code=10)
    assert "3 of 3 images have no valid signature" in said
    assert [(row["signed"], row["attestations"]) for row in world.sign()] == [(False, [])] * 3
    key = ("--key", world.public, "--insecure-ignore-tlog=true")
    assert "docker-manifest-digest" in world.cosign("verify", *key, world.images["worker"])
    for kind in ATTESTED:
        said = world.cosign("verify-attestation", "--type", kind, *key, world.images["worker"])
        assert json.loads(said)["payloadType"] == "application/vnd.in-toto+json"


@pytest.mark.long
@pytest.mark.parametrize(
    "world",
    ["cosign2", "cosign2 with referrers", WITH_REFERRERS_TOO],
    indirect=True,
)
def test_cosign_reads_what_nobody_signed_and_keeps_it(world: World) -> None:
    """Unsigned, and then beside the signed statements; a push of the same image does not replace these."""

    def statements() -> list[dict[str, object]]:
        lines = world.cosign("download", "attestation", world.images["worker"]).splitlines()
        envelopes = [json.loads(line) for line in lines]
        found = [json.loads(base64.b64decode(one.get("dsseEnvelope", one)["payload"])) for one in envelopes]
        return sorted(found, key=json.dumps)  # cosign lists them in any order

    (unsigned,) = statements()
    assert unsigned["predicateType"] == ATTESTED["slsaprovenance1"]
    assert unsigned["subject"][0]["digest"]["sha256"] in world.images["worker"]  # type: ignore[index]
    world.sign()
    signed = statements()
    assert unsigned in signed or "cosign3" in str(world.program)  # cosign 3 shows what it signed, in places of its own
    world.machine.push(world.project, "--no-cache")
    assert statements() == signed
    world.config(world.public)
    assert set(world.findings(world.public).values()) == {"ok"}


@pytest.mark.long
def test_a_signed_statement_alone_signs_no_image(world: World) -> None:
    """cosign 3 answers `verify` with signed statements too."""
    unlogged = ["--tlog-upload=false"]
    if "--use-signing-config" in world.cosign("attest", "--help"):
        unlogged += ["--use-signing-config=false"]
    predicate = world.project.folder / "predicate.json"
    predicate.write_text('{"any": "thing"}')
    for image in world.images.values():
        kind = ("--type", "https://example.com/kind", "--predicate", predicate)
        world.cosign("attest", "--yes", "--key", world.private, *unlogged, *kind, image)
    world.config(world.public, code=10)
    assert world.findings(world.public) == dict.fromkeys(world.images, "MISMATCH")
    for image in world.images.values():
        world.cosign("sign", "--yes", "--key", world.private, *unlogged, image)
    world.config(world.public)
    assert world.findings(world.public) == dict.fromkeys(world.images, "warning")  # nobody signed imgtool's statements


def test_what_is_not_proven_is_not_signed(world: World) -> None:
    """An image under the worker's tag that somebody else put there."""
    out, _ = world.machine.run("push", "--json", "--locked", cwd=world.project.folder)
    tag = next(row["tag"] for row in json.loads(out)["images"] if row["role"] == "worker")
    good, target = parse_reference(world.images["worker"]), parse_reference(tag)
    assert isinstance(good, Digest)
    assert isinstance(target, Tag)
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        other = images.derive(registries, good, [{"usr/local/sbin/uname": b"#!/bin/sh\n"}], None, target)
    arguments = ("sign", "--key", world.private, "--role", "worker")
    _, said = world.machine.run(*arguments, cwd=world.project.folder, code=10)
    assert "worker: base: /usr/local/sbin/uname of layer" in said
    key = ("--key", world.public, "--insecure-ignore-tlog=true")
    unsigned = subprocess.run([world.program / "cosign", "verify", *key, str(other)], capture_output=True, check=False)
    assert unsigned.returncode != 0
    out, _ = world.machine.run(*arguments, "--unproven", cwd=world.project.folder)
    assert out == f"worker {other}\n"
    said = world.cosign("verify-attestation", "--type", "slsaprovenance1", *key, str(other))
    statement = json.loads(base64.b64decode(json.loads(said)["payload"]))
    assert statement["predicate"]["buildDefinition"]["internalParameters"]["unproven"] is True


@pytest.mark.long
@pytest.mark.network
@pytest.mark.parametrize("world", ["cosign3", COSIGN_2], indirect=True)
def test_scanners_read_the_signed_bill(world: World, tmp_path: Path) -> None:
    """It lists the base's packages; the wheels go to pip-audit as docs/howto/sign.md says, with a server of our own."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    world.sign("--role", "worker")
    key = ("--key", world.public, "--insecure-ignore-tlog=true")
    said = world.cosign("verify-attestation", "--type", "cyclonedx", *key, world.images["worker"])
    bill = json.loads(base64.b64decode(json.loads(said)["payload"]))["predicate"]
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(bill)) is None
    purls = {component.get("purl", "").partition("?")[0] for component in bill["components"]}
    debian = "pkg:deb/debian/zlib1g@1%3A1.2.13.dfsg-1"
    assert {debian, "pkg:pypi/numpy@1.26.4", "pkg:pypi/tensorflow-cpu@2.15.1"} <= purls
    assert len(bill["components"]) == 4  # and the base
    (page,) = re.findall(r"^(jq .*bom\.json.*)$", (CHECKOUT / "docs/howto/sign.md").read_text(), re.MULTILINE)
    if shutil.which("jq") is None:
        pytest.skip("no jq")
    (tmp_path / "bom.json").write_text(json.dumps(bill))
    subprocess.run(["sh", "-c", page], cwd=tmp_path, check=True)
    vulnerability = {
        "id": "PYSEC-0000-1",
        "summary": "planted",
        "details": "planted",
        "affected": [
            {
                "package": {"name": "numpy", "ecosystem": "PyPI"},
                "versions": ["1.26.4"],
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.26.5"}]}],
            }
        ],
    }

    def answer(asked: Asked) -> Reply:
        hit = json.loads(asked.body)["package"]["name"] == "numpy"
        return Reply(200, json.dumps({"vulns": [vulnerability]} if hit else {}).encode())

    with ScriptedServer(answer) as server:
        options = ("--vulnerability-service", "osv", "--osv-url", f"http://{server.host}/v1/query", "--format", "json")
        command = [str(IMGTOOL.parent / "uv"), "tool", "run", "pip-audit==2.10.1", "--no-deps", "--disable-pip"]
        command += [*options, "-r", "wheels.txt"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stderr
    found = {row["name"]: [one["id"] for one in row["vulns"]] for row in json.loads(done.stdout)["dependencies"]}
    assert found == {"numpy": ["PYSEC-0000-1"], "tensorflow-cpu": []}


def _ask_for_signature(world: World) -> None:
    folder = world.project.folder
    (folder / "cosign.pub").write_bytes(world.public.read_bytes())
    spec = folder / "image.yaml"
    spec.write_text(f"signature: cosign.pub\n{spec.read_text()}")


@pytest.mark.long
def test_what_the_spec_wants_signed_is_found_only_signed(world: World) -> None:
    _ask_for_signature(world)
    folder = world.project.folder
    out, _ = world.machine.run("build", "--push", "--dry-run", "--json", cwd=folder)
    assert {row["would"] for row in json.loads(out)["images"]} == {"build-and-push"}
    assert outcomes(world.machine, world.project) == dict.fromkeys(world.images, "appended")
    assert world.machine.push(world.project) == world.images  # the same bytes again
    _, said = world.machine.run("config", cwd=folder, code=10)
    assert "3 of 3 images have no valid signature" in said
    world.sign("--role", "worker")
    assert outcomes(world.machine, world.project) == {"master": "appended", "worker": "found", "ps": "appended"}
    world.sign()
    assert outcomes(world.machine, world.project) == dict.fromkeys(world.images, "found")
    world.machine.run("config", cwd=folder)


@pytest.mark.long
def test_a_foreign_image_under_the_tag_is_replaced(world: World) -> None:
    """Also where somebody put a foreign stage under its tag: what an unsigned image is made from is not looked for."""
    world.sign()
    _ask_for_signature(world)
    out, _ = world.machine.run("push", "--json", "--locked", cwd=world.project.folder)
    tag = next(row["tag"] for row in json.loads(out)["images"] if row["role"] == "worker")
    good, target = parse_reference(world.images["worker"]), parse_reference(tag)
    assert isinstance(good, Digest)
    assert isinstance(target, Tag)
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        other = images.derive(registries, good, [{"usr/local/sbin/uname": b"#!/bin/sh\n"}], None, target)
        client = registries.at(good.repository)
        assert client.head(target) == other.digest
        _, said = world.machine.run("push", "--locked", cwd=world.project.folder)
        assert f"{other} has no signature by" in said
        assert client.head(target) == good.digest
    assert outcomes(world.machine, world.project) == dict.fromkeys(world.images, "found")


@pytest.mark.long
def test_keys_that_do_not_open(world: World) -> None:
    folder = world.project.folder
    del world.machine.env["COSIGN_PASSWORD"]
    _, said = world.machine.run("sign", "--key", world.private, cwd=folder, code=2)
    assert "COSIGN_PASSWORD" in said
    world.machine.env["COSIGN_PASSWORD"] = "battery"
    _, said = world.machine.run("sign", "--key", world.private, cwd=folder, code=7)
    assert "decrypt" in said
    _, said = world.machine.run("sign", "--key", world.public, cwd=folder, code=7)
    assert str(world.public) in said
    world.config(world.private, code=10)


@pytest.fixture
def keyless(tmp_path: Path) -> Iterator[tuple[World, Recorder]]:
    """Images, and a stand-in for cosign: Sigstore's services cannot be reached from tests."""
    recorder = Recorder(tmp_path / "bin")
    base = make_base()
    project = Project(tmp_path / "project", Wheels(tmp_path / "wheels"), base)
    with _run_plain(tmp_path / "registry") as host:
        base.put(host)
        machine = Machine(tmp_path / "machine", f"{host}/team", host, SIGSTORE_ID_TOKEN="token")
        machine.env["PATH"] = f"{recorder.folder}:{machine.env['PATH']}"
        machine.give(project.wheels)
        nowhere = Path("/nonexistent")
        yield World(machine, project, machine.push(project), recorder.folder, nowhere, nowhere), recorder


def test_an_identity_signs_and_is_required(keyless: tuple[World, Recorder]) -> None:
    world, recorder = keyless
    out, _ = world.machine.run("sign", "--role", "worker", cwd=world.project.folder)
    assert out == f"worker {world.images['worker']}\n"
    calls = [call["arguments"] for call in recorder.calls()]
    options = ["--yes", "--fulcio-auth-flow=token"]
    end = ["--allow-http-registry=true", world.images["worker"]]
    kinds = [[f"--type={kind}", "--predicate=-"] for kind in reversed(ATTESTED.values())]
    assert calls == [["sign", *options, *end], *(["attest", *options, *kind, *end] for kind in kinds)]
    identity = ("--require-signature", "https://ci.example.com/train.yml", "--issuer", "https://issuer.example.com")
    for answer in ((1, "", "Error: none of the expected identities matched\n"), (0, "[]", "")):
        recorder.answer("verify", *answer)
        _, said = world.machine.run("config", *identity, cwd=world.project.folder, code=10)
        assert "3 of 3 images have no valid signature" in said
    (call, *_) = recorder.calls()
    assert call["arguments"][1:4] == [
        "--output=json",
        "--certificate-identity=https://ci.example.com/train.yml",
        "--certificate-oidc-issuer=https://issuer.example.com",
    ]


@pytest.mark.long
def test_an_identity_in_the_spec_is_asked_for_everywhere(keyless: tuple[World, Recorder]) -> None:
    world, recorder = keyless
    spec = world.project.folder / "image.yaml"
    spec.write_text(f"signature: {{by: ci@example.com, issuer: https://issuer.example.com}}\n{spec.read_text()}")
    recorder.answer("verify", 1, "", "Error: no signatures found\n")
    assert outcomes(world.machine, world.project) == dict.fromkeys(world.images, "appended")
    (call, *_) = recorder.calls()
    assert "--certificate-identity=ci@example.com" in call["arguments"]
    assert "--certificate-oidc-issuer=https://issuer.example.com" in call["arguments"]
    for arguments in (("config",), ("verify", "--engine", "direct")):
        _, said = world.machine.run(*arguments, cwd=world.project.folder, code=10)
        assert "no signature by ci@example.com" in said


def test_a_signature_of_nobody_is_no_open_gate(keyless: tuple[World, Recorder]) -> None:
    world, _ = keyless
    spec = world.project.folder / "image.yaml"
    text = spec.read_text()
    for value, code in (("''", 3), ("~", 3), ("{by: ''}", 3), ("me@example.com", 2), ("no.pub", 9)):
        spec.write_text(f"signature: {value}\n{text}")
        for verb in ("push", "config", "verify"):
            world.machine.run(verb, cwd=world.project.folder, code=code)


def test_a_gate_without_a_value_is_no_open_gate(keyless: tuple[World, Recorder]) -> None:
    world, recorder = keyless
    for arguments, code in (
        (("sign", "--key", ""), 2),
        (("sign", "--key", "nowhere.key"), 9),
        (("config", "--require-signature", ""), 2),
        (("config", "--require-signature", "", "--issuer", "https://issuer"), 2),
        (("config", "--require-signature", "me@example.com", "--issuer", ""), 2),
        (("config", "--issuer", "https://issuer"), 2),
        (("config", "--require-signature", "me@example.com"), 2),
        (("config", "--require-signature", "nowhere.pub"), 9),
        (("verify", "--signature", ""), 2),
        (("verify", "--signature", "nowhere.pub"), 9),
    ):
        world.machine.run(*arguments, cwd=world.project.folder, code=code)
        assert not recorder.calls(of_help=True), arguments


def test_a_machine_without_cosign_is_told_so(keyless: tuple[World, Recorder]) -> None:
    world, recorder = keyless
    recorder.folder.joinpath("cosign").unlink()
    identity = ("me@example.com", "--issuer", "https://issuer")
    for arguments in (("sign",), ("config", "--require-signature", *identity), ("verify", "--signature", *identity)):
        _, said = world.machine.run(*arguments, cwd=world.project.folder, code=2)
        assert "signatures need the program cosign" in said
