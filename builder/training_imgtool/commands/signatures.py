"""`imgtool sign`, and the check of signatures before a job file names images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.attest.cosign import Cosign, Signatory, find_cosign
from training_imgtool.attest.cyclonedx import PREDICATE as BILL
from training_imgtool.attest.provenance import PREDICATE
from training_imgtool.changes.after_push import telling_what_changed
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.progress import Progress, Step
from training_imgtool.core.reference import Digest
from training_imgtool.core.settings import Settings
from training_imgtool.pipeline.attach import ensure_attested
from training_imgtool.pipeline.find import require_images
from training_imgtool.pipeline.inputs import Inputs, RoleImage, prepare
from training_imgtool.pipeline.shared_reads import open_spec
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.spec.model import Role

if TYPE_CHECKING:
    from training_imgtool.verify.report import ImageReport

_PROOF = frozenset(  # the checks that say whether an image is what its inputs make
    {
        "image", "index", "platform", "base", "layers", "entry point", "user", "environment", "wheels", "bytecode",
        "trainer",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SignResult:
    """One role's image: whether this run signed it, and the types of the attestations that it signed."""

    role: Role
    digest: Digest
    signed: bool
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signer:
    """What signs: a key as cosign takes it, or without one an identity. `own` checks what the key signed before."""

    cosign: Cosign
    key: str | None
    own: Signatory | None

    def sign(self, image: Digest, predicates: Mapping[str, Mapping[str, Any]]) -> tuple[bool, tuple[str, ...]]:
        """Signs what the key did not sign yet; returns whether that is the image, and the types of the statements."""
        new = not self._is_signed(image)
        if new:
            self.cosign.sign(image, self.key)
        types = [kind for kind, predicate in predicates.items() if not self._is_attested(image, kind, predicate)]
        for kind in types:
            self.cosign.attest(image, self.key, kind, predicates[kind])
        return new, tuple(types)

    def _is_signed(self, image: Digest) -> bool:
        if self.own is None:
            return False
        try:
            self.cosign.check(image, self.own)
        except VerificationError:
            return False
        return True

    def _is_attested(self, image: Digest, kind: str, predicate: Mapping[str, Any]) -> bool:
        written = json.loads(json.dumps(predicate))
        return self.own is not None and written in self.cosign.read_attested(image, self.own, kind)


def open_signer(key: str | None, settings: Settings) -> _Signer:
    """Opens what signs with a key, or as the identity of an OIDC token; raises what `find_cosign` does."""
    cosign = find_cosign(settings)
    if key is None:
        return _Signer(cosign=cosign, key=None, own=None)
    cosign, own = cosign.with_own_key(key)
    return _Signer(cosign=cosign, key=key, own=own)


def sign_images(
    where: Path | None,
    key: str | None,
    settings: Settings,
    progress: Progress,
    *,
    values: Mapping[str, str] | None = None,
    roles: tuple[Role, ...] = (),
    registry: str | None = None,
    locked: bool = False,
    unproven: bool = False,
) -> tuple[SignResult, ...]:
    """Signs the images of the current inputs, and their bill of materials and provenance.

    It signs nothing that it does not prove: what is in the registry under an image's key may be anybody's.

    Of an index for several platforms, it signs the index and each image; the results name the indexes. What a key has
    signed already stays as it is. The attested content is made from the inputs on this machine; what the registry has
    is not signed unread.

    Args:
        where: the spec.
        key: a private key as cosign takes it; None for the identity of an OIDC token.
        settings: of the machine; COSIGN_PASSWORD in its environment opens the key.
        progress: gets the steps.
        values: of keys of the spec, in place of the file's.
        roles: whose images; all by default.
        registry: instead of the spec's.
        locked: refuse to renew the lock.
        unproven: sign without the proof, and say so in the signed provenance.

    Raises VerificationError for an image that is not what this machine makes of lock, base and code, InputError when
    an image is not in the registry, and what cosign and the registry's client raise.
    """
    spec_file = open_spec(where, values)
    signer = open_signer(key, settings)
    inputs = prepare(spec_file, settings, progress, registry=registry, locked=locked, write=False, roles=roles)
    proven = None if unproven else _prove(inputs, settings, progress, roles)
    with connect(settings, progress) as registries:
        results = []
        for each in inputs.by_platform:
            images = each.selected(roles)
            with telling_what_changed(each, settings):
                digests = require_images(each, registries, progress, images)
            for image in images:
                progress(Step(image.role, "signing"))
                report = proven.get(str(digests[image.role])) if proven is not None else None
                if proven is not None and report is None:
                    raise VerificationError(f"{digests[image.role]} came under the tag after the proof")
                predicates = _describe(each, image, digests[image.role], registries=registries, settings=settings)
                predicates = _add_packages(predicates, report) if report else _say_unproven(predicates)
                signed, types = signer.sign(digests[image.role], predicates)
                results.append(SignResult(role=image.role, digest=digests[image.role], signed=signed, types=types))
        if not inputs.others:
            return tuple(results)
        named = inputs.named_by_index()
        indexes = require_images(named, registries, progress, named.selected(roles))
        return tuple(_sign_index(role, index, signer, results) for role, index in indexes.items())


