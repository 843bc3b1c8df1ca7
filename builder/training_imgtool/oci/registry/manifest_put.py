"""Writes a manifest with one PUT, and interprets the answer.

A registry may refuse a manifest because of a blob that the registry has: docker-registry 2.8 briefly empties its link
to a blob when somebody mounts or uploads the blob again, as several machines with the same spec do. So after a refusal
because of unknown blobs, imgtool asks for each of these blobs. The refusal is final only if a blob is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.http.client import Answer, bytes_body
from training_imgtool.base.http.retry import Attempt, PassingError
from training_imgtool.base.reference import Digest, Tag
from training_imgtool.base.threads import SingleFlight
from training_imgtool.oci.registry.auth.challenges import push
from training_imgtool.oci.registry.blobs import has_blob
from training_imgtool.oci.registry.failures import (
    BlobUnknownError,
    TagImmutableError,
    is_immutable_refusal,
)
from training_imgtool.oci.registry.manifests import Descriptor, Manifest
from training_imgtool.oci.registry.session import Session, manifest_url

if TYPE_CHECKING:
    from training_imgtool.oci.registry.upload import How


class ManifestPut:
    """Puts one manifest under a tag or its digest.

    Args:
        session: the session with the registry.
        ref: the tag or digest.
        manifest: the parsed document.
        head: returns the digest of a reference, in one try.
        uploads: the uploads of this process; this forgets those of blobs that the registry lacks.

    Attributes:
        is_listed: whether the registry confirmed that it lists the manifest among its subject's referrers.
    """

    def __init__(
        self,
        session: Session,
        ref: Tag | Digest,
        manifest: Manifest,
        *,
        head: Callable[[Tag | Digest], str | None],
        uploads: SingleFlight[How],
    ) -> None:
        self._session = session
        self._ref = ref
        self._manifest = manifest
        self._head = head
        self._uploads = uploads
        self._doing = f"putting {ref}"
        self.is_listed = False

    @property
    def digest(self) -> str:
        """Returns the manifest's digest."""
        return self._manifest.digest

    def run(self, attempts: Iterator[Attempt]) -> None:
        """Puts the manifest; raises the same errors as `Registry.put_manifest`."""
        for attempt in attempts:
            with attempt:
                if attempt.number and self._head(self._ref) == self._manifest.digest:
                    return  # the registry stored it, and the answer was lost
                answer = self._session.send(
                    "PUT",
                    manifest_url(self._session, self._ref),
                    scopes=push(self._ref.repository.path),
                    doing=self._doing,
                    headers={"Content-Type": self._manifest.media_type},
                    body=bytes_body(self._manifest.body),
                )
                self._check(answer)

    def _check(self, answer: Answer) -> None:
        if answer.status == 201:
            self.is_listed = "oci-subject" in answer.headers
            self._check_stored(answer)
        elif isinstance(self._ref, Tag) and is_immutable_refusal(answer):
            self._check_immutable(self._ref)
        else:
            self._raise_refusal(answer)

    def _check_stored(self, answer: Answer) -> None:
        """Accepts a 201 with the right digest; asks for the manifest if the answer has no digest."""
        digest = self._manifest.digest
        stored = answer.headers.get("docker-content-digest") or self._head(self._ref.repository.digest(digest))
        if stored is None:
            lost = VerificationError(f"{self._ref}: the registry accepted {digest} but does not have it")
            raise PassingError("does not have the manifest that it accepted", final=lost, tries=2)
        if stored != digest:
            wrong = VerificationError(f"{self._doing}: expected {digest}, but the registry stored {stored[:80]!r}")
            raise PassingError("stored the manifest under another digest", final=wrong, tries=2)

    def _check_immutable(self, ref: Tag) -> None:
        """Raises an error for an immutable tag, unless the tag already names this manifest."""
        held = self._head(ref)
        if held == self._manifest.digest:
            return
        raise TagImmutableError(
            f"{ref}: the registry does not let you move this tag from {held or 'nothing'} to {self._manifest.digest}",
            hint="choose another tag, or use the image by its digest",
        )

    def _raise_refusal(self, answer: Answer) -> None:
        error = self._session.refusal(answer, self._doing)
        if not isinstance(error, BlobUnknownError) or self._manifest.is_index:
            raise error
        wanted = {blob.digest: blob for blob in (self._manifest.config, *self._manifest.layers)}
        doubtful = wanted.keys() & set(error.digests) or wanted.keys()
        missing = [digest for digest in sorted(doubtful) if not self._has(wanted[digest])]
        if missing:
            for digest in wanted:
                self._uploads.forget((self._ref.repository, digest))
            raise BlobUnknownError(error.message, digests=tuple(missing), hint=error.hint)
        raise PassingError("falsely reported missing blobs")

    def _has(self, blob: Descriptor) -> bool:
        return has_blob(self._session, self._ref.repository, blob, writing=True)
