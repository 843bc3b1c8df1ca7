"""Sigstore bundles that refer to images: keyless signatures, and all that cosign 3 signs.

A bundle holds an in-toto statement; an image is signed by one of the type `SIGNATURE`, with an empty predicate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from training_imgtool.attest import envelope
from training_imgtool.attest.keyless import MEDIA_TYPE, IdentityVerifier, KeylessSigner
from training_imgtool.attest.keys import PublicKey
from training_imgtool.attest.signatures import Signed, is_about
from training_imgtool.attest.statement import encode, make_statement
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.reference import Digest
from training_imgtool.registry.client import Registry
from training_imgtool.registry.manifests import OCI_EMPTY, Descriptor, sha256_digest
from training_imgtool.registry.referrers import attach, list_referrers, referrer_manifest

SIGNATURE = "https://sigstore.dev/cosign/sign/v1"
_PREDICATE = "dev.sigstore.bundle.predicateType"
_EMPTY = b"{}"
_LARGEST = 4 << 20  # bytes of a bundle


def sign_keyless(
    registry: Registry,
    image: Descriptor,
    where: Digest,
    predicates: Mapping[str, Mapping[str, Any]],
    *,
    signer: KeylessSigner,
) -> tuple[bool, tuple[str, ...]]:
    """Signs an image and a statement per predicate; returns True and their types.

    Raises what signing and writing in the registry raise.
    """
    empty = Descriptor(OCI_EMPTY, sha256_digest(_EMPTY), len(_EMPTY))
    registry.upload(where.repository, empty, lambda: iter((_EMPTY,)))
    for kind, predicate in {SIGNATURE: {}, **predicates}.items():
        bundle = signer.sign(encode(make_statement(where, kind, predicate)))
        layer = Descriptor(MEDIA_TYPE, sha256_digest(bundle), len(bundle))
        registry.upload(where.repository, layer, partial(_stream, bundle))
        annotations = {"dev.sigstore.bundle.content": "dsse-envelope", _PREDICATE: kind}
        body = referrer_manifest(image, MEDIA_TYPE, (layer.document(),), config=empty, annotations=annotations)
        attach(registry, where, body)
    return True, tuple(predicates)


def check_keyless(registry: Registry, where: Digest, verifier: IdentityVerifier) -> Signed:
    """What an identity says of an image.

    Raises VerificationError if the identity did not sign the image, or signed no attestation of a type of which the
    image has one; and what reading from the registry raises.
    """
    claimed, types = _open_all(registry, where, verifier.open_statement)
    if SIGNATURE not in types:
        state = "has no valid signature by" if SIGNATURE in claimed else "is not signed by"
        raise VerificationError(f"{where} {state} {verifier.identity}")
    _require_all(claimed, types, where, verifier.identity)
    return Signed(digest=where, types=tuple(sorted(types - {SIGNATURE})))


def find_key_bundles(registry: Registry, where: Digest, key: PublicKey) -> Signed | None:
    """What a key's owner says of an image in bundles; None if no bundle is a signature by the key.

    Raises as `check_keyless` for an attestation type of which the image has none by the key.
    """
    claimed, types = _open_all(registry, where, partial(_open_by_key, key=key))
    if SIGNATURE not in types:
        return None
    _require_all(claimed, types, where, "this key")
    return Signed(digest=where, types=tuple(sorted(types - {SIGNATURE})))


def _open_all(
    registry: Registry, where: Digest, open_statement: Callable[[bytes], dict[str, Any] | None]
) -> tuple[set[str], set[str]]:
    """The predicate types that an image's bundles claim, and those of the statements about it by one signer."""
    claimed, types = set(), set()
    for kind, bundle in _read_bundles(registry, where):
        claimed.add(kind)
        statement = open_statement(bundle)
        if statement is not None and statement.get("predicateType") == kind and is_about(statement, where):
            types.add(kind)
    return claimed, types


def _require_all(claimed: set[str], types: set[str], where: Digest, signer: str) -> None:
    """Raises VerificationError for an attestation type without a valid attestation."""
    if missing := sorted(claimed - types):
        raise VerificationError(f"{where} has no valid attestation by {signer} of type {', '.join(missing)}")


def _open_by_key(bundle: bytes, key: PublicKey) -> dict[str, Any] | None:
    """The in-toto statement in a bundle that a key signed; None for any other bundle."""
    try:
        sealed = encode(json.loads(bundle)["dsseEnvelope"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return envelope.open_statement(sealed, key)


def _stream(content: bytes) -> Iterator[bytes]:
    return iter((content,))


def _read_bundles(registry: Registry, where: Digest) -> Iterator[tuple[str, bytes]]:
    """Each bundle of an image with the predicate type that its manifest claims.

    The manifest says what a referrer is. cosign 3 lists its bundles under their config's type, and without annotations.
    """
    for referrer in list_referrers(registry, where):
        if referrer.artifact_type not in {MEDIA_TYPE, OCI_EMPTY}:
            continue
        manifest = registry.manifest(where.repository.digest(referrer.descriptor.digest))
        if manifest.document.get("artifactType") != MEDIA_TYPE:
            continue
        annotations = manifest.document.get("annotations")
        claimed = annotations.get(_PREDICATE) if isinstance(annotations, dict) else None
        for layer in manifest.layers[:1]:
            yield str(claimed or ""), registry.read(where.repository, layer, _LARGEST)
