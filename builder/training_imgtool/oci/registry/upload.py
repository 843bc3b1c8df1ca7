"""Brings blobs into a repository: asks with HEAD, tries to mount, and else uploads with one POST and one PUT.

Every retry starts with a HEAD, and then sends the blob from the first byte. One request contains the whole blob,
because Artifact Registry accepts no chunks, and because docker-registry 2.8 keeps an interrupted upload locked, so that
nobody can resume it. The HEAD of a retry finds a blob that the registry stored although the answer to the PUT was lost
(distribution specification, "Pushing blobs").

After a mount, imgtool asks the registry for the blob, because the answer to a mount does not prove that the registry
has the blob.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlencode, urlsplit, urlunsplit

from training_imgtool.base.errors import ImgtoolError, LocalFileError, VerificationError
from training_imgtool.base.http.addresses import next_url
from training_imgtool.base.http.client import BLOCK, Answer, Body
from training_imgtool.base.http.retry import PassingError
from training_imgtool.base.progress import Progress, Transfer
from training_imgtool.base.reference import Repository
from training_imgtool.oci.registry.auth.challenges import pull, push
from training_imgtool.oci.registry.blobs import blob_length, read_blob
from training_imgtool.oci.registry.failures import server_errors
from training_imgtool.oci.registry.manifests import Descriptor
from training_imgtool.oci.registry.session import Session

OpenBody = Callable[[], Iterator[bytes]]
_CANCEL_SECONDS = 2.0


class How(StrEnum):
    """How a blob got into a repository. A blob that is `MOUNTED` may be older if source and target are equal."""

    PRESENT = "present"
    MOUNTED = "mounted"
    UPLOADED = "uploaded"


@dataclass(slots=True, kw_only=True)
class BlobUpload:
    """Brings one blob into a repository.

    Attributes:
        session: the session with the registry.
        repository: the target.
        descriptor: the blob's descriptor.
        open_body: yields the content's blocks from the first byte; called once per try.
        mount_from: a repository with the blob, in this registry or on a host from which it mounts. If it is
            `repository` itself, the request that opens the upload also asks for the blob.
        expect_missing: whether to send no HEAD in the first try.
        subject: the image of the blob, for progress.
        progress: receives every sent block.
    """

    session: Session
    repository: Repository
    descriptor: Descriptor
    open_body: OpenBody
    mount_from: Repository | None
    expect_missing: bool
    subject: str
    progress: Progress
    _sent: int = field(default=0, init=False)  # bytes sent so far
    _began: float = field(default=0.0, init=False)
    _hash: bool = field(default=False, init=False)  # hash the sent bytes, because the registry received other ones
    _location: str | None = field(default=None, init=False)  # the URL of the open upload
    _is_doubtful: bool = field(default=False, init=False)  # the registry has this blob with another length

    @property
    def doing(self) -> str:
        """Returns the words with which error messages begin."""
        return f"uploading blob {self.descriptor.short} ({self.descriptor.size} bytes) to {self.repository}"

    def run(self) -> How:
        """Makes sure that the repository has the blob.

        Raises:
            RegistryRefusedError, CredentialsError, TemporaryError: the registry does not accept the blob.
            VerificationError: the content does not match the descriptor, or arrives damaged.
            LocalFileError: the content cannot be read.
        """
        self._began = self.session.retry.clock()
        try:
            for attempt in self.session.attempts():
                with attempt:
                    how = self._try(attempt.number)
        finally:
            self._cancel()
        return how

    def _mount(self, source: Repository) -> bool:
        """Asks the registry to mount the blob from another repository, and returns whether the registry did so.

        A refusal to mount is not an error. If the registry opens an upload instead, imgtool uses that upload.
        """
        query = {"mount": self.descriptor.digest, "from": source.path}
        scopes = push(self.repository.path)
        if source.registry == self.repository.registry:
            scopes |= pull(source.path)
        elif self.session.dialect.mounts_between_hosts and self.session.dialect.covers(source.registry):
            query["origin"] = source.registry  # other registries may refuse a request with it (rules_img#712)
        else:
            return False
        try:
            url = self.session.url(self.repository, "blobs/uploads/", query)
            answer = self.session.send("POST", url, scopes=scopes, doing=self.doing)
            if answer.status == 202:
                self._location = self._upload_url(answer)
        except (PassingError, ImgtoolError):
            return False
        return answer.status == 201

    def _try(self, number: int) -> How:
        asks = number > 0 or not self.expect_missing
        if asks and self._has_blob():
            return How.UPLOADED if self._sent else How.PRESENT
        self._cancel()
        if number == 0 and self.mount_from is not None and self._mount(self.mount_from) and self._has_blob():
            return How.MOUNTED
        self._location = self._location or self._open()
        self._put(self._location)
        self._location = None
        if self._is_doubtful and not self._has_blob():
            self._read_back()
        return How.UPLOADED

    def _has_blob(self) -> bool:
        length = blob_length(self.session, self.repository, self.descriptor.digest, writing=True)
        self._is_doubtful = length is not None  # imgtool sends no blob that the registry has
        return length in {"", str(self.descriptor.size)}

    def _read_back(self) -> None:
        """Reads the blob from the registry; raises VerificationError if the registry has other bytes."""
        try:
            for _ in read_blob(self.session, self.repository, self.descriptor):
                pass
        except VerificationError as error:
            raise VerificationError(
                f"{self.doing}: the registry accepts it, but still has a damaged copy: {error.message}",
                hint="delete the blob or the repository in the registry's storage",
            ) from error

    def _open(self) -> str:
        url = self.session.url(self.repository, "blobs/uploads/")
        answer = self.session.send("POST", url, scopes=push(self.repository.path), doing=self.doing)
        if answer.status != 202:
            raise self.session.refusal(answer, self.doing)
        return self._upload_url(answer)

    def _upload_url(self, answer: Answer) -> str:
        location = answer.headers.get("location")
        if not location:
            raise PassingError("opened an upload but did not name its address (no Location)")
        return next_url(answer.url, location, self.session.origin, self.doing)

    def _put(self, location: str) -> None:
        size = self.descriptor.size
        answer = self.session.send(
            "PUT",
            with_query(location, {"digest": self.descriptor.digest}),
            scopes=push(self.repository.path),
            doing=self.doing,
            headers={"Content-Type": "application/octet-stream"},
            body=Body(self._content, size) if size else None,
        )
        self._check_stored(answer)

    def _check_stored(self, answer: Answer) -> None:
        """Accepts a 201 for the blob's digest; raises an error for every other answer to the PUT."""
        digest = self.descriptor.digest
        codes = {error.code for error in server_errors(answer)}
        if answer.status == 404 and (not codes or "BLOB_UPLOAD_UNKNOWN" in codes):
            raise PassingError("lost the upload")
        if answer.status == 400 and codes & {"DIGEST_INVALID", "SIZE_INVALID"}:
            self._hash = True
            damaged = VerificationError(
                f"{self.doing}: the registry did not receive the bytes that imgtool sent; expected {digest}",
                hint="check the proxy and the network, because one of them changes what imgtool sends",
            )
            raise PassingError("received other bytes than imgtool sent (DIGEST_INVALID)", final=damaged, tries=2)
        if answer.status != 201:
            raise self.session.refusal(answer, self.doing)
        stored = answer.headers.get("docker-content-digest", digest)
        if stored != digest:
            self._hash = True
            wrong = VerificationError(f"{self.doing}: expected {digest}, but the registry stored {stored[:80]!r}")
            raise PassingError("stored the blob under another digest", final=wrong, tries=2)

    def _content(self) -> Iterator[bytes]:
        """Yields the blocks of the upload, checks their total size, and reports progress."""
        size, done = self.descriptor.size, 0
        content_hash = hashlib.sha256() if self._hash else None
        for block in blocks_of(self.open_body, self.doing):
            self.session.retry.check_time(self._began, self.doing)
            done += len(block)
            if done > size:
                raise VerificationError(f"{self.doing}: the content is longer than the expected size")
            if content_hash is not None:
                content_hash.update(block)
                if done == size and f"sha256:{content_hash.hexdigest()}" != self.descriptor.digest:
                    raise VerificationError(
                        f"{self.doing}: the content on this machine is sha256:{content_hash.hexdigest()}, "
                        f"not {self.descriptor.digest}"
                    )
            yield block
            self._sent += len(block)
            self.progress(Transfer(self.subject, self.descriptor.short, done, size))
        if done != size:
            raise VerificationError(f"{self.doing}: the content is only {done} bytes long")

    def _cancel(self) -> None:
        """Asks the registry to drop an open upload. A registry that refuses drops it in a later clean-up."""
        location, self._location = self._location, None
        if location is not None:
            with contextlib.suppress(PassingError, ImgtoolError):
                scopes = push(self.repository.path)
                self.session.send("DELETE", location, scopes=scopes, doing=self.doing, seconds=_CANCEL_SECONDS)


def with_query(url: str, added: dict[str, str]) -> str:
    """Adds query parameters to a URL without changing a byte of the existing ones."""
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, urlencode(added, safe=":"))))
    return urlunsplit(parts._replace(query=query))


def blocks_of(open_body: OpenBody, doing: str) -> Iterator[bytes]:
    """Yields the blocks of a body; raises LocalFileError if the body cannot be read."""
    try:
        for block in open_body():
            yield from (block[start : start + BLOCK] for start in range(0, len(block), BLOCK))
    except OSError as error:
        raise LocalFileError(f"{doing}: reading the content failed: {error.strerror or error}") from error
