"""Faults in what is attached to an image: in lists of referrers, and under cosign's tag."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from tests.verify.planted.world import World
from training_imgtool.oci.attest import cyclonedx, provenance
from training_imgtool.oci.attest.provenance import ENVELOPE, encode, wrap
from training_imgtool.oci.registry.manifests import OCI_CONFIG, OCI_EMPTY, OCI_INDEX, OCI_MANIFEST, sha256_digest

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
SIGNED = "https://sigstore.dev/cosign/sign/v1"
Attack = Callable[["Attached"], Any]


class Attached:
    """What is attached to the worker's image, to be changed by an attacker.

    Attributes:
        entries: of the list under the tag, where the registry keeps none itself.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        media_type, body = world.manifests[world.tag()]
        self.image = {"mediaType": media_type, "digest": sha256_digest(body), "size": len(body)}
        self.list_tag = str(self.image["digest"]).replace(":", "-")
        self.att_tag = f"{self.list_tag}.att"
        self.entries: list[Any] = []
        if self.list_tag in world.manifests:
            self.entries = json.loads(world.manifests[self.list_tag][1])["manifests"]

    def own(self, kind: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """The digest, the manifest and the document of one of ours."""
        for name, (_, body) in self.world.manifests.items():
            manifest = json.loads(body)
            if name.startswith("sha256:") and manifest.get("artifactType") == kind:
                blob = self.world.blobs[manifest["layers"][0]["digest"]]
                if manifest["subject"]["digest"] == self.image["digest"]:
                    return name, manifest, json.loads(blob)
        raise LookupError(kind)

    def manifest(self, kind: str, content: bytes, media_type: str, **fields: Any) -> bytes:
        """A manifest that attaches a document, as imgtool writes it unless `fields` say otherwise."""
        blob = {"mediaType": media_type, **self.world.put_blob(content)}
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": kind,
            "config": blob,
            "layers": [blob],
            "subject": self.image,
        }
        merged = {key: value for key, value in (document | fields).items() if value is not None}
        return json.dumps(merged, sort_keys=True).encode()

    def attach(self, body: bytes, *tags: str, media_type: str = OCI_MANIFEST, **entry: Any) -> None:
        """Puts a manifest, and has it listed."""
        row = self.world.put_manifest(body, media_type, *tags)
        kind = json.loads(body).get("artifactType")
        self.entries.append({key: value for key, value in (row | {"artifactType": kind} | entry).items() if value})

    def write_list(self) -> None:
        """Puts the list where the registry keeps none."""
        if not self.world.server.referrers:
            body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": self.entries}).encode()
            self.world.put_manifest(body, OCI_INDEX, self.list_tag)

    def drop(self, kind: str) -> None:
        """Drops one of ours from everywhere."""
        digest, _, _ = self.own(kind)
        self.entries = [entry for entry in self.entries if entry["digest"] != digest]
        for name in [name for name, (_, body) in self.world.manifests.items() if sha256_digest(body) == digest]:
            del self.world.manifests[name]


def _statement(envelope: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(envelope["payload"]))


def _forge(change: Callable[[Any], Any], *, signed: bool = False) -> Callable[[Attached], bytes]:
    """Our provenance with its statement changed, in an envelope with or without a signature."""

    def make(attached: Attached) -> bytes:
        statement = _statement(attached.own(provenance.MEDIA_TYPE)[2])
        change(statement)
        envelope = json.loads(wrap(statement))
        if signed:
            envelope["signatures"] = [{"sig": "AAAA"}]
        return encode(envelope)

    return make


def _evil_builder(statement: Any) -> None:
    statement["predicate"]["runDetails"]["builder"]["id"] = "https://github.com/actions/runner"


