"""What `verify` says of the bill of materials and the provenance of an image: as pushed, and as others changed them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.servers.memory_registry import MemoryRegistry, like_distribution
from training_imgtool.attest import cyclonedx, provenance
from training_imgtool.attest.provenance import encode, unwrap, wrap
from training_imgtool.core.progress import silent
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.core.settings import Settings, from_environment
from training_imgtool.pipeline.inputs import Inputs, prepare
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_MANIFEST, sha256_digest
from training_imgtool.registry.referrers import list_referrers
from training_imgtool.spec.load import load
from training_imgtool.spec.model import Role
from training_imgtool.verify.checks.attestations import check_attestations
from training_imgtool.verify.facts import Finding, Status

pytestmark = pytest.mark.registry
OLD = "dev.imgtool.provenance"  # the annotation in which imgtool once kept the statement
Document = dict[str, Any]


@dataclass
class World:
    """Pushed images and their attestations, in a registry that forgets what a test changed."""

    server: MemoryRegistry
    machine: Machine
    project: Project
    where: Digest

    def settings(self, **env: str) -> Settings:
        return from_environment({**self.machine.env, **env})

    def inputs(self) -> Inputs:
        return prepare(load(self.project.folder / "image.yaml"), self.settings(), silent, locked=True)

    def check(self, **env: str) -> Finding:
        """The finding about the worker."""
        settings, inputs = self.settings(**env), self.inputs()
        with Registries(settings, keep_tokens=False) as registries:
            registry = registries.at(self.where.repository)
            config = json.loads(registry.read(self.where.repository, registry.manifest(self.where).config))
            (image,) = inputs.selected((Role.WORKER,))
            return check_attestations(inputs, image, self.where, config, registry=registry, settings=settings)

    def find(self, kind: str = cyclonedx.MEDIA_TYPE) -> str:
        """The digest of the manifest that attaches the bill, or with another kind the provenance."""
        with Registries(self.settings(), keep_tokens=False) as registries:
            listed = list_referrers(registries.at(self.where.repository), self.where)
        (found,) = (referrer.descriptor.digest for referrer in listed if referrer.artifact_type == kind)
        return found

    @property
    def manifests(self) -> dict[str, tuple[str, bytes]]:
        return self.server.manifests[self.where.repository.path]

    @property
    def blobs(self) -> dict[str, bytes]:
        return self.server.blobs[self.where.repository.path]

    def swap(self, change: Callable[[Document, Document, Document], None]) -> None:
        """Puts other attestations in the place of the image's: `change` gets the bill's manifest, bill and statement.

        The statement names the bill as it is then, if it is another.
        """
        bill_name, statement_name = self.find(), self.find(provenance.MEDIA_TYPE)
        manifest, other = (json.loads(self.manifests[name][1]) for name in (bill_name, statement_name))
        bill = json.loads(self.blobs[manifest["config"]["digest"]])
        statement = json.loads(unwrap(self.blobs[other["config"]["digest"]]))
        change(manifest, bill, statement)
        for row in statement["predicate"]["buildDefinition"]["resolvedDependencies"]:
            if row["name"] == "bill":
                row["digest"]["sha256"] = sha256_digest(encode(bill))[7:]
        for name, document, content in ((bill_name, manifest, encode(bill)), (statement_name, other, wrap(statement))):
            self.fill(document, content)
            self.put(name, json.dumps(document, sort_keys=True).encode())

    def fill(self, manifest: Document, content: bytes) -> None:
        """Makes a manifest name other content, and puts that there."""
        described = {"digest": (digest := sha256_digest(content)), "size": len(content)}
        self.blobs[digest] = content
        manifest["config"] |= described
        manifest["layers"] = [layer | described for layer in manifest["layers"]]

    def attach_as_before(self, change: Callable[[Document, Document], None]) -> None:
        """Puts one manifest with both in place of the two, as imgtool once did; `change` gets bill and statement."""
        bill_name, statement_name = self.find(), self.find(provenance.MEDIA_TYPE)
        manifest = json.loads(self.manifests[bill_name][1])
        bill = json.loads(self.blobs[manifest["config"]["digest"]])
        statement = json.loads(unwrap(self.blobs[json.loads(self.manifests[statement_name][1])["config"]["digest"]]))
        rows = _build(statement)["resolvedDependencies"]
        rows[:] = [row for row in rows if row["name"] != "bill"]
        change(bill, statement)
        self.fill(manifest, encode(bill))
        manifest["annotations"] = {OLD: encode(statement).decode()}
        self.put(bill_name, json.dumps(manifest, sort_keys=True).encode())
        self.remove(statement_name)

    def remove(self, name: str) -> None:
        """Takes a manifest away, as a clean-up does, with the tags that it has."""
        gone = self.manifests[name]
        for other in [other for other, stored in self.manifests.items() if stored == gone]:
            del self.manifests[other]

    def put(self, old: str, body: bytes) -> None:
        """Attaches a manifest instead of another one."""
        new = sha256_digest(body)
        self.remove(old)
        self.manifests[new] = (OCI_MANIFEST, body)
        tag = self.where.digest.replace(":", "-")
        if tag in self.manifests:
            kind, index = self.manifests[tag]
            document = json.loads(index)
            (entry,) = (entry for entry in document["manifests"] if entry["digest"] == old)
            entry |= {"digest": new, "size": len(body), "annotations": json.loads(body).get("annotations", {})}
            self.manifests[tag] = (kind, json.dumps(document).encode())


@pytest.fixture(scope="module", params=[0, 10], ids=["tag", "api"])
def pushed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("attested")
    with MemoryRegistry(like_distribution, referrers=request.param) as server:
        base = make_base()
        base.put(server.host)
        project = Project(folder / "project", Wheels(folder / "wheels"), base)
        machine = Machine(folder / "machine", f"{server.host}/team", server.host)
        machine.give(project.wheels)
        where = parse_reference(machine.push(project)["worker"])
        assert isinstance(where, Digest)
        yield World(server, machine, project, where)


@pytest.fixture
def world(pushed: World) -> Iterator[World]:
    """The world, put back afterwards."""
    manifests, blobs = dict(pushed.manifests), dict(pushed.blobs)
    spec = (pushed.project.folder / "image.yaml").read_text()
    yield pushed
    pushed.server.manifests[pushed.where.repository.path] = manifests
    pushed.server.blobs[pushed.where.repository.path] = blobs
    pushed.project.write("image.yaml", spec)


def _build(statement: Document) -> Document:
    return dict(statement["predicate"]["buildDefinition"])


def _dependency(statement: Document, name: str) -> Document:
    return dict(next(item for item in _build(statement)["resolvedDependencies"] if item["name"] == name))


def _wheel(bill: Document) -> Document:
    found: Document = next(item for item in bill["components"] if item["name"] == "numpy")
    return found


# name; the change of manifest, bill and statement; what the complaint says
CHANGES: tuple[tuple[str, Callable[[Document, Document, Document], Any], str], ...] = (
    ("version", lambda _, bill, __: _wheel(bill).update(version="9.9"), 'version is "9.9", not "1.26.4"'),
    ("hash", lambda _, bill, __: _wheel(bill)["hashes"][0].update(content="0" * 64), "hashes/SHA-256/content is"),
    ("wheel lost", lambda _, bill, __: bill["components"].remove(_wheel(bill)), "is missing"),
    ("wheel twice", lambda _, bill, __: bill["components"].append(_wheel(bill)), "does not belong there"),
    (
        "wheel added",
        lambda _, bill, __: bill["components"].append({"bom-ref": "wheel:x"}),
        "bill/components/wheel:x does not belong there",
    ),
    ("depends", lambda _, bill, __: bill["dependencies"][0]["dependsOn"].pop(), "is missing"),
    ("key", lambda *documents: _build(documents[2])["internalParameters"].update(key="0"), "internalParameters/key is"),
    ("builder", lambda *documents: documents[2]["predicate"]["runDetails"]["builder"].update(id="me"), "builder/id is"),
    ("role", lambda *documents: _build(documents[2])["externalParameters"].update(role="ps"), "role is"),
    (
        "base",
        lambda *documents: _dependency(documents[2], "base")["digest"].update(sha256="0"),
        "base/digest/sha256 is",
    ),
    ("source", lambda *documents: _dependency(documents[2], "source")["digest"].update(gitTree="0"), "gitTree is"),
    ("type", lambda *documents: documents[2].update(predicateType="x"), "predicateType is"),
    ("image", lambda *documents: documents[2]["subject"][0]["digest"].update(sha256="0" * 64), "about another image"),
    ("subjects", lambda *documents: documents[2].update(subject=3), "about nothing"),
    ("layers", lambda manifest, *_: manifest["layers"].append(manifest["layers"][0]), "other layers than a bill"),
)


def test_what_push_attached_is_right(world: World) -> None:
    finding = world.check()
    assert (finding.status, finding.found) == (Status.OK, "bill of materials and provenance")
    assert world.check(IMGTOOL_ATTESTATIONS="off").status is Status.OK  # what is there is read nevertheless


@pytest.mark.parametrize(("change", "said"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_another_attestation_in_its_place(
    world: World, change: Callable[[Document, Document, Document], Any], said: str
) -> None:
    world.swap(change)
    finding = world.check()
    assert finding.status is Status.MISMATCH
    assert said in finding.found
    assert finding.complaints


def test_another_attestation_beside_it(world: World) -> None:
    """The image's own is there still, and anybody may read the other one first."""
    if not world.server.referrers:
        pytest.skip("one place is enough")
    own = world.find(), world.manifests[world.find()]
    world.swap(lambda _, bill, __: _wheel(bill).update(version="9.9"))
    world.manifests[own[0]] = own[1]
    assert world.check().status is Status.MISMATCH


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: content.replace(b"numpy", b"Numpy")])
def test_a_registry_that_serves_other_bytes(world: World, damage: Callable[[bytes], bytes]) -> None:
    """Truncated or changed under the same digest: first the bill, then the manifest that has the provenance."""
    digest = world.find()
    bill = json.loads(world.manifests[digest][1])["config"]["digest"]
    whole = world.blobs[bill]
    world.blobs[bill] = damage(whole)
    finding = world.check()
    assert finding.status is Status.MISMATCH
    assert bill[7:19] in finding.found
    world.blobs[bill] = whole
    if world.server.referrers:
        return  # this server lists what it has by digests of its own
    kind, body = world.manifests[digest]
    world.manifests[digest] = (kind, damage(body.replace(b"sbom.cdx", b"numpy")))
    finding = world.check()
    assert finding.status is Status.MISMATCH
    assert digest[:19] in finding.found