def _sign_index(role: Role, index: Digest, signer: _Signer, images: list[SignResult]) -> SignResult:
    """Signs an index; the result has the attestations of its images, which are signed already."""
    signed, _ = signer.sign(index, {})
    types = {kind for image in images if image.role is role for kind in image.types}
    return SignResult(role=role, digest=index, signed=signed, types=tuple(sorted(types)))


def _prove(
    inputs: Inputs, settings: Settings, progress: Progress, roles: tuple[Role, ...]
) -> Mapping[str, ImageReport]:
    """Returns the images that are what this machine makes of lock, base and code; raises VerificationError for others.

    It reads their bases too: the signed bill lists the packages there.
    Whether an image is of use, such as whether its packages agree, is `verify`'s question and not asked here.
    """
    from training_imgtool.verify.facts import Status
    from training_imgtool.verify.session import VerifyRun, verify

    reports = verify(
        VerifyRun(inputs=inputs, roles=roles, engine="direct", whole=True, settings=settings, progress=progress)
    )
    wrong = tuple(
        f"{finding.role}: {finding.check}: {finding.found}"
        for report in reports
        for finding in report.findings
        if finding.check in _PROOF and finding.status in {Status.MISMATCH, Status.UNPROVEN}
    )
    if wrong:
        hint = "`imgtool build --push --no-cache` makes them again; --unproven signs all the same, and says so"
        raise VerificationError("what is not proven is not signed", hint=hint, details=wrong)
    return {report.image: report for report in reports}


def _describe(
    inputs: Inputs, image: RoleImage, digest: Digest, *, registries: Registries, settings: Settings
) -> Mapping[str, Mapping[str, Any]]:
    """Returns what there is to sign about an image, by predicate type, which is attached to it first."""
    if not (inputs.spec_file.spec.attestations and settings.attestations):
        return {}
    registry = registries.at(digest.repository)
    return ensure_attested(inputs, image, digest.repository, registry.manifest(digest), registry, settings=settings)


def _add_packages(predicates: Mapping[str, Mapping[str, Any]], report: ImageReport) -> Mapping[str, Mapping[str, Any]]:
    """Returns the predicates to sign, of which the bill lists the Debian packages that the proof read."""
    from training_imgtool.verify.sbom import add_packages

    return {kind: add_packages(one, report) if kind == BILL else one for kind, one in predicates.items()}


def _say_unproven(predicates: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Returns the predicates to sign, of which the provenance says that nobody proved it."""
    changed: dict[str, Any] = json.loads(json.dumps(predicates))
    if PREDICATE in changed:
        changed[PREDICATE]["buildDefinition"]["internalParameters"]["unproven"] = True
    return changed


def require_signatures(images: Mapping[Role, Digest], signatory: Signatory, settings: Settings) -> None:
    """Raises VerificationError that names every image that the signatory did not sign."""
    cosign = find_cosign(settings)
    wrong = {}
    for role, digest in images.items():
        try:
            cosign.check(digest, signatory)
        except VerificationError as error:
            wrong[role] = error.message
    if wrong:
        raise VerificationError(
            f"{len(wrong)} of {len(images)} images have no valid signature: {', '.join(wrong)}",
            hint="imgtool sign --key FILE signs the images of the current spec",
            details=tuple(f"{role}: {message}" for role, message in wrong.items()),
        )
