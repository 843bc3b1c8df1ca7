"""Bundles that a key signed, as cosign 3 writes them: listed under their config's type, without annotations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.test_sign import make_keys
from tests.registry.support import machine
from tests.servers.memory_registry import MemoryRegistry, like_distribution
from training_imgtool.attest.bundles import SIGNATURE
from training_imgtool.attest.envelope import seal
from training_imgtool.attest.keyless import MEDIA_TYPE
from training_imgtool.attest.keys import read_private_key
from training_imgtool.attest.statement import encode, make_statement
from training_imgtool.attest.trust import Signatory
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.reference import Digest, parse_repository
from training_imgtool.registry.client import Registry
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_EMPTY, OCI_MANIFEST, Descriptor, sha256_digest
from training_imgtool.registry.referrers import attach, referrer_manifest

KIND = "https://slsa.dev/provenance/v1"


def _put_image(registry: Registry, host: str) -> tuple[Descriptor, Digest]:
    repository = parse_repository(f"{host}/team/image")
    empty = Descriptor(OCI_EMPTY, sha256_digest(b"{}"), 2)
    registry.upload(repository, empty, lambda: iter((b"{}",)))
    body = encode(
        {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": empty.document(), "layers": [empty.document()]}
    )
    where = repository.digest(sha256_digest(body))
    registry.put_manifest(where, OCI_MANIFEST, body)
    return Descriptor(OCI_MANIFEST, where.digest, len(body)), where


def _attach(registry: Registry, image: Descriptor, where: Digest, kind: str, bundle: bytes) -> None:
    layer = Descriptor(MEDIA_TYPE, sha256_digest(bundle), len(bundle))
    registry.upload(where.repository, layer, lambda: iter((bundle,)))
    config = Descriptor(OCI_EMPTY, sha256_digest(b"{}"), 2)
    said = {"dev.sigstore.bundle.predicateType": kind}
    body = referrer_manifest(image, MEDIA_TYPE, (layer.document(),), config=config, annotations=said)
    attach(registry, where, body)


def test_a_key_signs_and_a_changed_byte_or_another_image_fails(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    trust = Signatory(name=str(public)).open()
    key = read_private_key(private, str)

    def bundle(image: Digest, kind: str) -> bytes:
        sealed = json.loads(seal(encode(make_statement(image, kind, {})), key))
        return encode({"verificationMaterial": {"publicKey": {"hint": ""}}, "dsseEnvelope": sealed})

    with MemoryRegistry(like_distribution) as server, Registries(machine(tmp_path)) as registries:
        image, where = _put_image(registry := registries.at(parse_repository(f"{server.host}/x")), server.host)
        good = bundle(where, SIGNATURE)
        sealed = json.loads(good)["dsseEnvelope"]
        other = where.repository.digest(f"sha256:{'a' * 64}")
        for bad in (
            b"no bundle",
            b"{}",
            b'{"dsseEnvelope": 5}',
            good.replace(sealed["payload"][40:44].encode(), b"AAAA"),
            bundle(other, SIGNATURE),
            bundle(where, KIND),
        ):
            _attach(registry, image, where, SIGNATURE, bad)
            with pytest.raises(VerificationError, match="is not signed"):
                trust.check(registry, where)
        _attach(registry, image, where, KIND, bundle(where, KIND))
        _attach(registry, image, where, SIGNATURE, good)
        assert trust.check(registry, where).types == (KIND,)
        _attach(registry, image, where, "https://cyclonedx.org/bom", bundle(where, KIND))
        with pytest.raises(VerificationError, match="no valid attestation by this key of type https://cyclonedx"):
            trust.check(registry, where)