def test_attestations_that_are_lost(world: World) -> None:
    digest = world.find()
    bill = json.loads(world.manifests[digest][1])["config"]["digest"]
    whole = world.blobs.pop(bill)
    assert world.check().status is Status.MISMATCH
    world.blobs[bill] = whole
    world.remove(digest)
    finding = world.check()
    assert finding.status is Status.WARNING
    assert finding.found.startswith(f"bill of materials {bill[7:19]}, which the provenance names, is not attached")
    world.remove(world.find(provenance.MEDIA_TYPE))
    finding = world.check()
    assert (finding.status, finding.found) == (Status.WARNING, "none attached")
    assert world.check(IMGTOOL_ATTESTATIONS="off").status is Status.OK


def test_a_bill_that_two_readers_read_differently(world: World) -> None:
    old = world.find()
    manifest = json.loads(world.manifests[old][1])
    content = world.blobs[manifest["config"]["digest"]].replace(b'"version":1}', b'"version":1,"version":1}')
    assert content != world.blobs[manifest["config"]["digest"]]
    described = {"digest": (digest := sha256_digest(content)), "size": len(content)}
    world.blobs[digest] = content
    manifest["config"] |= described
    manifest["layers"][0] |= described
    world.put(old, json.dumps(manifest).encode())
    world.remove(world.find(provenance.MEDIA_TYPE))
    assert "not written as imgtool writes it" in world.check().found


