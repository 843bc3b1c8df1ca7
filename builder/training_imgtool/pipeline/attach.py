"""Attaches a bill of materials and the provenance to each image that a run makes.

Each is an OCI manifest with the image as its `subject`, so that `oras discover` lists both. All images of a lock share
the bill. The provenance is an unsigned envelope under the tag where cosign looks for attestations. So an image costs
five requests, or six where the registry has no referrers API, and the first image of a lock two more for the bill.

Who made a stage, imgtool or an engine, follows from the image's own history and the plan: imgtool marks its lines of
the history with the comment `imgtool`, BuildKit marks its own too. An engine with a store of its own also runs the
stages below the one that it is told to run; a builder starts from images that imgtool makes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from training_imgtool.attest import cyclonedx, provenance
from training_imgtool.attest.provenance import ENVELOPE, encode, make_statement, unwrap, wrap
from training_imgtool.core.errors import RegistryRefusedError, VerificationError
from training_imgtool.core.progress import Note
from training_imgtool.core.reference import Digest, Repository
from training_imgtool.core.settings import Settings
from training_imgtool.direct.image.image import HISTORY_COMMENT, DirectImage, read_config
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.mounts import image_names, needed_stages
from training_imgtool.dockerfile.parse import Stage
from training_imgtool.lock.lockfile import dump_lock
from training_imgtool.pipeline.inputs import Inputs, RoleImage, debian_runs
from training_imgtool.pipeline.request import BuildRun
from training_imgtool.pipeline.role_stages import plan_stage_image
from training_imgtool.plan import REVISION, DebianPackage
from training_imgtool.registry.client import Registry
from training_imgtool.registry.failures import BlobUnknownError
from training_imgtool.registry.manifests import Descriptor, Manifest, sha256_digest
from training_imgtool.registry.referrers import Referrer, attach, list_referrers, referrer_manifest

INPUTS = "dev.imgtool.inputs"  # the annotation that has the hashes of the spec and of the code, by these names
PROVENANCE = "dev.imgtool.provenance"  # the annotation that had the statement before the statement had a manifest
_TITLE = "org.opencontainers.image.title"
_COSIGN = {"dev.cosignproject.cosign/signature": "", "predicateType": provenance.PREDICATE}
_AT_ONCE = 4
_BUILDKIT = "buildkit.dockerfile"  # how its comments begin, whatever the frontend's version


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is known of how an image came to be.

    Attributes:
        direct: imgtool made the role's own stage.
        builder: a builder of buildx ran the last stage that an engine ran, if one ran any.
        compiled: a builder compiled the bytecode of the wheels, since this machine has no such Python.
        found: the label of the highest stage that the run found in the registry; empty if it made all.
    """

    direct: bool
    builder: bool
    compiled: bool = False
    found: str = ""


def read_trace(image: RoleImage, config: Mapping[str, Any]) -> Trace:
    """Reads the trace from an image's config; a line without a known comment is an engine's."""
    lines = [(str(line.get("comment", "")), str(line.get("created_by", ""))) for line in config.get("history") or []]
    command = install_step.compile_command(image.plan.locked)
    own = [comment == HISTORY_COMMENT for comment, _ in lines]
    compiles = [
        number > 0 and own[number - 1] and not own[number] and command in text for number, (_, text) in enumerate(lines)
    ]
    others = [comment for (comment, _), mine, last in zip(lines, own, compiles, strict=True) if not mine and not last]
    return Trace(
        direct=own[-1:] == [True],
        builder=bool(others) and others[-1].startswith(_BUILDKIT),
        compiled=any(compiles),
    )


def list_makers(inputs: Inputs, image: RoleImage, trace: Trace) -> dict[str, bool]:
    """Lists the stages of an image by label, lowest first, each with whether an engine ran it; without empty stages."""
    own = image.dockerfile.stages[-1]
    below = _ran_below(inputs, image, own, trace) if trace.direct else _ran(inputs, image, own, trace)
    engine = {*below, *([own.base] if trace.compiled else [])}
    needed = needed_stages(image.dockerfile, own)
    return {stage.label: stage.label in engine for stage in needed if stage.instructions}


def _ran(inputs: Inputs, image: RoleImage, stage: Stage, trace: Trace) -> Iterator[str]:
    """Yields the labels of what an engine runs that is told to run a stage."""
    if trace.builder:
        yield stage.label
        yield from _ran_below(inputs, image, stage, trace)
    else:
        yield from (needed.label for needed in needed_stages(image.dockerfile, stage))


