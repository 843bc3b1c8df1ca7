"""A Sigstore of one's own: Fulcio's and Rekor's requests on loopback, with real certificates, SCTs, entries and proofs.

The client in front of it is the real one, which checks all of that. Each log entry is the second of a tree of two.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import struct
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from tests.servers.scripted import Asked, Reply, ScriptedServer

ISSUER = "https://ci.example.com"
_DAY = dt.timedelta(days=1)
_CODE_SIGNING = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
_SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_FULCIO_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def make_token(subject: str, *, issuer: str = ISSUER, minutes: int = 5) -> str:
    """An OIDC token. Fulcio would check its signature, the client does not."""
    now = int(dt.datetime.now(dt.UTC).timestamp())
    claims = {
        "iss": issuer,
        "aud": "sigstore",
        "sub": subject,
        "iat": now - 1,
        "nbf": now - 1,
        "exp": now + 60 * minutes,
    }
    parts = (json.dumps({"alg": "ES256", "typ": "JWT"}).encode(), json.dumps(claims).encode(), b"signature")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


class _Key:
    """A P-256 key with the ID that logs have: the hash of the public key."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        self.der = self.private.public_key().public_bytes(serialization.Encoding.DER, form)
        self.id = hashlib.sha256(self.der).digest()

    def sign(self, data: bytes) -> bytes:
        return self.private.sign(data, ec.ECDSA(hashes.SHA256()))