def test_what_the_key_does_not_cover_may_differ_and_is_named(world: World) -> None:
    """A comment in the spec changes no image; the provenance names the spec as it was."""
    spec = (world.project.folder / "image.yaml").read_text()
    world.project.write("image.yaml", f"# a comment\n{spec}")
    finding = world.check()
    assert finding.status is Status.WARNING
    assert finding.found.startswith("provenance/predicate/buildDefinition/resolvedDependencies/spec/digest/sha256 is")
    world.project.write("image.yaml", spec)
    finding = world.check(SOURCE_DATE_EPOCH="1700000000")
    assert finding.status is Status.WARNING
    assert {line.split(" ", 1)[0] for line in finding.found.split(", ")} == {
        "bill/metadata/timestamp",
        "provenance/predicate/runDetails/metadata/finishedOn",
    }
    world.swap(lambda *documents: _build(documents[2])["internalParameters"].update(key="0"))
    assert world.check(SOURCE_DATE_EPOCH="1700000000").status is Status.MISMATCH


def test_a_base_may_have_been_pulled_by_another_name(world: World) -> None:
    def rename(_: Document, bill: Document, __: Document) -> None:
        (base,) = (one for one in bill["components"] if one["bom-ref"].startswith("base:"))
        base["name"] = f"mirror.example/{base['name']}"

    world.swap(rename)
    finding = world.check()
    assert finding.status is Status.WARNING
    assert finding.found.startswith("bill/components/base:")
    assert "/name is " in finding.found