STATEMENTS: dict[str, Callable[[Any], Any]] = {
    "builder": _evil_builder,
    "key": lambda statement: statement["predicate"]["buildDefinition"]["internalParameters"].update(key="0" * 64),
    "base": lambda statement: statement["predicate"]["buildDefinition"]["resolvedDependencies"][0].update(uri="x"),
    "bill": lambda statement: statement["predicate"]["buildDefinition"]["resolvedDependencies"].pop(1),
    "parameters": lambda statement: statement["predicate"]["buildDefinition"]["externalParameters"].clear(),
    "subject": lambda statement: statement["subject"][0]["digest"].update(sha256="0" * 64),
    "two subjects": lambda statement: statement["subject"].append(statement["subject"][0]),
    "type of the predicate": lambda statement: statement.update(predicateType="https://spdx.dev/Document"),
    "a field more": lambda statement: statement.update(evil=1),
}  # fmt: skip
BILLS: dict[str, Callable[[Any], Any]] = {
    "a component less": lambda bill: bill["components"].pop(),
    "a component more": lambda bill: bill["components"].append({"type": "library", "name": "evil"}),
    "another version": lambda bill: bill["components"][-1].update(version="2.15.2"),
    "another hash": lambda bill: bill["components"][-1].update(hashes=[{"alg": "SHA-256", "content": "0" * 64}]),
    "said to be complete": lambda bill: bill.pop("compositions"),
    "another author": lambda bill: bill["metadata"].update(authors=[{"name": "me"}]),
    "a vulnerability said to be none": lambda bill: bill.update(vulnerabilities=[{"id": "CVE-1", "analysis": {}}]),
}
RAW: dict[str, bytes] = {
    "empty": b"",
    "NaN": b'{"a":NaN}',
    "nested": b"[" * 5000,
    "5 MB": b'"' + b"x" * 5_000_000 + b'"',
    "a list": b"[]",
    "signatures that are none": b'{"payload":"","payloadType":"","signatures":{}}',
    "signatures twice": b'{"signatures":[],"signatures":[{"sig":"AA"}]}',
}


def _provenance(content: Callable[[Attached], bytes], *, under_tag: bool, listed: bool, **fields: Any) -> Attack:
    """Another provenance, in the list or under cosign's tag."""

    def attack(attached: Attached) -> None:
        body = attached.manifest(provenance.MEDIA_TYPE, content(attached), ENVELOPE, **fields)
        if listed:
            attached.attach(body)
        if under_tag:
            attached.world.put_manifest(body, OCI_MANIFEST, attached.att_tag)

    return attack


def _more_statements(content: Callable[[Attached], bytes], media_type: str = ENVELOPE) -> Attack:
    """Cosign's tag names our statement and another one, as cosign 2 leaves it."""

    def attack(attached: Attached) -> None:
        _, manifest, _ = attached.own(provenance.MEDIA_TYPE)
        layer = {"mediaType": media_type, **attached.world.put_blob(content(attached))}
        config = {"mediaType": OCI_CONFIG, **attached.world.put_blob(b'{"rootfs":{"diff_ids":[]}}')}
        document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config}
        document["layers"] = [*manifest["layers"], layer]
        attached.world.put_manifest(json.dumps(document).encode(), OCI_MANIFEST, attached.att_tag)

    return attack


def _bill(change: Callable[[Any], Any], *, instead: bool) -> Attack:
    def attack(attached: Attached) -> None:
        bill = attached.own(cyclonedx.MEDIA_TYPE)[2]
        change(bill)
        if instead:
            attached.drop(cyclonedx.MEDIA_TYPE)
        attached.attach(attached.manifest(cyclonedx.MEDIA_TYPE, encode(bill), cyclonedx.MEDIA_TYPE))

    return attack


def bundle(attached: Attached, change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> bytes:
    """What cosign 3 attaches for a signature, changed; without a change it is sound."""
    digest = {"sha256": str(attached.image["digest"])[7:]}
    statement: dict[str, Any] = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": digest, "annotations": {}}],
        "predicateType": SIGNED,
        "predicate": {},
    }
    document: dict[str, Any] = {"mediaType": BUNDLE, "verificationMaterial": {"publicKey": {"hint": "x"}}}
    change(document, statement)
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    envelope = {"payload": payload, "payloadType": provenance.MEDIA_TYPE, "signatures": [{"sig": "AAAA"}]}
    return json.dumps({"dsseEnvelope": envelope | document.pop("more", {})} | document).encode()


