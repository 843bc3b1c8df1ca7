"""`imgtool sign`: proves the images of a spec, and then signs them with cosign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.reference import Digest
from training_imgtool.base.settings import Settings
from training_imgtool.make.find import require_images
from training_imgtool.make.inputs import Inputs, prepare
from training_imgtool.make.project_files import SpecChoice
from training_imgtool.model.spec import Role
from training_imgtool.oci.attest.cosign import check_key, find_cosign
from training_imgtool.oci.registry.connect import Machine


def find_proven(
    choice: SpecChoice, key: str | None, machine: Machine, *, roles: tuple[Role, ...] = (), unproven: bool = False
) -> tuple[tuple[tuple[Role, Digest], ...], Callable[[Sequence[Digest]], None]]:
    """Proves the images of the current inputs, and returns them with a function that signs images.

    With several platforms, the indexes come last. Anyone may have pushed the image under a key, so imgtool first proves
    each image as `verify` does.

    Args:
        choice: the spec.
        key: the key for `open_signer`.
        machine: the machine that proves and signs.
        roles: the roles whose images to sign; all by default.
        unproven: whether to skip the proof.

    Raises VerificationError for an image that `verify` does not prove, ImageMissingError for an image that the registry
    lacks, and what the registry's client and `open_signer` raise.
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
    if not unproven:
        _prove(inputs, found, machine, roles)
    return tuple(found), sign


def _prove(inputs: Inputs, found: list[tuple[Role, Digest]], machine: Machine, roles: tuple[Role, ...]) -> None:
    from training_imgtool.verify.findings import Accepted
    from training_imgtool.verify.report import list_failures
    from training_imgtool.verify.session import VerifyRun, verify

    accept = frozenset({Accepted.ATTACHED})  # a signature does not cover documents that others attached
    reports = verify(VerifyRun(inputs=inputs, roles=roles, accept=accept, machine=machine))
    if wrong := list_failures(reports):
        hint = "`imgtool build --push --no-cache` makes them again; --unproven signs them anyway"
        raise VerificationError("imgtool signs only proven images", hint=hint, details=wrong)
    proven = {report.image for report in reports} | {report.index for report in reports}
    for role, image in found:
        if image not in proven:
            raise VerificationError(f"{role}: the tag has moved from {image} to another image meanwhile")


def open_signer(key: str | None, settings: Settings) -> Callable[[Sequence[Digest]], None]:
    """Returns a function that signs images through cosign, with a private key or the identity of an OIDC token.

    `key` may have any form that cosign accepts. COSIGN_PASSWORD in the environment unlocks the key; without it, cosign
    asks. Raises LocalFileError for a missing key file, and UsageError on a machine without cosign.
    """
    cosign = find_cosign(settings)
    if key is not None:
        check_key(key)
    return partial(cosign.sign, key=key)