def _ran_below(inputs: Inputs, image: RoleImage, stage: Stage, trace: Trace) -> Iterator[str]:
    """Yields the labels of what engines run below a stage, where imgtool makes all that it can make."""
    for name in (stage.base, *(name for instruction in stage.instructions for name in image_names(instruction))):
        earlier = image.dockerfile.earlier(name, stage)
        lower = plan_stage_image(inputs, image, earlier.label).split.engine_stage if earlier else None
        if lower is not None:
            yield from _ran(inputs, image, lower, trace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """What is attached to one image.

    Attributes:
        bill: the manifest of the bill of materials.
        provenance: the manifest of the provenance.
        blobs: what these name, the bill first.
    """

    bill: bytes
    provenance: bytes
    blobs: tuple[tuple[Descriptor, bytes], ...]


def find_checkout(inputs: Inputs, settings: Settings) -> tuple[str, str] | None:
    """Returns the address and the commit of the repository that has the code as it is in the images; None without."""
    from training_imgtool.wheels.sources.git import Git

    entry, tree = inputs.spec_file.entry, inputs.plan.roles[0].labels.get(REVISION)
    path = entry.folder if entry.paths == (entry.folder,) else "."
    return Git(settings.environ).find_checkout(entry.top, path, tree) if tree else None


def describe(
    inputs: Inputs,
    image: RoleImage,
    trace: Trace,
    *,
    epoch: int,
    checkout: tuple[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Describes what there is to say of an image: the bill of materials and the provenance, by predicate type.

    Args:
        inputs: what the images are made from.
        image: which image.
        trace: how it came to be.
        epoch: SOURCE_DATE_EPOCH; 0 for none.
        checkout: what `find_checkout` returns.
    """
    makers = list_makers(inputs, image, trace)
    debian = _list_laid_out(image, makers)
    bill = cyclonedx.describe_variant(inputs.plan.name, image.plan, debian, epoch=epoch)
    origin = replace(_origin(inputs, image, makers, bill, trace.found, epoch=epoch), checkout=checkout)
    return {cyclonedx.PREDICATE: bill, provenance.PREDICATE: provenance.make_provenance(origin)}


def make_attestation(made: Digest, descriptor: Descriptor, predicates: Mapping[str, Mapping[str, Any]]) -> Attestation:
    """Makes the attestation of an image of which `predicates` is what `describe` says."""
    statement = make_statement(made, provenance.PREDICATE, predicates[provenance.PREDICATE])
    named = {row["name"]: row["digest"] for row in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}
    inputs = {"spec": named["spec"]["sha256"], "source": named.get("source", {}).get("gitTree", "")}
    annotations = {INPUTS: encode(inputs).decode()}
    blobs, manifests = [], []
    for kind, media_type, content, layer in (
        (
            cyclonedx.MEDIA_TYPE,
            cyclonedx.MEDIA_TYPE,
            encode(predicates[cyclonedx.PREDICATE]),
            {_TITLE: "sbom.cdx.json"},
        ),
        (provenance.MEDIA_TYPE, ENVELOPE, wrap(statement), {_TITLE: "provenance.dsse.json", **_COSIGN}),
    ):
        blob = Descriptor(media_type, sha256_digest(content), len(content))
        layers = (blob.document() | {"annotations": layer},)
        blobs.append((blob, content))
        manifests.append(referrer_manifest(descriptor, kind, layers, config=blob, annotations=annotations))
    return Attestation(bill=manifests[0], provenance=manifests[1], blobs=tuple(blobs))


def ensure_attested(
    inputs: Inputs,
    image: RoleImage,
    repository: Repository,
    stored: Manifest,
    registry: Registry,
    *,
    settings: Settings,
) -> dict[str, dict[str, Any]]:
    """Returns what there is to say of an image in the registry; attaches it first if it is not there.

    Raises what reading and writing in the registry raise.
    """
    made = repository.digest(stored.digest)
    attached = list_referrers(registry, made)
    found = _read_found(registry, repository, attached)
    trace = replace(read_trace(image, read_config(registry.read(repository, stored.config))), found=found)
    checkout = find_checkout(inputs, settings)
    predicates = describe(inputs, image, trace, epoch=settings.source_date_epoch, checkout=checkout)
    made_here = make_attestation(made, stored.descriptor, predicates)
    listed = {referrer.descriptor.digest for referrer in attached}
    if not {sha256_digest(made_here.bill), sha256_digest(made_here.provenance)} <= listed:
        for blob, content in made_here.blobs:
            registry.upload(repository, blob, partial(_once, content))
        attach(registry, made, made_here.bill, statement=made_here.provenance)
    return predicates


def _once(content: bytes) -> Iterator[bytes]:
    yield content


def _read_found(registry: Registry, repository: Repository, attached: Iterable[Referrer]) -> str:
    """Reads which stage the run that made an image found, the one part that no other run knows; empty for none."""
    for referrer in attached:
        try:
            manifest = registry.manifest(repository.digest(referrer.descriptor.digest))
            statement = json.loads(read_statement(registry, repository, manifest))
            return str(["", *statement["predicate"]["buildDefinition"]["internalParameters"]["found"]][-1])
        except (VerificationError, RegistryRefusedError, ValueError, LookupError, TypeError, RecursionError):
            continue
    return ""


def read_statement(registry: Registry, repository: Repository, manifest: Manifest) -> bytes:
    """Reads the statement that a manifest attaches to an image, by its layer or, as earlier ones, by its annotation.

    Raises VerificationError if it has none, and what reading a blob raises.
    """
    annotations = manifest.document.get("annotations")
    if isinstance(annotations, dict) and PROVENANCE in annotations:
        return str(annotations[PROVENANCE]).encode()
    if [layer.media_type for layer in manifest.layers] != [ENVELOPE]:
        raise VerificationError("it has other layers than one statement")
    try:
        return unwrap(registry.read(repository, manifest.layers[0]))
    except ValueError as error:
        raise VerificationError("its statement is in no envelope") from error


def _list_laid_out(image: RoleImage, makers: Mapping[str, bool]) -> tuple[DebianPackage, ...]:
    """Lists the Debian packages that imgtool laid out itself: those of the lock, or none.

    An engine that runs the stage has apt install the versions that the archive has by then.
    """
    runs, locked = debian_runs(image.plan), image.plan.locked.debian
    stages = (stage for stage in image.dockerfile.stages if makers.get(stage.label) is False)
    laid_out = any(step.name == "RUN" and step.text in runs for stage in stages for step in stage.instructions)
    return locked.packages if locked is not None and laid_out else ()


class Attestations:
    """Attaches attestations in the background, one task per image. Thread-safe."""

    def __init__(self, run: BuildRun, publisher: Publisher) -> None:
        self._run = run
        self._registry = publisher.registry
        self._publisher = publisher
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="attest")
        self._tasks: list[Future[None]] = []
        self._wanted = run.inputs.spec_file.spec.attestations and run.settings.attestations

    def add(self, image: RoleImage, made: DirectImage, found: str) -> None:
        """Begins to attach what there is to say of an image that the direct builder appended.

        `found` is the label of the highest stage that the run found in the registry, or empty.
        """
        task = partial(
            self._attach,
            image,
            self._publisher.repository.digest(made.digest),
            replace(read_trace(image, read_config(made.config)), found=found),
            Descriptor(made.manifest_type, made.digest, len(made.manifest)),
            is_first=self._publisher.was_missing(made.config_descriptor.digest),
        )
        self._begin(task)

    def add_from_engine(self, image: RoleImage, made: Digest, *, by_builder: bool) -> None:
        """Attests an image that an engine pushed: a builder of buildx, or one with a store of its own."""
        trace = Trace(direct=False, builder=by_builder)
        self._begin(partial(self._attach, image, made, trace, None, is_first=False))

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

    @cached_property
    def _checkout(self) -> tuple[str, str] | None:
        return find_checkout(self._run.inputs, self._run.settings)

    def _begin(self, attach: Callable[[], None]) -> None:
        if self._wanted:
            self._tasks.append(self._pool.submit(attach))

    def _attach(
        self,
        image: RoleImage,
        made: Digest,
        trace: Trace,
        descriptor: Descriptor | None,
        *,
        is_first: bool,
    ) -> None:
        """Makes the attestations of an image and attaches them.

        Args:
            image: the image's inputs.
            made: its digest.
            trace: how it came to be.
            descriptor: of its manifest; None for an engine's image.
            is_first: the repository never had this image before.
        """
        described = descriptor or self._registry.manifest(made).descriptor
        epoch = self._run.settings.source_date_epoch
        predicates = describe(self._run.inputs, image, trace, epoch=epoch, checkout=self._checkout)
        attestation = make_attestation(made, described, predicates)
        self._publisher.expect((attestation.blobs[0][0],))  # all images of a lock share the bill
        for blob, content in attestation.blobs:
            self._publisher.require(blob, content)
        put = partial(
            attach, self._registry, made, attestation.bill, statement=attestation.provenance, is_first=is_first
        )
        try:
            put()
        except BlobUnknownError:
            for blob, content in attestation.blobs:
                self._publisher.require(blob, content, again=True)
            put()


def _origin(
    inputs: Inputs, image: RoleImage, makers: Mapping[str, bool], bill: Mapping[str, Any], found: str, *, epoch: int
) -> provenance.Origin:
    spec_file = inputs.spec_file
    labels = [*makers]
    below = labels[: labels.index(found) + 1] if found in labels else []
    return provenance.Origin(
        plan=image.plan,
        spec_name=spec_file.path.name,
        spec_sha256=spec_file.text_sha256,
        values=spec_file.values,
        lock_sha256=hashlib.sha256(dump_lock(inputs.lock).encode()).hexdigest(),
        dockerfile_sha256=hashlib.sha256(image.text.encode()).hexdigest(),
        key=image.key,
        compression=inputs.plan.compression,
        stages=tuple(
            provenance.MadeStage(name=label, key=image.keys[label], engine=engine, found=label in below)
            for label, engine in makers.items()
        ),
        bill_sha256=hashlib.sha256(encode(bill)).hexdigest(),
        epoch=epoch,
    )