def attach_bundle(
    attached: Attached,
    change: Callable[[dict[str, Any], dict[str, Any]], Any] = lambda *_: None,
    entry: dict[str, Any] | None = None,
    **fields: Any,
) -> None:
    """Attaches it as cosign 3 does."""
    empty = {"mediaType": OCI_EMPTY, **attached.world.put_blob(b"{}")}
    layer = {"mediaType": BUNDLE, **attached.world.put_blob(bundle(attached, change))}
    fields = {"config": empty, "layers": [layer, *fields.pop("more", ())]} | fields
    attached.attach(
        attached.manifest(BUNDLE, b"{}", OCI_EMPTY, **fields), **{"artifactType": OCI_EMPTY, **(entry or {})}
    )


BUNDLES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "with a provenance": lambda _, statement: statement.update(predicateType=provenance.PREDICATE),
    "with a predicate": lambda _, statement: statement.update(predicate={"builder": "me"}),
    "for another image": lambda _, statement: statement["subject"][0]["digest"].update(sha256="0" * 64),
    "for two images": lambda _, statement: statement["subject"].append(statement["subject"][0]),
    "with a field more": lambda _, statement: statement.update(evil=1),
    "with another type": lambda _, statement: statement.update(_type="https://in-toto.io/Statement/v0.1"),
    "with a document more": lambda document, _: document.update(messageSignature={}),
    "with a payload in capitals": lambda document, _: document.update(more={"Payload": "e30="}),
    "without an envelope": lambda document, _: document.update(dsseEnvelope=None),
    "with another envelope": lambda document, _: document.update(dsseEnvelope={"payload": "!"}),
}


def _lie(number: int, **fields: Any) -> Attack:
    return lambda attached: attached.entries[number].update(fields)


def _repeat_others(attached: Attached) -> None:
    for number in range(101):
        attached.attach(attached.manifest("application/vnd.report", b"%d" % number, "text/plain"))


def _lose_blob(kind: str) -> Attack:
    def attack(attached: Attached) -> None:
        _, manifest, _ = attached.own(kind)
        del attached.world.blobs[manifest["layers"][0]["digest"]]

    return attack


def _report(**fields: Any) -> Attack:
    return lambda attached: attached.attach(attached.manifest("application/vnd.report", b"{}", "text/plain", **fields))


def _put_under(tag: Callable[[Attached], str], media_type: str, body: bytes) -> Attack:
    return lambda attached: attached.world.put_manifest(body, media_type, tag(attached))


