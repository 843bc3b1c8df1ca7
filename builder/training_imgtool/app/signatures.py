"""`imgtool sign`: verifies the images of a spec, and then signs them with cosign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.reference import Digest
from training_imgtool.base.settings import Settings
from training_imgtool.make.find import require_images
from training_imgtool.model.spec import Role
from training_imgtool.oci.attest.cosign import check_key, find_cosign
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import Inputs, prepare
from training_imgtool.plan.project_files import SpecChoice

if TYPE_CHECKING:
    from training_imgtool.verify.findings import Accepted


def find_proven(
    choice: SpecChoice,
    key: str | None,
    machine: Machine,
    *,
    roles: tuple[Role, ...] = (),
    unproven: bool = False,
    accept: frozenset[Accepted] = frozenset(),
) -> tuple[tuple[tuple[Role, Digest], ...], Callable[[Sequence[Digest]], None], tuple[str, ...]]:
    """Verifies the images of the current inputs; returns them, a function that signs images, and what was accepted.

    If the spec has several platforms, the indexes come last. Anyone with access may have pushed an image under the tag,
    so imgtool first checks each image as `imgtool verify` does.

    Args:
        choice: the spec.
        key: the key for `open_signer`.
        machine: the machine that verifies and signs.
        roles: the roles whose images to sign; all by default.
        unproven: whether to skip the verification.
        accept: the findings that pass, as in `imgtool verify`.

    Raises VerificationError for an image that fails the verification, ImageMissingError for an image that the registry
    lacks, and the errors of the registry's client and `open_signer`.
    """
    spec_file = choice.open()
    sign = open_signer(key, machine.settings)
    inputs = prepare(spec_file, machine, choice, write=False, roles=roles)
    found: list[tuple[Role, Digest]] = []
    for each in inputs.by_platform:
        found += require_images(each, machine, each.selected(roles)).items()
    if inputs.others:
        named = inputs.named_by_index()
        found += require_images(named, machine, named.selected(roles)).items()
    accepted = () if unproven else _prove(inputs, found, machine, roles, accept)
    return tuple(found), sign, accepted


def _prove(
    inputs: Inputs,
    found: list[tuple[Role, Digest]],
    machine: Machine,
    roles: tuple[Role, ...],
    accept: frozenset[Accepted],
) -> tuple[str, ...]:
    """Verifies the images, and returns what `accept` let pass."""
    from training_imgtool.verify.report import list_accepted, list_failures
    from training_imgtool.verify.session import VerifyRun, verify

    reports = verify(VerifyRun(inputs=inputs, roles=roles, accept=accept, machine=machine))
    if wrong := list_failures(reports):
        hint = "`imgtool build --push --no-cache` makes them again; --unproven signs them anyway"
        raise VerificationError("imgtool does not sign images that it cannot verify", hint=hint, details=wrong)
    proven = {report.image for report in reports} | {report.index for report in reports}
    for role, image in found:
        if image not in proven:
            raise VerificationError(f"{role}: while imgtool verified {image}, the image's tag moved to another image")
    return list_accepted(reports)


def open_signer(key: str | None, settings: Settings) -> Callable[[Sequence[Digest]], None]:
    """Returns a function that runs cosign to sign images, with a private key or with the identity in an OIDC token.

    `key` may have any form that cosign accepts. cosign unlocks the key with COSIGN_PASSWORD, or asks for
    the password. Raises LocalFileError for a missing key file, and UsageError on a machine without cosign.
    """
    cosign = find_cosign(settings)
    if key is not None:
        check_key(key)
    return partial(cosign.sign, key=key)
