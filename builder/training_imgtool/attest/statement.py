"""In-toto statements, version 1: a predicate about artifacts, each named by its hash.

Format: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from training_imgtool.core.reference import Digest

STATEMENT = "https://in-toto.io/Statement/v1"


def make_statement(subject: Digest, predicate_type: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """The statement that makes a predicate about an image."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": str(subject.repository), "digest": {"sha256": subject.hex}}],
        "predicateType": predicate_type,
        "predicate": dict(predicate),
    }


def encode(document: Mapping[str, Any]) -> bytes:
    """The document's bytes, the same for the same content."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
