"""Writing a blob whose digest is known only at its end: POST, one PATCH, PUT.

For layers that are made while their input still arrives. Artifact Registry's documentation rules out
chunked uploads, so `Registry.takes_streams` is false there and callers should use one monolithic PUT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from training_imgtool.core.errors import VerificationError
from training_imgtool.core.progress import Progress, Transfer, silent
from training_imgtool.core.reference import Repository
from training_imgtool.registry.auth.challenges import push
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.transport import Body
from training_imgtool.registry.manifests import Descriptor
from training_imgtool.registry.session import Session
from training_imgtool.registry.upload import How, Uploaded, blocks_of, check_stored, is_there
from training_imgtool.registry.upload_session import cancel_upload, start_upload, upload_location, with_query


@dataclass(slots=True)
class StreamUpload:
    """One blob's way into a repository, its digest last.

    Attributes:
        open_body: gives the content from its first byte; called again for each retry.
        length: bytes, or None when that is not known either.
        digest_after: gives the digest once the content has been read to its end.
        what: names the blob in messages and progress.
    """

    session: Session
    repository: Repository
    open_body: Callable[[], Iterator[bytes]]
    length: int | None
    digest_after: Callable[[], str]
    media_type: str
    what: str
    subject: str = ""
    progress: Progress = silent
    sent: int = 0
    size: int = 0  # of the content as of the last try
    location: str | None = None
    began: float = 0.0

    @property
    def doing(self) -> str:
        """What errors begin with."""
        return f"uploading {self.what} to {self.repository}"

    def run(self) -> Uploaded:
        """Sends the content; raises as `BlobUpload.run`."""
        self.began = self.session.retry.clock()
        descriptor = self.session.retry.run(self._try, who=self.session.host, notice=self.session.notice)
        return Uploaded(descriptor, How.UPLOADED, self.sent)

    def _try(self, number: int) -> Descriptor:
        if number and self.length is not None and self.size == self.length:
            held = Descriptor(self.media_type, self.digest_after(), self.size)
            if is_there(self.session, self.repository, held.digest, writing=True):
                return held
        try:
            self.location = start_upload(self.session, self.repository, self.doing)
            return self._send(self.location)
        except BaseException:
            if self.location is not None:
                cancel_upload(self.session, self.repository, self.location, self.doing)
            raise

    def _send(self, location: str) -> Descriptor:
        scopes = push(self.repository.path)
        headers = {"Content-Type": "application/octet-stream"}
        body = Body(self._content, self.length)
        answer = self.session.send("PATCH", location, scopes=scopes, doing=self.doing, headers=headers, body=body)
        if answer.status == 404:
            raise PassingError("lost the upload")
        if answer.status not in {202, 204}:
            raise self.session.refused(answer, self.doing)
        if "location" in answer.headers:
            location = upload_location(self.session, answer, self.doing)
        self.location = location
        digest = self.digest_after()
        url = with_query(location, {"digest": digest})
        answer = self.session.send("PUT", url, scopes=scopes, doing=self.doing)
        check_stored(self.session, answer, digest, self.doing)
        return Descriptor(self.media_type, digest, self.size)

    def _content(self) -> Iterator[bytes]:
        self.size = 0
        for block in blocks_of(self.open_body, self.doing):
            self.session.retry.check_time(self.began, self.doing)
            self.size += len(block)
            if self.length is not None and self.size > self.length:
                raise VerificationError(f"{self.doing}: the content is longer than {self.length} bytes")
            yield block
            self.sent += len(block)
            self.progress(Transfer(self.subject, self.what, self.size, self.length))
        if self.length is not None and self.size != self.length:
            raise VerificationError(f"{self.doing}: the content is {self.size} bytes, not {self.length}")
