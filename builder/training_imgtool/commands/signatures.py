"""`imgtool sign`, and the check of signatures before a job file names images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.attest.keys import Password
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.progress import Progress, Step
from training_imgtool.core.reference import Digest
from training_imgtool.core.settings import Settings
from training_imgtool.pipeline.attestations import ensure_attested
from training_imgtool.pipeline.find import require_images
from training_imgtool.pipeline.inputs import Inputs, RoleImage, prepare
from training_imgtool.pipeline.shared_reads import open_spec
from training_imgtool.registry.client import Registry
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.registry.manifests import Descriptor
from training_imgtool.spec.model import Role

if TYPE_CHECKING:
    from training_imgtool.attest.trust import Trust

# Signs an image, and a statement per predicate, by predicate type; returns whether it signed the image, and the types.
Sign = Callable[[Registry, Descriptor, Digest, Mapping[str, Mapping[str, Any]]], tuple[bool, tuple[str, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignResult:
    """One role's image: whether this run signed it, and the types of the attestations that it signed."""

    role: Role
    digest: Digest
    signed: bool
    types: tuple[str, ...]


@contextmanager
def open_signer(key_file: Path | None, password: Password, settings: Settings) -> Iterator[Sign]:
    """What signs an image and predicates about it: a key, or without `key_file` the identity of an OIDC token.

    The token is SIGSTORE_ID_TOKEN or that of the CI service; IMGTOOL_SIGSTORE_CONFIG names another Sigstore instance.

    Raises UsageError for a key of another kind or a wrong password, CredentialsError without a token, and what reading
    the files raises.
    """
    if key_file is not None:
        from training_imgtool.attest.keys import read_private_key
        from training_imgtool.attest.signatures import sign_with_key

        yield partial(sign_with_key, key=read_private_key(key_file, password))
        return
    from training_imgtool.attest import keyless
    from training_imgtool.attest.bundles import sign_keyless

    config = settings.environ.get("IMGTOOL_SIGSTORE_CONFIG")
    token = settings.environ.get("SIGSTORE_ID_TOKEN")
    with keyless.open_signer(token, Path(config) if config else None) as signer:
        yield partial(sign_keyless, signer=signer)


def sign_images(
    where: Path | None,
    sign: Sign,
    settings: Settings,
    progress: Progress,
    *,
    roles: tuple[Role, ...] = (),
    registry: str | None = None,
    locked: bool = False,
) -> tuple[SignResult, ...]:
    """Signs the images of the current inputs, and their bill of materials and provenance.

    Of an index for several platforms, it signs the index and each image; the results name the indexes. What a key has
    signed already stays as it is. The attested content is made from the inputs on this machine; what the registry has
    is not signed unread.

    Raises InputError when an image is not in the registry, and what signing and the registry's client raise.
    """
    inputs = prepare(open_spec(where), settings, progress, registry=registry, locked=locked)
    with connect(settings, progress) as registries:
        results = []
        for each in inputs.every:
            images = each.selected(roles)
            digests = require_images(each, registries, progress, images)
            for image in images:
                progress(Step(image.role, "signing"))
                results.append(_sign(each, image, digests[image.role], sign, registries=registries, settings=settings))
        if not inputs.others:
            return tuple(results)
        named = inputs.named_by_index()
        indexes = require_images(named, registries, progress, named.selected(roles))
        return tuple(_sign_index(role, index, sign, registries, results) for role, index in indexes.items())


def _sign_index(role: Role, index: Digest, sign: Sign, registries: Registries, images: list[SignResult]) -> SignResult:
    """Signs an index; the result has the attestations of its images, which are signed already."""
    registry = registries.at(index.repository)
    signed, _ = sign(registry, registry.manifest(index).descriptor, index, {})
    types = {kind for image in images if image.role is role for kind in image.types}
    return SignResult(role=role, digest=index, signed=signed, types=tuple(sorted(types)))


def _sign(
    inputs: Inputs, image: RoleImage, digest: Digest, sign: Sign, *, registries: Registries, settings: Settings
) -> SignResult:
    registry = registries.at(digest.repository)
    stored = registry.manifest(digest)
    predicates: Mapping[str, Mapping[str, Any]] = {}
    if inputs.spec_file.spec.attestations and settings.attestations:
        epoch = settings.source_date_epoch
        predicates = ensure_attested(inputs, image, digest.repository, stored, registry, epoch=epoch)
    signed, types = sign(registry, stored.descriptor, digest, predicates)
    return SignResult(role=image.role, digest=digest, signed=signed, types=types)


def require_signatures(images: Mapping[Role, Digest], trust: Trust, registries: Registries) -> None:
    """Raises VerificationError that names every image without a valid signature."""
    wrong = {}
    for role, digest in images.items():
        try:
            trust.check(registries.at(digest.repository), digest)
        except VerificationError as error:
            wrong[role] = error.message
    if wrong:
        raise VerificationError(
            f"{len(wrong)} of {len(images)} images have no valid signature: {', '.join(wrong)}",
            hint="imgtool sign --key FILE signs the images of the current spec",
            details=tuple(f"{role}: {message}" for role, message in wrong.items()),
        )
