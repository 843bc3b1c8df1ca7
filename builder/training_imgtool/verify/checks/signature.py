"""Has cosign say who signed an image."""

from __future__ import annotations

from training_imgtool.attest.cosign import Signatory, find_cosign
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.reference import Digest
from training_imgtool.core.sanitize import join_lines
from training_imgtool.core.settings import Settings
from training_imgtool.spec.model import Role
from training_imgtool.verify.facts import Finding, Status


def check_signed(role: Role, where: Digest | None, signatory: Signatory, settings: Settings) -> Finding:
    """Returns whether the signatory signed an image; an image that is in no registry has no signature."""
    cosign, status, found = find_cosign(settings), Status.OK, "the image"
    if where is None:
        status, found = Status.MISMATCH, "the image is in no registry"
    else:
        try:
            cosign.check(where, signatory)
        except VerificationError as error:
            status, found = Status.MISMATCH, error.message
    return Finding(
        check="signature",
        role=role,
        status=status,
        found=join_lines(found, limit=600),
        expected=join_lines(f"signed by {signatory.name}", limit=600),
    )
