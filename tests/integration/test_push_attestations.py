"""What `push` attaches to the images that it makes: a bill of materials and the provenance, never in an index."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.push_world import Machine, Project, digests, document, lines, make_base, outcomes, referrers
from tests.oci.registry.support import machine as settings_of
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from tests.servers.memory_registry import MemoryRegistry, like_distribution
from tests.servers.registry_process import run_registry
from training_imgtool.base.reference import Digest, parse_reference
from training_imgtool.oci.registry.connect import Registries

pytestmark = pytest.mark.registry


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    with run_registry(tmp_path / "registry") as registry, FaultProxy(registry.host) as running:
        make_base().put(registry.host)
        yield running


def _machine(folder: Path, host: str, project: Project, place: str = "team", **env: str) -> Machine:
    made = Machine(folder, f"{host}/{place}", host, **env)
    made.give(project.wheels)
    return made


def _blob(reference: str, digest: str) -> dict[str, Any]:
    host, _, path = reference.partition("@")[0].partition("/")
    with urllib.request.urlopen(f"http://{host}/v2/{path}/blobs/{digest}", timeout=10) as answer:
        return dict(json.load(answer))


def test_an_image_says_what_is_in_it_and_how_it_was_made(tmp_path: Path, proxy: FaultProxy, project: Project) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    images = _machine(tmp_path / "one", proxy.host, project).push(project)
    for reference in set(images.values()):
        bill, statement = _attached(proxy.host, reference)
        assert not JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(bill))
        names = {component["name"] for component in bill["components"]}
        assert names == {"python:3.11-slim-bookworm", "dumb-init", "numpy", "tensorflow-cpu"}
        assert statement["_type"] == "https://in-toto.io/Statement/v1"
        assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
        assert statement["subject"][0]["digest"] == {"sha256": reference.rpartition(":")[2]}
        made = statement["predicate"]["buildDefinition"]
        base = next(item for item in made["resolvedDependencies"] if item["name"] == "base")
        assert f"sha256:{base['digest']['sha256']}" == project.base.digest
        assert {item["name"] for item in made["resolvedDependencies"]} == {"base", "bill", "source"}


def _attached(host: str, reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The bill and the statement that are attached to an image, which lists them by their types."""
    manifests = {}
    for referrer in referrers(reference):
        manifest = document(host, f"{reference.partition('@')[0]}@{referrer['digest']}")
        assert manifest["subject"]["digest"] == reference.partition("@")[2]
        manifests[referrer["artifactType"]] = manifest
    bill = manifests["application/vnd.cyclonedx+json"]["layers"][0]
    envelope = _blob(reference, manifests["application/vnd.in-toto+json"]["layers"][0]["digest"])
    statement = json.loads(base64.b64decode(envelope["payload"]))
    rows = {row["name"]: row for row in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert f"sha256:{rows['bill']['digest']['sha256']}" == bill["digest"]
    return _blob(reference, bill["digest"]), statement


def test_the_bill_names_the_wheels_of_the_lock(tmp_path: Path, proxy: FaultProxy, project: Project) -> None:
    images = _machine(tmp_path / "one", proxy.host, project).push(project, "--role", "worker")
    bill, _ = _attached(proxy.host, images["worker"])
    wheels = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in project.wheels.packages}
    named = {row["properties"][0]["value"]: row for row in bill["components"] if "hashes" in row}
    assert {name: row["hashes"][0]["content"] for name, row in named.items()} == wheels
    names = ("dumb-init@1.2.5.post1", "numpy@1.26.4", "tensorflow-cpu@2.15.1")
    assert {row["purl"] for row in named.values()} == {f"pkg:pypi/{name}" for name in names}