_EMPTY_INDEX = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()
OTHERS: dict[str, Attack] = {
    "bill gone": lambda attached: attached.drop(cyclonedx.MEDIA_TYPE),
    "provenance gone": lambda attached: attached.drop(provenance.MEDIA_TYPE),
    "cosign's tag gone": lambda attached: attached.world.manifests.pop(attached.att_tag),
    "the bill's content gone": _lose_blob(cyclonedx.MEDIA_TYPE),
    "the provenance's content gone": _lose_blob(provenance.MEDIA_TYPE),
    "an index under cosign's tag": _put_under(lambda attached: attached.att_tag, OCI_INDEX, _EMPTY_INDEX),
    "a bill under cosign's tag": lambda attached: attached.world.put_manifest(
        attached.manifest("application/spdx+json", b"{}", "text/spdx"), OCI_MANIFEST, f"{attached.list_tag}.sbom"
    ),
    "a report": _report(),
    "a report that is listed otherwise": lambda attached: attached.attach(
        attached.manifest("application/vnd.report", b"{}", "text/plain"), artifactType=BUNDLE
    ),
    "a bill by its layer alone": lambda attached: attached.attach(
        attached.manifest("application/vnd.report", b"{}", cyclonedx.MEDIA_TYPE)
    ),
    "a provenance by its layer alone": lambda attached: attached.attach(
        attached.manifest("application/vnd.report", b"{}", ENVELOPE)
    ),
    "a bill of another format": lambda attached: attached.attach(
        attached.manifest("application/spdx+json", b"{}", "application/spdx+json")
    ),
    "with a type that is no text": _report(artifactType=["application/vnd.report"]),
    "without a type of its own": lambda attached: attached.attach(
        attached.manifest("application/vnd.report", b"{}", "text/plain", artifactType=None)
    ),
    "an index": lambda attached: attached.attach(
        json.dumps({**json.loads(_EMPTY_INDEX), "subject": attached.image}).encode(), media_type=OCI_INDEX
    ),
    "an artifact without layers": _report(layers=[]),
    "101 documents": _repeat_others,
    "a bundle and a layer more": lambda attached: attach_bundle(
        attached, more=[{"mediaType": "text/plain", **attached.world.put_blob(b"x")}]
    ),
    "a bundle with a bill": lambda attached: attach_bundle(
        attached, more=[{"mediaType": cyclonedx.MEDIA_TYPE, **attached.world.put_blob(b"{}")}]
    ),
    "a bundle without a layer": lambda attached: attach_bundle(attached, layers=[]),
    "a bundle with another config": lambda attached: attach_bundle(
        attached, config={"mediaType": "text/plain", **attached.world.put_blob(b"x")}
    ),
}  # fmt: skip
LISTS: dict[str, Attack] = {  # only where the list lies under a tag
    "a type that is not the document's": _lie(0, artifactType=BUNDLE),
    "a type of another of ours": _lie(0, artifactType=provenance.MEDIA_TYPE),
    "annotations": _lie(0, annotations={"a": "b"}),
    "urls": _lie(1, urls=["https://example.com/evil"]),
    "size": _lie(1, size=5),
    "digest that is none": _lie(1, digest="sha256:ab"),
    "media type": _lie(0, mediaType=OCI_INDEX),
    "an entry less": lambda attached: attached.entries.pop(),
    "no descriptor": lambda attached: attached.entries.append("evil"),
    "no list": lambda attached: setattr(attached, "entries", None),
    "a report listed as ours": lambda attached: attached.attach(
        attached.manifest("application/vnd.report", b"{}", "text/plain"), artifactType=cyclonedx.MEDIA_TYPE
    ),
    "a bundle listed as a bill": lambda attached: attach_bundle(attached, entry={"artifactType": cyclonedx.MEDIA_TYPE}),
}  # fmt: skip


def _under_tag(kind: str, content: Callable[[Attached], bytes]) -> dict[str, Attack]:
    return {
        f"{kind}, listed": _provenance(content, under_tag=False, listed=True),
        f"{kind}, under cosign's tag": _provenance(content, under_tag=True, listed=False),
        f"{kind}, beside ours under cosign's tag": _more_statements(content),
    }


def attached_faults(*, by_tag: bool) -> dict[str, Attack]:
    """Every fault; `by_tag` with those of a list that clients write."""
    faults: dict[str, Attack] = {}
    for name, change in STATEMENTS.items():
        faults |= _under_tag(f"provenance with another {name}", _forge(change))
    faults |= _under_tag("provenance with a signature", _forge(_evil_builder, signed=True))
    for name, raw in RAW.items():
        faults |= _under_tag(f"provenance: {name}", lambda _, raw=raw: raw)  # type: ignore[misc]
    for name, change in BILLS.items():
        faults[f"bill: {name}"] = _bill(change, instead=False)
        faults[f"bill: {name}, instead"] = _bill(change, instead=True)
    for name, alter in BUNDLES.items():
        faults[f"bundle {name}"] = lambda attached, alter=alter: attach_bundle(attached, alter)  # type: ignore[misc]
    faults |= OTHERS
    return faults | LISTS if by_tag else faults
