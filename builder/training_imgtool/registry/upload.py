"""Writing a blob: HEAD, mount, or one POST and one PUT; every retry begins with HEAD and the first byte.

One request carries the whole blob, since Artifact Registry takes no chunks and docker-registry 2.8 cannot
resume one: a session that broke stays locked. A PUT whose answer was lost is found by the HEAD.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

from training_imgtool.core.errors import ImgtoolError, LocalFileError, VerificationError
from training_imgtool.core.progress import Progress, Transfer, silent
from training_imgtool.core.reference import Repository
from training_imgtool.registry.auth.challenges import pull, push
from training_imgtool.registry.http.addresses import is_google
from training_imgtool.registry.http.failures import server_errors
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.transport import BLOCK, Answer, Body
from training_imgtool.registry.manifests import Descriptor
from training_imgtool.registry.session import Session
from training_imgtool.registry.upload_session import cancel_upload, start_upload, upload_location, with_query

OpenBody = Callable[[], Iterator[bytes] | BinaryIO]


class How(StrEnum):
    """How a blob came to be in a repository."""

    PRESENT = "present"
    MOUNTED = "mounted"
    UPLOADED = "uploaded"


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A blob that is there now, and the bytes of content that were sent for it (all tries)."""

    descriptor: Descriptor
    how: How
    sent: int


def has_blob(session: Session, repository: Repository, digest: str) -> bool:
    """Whether a repository has a blob; one request."""
    return session.retry.run(lambda _: is_there(session, repository, digest), who=session.host, notice=session.notice)


def is_there(session: Session, repository: Repository, digest: str, *, writing: bool = False) -> bool:
    """Whether a repository has a blob; one try of one request. Raises PassingError, and what `Session.send` raises.

    A 500 counts as no: docker-registry 2.8 answers so for a blob during whose storing it was killed, and sending the
    blob again mends that.
    """
    scopes = push(repository.path) if writing else pull(repository.path)
    doing = f"looking for blob {digest[7:19]} in {repository}"
    try:
        answer = session.send("HEAD", session.url(repository, f"blobs/{digest}"), scopes=scopes, doing=doing)
    except PassingError as error:
        if error.status != 500:
            raise
        return False
    if answer.status == 200:
        return True
    if answer.status == 404:
        return False
    raise session.refused(answer, doing)


class BlobUpload:
    """One blob's way into a repository.

    Args:
        session: with the registry.
        repository: where the blob is to be.
        descriptor: of the blob.
        open_body: gives the content from its first byte, as blocks or as a binary file; called once per try.
        mount_from: a repository whose blob may be taken over without sending it; with `repository` itself the request
            that opens the upload also asks whether the blob is there.
        expect_missing: leave out the first HEAD, because the blob is new.
        subject: whose blob it is, for the progress.
        progress: told how much was sent.
        before: called before content is sent, and before an upload is opened that takes nothing over; what it raises
            ends the upload.
    """

    def __init__(  # noqa: PLR0917 the client hands its own arguments on
        self,
        session: Session,
        repository: Repository,
        descriptor: Descriptor,
        open_body: OpenBody,
        mount_from: Repository | None = None,
        expect_missing: bool = False,
        subject: str = "",
        progress: Progress = silent,
        before: Callable[[], object] | None = None,
    ) -> None:
        self.session = session
        self.repository = repository
        self.descriptor = descriptor
        self.open_body = open_body
        self.mount_from = mount_from
        self.expect_missing = expect_missing
        self.subject = subject
        self.progress = progress
        self.before = before
        self.sent = 0  # bytes of content so far
        self.began = 0.0
        self.check = False  # hash what is sent: the registry said that it got something else
        self.location: str | None = None  # of the open upload session

    @property
    def doing(self) -> str:
        """What errors begin with."""
        return f"uploading blob {self.descriptor.short} ({self.descriptor.size} bytes) to {self.repository}"

    def run(self) -> Uploaded:
        """Makes sure that the blob is there.

        Raises:
            RegistryRefusedError, CredentialsError, TemporaryError: the registry does not take it.
            VerificationError: the content is not the descriptor's, or gets damaged on its way.
            LocalFileError: the content cannot be read.
        """
        self.began = self.session.retry.clock()
        try:
            how = self.session.retry.run(self._try, who=self.session.host, notice=self.session.notice)
        finally:
            self.cancel()
        return Uploaded(self.descriptor, how, self.sent)

    def _try(self, number: int) -> How:
        session = self.session
        asking = number > 0 or not self.expect_missing
        if asking and is_there(session, self.repository, self.descriptor.digest, writing=True):
            return How.UPLOADED if self.sent else How.PRESENT
        self.cancel()
        if number == 0 and self.mount_from is not None and self.mounted(self.mount_from):
            return How.PRESENT if self.mount_from == self.repository else How.MOUNTED
        if self.location is None:
            self._may_send()  # a refusal is no news to who has nothing to send
            self.location = start_upload(session, self.repository, self.doing)
        self._may_send()
        self._put(self.location)
        self.location = None
        return How.UPLOADED

    def _may_send(self) -> None:
        if self.before:
            self.before()

    def mounted(self, source: Repository) -> bool:
        """Whether the registry took the blob over; a session it opened instead is kept. Refusals are no errors."""
        query = {"mount": self.descriptor.digest, "from": source.path}
        scopes = push(self.repository.path)
        if source.registry == self.repository.registry:
            scopes |= pull(source.path)
        elif is_google(source.registry) and is_google(self.repository.registry):
            query["origin"] = source.registry  # others may refuse because of it (rules_img#712)
        else:
            return False
        try:
            url = self.session.url(self.repository, "blobs/uploads/", query)
            answer = self.session.send("POST", url, scopes=scopes, doing=self.doing)
            if answer.status == 202:
                self.location = upload_location(self.session, answer, self.doing)
        except (PassingError, ImgtoolError):
            return False
        return answer.status == 201

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
        check_stored(self.session, answer, self.descriptor.digest, self.doing, self)

    def _content(self) -> Iterator[bytes]:
        """The body's blocks, counted against the descriptor and shown as progress."""
        size, done = self.descriptor.size, 0
        checked = hashlib.sha256() if self.check else None
        for block in blocks_of(self.open_body, self.doing):
            self.session.retry.check_time(self.began, self.doing)
            done += len(block)
            if done > size:
                raise VerificationError(f"{self.doing}: the content is longer than that")
            if checked is not None:
                checked.update(block)
                if done == size and f"sha256:{checked.hexdigest()}" != self.descriptor.digest:
                    raise VerificationError(
                        f"{self.doing}: the content on this machine is sha256:{checked.hexdigest()}, "
                        f"not {self.descriptor.digest}"
                    )
            yield block
            self.sent += len(block)
            self.progress(Transfer(self.subject, self.descriptor.short, done, size))
        if done != size:
            raise VerificationError(f"{self.doing}: the content is only {done} bytes long")

    def cancel(self) -> None:
        """Tells the registry to drop an open session; whatever it answers is no news."""
        location, self.location = self.location, None
        if location is not None:
            cancel_upload(self.session, self.repository, location, self.doing)


