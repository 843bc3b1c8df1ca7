"""Makes SLSA provenances in in-toto statements: who made an image, from what, and with which parameters.

The image's inputs decide the whole content of a provenance, so everyone who makes the same image writes the same
provenance. Formats: https://slsa.dev/spec/v1.0/provenance, https://in-toto.io/Statement/v1.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from training_imgtool.base.reference import Digest, parse_reference
from training_imgtool.model.recipe.recipe import REVISION, Recipe
from training_imgtool.oci.attest import cyclonedx

PREDICATE = "https://slsa.dev/provenance/v1"  # the in-toto predicate type
BUILD_TYPE = "urn:dev.imgtool:build:v1"
BUILDER = "urn:dev.imgtool:builder"
MEDIA_TYPE = "application/vnd.in-toto+json"
ENVELOPE = "application/vnd.dsse.envelope.v1+json"  # the media type of the envelopes that `wrap` makes
_STATEMENT = "https://in-toto.io/Statement/v1"


def make_statement(subject: Digest, predicate_type: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Wraps a predicate into a statement about an image."""
    return {
        "_type": _STATEMENT,
        "subject": [{"name": str(subject.repository), "digest": {"sha256": subject.hex}}],
        "predicateType": predicate_type,
        "predicate": dict(predicate),
    }


def encode(document: Mapping[str, Any]) -> bytes:
    """Formats a document as JSON; equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def wrap(statement: Mapping[str, Any]) -> bytes:
    """Puts a statement into an unsigned envelope (DSSE 1.0), in which cosign and similar programs look for statements.

    cosign 2 stores envelopes as the layers of an image, and reads the number of layers in that image's config. The
    envelope is also a valid config, so that imgtool needs no other blob as config.
    """
    content = encode(statement)
    envelope = {"payloadType": MEDIA_TYPE, "payload": base64.b64encode(content).decode(), "signatures": []}
    layers = [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    return encode({**envelope, "rootfs": {"type": "layers", "diff_ids": layers}})


def make_provenance(recipe: Recipe, published: Mapping[str, Any], *, key: str, bill: bytes) -> dict[str, Any]:
    """Returns the predicate, with only facts that the image's key covers, so that `verify` can make the same predicate.

    Args:
        recipe: the image's recipe.
        published: the recipe as JSON, as `Recipe.publish_document` returns it.
        key: the image's content key.
        bill: the bill of materials, which lists the wheels and Debian packages by their hashes.
    """
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": _list_parameters(recipe, published),
            "internalParameters": {"key": key},
            "resolvedDependencies": _list_dependencies(recipe, hashlib.sha256(bill).hexdigest()),
        },
        "runDetails": {"builder": {"id": BUILDER}, "metadata": {"invocationId": key}},
    }


def _list_parameters(recipe: Recipe, published: Mapping[str, Any]) -> dict[str, Any]:
    variant = recipe.locked.variant
    return {
        variant.framework.key: variant.release,
        "accelerator": str(variant.accelerator),
        "recipe": dict(published),
    }


def _list_dependencies(recipe: Recipe, bill_sha256: str) -> list[dict[str, Any]]:
    base = parse_reference(recipe.locked.variant.base).repository.digest(recipe.locked.base_digest)
    dependencies: list[dict[str, Any]] = [
        {"name": "base", "uri": f"docker://{base}", "digest": {"sha256": base.hex}},
        {"name": "bill", "digest": {"sha256": bill_sha256}, "mediaType": cyclonedx.MEDIA_TYPE},
    ]
    if tree := recipe.labels.get(REVISION):
        dependencies.append({"name": "source", "digest": {"gitTree": tree}})
    return dependencies
