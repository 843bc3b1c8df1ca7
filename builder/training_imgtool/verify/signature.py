"""Asks cosign whether a certain signatory signed an image."""

from __future__ import annotations

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.reference import Digest
from training_imgtool.base.settings import Settings
from training_imgtool.oci.attest.cosign import Signatory, find_cosign
from training_imgtool.verify.findings import Finding, mismatch, ok


def check_signed(where: Digest, signatory: Signatory, settings: Settings) -> Finding:
    """Returns a finding that tells whether `signatory` signed the image."""
    try:
        find_cosign(settings).check(where, signatory)
    except VerificationError as error:
        return mismatch("signature", error.message, f"signed by {signatory.name}")
    return ok("signature", f"signed by {signatory.name}")