class FakeSigstore:
    """Issues certificates for whatever subject a token names, and logs what it is sent."""

    def __init__(self) -> None:
        self._ca, self._ct, self._log = _Key(), _Key(), _Key()
        self._now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        self._root = self._make_root()
        self._entries = 0
        self._server = ScriptedServer(self._reply)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._server.__exit__(*details)

    def write_config(self, path: Path) -> Path:
        """Writes the client trust configuration (sigstore/protobuf-specs)."""
        url = f"http://{self._server.host}"
        valid = {"start": (self._now - _DAY).isoformat().replace("+00:00", "Z")}
        service = {"url": url, "majorApiVersion": 1, "validFor": valid, "operator": "tests"}
        document = {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [self._log_entry(url, self._log, valid)],
                "ctlogs": [self._log_entry(url, self._ct, valid)],
                "certificateAuthorities": [
                    {
                        "subject": {"organization": "tests", "commonName": "tests"},
                        "uri": url,
                        "certChain": {"certificates": [{"rawBytes": _text(_der(self._root))}]},
                        "validFor": valid,
                    }
                ],
            },
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service],
                "oidcUrls": [service],
                "rekorTlogUrls": [service],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaConfig": {"selector": "ANY"},
            },
        }
        path.write_text(json.dumps(document))
        return path

    @staticmethod
    def _log_entry(url: str, key: _Key, valid: dict[str, str]) -> dict[str, Any]:
        public = {"rawBytes": _text(key.der), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid}
        return {"baseUrl": url, "hashAlgorithm": "SHA2_256", "publicKey": public, "logId": {"keyId": _text(key.id)}}

    def _make_root(self) -> x509.Certificate:
        public = self._ca.private.public_key()
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = x509.CertificateBuilder(self._name, self._name, public, 1, self._now - _DAY, self._now + _DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        return builder.sign(self._ca.private, hashes.SHA256())

    def _reply(self, asked: Asked) -> Reply:
        body = json.loads(asked.body)
        if asked.target.endswith("/signingCert"):
            return Reply(200, json.dumps(self._certify(asked, body)).encode())
        if asked.target == "/api/v1/log/entries":
            entry = self._enter(body)
            return Reply(
                201, json.dumps(entry).encode(), {"Content-Type": "application/json", "ETag": next(iter(entry))}
            )
        return Reply(404)

    def _certify(self, asked: Asked, body: dict[str, Any]) -> dict[str, Any]:
        token = asked.headers["authorization"].removeprefix("Bearer ").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        key = _public_key(body)
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=False, crl_sign=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        begin = self._now - dt.timedelta(minutes=1)
        end = self._now + dt.timedelta(minutes=10)
        builder = x509.CertificateBuilder(self._name, x509.Name([]), key, x509.random_serial_number(), begin, end)
        subject = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(claims["sub"])])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca.private.public_key())
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (usage, True),
            (_CODE_SIGNING, False),
            (issuer, False),
            (subject, True),
            (x509.UnrecognizedExtension(_FULCIO_ISSUER, claims["iss"].encode()), False),
        ]
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        plain = builder.sign(self._ca.private, hashes.SHA256())
        logged = x509.UnrecognizedExtension(_SCT_LIST, self._timestamp(plain.tbs_certificate_bytes))
        leaf = builder.add_extension(logged, critical=False).sign(self._ca.private, hashes.SHA256())
        pem = [certificate.public_bytes(serialization.Encoding.PEM).decode() for certificate in (leaf, self._root)]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": pem}}}

    def _timestamp(self, tbs: bytes) -> bytes:
        """The list of one signed certificate timestamp (RFC 6962, 3.2 and 3.3), as a DER OCTET STRING."""
        when = int(self._now.timestamp() * 1000)
        entry = self._ca.id + len(tbs).to_bytes(3, "big") + tbs
        signed = struct.pack("!BBQH", 0, 0, when, 1) + entry + struct.pack("!H", 0)
        signature = self._ct.sign(signed)
        sct = struct.pack("!B32sQH", 0, self._ct.id, when, 0) + struct.pack("!BBH", 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(sct) + 2, len(sct)) + sct
        return (b"\x04\x81" + bytes([len(listed)]) if len(listed) > 127 else b"\x04" + bytes([len(listed)])) + listed

    def _enter(self, proposed: dict[str, Any]) -> dict[str, Any]:
        """A log entry of type dsse 0.0.1, with its inclusion proof and promise."""
        content = proposed["spec"]["proposedContent"]
        envelope = json.loads(content["envelope"])
        payload = base64.b64decode(envelope["payload"])
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(content["envelope"].encode()).hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "signatures": [
                {"signature": entry["sig"], "verifier": verifier}
                for entry, verifier in zip(envelope["signatures"], content["verifiers"], strict=True)
            ],
        }
        body = json.dumps({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec}, sort_keys=True).encode()
        self._entries += 1
        first = hashlib.sha256(b"\x00").digest()
        root = hashlib.sha256(b"\x01" + first + hashlib.sha256(b"\x00" + body).digest()).digest()
        note = f"tests - 1\n2\n{_text(root)}\n"  # as Rekor 1 calls its tree
        checkpoint = f"{note}\n\u2014 tests {_text(self._log.id[:4] + self._log.sign(note.encode()))}\n"
        when = int(dt.datetime.now(dt.UTC).timestamp())
        promise = {"body": _text(body), "integratedTime": when, "logID": self._log.id.hex(), "logIndex": self._entries}
        signed = self._log.sign(json.dumps(promise, sort_keys=True, separators=(",", ":")).encode())
        hashed = {"hashes": [first.hex()], "rootHash": root.hex()}
        proof = {"checkpoint": checkpoint, "logIndex": 1, "treeSize": 2, **hashed}
        return {
            root.hex(): promise | {"verification": {"inclusionProof": proof, "signedEntryTimestamp": _text(signed)}}
        }


def _public_key(body: dict[str, Any]) -> ec.EllipticCurvePublicKey:
    """The key of a request for a certificate: sigstore-python sends a signing request, cosign the key itself."""
    key: object
    if "certificateSigningRequest" in body:
        key = x509.load_pem_x509_csr(base64.b64decode(body["certificateSigningRequest"])).public_key()
    else:
        key = serialization.load_pem_public_key(body["publicKeyRequest"]["publicKey"]["content"].encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)