@pytest.mark.long
def test_images_are_the_same_with_and_without(tmp_path: Path, proxy: FaultProxy, project: Project) -> None:
    plain = _machine(tmp_path / "off", proxy.host, project, "off", IMGTOOL_ATTESTATIONS="off").push(project)
    assert "sha256-" not in "".join(lines(proxy))
    assert not any(map(referrers, plain.values()))
    attested = _machine(tmp_path / "on", proxy.host, project, "on").push(project)
    assert digests(plain) == digests(attested)
    project.write("image.yaml", "attestations: false\n" + (project.folder / "image.yaml").read_text())
    switched = _machine(tmp_path / "spec", proxy.host, project, "spec").push(project)
    assert digests(switched) == digests(attested)
    assert not any(map(referrers, switched.values()))


def test_a_registry_with_the_referrers_api_gets_no_list(tmp_path: Path, project: Project) -> None:
    with MemoryRegistry(like_distribution, referrers=True) as server:
        project.base.put(server.host)
        first = []
        for switch in ("off", "on"):
            server.clear()
            machine = _machine(tmp_path / switch, server.host, project, switch, IMGTOOL_ATTESTATIONS=switch)
            machine.push(project)
            first.append(len(server.requests))
        assert first[1] - first[0] == 6 + 3  # the bill, which all images of the lock share
        counts = []
        for switch in ("off", "on"):
            project.write("trainer/task.py", f"print({switch!r})\n")
            server.clear()
            images = machine.push(project, env={"IMGTOOL_ATTESTATIONS": switch})
            counts.append(len(server.requests))
        assert counts[1] - counts[0] == 6 + 1  # whether the bill is there
        assert all(len(referrers(reference)) == 3 for reference in images.values())
        assert {name[-4:] for name in server.manifests["on/demo"] if name.startswith("sha256-")} == {".att"}
        server.clear()
        machine.push(project)
        assert dict(server.counted()) == {"HEAD manifests": 3, "GET manifests": 1}


@pytest.mark.long
def test_what_others_attached_stays(tmp_path: Path, proxy: FaultProxy, project: Project) -> None:
    """An image that was signed, lost its tag and is made again keeps what refers to it."""
    from training_imgtool.oci.registry.manifests import Descriptor
    from training_imgtool.oci.registry.referrers import attach, referrer_manifest

    machine = _machine(tmp_path / "one", proxy.host, project)
    reference = machine.push(project)["worker"]
    subject = parse_reference(reference)
    assert isinstance(subject, Digest)
    body = document(proxy.host, reference)
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        registry = registries.at(subject.repository)
        described = registry.manifest(subject).descriptor
        config = Descriptor(body["config"]["mediaType"], body["config"]["digest"], body["config"]["size"])
        theirs = referrer_manifest(described, "application/vnd.theirs", (config.document(),), config=config)
        attach(registry, subject, theirs)
    for arguments in (("--no-cache",), ()):
        _machine(tmp_path / f"two{len(arguments)}", proxy.host, project).push(project, *arguments)
        kinds = [referrer["artifactType"] for referrer in referrers(reference)]
        documents = ("cyclonedx+json", "dev.imgtool.push.v1+json", "in-toto+json", "theirs")
        assert sorted({*kinds}) == [f"application/vnd.{kind}" for kind in documents]


def test_a_registry_that_refuses_attestations_is_noted(tmp_path: Path, proxy: FaultProxy, project: Project) -> None:
    machine = _machine(tmp_path / "one", proxy.host, project)
    proxy.add(Fault(action=Action.ANSWER, method="PUT", path="/manifests/sha256:", status=400, times=-1))
    out, said = machine.run("push", "--locked", cwd=project.folder)
    assert len(out.splitlines()) == 3
    assert "the registry does not accept attestations" in said
    assert set(outcomes(machine, project).values()) == {"found"}


def test_a_wrong_switch_is_refused(tmp_path: Path, proxy: FaultProxy, project: Project) -> None:
    machine = _machine(tmp_path / "one", proxy.host, project, IMGTOOL_ATTESTATIONS="maybe")
    _, said = machine.run("push", cwd=project.folder, code=2)
    assert "IMGTOOL_ATTESTATIONS: 'maybe' is neither on nor off" in said
