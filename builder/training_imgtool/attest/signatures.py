"""Signatures and signed attestations where cosign 2 keeps them: the tags `sha256-HEX.sig` and `sha256-HEX.att`.

Each tag has an OCI manifest with one layer per signature. A `.sig` layer is a payload that names the image's digest
(https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md), with the signature in an annotation; an `.att`
layer is a DSSE envelope around an in-toto statement. The manifests also refer to the image as their `subject`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.attest import envelope
from training_imgtool.attest.keys import PrivateKey, PublicKey
from training_imgtool.attest.statement import encode, make_statement
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.registry.client import Registry
from training_imgtool.registry.manifests import OCI_CONFIG, OCI_MANIFEST, Descriptor, Manifest, sha256_digest
from training_imgtool.registry.referrers import attach, referrer_manifest

_PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
_SIGNATURE = "dev.cosignproject.cosign/signature"
_ARTIFACT = "application/vnd.dev.cosign.artifact.sig.v1+json"
_CLAIM = "cosign container image signature"
_LARGEST = 4 << 20  # bytes of one layer
_MOST_LAYERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """What a key's owner says of an image: `types` are the predicate types of the attestations."""

    digest: Digest
    types: tuple[str, ...]


class UnsignedError(VerificationError):
    """The tag `sha256-HEX.sig` of an image has no signature by the key."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer of a signature manifest: its descriptor as a document, and its content."""

    document: Mapping[str, Any]
    content: bytes


def sign_with_key(
    registry: Registry,
    image: Descriptor,
    where: Digest,
    predicates: Mapping[str, Mapping[str, Any]],
    *,
    key: PrivateKey,
) -> tuple[bool, tuple[str, ...]]:
    """Signs an image and a statement per predicate; returns whether it signed the image, and the types that it signed.

    Raises what reading and writing in the registry raise.
    """
    signed = sign_image(registry, image, where, key)
    return signed, sign_attestations(registry, image, where, key, predicates)


def sign_image(registry: Registry, image: Descriptor, where: Digest, key: PrivateKey) -> bool:
    """Signs an image, unless the key's signature is there already; returns whether it signed.

    Raises what reading and writing in the registry raise.
    """
    tag = _tag(where, "sig")
    present = registry.find_manifest(tag)
    if present and any(_is_signature(layer, where, key.public) for layer in _read_layers(registry, tag, present)):
        return False
    claim = {
        "critical": {
            "identity": {"docker-reference": str(where.repository)},
            "image": {"docker-manifest-digest": where.digest},
            "type": _CLAIM,
        },
        "optional": None,
    }
    payload = encode(claim)
    signature = base64.b64encode(key.sign(payload)).decode()
    layer = _make_layer(_PAYLOAD, payload, {_SIGNATURE: signature})
    _append(registry, image, where, (layer,), suffix="sig", present=present)
    return True


