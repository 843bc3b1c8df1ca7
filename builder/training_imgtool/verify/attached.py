"""Compares what is attached to an image with what imgtool attaches to it.

Whoever can push can attach anything to any image, and programs read it as what imgtool says. So what bears the type of
one of imgtool's documents must be, byte for byte, the one that this machine writes; what others attached is reported.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from training_imgtool.core.errors import RegistryRefusedError, VerificationError
from training_imgtool.core.reference import Digest
from training_imgtool.pipeline.attach import Attachment
from training_imgtool.registry.client import Registry
from training_imgtool.registry.manifests import OCI_EMPTY, Descriptor, Manifest, read_document, sha256_digest
from training_imgtool.registry.referrers import describe_referrer, read_referrers, sbom_tag, statement_tag
from training_imgtool.verify.findings import Accepted, Finding, mismatch, ok, unproven

_MOST = 100  # documents of others that are read
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_BUNDLE_KEYS = {"mediaType", "verificationMaterial", "dsseEnvelope"}
_ENVELOPE_KEYS = {"payload", "payloadType", "signatures"}
_SIGNED = {"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://sigstore.dev/cosign/sign/v1"}


def check_attached(
    registry: Registry, image: Digest, wanted: tuple[Attachment, ...], *, required: bool
) -> tuple[Finding, ...]:
    """Compares everything that is attached to an image; signatures are cosign's to check.

    Args:
        registry: its client.
        image: the image.
        wanted: what imgtool writes about it; of a kind that is there twice, either will do.
        required: whether each kind must be there.

    Raises what reading from the registry raises, except for a document that is not as it should be.
    """
    try:
        listed = [_without_nulls(entry) for entry in read_referrers(registry, image)]
        odd = tuple(_find_odd(registry, image, wanted, listed))
        missing = _find_missing(registry, image, wanted, listed)
    except (RegistryRefusedError, VerificationError) as error:
        return (_refuse(error.message),)
    if missing and required:
        cure = "what push attaches; `imgtool build --push --no-cache` attaches it again"
        odd += (mismatch("attestations", f"no {' and no '.join(missing)}", cure),)
    names = " and ".join(f"the {name}" for name in dict.fromkeys(row.name for row in wanted) if name not in missing)
    return odd or (ok("attestations", f"{names} made here" if names else "none, as the spec wants it"),)


def _refuse(found: str) -> Finding:
    return mismatch("attestations", found, "what push attaches, and nothing else of its kinds")


def _without_nulls(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Drops the empty fields that registries write into their lists."""
    return {key: value for key, value in entry.items() if value or key == "size"}


def _find_missing(
    registry: Registry, image: Digest, wanted: tuple[Attachment, ...], listed: list[dict[str, Any]]
) -> list[str]:
    """Lists the names of kinds that are not listed, or not whole; under cosign's tag there must be something at all."""
    whole = {
        row.kind for row in wanted if describe_referrer(row.manifest) in listed and _is_whole(registry, image, row)
    }
    missing = list(dict.fromkeys(row.name for row in wanted if row.kind not in whole))
    return missing or ([] if registry.head(statement_tag(image)) else [f"{wanted[-1].name} under cosign's tag"])


def _is_whole(registry: Registry, image: Digest, row: Attachment) -> bool:
    manifest = image.repository.digest(sha256_digest(row.manifest))
    return registry.head(manifest) is not None and registry.has_blob(image.repository, row.blob)


def _find_odd(
    registry: Registry, image: Digest, wanted: tuple[Attachment, ...], listed: list[dict[str, Any]]
) -> Iterator[Finding]:
    """Yields a finding for each document that is none of `wanted`."""
    ours = [describe_referrer(row.manifest) for row in wanted]
    foreign = [entry for entry in listed if entry not in ours]
    if len(foreign) > _MOST:
        yield _refuse(f"{len(foreign)} documents of others")
        return
    for entry in foreign:
        manifest = registry.find_manifest(image.repository.digest(entry["digest"]))
        if manifest is not None:  # else a clean-up of the registry took it
            yield from _judge(registry, image, entry, manifest, wanted)
    manifest = registry.find_manifest(statement_tag(image))
    if manifest is not None and manifest.digest not in {entry["digest"] for entry in ours}:
        yield _judge_statements(registry, image, manifest, {row.blob.digest for row in wanted})
    if registry.head(sbom_tag(image)) is not None:
        yield unproven("attestations", "attached by others: a bill under cosign's tag", Accepted.ATTACHED)


def _judge(
    registry: Registry, image: Digest, entry: Mapping[str, Any], manifest: Manifest, wanted: tuple[Attachment, ...]
) -> Iterator[Finding]:
    """Yields what is wrong with a manifest that refers to the image, and with how it is listed."""
    layers = () if manifest.is_index else manifest.layers
    types = {entry.get("artifactType"), manifest.document.get("artifactType"), *(layer.media_type for layer in layers)}
    if not manifest.is_index:
        types.add(manifest.config.media_type)
    named = {str(name) for name in types - {None}}
    for row in wanted:
        if named & {row.kind, row.blob.media_type}:
            yield _refuse(f"another {row.name} than the one made here ({manifest.digest[:19]})")
            return
    is_bundle = 0 < len(layers) <= _MOST and named == {_BUNDLE, OCI_EMPTY}
    if not (is_bundle and all(_is_signature(registry, image, layer) for layer in layers)):
        kinds = ", ".join(sorted(named)) or manifest.media_type
        yield unproven("attestations", f"attached by others: {kinds}", Accepted.ATTACHED)


def _is_signature(registry: Registry, image: Digest, layer: Descriptor) -> bool:
    """Returns whether a bundle of cosign 3 states nothing but that the image is signed."""
    try:
        bundle = read_document(registry.read(image.repository, layer))
        envelope = bundle["dsseEnvelope"]
        statement = read_document(base64.b64decode(envelope["payload"], validate=True))
        (subject,) = statement.pop("subject")
        has_no_more = set(bundle) == _BUNDLE_KEYS and set(envelope) == _ENVELOPE_KEYS
        return has_no_more and statement == {**_SIGNED, "predicate": {}} and subject["digest"] == {"sha256": image.hex}
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def _judge_statements(registry: Registry, image: Digest, manifest: Manifest, ours: Collection[str]) -> Finding:
    """Judges what lies where cosign 2 keeps attestations: it adds those that it signs to what is there."""
    others = [layer for layer in manifest.layers if layer.digest not in ours][: _MOST + 1]
    if len(others) <= _MOST and all(_is_signed(registry, image, layer) for layer in others):
        return unproven("attestations", "attached by others: signed statements under cosign's tag", Accepted.ATTACHED)
    return _refuse("an unsigned statement under cosign's tag that is not the one made here")


def _is_signed(registry: Registry, image: Digest, layer: Descriptor) -> bool:
    try:
        envelope = read_document(registry.read(image.repository, layer))
    except ValueError:
        return False
    return isinstance(envelope, dict) and isinstance(envelope.get("signatures"), list) and bool(envelope["signatures"])
