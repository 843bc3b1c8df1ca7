"""DSSE envelopes: a payload with its type and signatures over both.

Format: https://github.com/secure-systems-lab/dsse/blob/master/protocol.md.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from training_imgtool.attest.keys import PrivateKey, PublicKey
from training_imgtool.attest.statement import encode

MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
IN_TOTO = "application/vnd.in-toto+json"


def seal(payload: bytes, key: PrivateKey, payload_type: str = IN_TOTO) -> bytes:
    """The envelope's bytes."""
    signature = key.sign(_encode_signed_bytes(payload_type, payload))
    return encode(
        {
            "payloadType": payload_type,
            "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": "", "sig": base64.b64encode(signature).decode()}],
        }
    )


def open_statement(envelope: bytes, key: PublicKey) -> dict[str, Any] | None:
    """The in-toto statement in an envelope; None if the key's owner did not sign it, or it holds something else."""
    try:
        document = json.loads(envelope)
        payload = base64.b64decode(document["payload"], validate=True)
        signatures = [base64.b64decode(entry["sig"], validate=True) for entry in document["signatures"]]
        signed = _encode_signed_bytes(document["payloadType"], payload)
        if document["payloadType"] != IN_TOTO or not any(key.is_valid(signature, signed) for signature in signatures):
            return None
        statement = json.loads(payload)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        return None
    return statement if isinstance(statement, dict) else None


def _encode_signed_bytes(payload_type: str, payload: bytes) -> bytes:
    """What is signed: the protocol's pre-authentication encoding."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
