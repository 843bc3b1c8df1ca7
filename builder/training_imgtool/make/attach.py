"""Attaches a bill of materials and the provenance to each image that a run makes.

Each document is an OCI manifest with the image as its `subject`, so that `oras discover` lists both. All images with
the same lock share the bill. The provenance is an unsigned envelope, and its tag is the one where cosign looks for
attestations. The first push of an image also attaches a note with the date and commit of the push. Each image needs six
requests, or seven if the registry has no referrers API. One more request asks whether the registry has the bill of
materials, and two more upload a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

from training_imgtool.base.errors import RegistryRefusedError
from training_imgtool.base.progress import Note
from training_imgtool.base.reference import Digest
from training_imgtool.make.origin import ask_git, note_push
from training_imgtool.make.request import BuildRun
from training_imgtool.oci.attest import cyclonedx, provenance
from training_imgtool.oci.attest.provenance import ENVELOPE, encode, make_provenance, make_statement, wrap
from training_imgtool.oci.image.image import DirectImage
from training_imgtool.oci.registry.manifests import Descriptor, Manifest, sha256_digest
from training_imgtool.oci.registry.referrers import attach, referrer_manifest
from training_imgtool.oci.repository.publish import Publisher
from training_imgtool.plan.inputs import Inputs, RoleImage

FORMAT = "1"  # of both documents; change it when their content for the same image changes: `verify` tells formats apart
_FORMAT_KEY = "dev.imgtool.format"
_TITLE = "org.opencontainers.image.title"
_COSIGN = {"dev.cosignproject.cosign/signature": "", "predicateType": provenance.PREDICATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One document about an image.

    Attributes:
        name: the document's name in messages.
        kind: the artifact type of the manifest.
        manifest: the exact bytes of the manifest that refers to the image.
        blob: the descriptor of `content`.
        content: the document.
    """

    name: str
    kind: str
    manifest: bytes
    blob: Descriptor
    content: bytes


def has_other_format(manifest: Manifest) -> bool:
    """Tells whether a manifest claims that its documents have the format of another version of imgtool."""
    annotations = [layer.get("annotations") for layer in manifest.document.get("layers") or ()]
    return any(isinstance(texts, dict) and texts.get(_FORMAT_KEY, FORMAT) != FORMAT for texts in annotations)


def list_attachments(
    inputs: Inputs, image: RoleImage, made: Digest, subject: Descriptor, *, direct: bool
) -> tuple[Attachment, ...]:
    """Makes the documents that `push` attaches and `verify` expects; the last document also gets cosign's tag.

    Args:
        inputs: the inputs of the image.
        image: the inputs of the role's image.
        made: the image.
        subject: the descriptor of the image's manifest.
        direct: whether the direct builder made the image. In an engine, apt may install packages that the lock does not
            list.
    """
    debian = image.locked.debian
    packages = debian.packages if debian is not None and direct else ()
    bill = encode(cyclonedx.describe_variant(inputs.spec.name, image.recipe, image.system_packages, packages))
    published = image.recipe.publish_document(inputs.spec_file.spec.allow_secrets)
    predicate = make_provenance(image.recipe, published, key=image.key, bill=bill)
    envelope = wrap(make_statement(made, provenance.PREDICATE, predicate))
    sbom, statement = {_TITLE: "sbom.cdx.json"}, {_TITLE: "provenance.dsse.json", **_COSIGN}
    rows = (
        ("bill of materials", cyclonedx.MEDIA_TYPE, (cyclonedx.MEDIA_TYPE, bill), sbom),
        ("provenance", provenance.MEDIA_TYPE, (ENVELOPE, envelope), statement),
    )
    return tuple(_refer(subject, *row) for row in rows)


class Attestations:
    """Attaches attestations to the images of a run, until the registry refuses one. Thread-safe."""

    def __init__(self, run: BuildRun, publisher: Publisher) -> None:
        self._run = run
        self._publisher = publisher
        self._wanted = run.inputs.spec_file.spec.attestations and run.machine.settings.attestations

    @cached_property
    def _source(self) -> dict[str, str]:
        """The commit of the spec's folder. imgtool asks Git once for all images of the run."""
        return ask_git(self._run.inputs.spec_file.folder, self._run.machine.settings.environ)

    def _note_push(self, bill: bytes) -> bytes:
        return note_push(bill, self._source)

    def add(self, image: RoleImage, made: DirectImage) -> None:
        """Attaches the attestations of an image that the direct builder appended; raises what `attach` raises."""
        subject = Descriptor(made.manifest_type, made.digest, len(made.manifest))
        is_first = self._publisher.was_missing(made.config_descriptor.digest)
        self._attach(image, self._publisher.repository.digest(made.digest), subject, is_first=is_first)

    def add_from_engine(self, image: RoleImage, made: Digest) -> None:
        """Attaches the attestations of an image that an engine pushed; raises what `attach` raises."""
        self._attach(image, made, None, is_first=False)

    def _attach(self, image: RoleImage, made: Digest, subject: Descriptor | None, *, is_first: bool) -> None:
        """Makes the attestations of an image and attaches them; prints a note if the registry refuses them.

        Args:
            image: the image's inputs.
            made: the digest of the image.
            subject: the descriptor of the image's manifest; None for an engine's image.
            is_first: whether the repository never had this image before.
        """
        if not self._wanted:
            return
        inputs, registry = self._run.inputs, self._publisher.registry
        about = subject or registry.manifest(made).descriptor
        rows = list_attachments(inputs, image, made, about, direct=subject is not None)
        *others, statement = (row.manifest for row in rows)
        self._publisher.expect((rows[0].blob,))  # all images of a lock share the bill
        try:
            for row in rows:
                self._publisher.require(row.blob, row.content)
            once = partial(self._note_push, rows[0].manifest)
            attach(registry, made, *others, statement=statement, once=once, is_first=is_first)
        except RegistryRefusedError as error:
            if self._wanted:
                text = "the registry does not accept attestations; `attestations: false` turns them off"
                self._run.machine.progress(Note(f"{text}: {error.message}"))
            self._wanted = False


def _refer(
    subject: Descriptor, name: str, kind: str, blob: tuple[str, bytes], annotations: dict[str, str]
) -> Attachment:
    """Writes the manifest that attaches a document to an image."""
    media_type, content = blob
    descriptor = Descriptor(media_type, sha256_digest(content), len(content))
    layer = descriptor.document() | {"annotations": {**annotations, _FORMAT_KEY: FORMAT}}
    manifest = referrer_manifest(subject, kind, (layer,), config=descriptor)
    return Attachment(name=name, kind=kind, manifest=manifest, blob=descriptor, content=content)
