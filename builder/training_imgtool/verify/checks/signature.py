"""Whether an image and its attestations are signed by a key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.core.errors import VerificationError
from training_imgtool.core.reference import Digest
from training_imgtool.core.sanitize import join_lines
from training_imgtool.spec.model import Role
from training_imgtool.verify.facts import Finding, Status

if TYPE_CHECKING:
    from training_imgtool.registry.connect import Registries


def check_signed(role: Role, image: Digest | None, key_file: Path, registries: Registries) -> Finding:
    """The finding; raises LocalFileError and UsageError for the key, and what reading from the registry raises."""
    from training_imgtool.attest.keys import read_public_key
    from training_imgtool.attest.signatures import check_signature

    key = read_public_key(key_file)
    status, text = Status.MISMATCH, "the image is in no registry"
    if image is not None:
        try:
            signed = check_signature(registries.at(image.repository), image, key)
        except VerificationError as error:
            text = error.message
        else:
            status, text = Status.OK, ", ".join(("the image", *signed.types))
    expected = f"signed by {key_file} ({key.fingerprint[:12]})"
    return Finding(check="signature", role=role, status=status, found=join_lines(text, limit=300), expected=expected)
