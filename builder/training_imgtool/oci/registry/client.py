"""The client of one registry: reads and writes manifests and blobs (distribution specification 1.1).

The client sends no `/v2/` ping, sends credentials with the first request, and checks the hash of all content. Only the
methods that read or write blobs import the code for that, so a run that only asks for manifests starts faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_imgtool.base.errors import CredentialsError, RegistryRefusedError, VerificationError
from training_imgtool.base.http.addresses import next_url
from training_imgtool.base.http.client import Answer
from training_imgtool.base.http.retry import PassingError
from training_imgtool.base.progress import Progress, silent
from training_imgtool.base.reference import Digest, InvalidReferenceError, Repository, Tag, check_digest
from training_imgtool.base.threads import SingleFlight
from training_imgtool.oci.registry.auth.challenges import pull, push
from training_imgtool.oci.registry.manifests import (
    LARGEST_MANIFEST,
    MANIFEST_TYPES,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    choose,
    parse_manifest,
    parse_platform,
    read_document,
    sha256_digest,
)
from training_imgtool.oci.registry.session import Session, manifest_url

if TYPE_CHECKING:
    from training_imgtool.oci.registry.manifest_put import ManifestPut
    from training_imgtool.oci.registry.upload import How, OpenBody

_NO_REFERRERS_API = frozenset({404, 405, 501})
_PAGES, _PAGE = 100, 8 << 20  # answers of a list of tags, and the bytes of each
_ACCEPT = {"Accept": ", ".join(MANIFEST_TYPES)}


@dataclass(frozen=True, slots=True)
class Registry:
    """The client of one registry. Safe for threads. `oci.registry.connect` makes it."""

    session: Session
    uploads: SingleFlight[How]

    @property
    def host(self) -> str:
        """Returns the registry's host as references to images name it."""
        return self.session.host

    def head(self, ref: Tag | Digest) -> str | None:
        """Asks the registry for a manifest's digest; returns None if the manifest or the repository does not exist.

        Raises:
            RegistryRefusedError, CredentialsError, TemporaryError: the registry gives no answer.
            VerificationError: the registry answers with another digest than `ref` names.
        """
        for attempt in self.session.attempts():
            with attempt:
                digest = self._head(ref)
        return digest

    def manifest(self, ref: Tag | Digest, platform: str | None = None) -> Manifest:
        """Reads a manifest and verifies its digest.

        Args:
            ref: the tag or digest to read.
            platform: `OS/ARCH[/VARIANT]`; if `ref` is an index, this reads that platform's image instead.

        Raises:
            RegistryRefusedError: the manifest is missing, lacks the platform, or has over 4 MiB.
            VerificationError: the bytes do not match the digest.
            CredentialsError, TemporaryError: as `head`.
        """
        answer = self._get(ref)
        if answer.status == 404:
            raise self.session.refusal(answer, f"reading {ref}")
        manifest = _parse(ref, answer)
        if platform is None or not manifest.is_index:
            return manifest
        child = choose(manifest, parse_platform(platform), str(ref))
        image = self.manifest(ref.repository.digest(child.digest))
        if image.is_index:
            raise RegistryRefusedError(f"{ref}: the index's entry for {platform} is another index, not an image")
        return image

    def find_manifest(self, ref: Tag | Digest) -> Manifest | None:
        """Reads a manifest as `manifest` does; None if the registry has no such manifest or repository."""
        answer = self._get(ref)
        return None if answer.status == 404 else _parse(ref, answer)

    def blob(
        self, repository: Repository, descriptor: Descriptor, *, subject: str = "", progress: Progress = silent
    ) -> Iterator[bytes]:
        """Reads a blob block by block. Trust the blocks only after the iterator has ended without an error."""
        from training_imgtool.oci.registry.blobs import read_blob

        return read_blob(self.session, repository, descriptor, subject=subject, progress=progress)

    def read(self, repository: Repository, descriptor: Descriptor, limit: int = LARGEST_MANIFEST) -> bytes:
        """Reads a small blob, such as a config, into memory; raises VerificationError for more than `limit` bytes."""
        if descriptor.size > limit:
            raise VerificationError(f"blob {descriptor.short} of {repository} is too large: more than {limit} bytes")
        return b"".join(self.blob(repository, descriptor))

    def has_blob(self, repository: Repository, blob: Descriptor) -> bool:
        """Returns whether a repository has a blob; compares the blob's size if the registry tells the size."""
        from training_imgtool.oci.registry.blobs import has_blob

        for attempt in self.session.attempts():
            with attempt:
                has = has_blob(self.session, repository, blob)
        return has

    def upload(
        self,
        repository: Repository,
        descriptor: Descriptor,
        open_body: OpenBody,
        *,
        mount_from: Repository | None = None,
        expect_missing: bool = False,
        subject: str = "",
        progress: Progress = silent,
    ) -> How:
        """Makes sure that a repository has a blob. Uploads each blob only once, even if several threads call this.

        The arguments are the attributes of `BlobUpload`. Raises the same errors as `BlobUpload.run`.
        """
        from training_imgtool.oci.registry.upload import BlobUpload

        upload = BlobUpload(
            session=self.session,
            repository=repository,
            descriptor=descriptor,
            open_body=open_body,
            mount_from=mount_from,
            expect_missing=expect_missing,
            subject=subject,
            progress=progress,
        )
        return self.uploads.do((repository, descriptor.digest), upload.run)

    def put_manifest(self, ref: Tag | Digest, media_type: str, body: bytes) -> str:
        """Puts a manifest under a tag or under its digest, and returns the digest.

        Args:
            ref: the tag or digest.
            media_type: the document's own `mediaType`.
            body: the manifest.

        Raises:
            BlobUnknownError: the registry lacks blobs of the manifest; upload them again and repeat.
            TagImmutableError: the tag names another manifest and cannot be moved.
            VerificationError: the registry stored other bytes, or nothing.
            RegistryRefusedError, CredentialsError, TemporaryError: the registry does not accept the manifest.
        """
        put = self._prepare_put(ref, media_type, body)
        put.run(self.session.attempts())
        return put.digest

    def put_referrer(self, ref: Tag | Digest, body: bytes) -> bool:
        """Puts an OCI manifest with a `subject`, and returns whether the registry lists the manifest as a referrer.

        A registry that lists the manifest answers with the header OCI-Subject (distribution specification 1.1). Raises
        the same errors as `put_manifest`.
        """
        put = self._prepare_put(ref, OCI_MANIFEST, body)
        put.run(self.session.attempts())
        return put.is_listed

    def find_referrers(self, subject: Digest) -> Manifest | None:
        """Reads the index in which the registry lists a manifest's referrers; None if the registry keeps no such lists.

        Raises the same errors as `manifest`, and VerificationError if the list has more than one page.
        """
        doing, url = (
            f"looking for referrers of {subject}",
            self.session.url(subject.repository, f"referrers/{subject.digest}"),
        )
        for attempt in self.session.attempts():
            with attempt:
                answer = self.session.send(
                    "GET",
                    url,
                    scopes=pull(subject.repository.path),
                    doing=doing,
                    headers={"Accept": OCI_INDEX},
                    limit=LARGEST_MANIFEST,
                )
        if answer.status in _NO_REFERRERS_API:
            return None
        if answer.status != 200 or not answer.complete:
            raise self.session.refusal(answer, doing)
        if answer.headers.get("link"):
            raise VerificationError(
                f"{subject} has too many referrers; the registry needs several answers to list them"
            )
        return parse_manifest(answer.body, OCI_INDEX, doing)

    def list_tags(self, repository: Repository) -> list[str]:
        """Lists all tags of a repository, none if the repository is missing. Raises the same errors as `manifest`."""
        doing, url = f"listing the tags of {repository}", self.session.url(repository, "tags/list?n=1000")
        tags: list[str] = []
        for _ in range(_PAGES):
            for attempt in self.session.attempts():
                with attempt:
                    answer = self.session.send("GET", url, scopes=pull(repository.path), doing=doing, limit=_PAGE)
            if answer.status == 404:
                return tags
            if answer.status != 200 or not answer.complete:
                raise self.session.refusal(answer, doing)
            listed = read_document(answer.body).get("tags")
            tags += [tag for tag in listed if isinstance(tag, str)] if isinstance(listed, list) else []
            link = re.match(r"<([^>]+)>", answer.headers.get("link", ""))
            if link is None:
                return tags
            url = next_url(answer.url, link[1], self.session.origin, doing)
        raise RegistryRefusedError(f"{repository} has more than {len(tags)} tags, too many for imgtool to list")

    def _prepare_put(self, ref: Tag | Digest, media_type: str, body: bytes) -> ManifestPut:
        from training_imgtool.oci.registry.manifest_put import ManifestPut

        if len(body) > LARGEST_MANIFEST:
            raise RegistryRefusedError(
                f"{ref}: the manifest has {len(body)} bytes; registries accept at most {LARGEST_MANIFEST}"
            )
        manifest = parse_manifest(body, media_type, str(ref))
        return ManifestPut(self.session, ref, manifest, head=self._head, uploads=self.uploads)

    def _head(self, ref: Tag | Digest) -> str | None:
        """Sends one HEAD request. If the registry refuses the HEAD or names no digest, reads the manifest."""
        doing, scopes, url = f"looking for {ref}", pull(ref.repository.path), manifest_url(self.session, ref)
        answer = self.session.send("HEAD", url, scopes=scopes, doing=doing, headers=_ACCEPT)
        if answer.status == 404 or (answer.status == 403 and isinstance(ref, Tag) and self._takes_uploads(ref)):
            return None  # Artifactory answers for a missing tag that reading it is not allowed
        digest = _header_digest(answer) if answer.status == 200 else None
        if digest and isinstance(ref, Digest) and digest != ref.digest:
            raise VerificationError(f"{ref}: the registry returned another image ({digest})")
        if digest:
            return digest
        answer = self._get_once(ref, doing)
        return None if answer.status == 404 else sha256_digest(answer.body)

    def _takes_uploads(self, ref: Tag) -> bool:
        """Finds out whether the registry accepts an upload to the tag's repository, and cancels that upload."""
        url, scopes = self.session.url(ref.repository, "blobs/uploads/"), push(ref.repository.path)
        try:
            answer = self.session.send("POST", url, scopes=scopes, doing=f"asking to upload to {ref.repository}")
        except CredentialsError:
            return False
        if answer.status == 202 and (location := answer.headers.get("location")):
            place = next_url(answer.url, location, self.session.origin, f"the upload to {ref.repository}")
            self.session.send("DELETE", place, scopes=scopes, doing=f"ending the upload to {ref.repository}")
        return answer.status == 202

    def _get(self, ref: Tag | Digest) -> Answer:
        for attempt in self.session.attempts():
            with attempt:
                answer = self._get_once(ref, f"reading {ref}")
        return answer

    def _get_once(self, ref: Tag | Digest, doing: str) -> Answer:
        """Reads a manifest, and verifies the digest in `ref` or in the registry's header. Returns a 404 answer, too."""
        scopes, url = pull(ref.repository.path), manifest_url(self.session, ref)
        answer = self.session.send("GET", url, scopes=scopes, doing=doing, headers=_ACCEPT, limit=LARGEST_MANIFEST)
        if answer.status == 404:
            return answer
        if answer.status != 200:
            raise self.session.refusal(answer, doing)
        if not answer.complete:
            raise RegistryRefusedError(f"{ref}: the manifest is too large: more than {LARGEST_MANIFEST} bytes")
        actual = sha256_digest(answer.body)
        expected = ref.digest if isinstance(ref, Digest) else _header_digest(answer) or actual
        if actual != expected:
            wrong = VerificationError(f"{ref}: expected {expected}, but the registry sent {actual}")
            raise PassingError("sent a manifest that does not match its digest", final=wrong, tries=2)
        return answer


def _parse(ref: Tag | Digest, answer: Answer) -> Manifest:
    return parse_manifest(answer.body, answer.headers.get("content-type", ""), str(ref))


def _header_digest(answer: Answer) -> str | None:
    """Reads the Docker-Content-Digest header; None if the header is missing or is not a sha256 digest."""
    try:
        return check_digest(answer.headers.get("docker-content-digest", ""))
    except InvalidReferenceError:
        return None
