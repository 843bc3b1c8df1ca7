"""Runs `imgtool verify`: finds each role's image in the registry, makes the image again, and compares the two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.base.errors import NeedsEngineError
from training_imgtool.base.interpreters import NoInterpreterError
from training_imgtool.base.reference import Digest
from training_imgtool.base.threads import run_all
from training_imgtool.make.attach import list_attachments
from training_imgtool.make.find import require_images
from training_imgtool.model.spec import Role
from training_imgtool.oci.image.image import read_config
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.manifests import Manifest, index_body, index_entry
from training_imgtool.plan.inputs import Inputs, RoleImage
from training_imgtool.resolve.wheels.store import WheelGoneError
from training_imgtool.verify.attached import check_attached
from training_imgtool.verify.compare import compare_image
from training_imgtool.verify.findings import Accepted, Finding, ImageReport, Status, mismatch, ok, unproven
from training_imgtool.verify.remake import remake
from training_imgtool.verify.signature import check_signed

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.engine import DockerEngine
    from training_imgtool.oci.attest.cosign import Signatory
    from training_imgtool.oci.machine import Machine
    from training_imgtool.oci.registry.connect import Registries


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRun:
    """One run of `verify`.

    Attributes:
        signed_by: the signatory who must have signed the images; None skips this check.
        accept: the findings that pass although this machine cannot prove them.
        smoke: whether a container imports TensorFlow and the trainer.
    """

    inputs: Inputs
    roles: tuple[Role, ...]
    signed_by: Signatory | None = None
    accept: frozenset[Accepted] = frozenset()
    smoke: bool = False
    machine: Machine


def verify(run: VerifyRun) -> tuple[ImageReport, ...]:
    """Compares the images of the roles with the images that this machine makes from the same inputs.

    Raises ImageMissingError when an image is not in the registry, EngineUnavailableError for a smoke test without an
    engine, and what the registry's client raises. Faults of the images are findings in the reports, not errors.
    """
    with _open_engine(run) as engine:
        reports: list[ImageReport] = []
        for inputs in run.inputs.by_platform:
            each = replace(run, inputs=inputs)
            images = inputs.selected(run.roles)
            digests = require_images(inputs, run.machine, images)
            examined: dict[tuple[str, Digest], tuple[Finding, ...]] = {}  # roles may share an image, and tags may lie
            for image in images:
                digest = digests[image.role]
                if (image.key, digest) not in examined:
                    examined[image.key, digest] = _examine(each, image, digest, engine)
                reports.append(ImageReport(role=image.role, image=digest, findings=examined[image.key, digest]))
        if run.inputs.others:
            reports = _with_indexes(run, reports)
        return tuple(replace(report, findings=_accept(report.findings, run.accept)) for report in reports)


@contextmanager
def _open_engine(run: VerifyRun) -> Iterator[DockerEngine | None]:
    if not run.smoke:
        yield None
        return
    from training_imgtool.make.engines.docker.connect import connect
    from training_imgtool.make.engines.docker.probe import sweep

    engine = connect(run.machine.settings)
    try:
        sweep(engine.api)
        yield engine
    finally:
        engine.close()


def _examine(run: VerifyRun, image: RoleImage, digest: Digest, engine: DockerEngine | None) -> tuple[Finding, ...]:
    registry = run.machine.registries.at(digest.repository)
    manifest = registry.manifest(digest)
    if manifest.is_index:
        return (mismatch("image", "an index", "an image"),)
    blobs = _find_blobs(digest, manifest, registry)
    compared = _compare(run, image, digest, manifest)
    directs = (True, False) if any(finding.check == "image" for finding in compared) else (True,)
    asked = run.inputs.spec_file.spec.attestations and run.machine.settings.attestations
    wanted = tuple(
        row
        for direct in directs
        for row in list_attachments(run.inputs, image, digest, manifest.descriptor, direct=direct)
    )
    findings = [blobs, *compared, *check_attached(registry, digest, wanted, required=asked)]
    if run.signed_by is not None:
        findings.append(check_signed(digest, run.signed_by, run.machine.settings))
    if engine is not None:
        from training_imgtool.verify.smoke import check_start

        findings += check_start(image, run.inputs.spec_file.entry, digest, engine, run.machine)
    return tuple(findings)


def _find_blobs(digest: Digest, manifest: Manifest, registry: Registry) -> Finding:
    """Asks the registry for every blob of the manifest, because registries accept manifests whose blobs are missing."""
    blobs = dict.fromkeys((manifest.config, *manifest.layers))
    there = run_all({blob: partial(registry.has_blob, digest.repository, blob) for blob in blobs})
    if missing := [blob.short for blob, is_there in there.items() if not is_there]:
        return mismatch("blobs", f"no {', '.join(missing[:3])}", f"the {len(blobs)} blobs of the manifest")
    return ok("blobs", f"the {len(blobs)} blobs of the manifest are there")


def _compare(run: VerifyRun, image: RoleImage, digest: Digest, manifest: Manifest) -> tuple[Finding, ...]:
    registry = run.machine.registries.at(digest.repository)
    try:
        with remake(run.inputs, image, run.machine) as remade:
            return compare_image(registry, digest, manifest, remade.image, compiles_alike=remade.compiles_alike)
    except NoInterpreterError as error:
        return (unproven("image", f"{error.message}; {error.hint}"),)
    except NeedsEngineError as error:
        return (unproven("image", f"made by an engine: {error.message}", Accepted.ENGINE),)
    except WheelGoneError as error:
        return (unproven("image", error.message, Accepted.GONE),)


def _with_indexes(run: VerifyRun, reports: list[ImageReport]) -> list[ImageReport]:
    """Adds a finding about the index to the report on each image; raises ImageMissingError if an index is missing."""
    inputs = run.inputs.named_by_index()
    wanted = inputs.selected(run.roles)
    indexes = require_images(inputs, run.machine, wanted)
    images: dict[Role, list[Digest]] = {}
    for report in reports:
        images.setdefault(report.role, []).append(report.image)
    findings = {
        role: _compare_index(indexes[role], digests, run.machine.registries) for role, digests in images.items()
    }
    return [
        replace(report, index=indexes[report.role], findings=(*report.findings, findings[report.role]))
        for report in reports
    ]


def _compare_index(index: Digest, images: list[Digest], registries: Registries) -> Finding:
    """Compares an index, byte for byte, with the index that imgtool writes for the examined images."""
    registry, entries = registries.at(index.repository), []
    for image in images:
        manifest = registry.manifest(image)
        entries.append(index_entry(manifest, read_config(registry.read(image.repository, manifest.config))))
    if registry.manifest(index).body == index_body(entries)[1]:
        return ok("index", str(index))
    return mismatch("index", f"not the index of {', '.join(image.digest for image in images)}", "just these images")


def _accept(findings: tuple[Finding, ...], accept: frozenset[Accepted]) -> tuple[Finding, ...]:
    return tuple(
        replace(finding, status=Status.ACCEPTED) if finding.accepted_as in accept else finding for finding in findings
    )