def sign_attestations(
    registry: Registry, image: Descriptor, where: Digest, key: PrivateKey, predicates: Mapping[str, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Signs a statement per predicate, unless the key signed the same already; returns the types that it signed.

    Raises what reading and writing in the registry raise.
    """
    tag = _tag(where, "att")
    present = registry.find_manifest(tag)
    layers = _read_layers(registry, tag, present) if present else ()
    signed = [statement for layer in layers if (statement := envelope.open_statement(layer.content, key.public))]
    new = []
    for kind, predicate in predicates.items():
        statement = make_statement(where, kind, predicate)
        if statement not in signed:
            annotations = {_SIGNATURE: "", "predicateType": kind}
            new.append((kind, _make_layer(envelope.MEDIA_TYPE, envelope.seal(encode(statement), key), annotations)))
    if new:
        _append(registry, image, where, tuple(layer for _, layer in new), suffix="att", present=present)
    return tuple(kind for kind, _ in new)


def check_signature(registry: Registry, where: Digest, key: PublicKey) -> Signed:
    """What the key's owner says of an image.

    Raises UnsignedError if the image has no signature by the key, VerificationError if it has an attestation type of
    which no attestation is by the key, and what reading from the registry raises.
    """
    tag = _tag(where, "sig")
    present = registry.find_manifest(tag)
    if present is None:
        raise UnsignedError(f"{where} is not signed", hint="sign it: imgtool sign --key FILE")
    if not any(_is_signature(layer, where, key) for layer in _read_layers(registry, tag, present)):
        raise UnsignedError(f"{where} has no valid signature by this key")
    tag = _tag(where, "att")
    present = registry.find_manifest(tag)
    layers = _read_layers(registry, tag, present) if present else ()
    claimed = {str(_read_annotations(layer).get("predicateType", "")) for layer in layers}
    statements = [statement for layer in layers if (statement := envelope.open_statement(layer.content, key))]
    types = {str(statement.get("predicateType")) for statement in statements if is_about(statement, where)}
    if missing := sorted(claimed - types):
        raise VerificationError(f"{where} has no valid attestation by this key of type {', '.join(missing)}")
    return Signed(digest=where, types=tuple(sorted(types)))


def _is_signature(layer: _Layer, where: Digest, key: PublicKey) -> bool:
    """Whether a layer is the key's signature of an image."""
    try:
        signature = base64.b64decode(_read_annotations(layer)[_SIGNATURE], validate=True)
        if not key.is_valid(signature, layer.content):
            return False
        critical = json.loads(layer.content)["critical"]
        return bool(critical["image"]["docker-manifest-digest"] == where.digest and critical["type"] == _CLAIM)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        return False


def is_about(statement: Mapping[str, Any], where: Digest) -> bool:
    """Whether an in-toto statement is about an image."""
    subjects = statement.get("subject")
    return isinstance(subjects, list) and any(
        isinstance(subject, dict) and subject.get("digest", {}).get("sha256") == where.hex for subject in subjects
    )


def _read_annotations(layer: _Layer) -> Mapping[str, Any]:
    annotations = layer.document.get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def _read_layers(registry: Registry, tag: Tag, manifest: Manifest) -> tuple[_Layer, ...]:
    documents = manifest.document.get("layers") or []
    if manifest.is_index or len(documents) > _MOST_LAYERS:
        raise VerificationError(f"{tag} is no list of signatures that could be read")
    return tuple(
        _Layer(document, registry.read(tag.repository, descriptor, _LARGEST))
        for document, descriptor in zip(documents, manifest.layers, strict=True)
    )


def _tag(where: Digest, suffix: str) -> Tag:
    return where.repository.tag(f"{where.digest.replace(':', '-')}.{suffix}")


def _make_layer(media_type: str, content: bytes, annotations: Mapping[str, str]) -> _Layer:
    descriptor = Descriptor(media_type, sha256_digest(content), len(content))
    return _Layer(descriptor.document() | {"annotations": dict(annotations)}, content)


def _append(
    registry: Registry,
    image: Descriptor,
    where: Digest,
    layers: tuple[_Layer, ...],
    *,
    suffix: str,
    present: Manifest | None,
) -> None:
    """Puts layers behind those that the tag has; cosign adds to the result as to its own."""
    old = present.document["layers"] if present else []
    documents = (*old, *(layer.document for layer in layers))
    config = encode(_config([document["digest"] for document in documents]))
    described = Descriptor(OCI_CONFIG, sha256_digest(config), len(config))
    blobs = [(described, config)]
    blobs += [(Descriptor("", layer.document["digest"], len(layer.content)), layer.content) for layer in layers]
    for descriptor, content in blobs:
        registry.upload(where.repository, descriptor, _make_reader(content))
    artifact = _ARTIFACT if suffix == "sig" else envelope.MEDIA_TYPE
    body = referrer_manifest(image, artifact, documents, config=described, annotations={})
    replaced = present.digest if present and present.media_type == OCI_MANIFEST else ""
    attach(registry, where, body, tag=_tag(where, suffix), replaced=replaced)


def _make_reader(content: bytes) -> Callable[[], Any]:
    return lambda: iter((content,))


def _config(digests: list[str]) -> dict[str, Any]:
    """The image config that cosign writes for such a manifest; each layer is its own diff ID."""
    never = "0001-01-01T00:00:00Z"
    return {
        "architecture": "",
        "created": never,
        "history": [{"created": never} for _ in digests],
        "os": "",
        "rootfs": {"type": "layers", "diff_ids": digests},
        "config": {},
    }
