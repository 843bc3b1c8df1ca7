"""Whether an image and its attestations are signed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_imgtool.core.errors import VerificationError
from training_imgtool.core.reference import Digest
from training_imgtool.core.sanitize import join_lines
from training_imgtool.spec.model import Role
from training_imgtool.verify.facts import Finding, Status

if TYPE_CHECKING:
    from training_imgtool.attest.trust import Trust
    from training_imgtool.registry.connect import Registries


def check_signed(role: Role, image: Digest | None, trust: Trust, registries: Registries) -> Finding:
    """The finding; raises what reading from the registry raises."""
    status, text = Status.MISMATCH, "the image is in no registry"
    if image is not None:
        try:
            signed = trust.check(registries.at(image.repository), image)
        except VerificationError as error:
            text = error.message
        else:
            status, text = Status.OK, ", ".join(("the image", *signed.types))
    expected = join_lines(f"signed by {trust.name}", limit=300)
    return Finding(check="signature", role=role, status=status, found=join_lines(text, limit=300), expected=expected)
