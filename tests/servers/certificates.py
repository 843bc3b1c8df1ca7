"""Self-signed certificates and keys for test servers, made with `cryptography`."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

KEY_USAGE = x509.KeyUsage(  # which Python 3.13 asks of those who sign: ssl.VERIFY_X509_STRICT
    digital_signature=True,
    key_cert_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def make_certificate(
    folder: Path,
    *,
    name: str = "localhost",
    others: tuple[str, ...] = (),
    addresses: tuple[str, ...] = ("127.0.0.1",),
    days: tuple[int, int] = (-1, 30),
) -> tuple[Path, Path]:
    """Writes `cert.pem` and `key.pem` for a server and returns their paths.

    Args:
        folder: where to.
        name: the DNS name.
        others: further DNS names.
        addresses: the IP addresses.
        days: valid from and to, relative to today.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [
        *map(x509.DNSName, (name, *others)),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
    ]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(KEY_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file