def mount_blob(session: Session, repository: Repository, descriptor: Descriptor, source: Repository) -> bool:
    """Whether a repository took a blob over from another one; nothing is sent, and a refusal is no error."""
    upload = BlobUpload(session, repository, descriptor, lambda: iter(()))
    try:
        return upload.mounted(source)
    finally:
        upload.cancel()


def check_stored(session: Session, answer: Answer, digest: str, doing: str, upload: BlobUpload | None = None) -> None:
    """Takes the answer to a blob's last PUT: 201, and for the digest that was meant."""
    codes = {error.code for error in server_errors(answer)}
    if answer.status == 404 and (not codes or "BLOB_UPLOAD_UNKNOWN" in codes):
        raise PassingError("lost the upload")
    damaged = VerificationError(
        f"{doing}: corrupted in transit; expected {digest}",
        hint="a proxy or the network between here and the registry changes what is sent",
    )
    if answer.status == 400 and codes & {"DIGEST_INVALID", "SIZE_INVALID"}:
        if upload is not None:
            upload.check = True
        raise PassingError("received other bytes than were sent (DIGEST_INVALID)", final=damaged, tries=2)
    if answer.status != 201:
        raise session.refused(answer, doing)
    stored = answer.headers.get("docker-content-digest", digest)
    if stored != digest:
        if upload is not None:
            upload.check = True
        damaged = VerificationError(f"{doing}: expected {digest}, the registry stored {stored[:80]!r}")
        raise PassingError("stored the blob under another digest", final=damaged, tries=2)


def blocks_of(open_body: OpenBody, doing: str) -> Iterator[bytes]:
    """The blocks of a body, file or iterator; it is closed at the end. Raises LocalFileError."""
    try:
        body = open_body()
    except OSError as error:
        raise LocalFileError(f"{doing}: {error}") from error
    try:
        while block := _next(body, doing):
            if len(block) <= BLOCK:
                yield block
            else:
                yield from (block[start : start + BLOCK] for start in range(0, len(block), BLOCK))
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _next(body: Iterator[bytes] | BinaryIO, doing: str) -> bytes:
    """The next block that is not empty, b"" at the end. A file is an iterator too, of lines, so it is read first."""
    read = getattr(body, "read", None)
    try:
        if read is not None:
            return bytes(read(BLOCK))
        return next(filter(None, body), b"")
    except OSError as error:
        raise LocalFileError(f"{doing}: reading the content failed: {error.strerror or error}") from error
