"""Keys for signatures: ECDSA on P-256 with SHA-256, by cryptography and PyNaCl.

A private key is a PEM file: PKCS #8 or SEC 1, or cosign's own encrypted format (scrypt, then NaCl's secretbox, around
PKCS #8; https://github.com/sigstore/cosign/blob/main/KEYFORMAT.md).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import LocalFileError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

Password = Callable[[], str]
_COSIGN = ("ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY")
_LARGEST = 64 << 10  # bytes of a key file
_MOST_WORK = 1 << 20  # scrypt's N; cosign uses 65,536
_EXPECTED = "expected a key of ECDSA on P-256 in a PEM file, as `cosign generate-key-pair` makes"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """What checks signatures."""

    key: ec.EllipticCurvePublicKey

    def is_valid(self, signature: bytes, data: bytes) -> bool:
        """Whether the key's owner signed the data; `signature` is DER."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            self.key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """What signs."""

    key: ec.EllipticCurvePrivateKey

    def sign(self, data: bytes) -> bytes:
        """The signature, DER."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        return self.key.sign(data, ec.ECDSA(hashes.SHA256()))

    @property
    def public(self) -> PublicKey:
        """The key that checks this one's signatures."""
        return PublicKey(self.key.public_key())


def read_private_key(path: Path, password: Password) -> PrivateKey:
    """Reads a private key; calls `password` only if the file is encrypted.

    Raises LocalFileError for a file that cannot be read, and UsageError for another kind of key or a wrong password.
    """
    data = _read(path)
    serialization, ec = _load_library()
    try:
        if any(f"-----BEGIN {name}-----".encode() in data for name in _COSIGN):
            key = serialization.load_der_private_key(_decrypt(data, password, path), None)
        else:
            secret = password().encode() if b"ENCRYPTED" in data else None
            key = serialization.load_pem_private_key(data, secret)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: the key cannot be read: {error}"[:200], hint=_EXPECTED) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(f"{path}: the key is of another kind", hint=_EXPECTED)
    return PrivateKey(key)


def read_public_key(path: Path) -> PublicKey:
    """Reads a public key; raises as `read_private_key`."""
    data = _read(path)
    serialization, ec = _load_library()
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, TypeError) as error:
        hint = "give the public key, such as cosign.pub" if b"PRIVATE KEY" in data else _EXPECTED
        raise UsageError(f"{path}: not a public key", hint=hint) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(f"{path}: the key is of another kind", hint=_EXPECTED)
    return PublicKey(key)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise LocalFileError(f"{path}: {error.strerror or error}") from error


def _load_library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise UsageError("signatures need another package", hint="pip install 'training-imgtool[sign]'") from error
    return serialization, ec


def _decrypt(data: bytes, password: Password, path: Path) -> bytes:
    """The DER inside cosign's encrypted format; raises ValueError for a malformed file, UsageError for the password."""
    try:
        from nacl.exceptions import CryptoError
        from nacl.secret import SecretBox
    except ImportError as error:
        hint = "pip install 'training-imgtool[sign]'"
        raise UsageError(f"{path}: cosign's encrypted keys need another package", hint=hint) from error
    text = b"".join(line for line in data.splitlines() if not line.startswith(b"-----"))
    try:
        document = json.loads(base64.b64decode(text))
        kdf, cipher = document["kdf"], document["cipher"]
        work = kdf["params"]
        if kdf["name"] != "scrypt" or cipher["name"] != "nacl/secretbox" or work["N"] > _MOST_WORK:
            raise ValueError("its encryption is of another kind")
        salt, nonce = base64.b64decode(kdf["salt"]), base64.b64decode(cipher["nonce"])
        content = base64.b64decode(document["ciphertext"])
        memory = 256 * work["N"] * work["r"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"cosign's format has {error}") from error
    secret = hashlib.scrypt(
        password().encode(), salt=salt, n=work["N"], r=work["r"], p=work["p"], maxmem=memory, dklen=32
    )
    try:
        return SecretBox(secret).decrypt(content, nonce)
    except CryptoError as error:
        raise UsageError(f"{path}: wrong password", hint="set IMGTOOL_KEY_PASSWORD or COSIGN_PASSWORD") from error
