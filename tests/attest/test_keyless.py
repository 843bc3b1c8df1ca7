"""A bundle of the real sigstore client: what its signer said comes out again, and no changed byte passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.servers.sigstore import ISSUER, FakeSigstore, make_token
from training_imgtool.attest.keyless import open_signer, open_verifier
from training_imgtool.attest.statement import encode, make_statement
from training_imgtool.core.errors import UsageError
from training_imgtool.core.reference import parse_repository

IDENTITY = "https://ci.example.com/workflow"
IMAGE = parse_repository("example.com/team/image").digest(f"sha256:{'a' * 64}")


def test_a_changed_byte_fails(tmp_path: Path) -> None:
    said = make_statement(IMAGE, "https://example.com/predicate", {"key": "value"})
    with FakeSigstore() as sigstore:
        config = sigstore.write_config(tmp_path / "sigstore.json")
        with open_signer(make_token(IDENTITY), config) as signer:
            bundle = signer.sign(encode(said))
    verifier = open_verifier(IDENTITY, ISSUER, config)
    assert verifier.open_statement(bundle) == said
    document = json.loads(bundle)
    envelope = document["dsseEnvelope"]
    for holder, key in ((envelope, "payload"), (envelope["signatures"][0], "sig")):
        good = holder[key]
        for at in (5, len(good) // 2):
            holder[key] = good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :]
            assert verifier.open_statement(json.dumps(document).encode()) is None
        holder[key] = good
    assert verifier.open_statement(json.dumps(document).encode()) == said
    assert verifier.open_statement(b"no bundle") is None


def test_a_configuration_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "sigstore.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="no client trust configuration"):
        open_verifier(IDENTITY, ISSUER, path)
