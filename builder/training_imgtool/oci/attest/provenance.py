"""SLSA provenance, version 1, in an in-toto statement: who made an image, from what, and with which parameters.

Everything in it follows from what the image is made from, so whoever makes the same image writes the same provenance.
Formats: https://slsa.dev/spec/v1.0/provenance, https://in-toto.io/Statement/v1.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from training_imgtool.base.reference import Digest, parse_reference
from training_imgtool.model.plan import REVISION, RolePlan
from training_imgtool.oci.attest import cyclonedx

PREDICATE = "https://slsa.dev/provenance/v1"  # the in-toto predicate type
BUILD_TYPE = "urn:dev.imgtool:build:v1"
BUILDER = "urn:dev.imgtool:builder"
MEDIA_TYPE = "application/vnd.in-toto+json"
ENVELOPE = "application/vnd.dsse.envelope.v1+json"  # the media type of what `wrap` makes
_STATEMENT = "https://in-toto.io/Statement/v1"


def make_statement(subject: Digest, predicate_type: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a predicate a statement about an image."""
    return {
        "_type": _STATEMENT,
        "subject": [{"name": str(subject.repository), "digest": {"sha256": subject.hex}}],
        "predicateType": predicate_type,
        "predicate": dict(predicate),
    }


def encode(document: Mapping[str, Any]) -> bytes:
    """Writes the same content as the same bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def wrap(statement: Mapping[str, Any]) -> bytes:
    """Puts a statement into an envelope that nobody signed, in which cosign and its kin find it (DSSE 1.0).

    cosign 2 appends its own envelopes as an image's layers, and counts the layers in the config. So that no blob is
    needed for one, the envelope can be read as a config too.
    """
    content = encode(statement)
    envelope = {"payloadType": MEDIA_TYPE, "payload": base64.b64encode(content).decode(), "signatures": []}
    layers = [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    return encode({**envelope, "rootfs": {"type": "layers", "diff_ids": layers}})


def make_provenance(plan: RolePlan, recipe: Mapping[str, Any], *, key: str, bill: bytes) -> dict[str, Any]:
    """Returns the predicate. It says nothing that the image's key does not cover, so that `verify` can write it again.

    Args:
        plan: the plan of a role that has the image.
        recipe: what the image is made from, as JSON.
        key: the image's content key.
        bill: the bill of materials, which lists the wheels and Debian packages by their hashes.
    """
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": _list_parameters(plan, recipe),
            "internalParameters": {"key": key},
            "resolvedDependencies": _list_dependencies(plan, hashlib.sha256(bill).hexdigest()),
        },
        "runDetails": {"builder": {"id": BUILDER}, "metadata": {"invocationId": key}},
    }


def _list_parameters(plan: RolePlan, recipe: Mapping[str, Any]) -> dict[str, Any]:
    variant = plan.locked.variant
    return {
        variant.framework.key: variant.release,
        "accelerator": str(variant.accelerator),
        "recipe": dict(recipe),
    }


def _list_dependencies(plan: RolePlan, bill_sha256: str) -> list[dict[str, Any]]:
    base = parse_reference(plan.locked.variant.base).repository.digest(plan.locked.base_digest)
    dependencies: list[dict[str, Any]] = [
        {"name": "base", "uri": f"docker://{base}", "digest": {"sha256": base.hex}},
        {"name": "bill", "digest": {"sha256": bill_sha256}, "mediaType": cyclonedx.MEDIA_TYPE},
    ]
    if tree := plan.labels.get(REVISION):
        dependencies.append({"name": "source", "digest": {"gitTree": tree}})
    return dependencies
