"""Attaches a bill of materials and the provenance to each image that a run makes.

Both are one OCI manifest with the image as its `subject`: the bill is its layer, which all images of a lock share, and
the provenance statement its annotation `dev.imgtool.provenance`. So an image costs one request, or two where the
registry has no referrers API, and the first image of a lock two more for the bill.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from training_imgtool.attest import cyclonedx, provenance
from training_imgtool.attest.statement import encode, make_statement
from training_imgtool.build.builders import StartImage, plan_role, plan_stage_image
from training_imgtool.build.inputs import Inputs, RoleImage, debian_runs
from training_imgtool.build.request import BuildRun
from training_imgtool.core.errors import NeedsEngineError, RegistryRefusedError
from training_imgtool.core.progress import Note
from training_imgtool.core.reference import Digest
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.lock.lockfile import dump_lock
from training_imgtool.plan import DebianPackage
from training_imgtool.registry.client import Registry
from training_imgtool.registry.http.failures import BlobUnknownError
from training_imgtool.registry.manifests import Descriptor, sha256_digest
from training_imgtool.registry.referrers import attach, list_referrers, referrer_manifest

PROVENANCE = "dev.imgtool.provenance"  # the annotation that has the statement
_TITLE = {"org.opencontainers.image.title": "sbom.cdx.json"}
_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """What is attached to one image: the manifest's bytes, the bill that it names, and both as in-toto predicates."""

    manifest: bytes
    bill: bytes
    bill_descriptor: Descriptor
    predicates: Mapping[str, Mapping[str, Any]]  # by predicate type


def make_attestation(
    inputs: Inputs, image: RoleImage, made: Digest, descriptor: Descriptor, *, engine: bool, epoch: int
) -> Attestation:
    """The attestation of an image; `engine` and `epoch` are those of `provenance.Origin`."""
    debian = () if engine else _laid_out(inputs, image)
    contents = cyclonedx.describe_variant(inputs.plan.name, image.plan, debian, epoch=epoch)
    bill = encode(contents)
    bill_descriptor = Descriptor(cyclonedx.MEDIA_TYPE, sha256_digest(bill), len(bill))
    build = provenance.make_provenance(_origin(inputs, image, engine=engine, epoch=epoch))
    said = encode(make_statement(made, provenance.PREDICATE, build))
    manifest = referrer_manifest(
        descriptor,
        cyclonedx.MEDIA_TYPE,
        (bill_descriptor.document() | {"annotations": _TITLE},),
        config=bill_descriptor,
        annotations={PROVENANCE: said.decode()},
    )
    return Attestation(
        manifest=manifest,
        bill=bill,
        bill_descriptor=bill_descriptor,
        predicates={cyclonedx.PREDICATE: contents, provenance.PREDICATE: build},
    )


def attestation_of(
    inputs: Inputs, image: RoleImage, made: Digest, descriptor: Descriptor, registry: Registry, *, epoch: int
) -> Attestation:
    """The attestation of an image in the registry, which is attached first if it is not there.

    Raises what reading and writing in the registry raise.
    """
    make = partial(make_attestation, inputs, image, made, descriptor, epoch=epoch)
    attached = {referrer.descriptor.digest for referrer in list_referrers(registry, made)}
    for engine in (False, True):
        if sha256_digest((candidate := make(engine=engine)).manifest) in attached:
            return candidate
    attestation = make(engine=not _is_direct(inputs, image))
    registry.upload(made.repository, attestation.bill_descriptor, lambda: iter((attestation.bill,)))
    attach(registry, made, attestation.manifest)
    return attestation


def _laid_out(inputs: Inputs, image: RoleImage) -> tuple[DebianPackage, ...]:
    """The Debian packages that the direct builder lays out for an image: those of the lock, or none.

    An engine that runs the stage, or one above it, has apt install the versions that the archive has by then.
    """
    runs, locked = debian_runs(image.plan), image.plan.locked.debian
    if locked is None or not runs:
        return ()
    own = image.dockerfile.stages[-1]
    below = image.dockerfile.earlier(own.base, own) or own
    planned = plan_stage_image(inputs, image, below.label).chain.stages
    laid_out = any(step.name == "RUN" and step.text in runs for stage in planned for step in stage.instructions)
    return locked.packages if laid_out else ()