@pytest.mark.parametrize("statement", [[], 5, {}, {"subject": []}, {"subject": [5]}, {"subject": [{"name": "x"}]}])
def test_a_statement_about_no_image(world: World, statement: Any) -> None:
    old = world.find(provenance.MEDIA_TYPE)
    manifest = json.loads(world.manifests[old][1])
    world.fill(manifest, wrap(statement))
    world.put(old, json.dumps(manifest).encode())
    finding = world.check()
    assert finding.status is Status.MISMATCH
    assert "its provenance is about" in finding.found


@pytest.mark.parametrize("content", [b"", b"[]", b"5", b"{}", b'{"payload": 5}', b'{"payload": "5"}'])
def test_a_statement_in_no_envelope(world: World, content: bytes) -> None:
    old = world.find(provenance.MEDIA_TYPE)
    manifest = json.loads(world.manifests[old][1])
    world.fill(manifest, content)
    world.put(old, json.dumps(manifest).encode())
    finding = world.check()
    assert finding.status is Status.MISMATCH
    assert "its statement is in no envelope" in finding.found


def test_what_another_version_of_imgtool_said(world: World) -> None:
    """What only one of the two says is named, and no mismatch; what both say and differs is one."""

    def older(bill: Document, statement: Document) -> None:
        for one in bill["components"]:
            one.pop("supplier", None)
        bill["vulnerabilities"] = []
        bill["metadata"]["tools"]["components"][0]["version"] = "0.0"
        rows = _build(statement)["resolvedDependencies"]
        rows += [{"name": one["bom-ref"], "digest": {"sha256": "0"}} for one in bill["components"] if "hashes" in one]
        del _build(statement)["internalParameters"]["found"]

    world.attach_as_before(older)
    finding = world.check()
    assert finding.status is Status.WARNING
    prefix = "provenance/predicate/buildDefinition/resolvedDependencies"
    for said in ("bill/vulnerabilities is only said there", f"{prefix}/bill is only said here", f"{prefix}/wheel is"):
        assert said in finding.found


def test_an_earlier_statement_that_differs_is_wrong(world: World) -> None:
    world.attach_as_before(lambda bill, _: _wheel(bill).update(version="9.9"))
    assert world.check().status is Status.MISMATCH


def test_a_statement_that_names_another_bill_than_the_one_beside_it(world: World) -> None:
    old = world.find(provenance.MEDIA_TYPE)
    manifest = json.loads(world.manifests[old][1])
    statement = json.loads(unwrap(world.blobs[manifest["config"]["digest"]]))
    _dependency(statement, "bill")["digest"]["sha256"] = "0" * 64
    world.fill(manifest, wrap(statement))
    world.put(old, json.dumps(manifest).encode())
    finding = world.check()
    assert finding.status is Status.MISMATCH
    assert "bill of materials 000000000000, which the provenance names, is not attached" in finding.found


def test_what_others_attached_is_theirs(world: World) -> None:
    if not world.server.referrers:
        pytest.skip("one place is enough")
    manifest = json.loads(world.manifests[world.find()][1])
    manifest["annotations"] = {"by": "a scanner"}
    world.fill(manifest, b'{"bomFormat":"CycloneDX"}')
    body = json.dumps(manifest).encode()
    world.manifests[sha256_digest(body)] = (OCI_MANIFEST, body)
    assert world.check().status is Status.OK


def test_verify_reports_it(world: World) -> None:
    """The images of these tests hold no Python, so verify ends with 10 in any case."""
    if world.server.referrers:
        pytest.skip("one place is enough")
    world.swap(lambda _, bill, __: _wheel(bill).update(version="9.9"))
    out, said = world.machine.run("verify", "--engine", "direct", "--json", cwd=world.project.folder, code=10)
    rows = {
        image["role"]: row["status"]
        for image in json.loads(out)["images"]
        for row in image["checks"]
        if row["check"] == "attestations"
    }
    assert rows == {"master": "ok", "worker": "MISMATCH", "ps": "ok"}
    assert "worker: attestations: found attestation " in said
