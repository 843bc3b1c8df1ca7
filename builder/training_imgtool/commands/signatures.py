"""`imgtool sign`, and the check of signatures before a job file names images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.attest.keys import Password, PrivateKey, PublicKey, read_private_key
from training_imgtool.attest.signatures import check_signature, sign_attestations, sign_image
from training_imgtool.build.attestations import attestation_of
from training_imgtool.build.find import require_images
from training_imgtool.build.inputs import Inputs, RoleImage, open_spec, prepare
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.progress import Progress, Step
from training_imgtool.core.reference import Digest
from training_imgtool.core.settings import Settings
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.spec.model import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class SignResult:
    """One role's image: whether this run signed it, and the types of the attestations that it signed."""

    role: Role
    digest: Digest
    signed: bool
    types: tuple[str, ...]


def sign_images(
    where: Path | None,
    settings: Settings,
    progress: Progress,
    *,
    key_file: Path,
    password: Password,
    roles: tuple[Role, ...] = (),
    registry: str | None = None,
    locked: bool = False,
) -> tuple[SignResult, ...]:
    """Signs the images of the current inputs with a key, and their bill of materials and provenance.

    Of an index for several platforms, it signs the index and each image; the results name the indexes.

    What the key has signed already stays as it is. The attested content is made from the inputs on this machine; what
    the registry has is not signed unread.

    Raises InputError when an image is not in the registry, UsageError for a key of another kind or a wrong password,
    and what the registry's client raises.
    """
    key = read_private_key(key_file, password)
    inputs = prepare(open_spec(where), settings, progress, registry=registry, locked=locked)
    with connect(settings, progress) as registries:
        results = []
        for each in inputs.every:
            images = each.selected(roles)
            digests = require_images(each, registries, progress, images)
            for image in images:
                progress(Step(image.role, "signing"))
                results.append(_sign(each, image, digests[image.role], key, registries=registries, settings=settings))
        if not inputs.others:
            return tuple(results)
        named = inputs.named_by_index()
        indexes = require_images(named, registries, progress, named.selected(roles))
        return tuple(_sign_index(role, index, key, registries, results) for role, index in indexes.items())


def _sign_index(
    role: Role, index: Digest, key: PrivateKey, registries: Registries, images: list[SignResult]
) -> SignResult:
    """Signs an index; the result has the attestations of its images, which are signed already."""
    registry = registries.at(index.repository)
    signed = sign_image(registry, registry.manifest(index).descriptor, index, key)
    types = {kind for image in images if image.role is role for kind in image.types}
    return SignResult(role=role, digest=index, signed=signed, types=tuple(sorted(types)))


def _sign(
    inputs: Inputs,
    image: RoleImage,
    digest: Digest,
    key: PrivateKey,
    *,
    registries: Registries,
    settings: Settings,
) -> SignResult:
    registry = registries.at(digest.repository)
    described = registry.manifest(digest).descriptor
    signed = sign_image(registry, described, digest, key)
    types: tuple[str, ...] = ()
    if inputs.spec_file.spec.attestations and settings.attestations:
        attestation = attestation_of(inputs, image, digest, described, registry, epoch=settings.source_date_epoch)
        types = sign_attestations(registry, described, digest, key, attestation.predicates)
    return SignResult(role=image.role, digest=digest, signed=signed, types=types)


def require_signatures(images: Mapping[Role, Digest], key: PublicKey, registries: Registries) -> None:
    """Raises VerificationError that names every image without a valid signature by the key."""
    wrong = {}
    for role, digest in images.items():
        try:
            check_signature(registries.at(digest.repository), digest, key)
        except VerificationError as error:
            wrong[role] = error.message
    if wrong:
        raise VerificationError(
            f"{len(wrong)} of {len(images)} images have no valid signature: {', '.join(wrong)}",
            hint="imgtool sign --key FILE signs the images of the current inputs",
            details=tuple(f"{role}: {message}" for role, message in wrong.items()),
        )
