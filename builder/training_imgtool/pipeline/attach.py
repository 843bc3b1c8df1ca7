"""Attaches a bill of materials and the provenance to each image that a run makes.

Each is an OCI manifest with the image as its `subject`, so that `oras discover` lists both. All images of a lock share
the bill. The provenance is an unsigned envelope under the tag where cosign looks for attestations. So an image costs
five requests, or six where the registry has no referrers API, one that asks for the bill, and two more where it is new.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from training_imgtool.attest import cyclonedx, provenance
from training_imgtool.attest.provenance import ENVELOPE, Origin, encode, make_provenance, make_statement, wrap
from training_imgtool.core.errors import RegistryRefusedError
from training_imgtool.core.progress import Note
from training_imgtool.core.reference import Digest
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.lock.lockfile import dump_lock
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.request import BuildRun
from training_imgtool.registry.failures import BlobUnknownError
from training_imgtool.registry.manifests import Descriptor, sha256_digest
from training_imgtool.registry.referrers import attach, referrer_manifest

_TITLE = "org.opencontainers.image.title"
_COSIGN = {"dev.cosignproject.cosign/signature": "", "predicateType": provenance.PREDICATE}
_AT_ONCE = 4


def make_bill(inputs: Inputs, image: RoleImage, *, direct: bool, epoch: int) -> bytes:
    """Writes the bill of materials of an image.

    It lists the Debian packages of the lock unless an engine made the image: apt installs what the archive has by then.
    """
    debian = image.plan.locked.debian
    packages = debian.packages if debian is not None and direct else ()
    return encode(cyclonedx.describe_variant(inputs.plan.name, image.plan, packages, epoch=epoch))


def make_envelope(inputs: Inputs, image: RoleImage, made: Digest, bill: bytes, *, epoch: int) -> bytes:
    """Writes the provenance of an image, which names the bill by its hash, as an unsigned statement."""
    spec_file = inputs.spec_file
    origin = Origin(
        plan=image.plan,
        spec_name=spec_file.path.name,
        spec_sha256=spec_file.text_sha256,
        values=spec_file.values,
        lock_sha256=hashlib.sha256(dump_lock(inputs.lock).encode()).hexdigest(),
        dockerfile_sha256=hashlib.sha256(image.text.encode()).hexdigest(),
        key=image.key,
        compression=inputs.plan.compression,
        bill_sha256=hashlib.sha256(bill).hexdigest(),
        epoch=epoch,
    )
    return wrap(make_statement(made, provenance.PREDICATE, make_provenance(origin)))


class Attestations:
    """Attaches attestations in the background, one task per image. Thread-safe."""

    def __init__(self, run: BuildRun, publisher: Publisher) -> None:
        self._run = run
        self._publisher = publisher
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="attest")
        self._tasks: list[Future[None]] = []
        self._wanted = run.inputs.spec_file.spec.attestations and run.settings.attestations

    def add(self, image: RoleImage, made: DirectImage) -> None:
        """Begins to attach what there is to say of an image that the direct builder appended."""
        subject = Descriptor(made.manifest_type, made.digest, len(made.manifest))
        is_first = self._publisher.was_missing(made.config_descriptor.digest)
        self._begin(image, self._publisher.repository.digest(made.digest), subject, is_first=is_first)

    def add_from_engine(self, image: RoleImage, made: Digest) -> None:
        """Begins to attach what there is to say of an image that an engine pushed."""
        self._begin(image, made, None, is_first=False)

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

    def _begin(self, image: RoleImage, made: Digest, subject: Descriptor | None, *, is_first: bool) -> None:
        if self._wanted:
            self._tasks.append(self._pool.submit(self._attach, image, made, subject, is_first=is_first))

    def _attach(self, image: RoleImage, made: Digest, subject: Descriptor | None, *, is_first: bool) -> None:
        """Makes the attestations of an image and attaches them.

        Args:
            image: the image's inputs.
            made: its digest.
            subject: the descriptor of its manifest; None for an engine's image.
            is_first: the repository never had this image before.
        """
        inputs, epoch, registry = self._run.inputs, self._run.settings.source_date_epoch, self._publisher.registry
        bill = make_bill(inputs, image, direct=subject is not None, epoch=epoch)
        envelope = make_envelope(inputs, image, made, bill, epoch=epoch)
        listed = (_describe(cyclonedx.MEDIA_TYPE, bill), _describe(ENVELOPE, envelope))
        about = subject or registry.manifest(made).descriptor
        bodies = (
            _refer(about, cyclonedx.MEDIA_TYPE, listed[0], {_TITLE: "sbom.cdx.json"}),
            _refer(about, provenance.MEDIA_TYPE, listed[1], {_TITLE: "provenance.dsse.json", **_COSIGN}),
        )
        put = partial(attach, registry, made, bodies[0], statement=bodies[1], is_first=is_first)
        self._publisher.expect(listed[:1])  # all images of a lock share the bill
        blobs = tuple(zip(listed, (bill, envelope), strict=True))
        for blob, content in blobs:
            self._publisher.require(blob, content)
        try:
            put()
        except BlobUnknownError:
            for blob, content in blobs:
                self._publisher.require(blob, content, again=True)
            put()


def _describe(media_type: str, content: bytes) -> Descriptor:
    return Descriptor(media_type, sha256_digest(content), len(content))


def _refer(subject: Descriptor, kind: str, blob: Descriptor, annotations: dict[str, str]) -> bytes:
    """Writes the manifest that attaches a blob to an image."""
    return referrer_manifest(subject, kind, (blob.document() | {"annotations": annotations},), config=blob)
