"""Compares the documents attached to an image with those that imgtool attaches.

Anyone who can push can attach any document to any image, and programs cannot tell such a document from imgtool's. So a
document of a type that imgtool attaches must be the same bytes as the document that this machine writes. `verify`
reports all other documents.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.base.errors import RegistryRefusedError, VerificationError
from training_imgtool.base.reference import Digest
from training_imgtool.make.attach import Attachment, has_other_format
from training_imgtool.make.origin import make_push_note, read_push_note
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.manifests import OCI_EMPTY, Descriptor, Manifest, read_document, sha256_digest
from training_imgtool.oci.registry.referrers import describe_referrer, read_referrers, sbom_tag, statement_tag
from training_imgtool.verify.findings import Accepted, Finding, mismatch, ok, unproven

_MOST = 100  # how many documents that others attached imgtool reads
_OF_ANOTHER_VERSION = unproven("attestations", "written by another version of imgtool, as they say", Accepted.VERSION)
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_BUNDLE_KEYS = {"mediaType", "verificationMaterial", "dsseEnvelope"}
_ENVELOPE_KEYS = {"payload", "payloadType", "signatures"}
_SIGNED = {
    "_type": "https://in-toto.io/Statement/v1",
    "predicateType": "https://sigstore.dev/cosign/sign/v1",
    "predicate": {},
}


def check_attached(
    registry: Registry, image: Digest, wanted: tuple[Attachment, ...], *, required: bool
) -> tuple[Finding, ...]:
    """Compares everything that is attached to an image, except for signatures, which cosign checks.

    Args:
        registry: the client of the image's registry.
        image: the image.
        wanted: the documents that imgtool writes about the image; two documents of the same kind are alternatives.
        required: whether a document of each kind must be attached.

    Raises what reading from the registry raises. A wrong document gives a finding, not an error.
    """
    try:
        check = _Check(registry, image, wanted, read_referrers(registry, image))
        odd, missing = tuple(check.find_odd()), check.find_missing()
    except (RegistryRefusedError, VerificationError) as error:
        return (_refuse(error.message),)
    if missing and required and _OF_ANOTHER_VERSION not in odd:
        cure = "what push attaches; `imgtool build --push --no-cache` attaches it again"
        odd += (mismatch("attestations", f"no {' and no '.join(missing)}", cure),)
    names = " and ".join(f"the {name}" for name in dict.fromkeys(row.name for row in wanted) if name not in missing)
    return odd or (ok("attestations", f"{names} made here" if names else "none, as the spec wants it"),)


def _refuse(found: str) -> Finding:
    return mismatch("attestations", found, "what push attaches, and nothing else of its kinds")


def _of_others(what: str) -> Finding:
    return unproven("attestations", f"attached by others: {what}", Accepted.ATTACHED)


class _Check:
    """Checks the documents attached to one image; `listed` are the entries in the registry's lists of referrers."""

    def __init__(
        self, registry: Registry, image: Digest, wanted: tuple[Attachment, ...], listed: list[Mapping[str, Any]]
    ) -> None:
        self._registry, self._image, self._wanted = registry, image, wanted
        # registries write empty fields into their lists
        self._listed = [{key: value for key, value in entry.items() if value or key == "size"} for entry in listed]

    @property
    def _last(self) -> str:
        """The kind of the document under cosign's tag."""
        return self._wanted[-1].kind if self._wanted else ""

    def find_missing(self) -> list[str]:
        """Lists the kinds of documents that are missing or incomplete; if none are, lists a missing cosign tag."""
        whole = {row.kind for row in self._wanted if self._is_whole(row)}
        missing = list(dict.fromkeys(row.name for row in self._wanted if row.kind not in whole))
        has_tag = self._registry.head(statement_tag(self._image)) is not None
        return missing or ([] if has_tag else [f"{self._wanted[-1].name} under cosign's tag"])

    def _is_whole(self, row: Attachment) -> bool:
        repository = self._image.repository
        return (
            describe_referrer(row.manifest) in self._listed
            and self._registry.head(repository.digest(sha256_digest(row.manifest))) is not None
            and self._registry.has_blob(repository, row.blob)
        )

    def find_odd(self) -> Iterator[Finding]:
        """Yields a finding for each attached document that `wanted` does not contain."""
        ours = [describe_referrer(row.manifest) for row in self._wanted]
        foreign = [entry for entry in self._listed if entry not in ours]
        if len(foreign) > _MOST:
            yield _refuse(f"{len(foreign)} documents of others")
            return
        for entry in foreign:
            manifest = self._registry.find_manifest(self._image.repository.digest(entry["digest"]))
            if manifest is not None and not self._is_push_note(entry, manifest):  # a clean-up may have deleted it
                yield from self._judge(str(entry.get("artifactType", "")), manifest)
        manifest = self._registry.find_manifest(statement_tag(self._image))
        statements = {entry["digest"] for entry, row in zip(ours, self._wanted, strict=True) if row.kind == self._last}
        if manifest is not None and manifest.digest not in statements:
            yield self._judge_statements(manifest)
        if self._registry.head(sbom_tag(self._image)) is not None:
            yield _of_others("a bill under cosign's tag")

    def _judge(self, listed_as: str, manifest: Manifest) -> Iterator[Finding]:
        """Yields the faults of a manifest that refers to the image; `listed_as` is the manifest's type in the list."""
        layers = () if manifest.is_index else manifest.layers
        blobs = () if manifest.is_index else (manifest.config, *layers)
        named = {listed_as, str(manifest.document.get("artifactType", "")), *(blob.media_type for blob in blobs)} - {""}
        for row in self._wanted:
            if named & {row.kind, row.blob.media_type}:
                other = _refuse(f"another {row.name} than the one made here ({manifest.digest[:19]})")
                yield _OF_ANOTHER_VERSION if has_other_format(manifest) else other
                return
        is_bundle = 0 < len(layers) <= _MOST and named == {_BUNDLE, OCI_EMPTY}
        if not (is_bundle and all(map(self._is_signature, layers))):
            yield _of_others(", ".join(sorted(named)) or manifest.media_type)

    def _is_push_note(self, entry: Mapping[str, Any], manifest: Manifest) -> bool:
        """Tells whether a manifest is a push note of imgtool, whose date and commit may differ."""
        texts = read_push_note(manifest)
        if texts is None:
            return False
        listed = describe_referrer(manifest.body)
        is_same = any(make_push_note(row.manifest, texts) == manifest.body for row in self._wanted)
        return is_same and entry in (listed, {**listed, "annotations": texts})  # the API repeats annotations

    def _judge_statements(self, manifest: Manifest) -> Finding:
        """Checks the attestations under cosign 2's tag, to which cosign adds each statement that it signs."""
        ours = {row.blob.digest for row in self._wanted if row.kind == self._last}
        others = [layer for layer in manifest.layers if layer.digest not in ours]
        if 0 < len(others) <= _MOST and all(map(self._is_signed, others)):
            return _of_others("signed statements under cosign's tag")
        if has_other_format(manifest):
            return _OF_ANOTHER_VERSION
        return _refuse("an unsigned statement under cosign's tag that is not the one made here")

    def _is_signature(self, layer: Descriptor) -> bool:
        """Returns whether a bundle of cosign 3 only states that the image is signed."""
        try:
            bundle = self._read(layer)
            envelope = bundle["dsseEnvelope"]
            statement = read_document(base64.b64decode(envelope["payload"], validate=True))
            (subject,) = statement.pop("subject")
            says_no_more = set(bundle) == _BUNDLE_KEYS and set(envelope) == _ENVELOPE_KEYS and statement == _SIGNED
            return says_no_more and subject["digest"] == {"sha256": self._image.hex}
        except (ValueError, LookupError, TypeError, AttributeError):
            return False

    def _is_signed(self, layer: Descriptor) -> bool:
        try:
            signatures = self._read(layer)["signatures"]
        except (ValueError, LookupError, TypeError):
            return False
        return isinstance(signatures, list) and bool(signatures)

    def _read(self, layer: Descriptor) -> Any:
        return read_document(self._registry.read(self._image.repository, layer))
