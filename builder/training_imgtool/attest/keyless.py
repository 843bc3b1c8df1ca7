"""Signatures without a key of one's own: an OIDC identity, a certificate of minutes and a log. The adapter of sigstore.

`sigstore` talks to Fulcio and Rekor: those of the public instance, or of the client trust configuration in a file
(https://github.com/sigstore/protobuf-specs, `ClientTrustConfig`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import CredentialsError, LocalFileError, TemporaryError, UsageError

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig
    from sigstore.sign import Signer
    from sigstore.verify import Verifier

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_IN_TOTO = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class KeylessSigner:
    """Signs statements as one identity."""

    signer: Signer

    def sign(self, statement: bytes) -> bytes:
        """The Sigstore bundle around an in-toto statement; raises TemporaryError if a service does not answer."""
        from sigstore.dsse import Statement
        from sigstore.errors import Error

        try:
            return self.signer.sign_dsse(Statement(statement)).to_json().encode()
        except (Error, OSError, ValueError) as error:
            raise TemporaryError(f"Sigstore did not sign: {error}"[:300]) from error


@dataclass(frozen=True, slots=True)
class IdentityVerifier:
    """Checks what one identity signed."""

    verifier: Verifier
    identity: str
    issuer: str

    def open_statement(self, bundle: bytes) -> dict[str, Any] | None:
        """The in-toto statement in a bundle; None if the identity did not sign it, or it holds something else."""
        from sigstore.errors import Error
        from sigstore.models import Bundle
        from sigstore.verify.policy import Identity

        policy = Identity(identity=self.identity, issuer=self.issuer)
        try:
            kind, payload = self.verifier.verify_dsse(Bundle.from_json(bundle), policy)
            statement = json.loads(payload)
        except (Error, ValueError, TypeError, KeyError):
            return None
        return statement if kind == _IN_TOTO and isinstance(statement, dict) else None


@contextmanager
def open_signer(token: str | None, config: Path | None) -> Iterator[KeylessSigner]:
    """A signer for the identity of an OIDC token.

    Args:
        token: the token; without it, that of the CI service that runs this.
        config: a client trust configuration; without it, the public instance of Sigstore.

    Raises CredentialsError without a usable token, UsageError without `sigstore` or for a wrong configuration, and
    TemporaryError if the public instance's root of trust cannot be fetched.
    """
    trust = _trust(config)
    from sigstore.errors import Error
    from sigstore.oidc import IdentityError, IdentityToken, detect_credential
    from sigstore.sign import SigningContext

    hint = "set SIGSTORE_ID_TOKEN to an OIDC token for the audience sigstore, or give --key FILE"
    try:
        credential = token or detect_credential()
        if credential is None:
            raise CredentialsError("no key, and no OIDC token on this machine", hint=hint)
        identity = IdentityToken(credential)
    except IdentityError as error:
        raise CredentialsError(f"the OIDC token cannot be used: {error}"[:300], hint=hint) from error
    with ExitStack() as opened:
        try:
            signer = opened.enter_context(SigningContext.from_trust_config(trust).signer(identity, cache=True))
        except (Error, OSError, ValueError) as error:
            raise TemporaryError(f"Sigstore gave no certificate: {error}"[:300]) from error
        yield KeylessSigner(signer)


def open_verifier(identity: str, issuer: str, config: Path | None) -> IdentityVerifier:
    """What checks signatures of an identity; raises as `open_signer`."""
    trust = _trust(config)
    from sigstore.verify import Verifier

    return IdentityVerifier(Verifier(trusted_root=trust.trusted_root), identity, issuer)


def _trust(config: Path | None) -> ClientTrustConfig:
    try:
        from sigstore.errors import Error
        from sigstore.models import ClientTrustConfig
    except ImportError as error:
        hint = "pip install 'training-imgtool[keyless]'"
        raise UsageError("keyless signatures need another package", hint=hint) from error
    try:
        return ClientTrustConfig.production() if config is None else ClientTrustConfig.from_json(config.read_text())
    except OSError as error:
        raise LocalFileError(f"{config}: {error.strerror or error}") from error
    except Error as error:
        raise TemporaryError(f"Sigstore's root of trust: {error}"[:300]) from error
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{config}: no client trust configuration: {error}"[:300]) from error
