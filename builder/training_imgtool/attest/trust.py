"""Whose signatures count: the owner of a public key, or an identity of Sigstore."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training_imgtool.attest.keyless import IdentityVerifier, open_verifier
from training_imgtool.attest.keys import PublicKey, read_public_key
from training_imgtool.attest.signatures import Signed, UnsignedError, check_signature
from training_imgtool.core.errors import UsageError
from training_imgtool.core.reference import Digest
from training_imgtool.registry.client import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatory:
    """Who must have signed, as the command line names them.

    Attributes:
        name: a file with a public key, or an identity such as an email address or a workflow's URL.
        issuer: the URL of the OIDC provider that vouches for the identity; None for a key.
        config: a client trust configuration of Sigstore; None for the public instance.
    """

    name: str
    issuer: str | None = None
    config: Path | None = None

    def open(self) -> Trust:
        """Reads the key, or Sigstore's root of trust; raises as `read_public_key` and `open_verifier`."""
        if self.issuer is not None:
            return Trust(self.name, open_verifier(self.name, self.issuer, self.config))
        if not Path(self.name).exists() and ("@" in self.name or "://" in self.name):
            raise UsageError(f"{self.name} is not a file", hint="for an identity, add --issuer URL")
        return Trust(self.name, read_public_key(Path(self.name)))


@dataclass(frozen=True, slots=True)
class Trust:
    """What checks images."""

    name: str
    verifier: PublicKey | IdentityVerifier

    def check(self, registry: Registry, image: Digest) -> Signed:
        """What they say of an image; raises VerificationError if it is not signed, or an attestation is not."""
        from training_imgtool.attest.bundles import check_keyless, find_key_bundles

        if isinstance(self.verifier, PublicKey):
            try:
                return check_signature(registry, image, self.verifier)
            except UnsignedError:
                signed = find_key_bundles(registry, image, self.verifier)  # as cosign 3 signs
                if signed is None:
                    raise
                return signed
        return check_keyless(registry, image, self.verifier)