def _is_direct(inputs: Inputs, image: RoleImage) -> bool:
    try:
        plan_role(inputs, image)
    except NeedsEngineError:
        return False
    return True


class Attestations:
    """Attaches attestations in the background, one task per image. Thread-safe."""

    def __init__(self, run: BuildRun, publisher: Publisher) -> None:
        self._run = run
        self._registry = publisher.evidence.registry
        self._publisher = publisher
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="attest")
        self._tasks: list[Future[None]] = []
        self._wanted = run.inputs.spec_file.spec.attestations and run.settings.attestations

    def add(self, image: RoleImage, made: DirectImage, start: StartImage) -> None:
        """Begins to attach what there is to say of an image that the direct builder appended to `start`."""
        self._add(
            image,
            self._publisher.repository.digest(made.digest),
            Descriptor(made.manifest_type, made.digest, len(made.manifest)),
            is_first=self._publisher.was_missing(made.config_descriptor.digest),
            has_bill=not self._publisher.was_missing(sha256_digest(start.image.config)),
        )

    def add_from_engine(self, image: RoleImage, made: Digest) -> None:
        """The same for an image that an engine pushed."""
        self._add(image, made, None, is_first=False, has_bill=False)

    def finish(self) -> None:
        """Waits until all are attached; raises what the registry's client raises, except a refusal, which is noted."""
        for task in self._tasks:
            try:
                task.result()
            except RegistryRefusedError as error:
                self._run.progress(Note(f"the registry does not take attestations: {error.message}"))
                break

    def close(self) -> None:
        """Begins nothing further."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _add(
        self, image: RoleImage, made: Digest, descriptor: Descriptor | None, *, is_first: bool, has_bill: bool
    ) -> None:
        """Begins a task.

        Args:
            image: the image's inputs.
            made: its digest.
            descriptor: of its manifest; None for an engine's image.
            is_first: the repository never had this image before.
            has_bill: the repository most likely has the bill, since it had the image below this one.
        """
        if self._wanted:
            task = partial(self._attach, image, made, descriptor, is_first=is_first, has_bill=has_bill)
            self._tasks.append(self._pool.submit(task))

    def _attach(
        self, image: RoleImage, made: Digest, descriptor: Descriptor | None, *, is_first: bool, has_bill: bool
    ) -> None:
        described = descriptor or self._registry.manifest(made).descriptor
        epoch = self._run.settings.source_date_epoch
        attestation = make_attestation(self._run.inputs, image, made, described, engine=descriptor is None, epoch=epoch)
        if not (has_bill and self._publisher.evidence.registry_checks()):
            self._publisher.require(attestation.bill_descriptor, attestation.bill)
        try:
            attach(self._registry, made, attestation.manifest, is_first=is_first)
        except BlobUnknownError:
            self._publisher.forget((attestation.bill_descriptor.digest,))
            self._publisher.require(attestation.bill_descriptor, attestation.bill)
            attach(self._registry, made, attestation.manifest, is_first=is_first)


def _origin(inputs: Inputs, image: RoleImage, *, engine: bool, epoch: int = 0) -> provenance.Origin:
    spec_file = inputs.spec_file
    return provenance.Origin(
        plan=image.plan,
        spec_name=spec_file.path.name,
        spec_sha256=spec_file.text_sha256,
        values=spec_file.values,
        lock_sha256=hashlib.sha256(dump_lock(inputs.lock).encode()).hexdigest(),
        dockerfile_sha256=hashlib.sha256(image.text.encode()).hexdigest(),
        key=image.key,
        compression=inputs.plan.layers.compression,
        engine=engine,
        epoch=epoch,
    )
