"""Asks whether a blob exists, and reads blobs: verifies the streamed bytes, and continues after a broken connection."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.http.client import Answer
from training_imgtool.base.http.retry import PassingError
from training_imgtool.base.progress import Progress, Transfer, silent
from training_imgtool.base.reference import Repository
from training_imgtool.oci.registry.auth.challenges import pull, push
from training_imgtool.oci.registry.dialects import NO_SUCH_BLOB
from training_imgtool.oci.registry.manifests import Descriptor
from training_imgtool.oci.registry.session import Session


def blob_length(session: Session, repository: Repository, digest: str, *, writing: bool) -> str | None:
    """Asks for a blob's length; returns "" if the registry does not tell the length, None if it has no such blob.

    Sends one request. Raises PassingError, and the same errors as `Session.send`.
    """
    scopes = push(repository.path) if writing else pull(repository.path)
    doing = f"looking for blob {digest[7:19]} in {repository}"
    try:
        answer = session.send("HEAD", session.url(repository, f"blobs/{digest}"), scopes=scopes, doing=doing)
    except PassingError as error:
        if error.status not in NO_SUCH_BLOB:
            raise
        return None
    if answer.status == 200:
        return answer.headers.get("content-length", "")
    if answer.status in NO_SUCH_BLOB:
        return None
    raise session.refusal(answer, doing)


def has_blob(session: Session, repository: Repository, blob: Descriptor, *, writing: bool = False) -> bool:
    """Returns whether a repository has a blob, with the right size if the registry tells it; raises as `blob_length`.

    After a full or broken disk, docker-registry may have only a part of a blob, and then reports the part's length.
    """
    return blob_length(session, repository, blob.digest, writing=writing) in {"", str(blob.size)}


class _Source:
    """Reads a blob's bytes. A new connection continues at the byte at which the last connection broke."""

    def __init__(self, session: Session, repository: Repository, descriptor: Descriptor, doing: str) -> None:
        self._session = session
        self._url = session.url(repository, f"blobs/{descriptor.digest}")
        self._scopes = pull(repository.path)
        self._doing = doing
        self._download: Answer | None = None
        self._blocks: Iterator[bytes] = iter(())
        self.position = 0

    def next_block(self) -> bytes:
        """Reads the next block; returns b"" at the end. After a PassingError, the caller may call this again."""
        try:
            if self._download is None:
                self._open()
            block = next(self._blocks, b"")
        except PassingError:
            self.close()
            raise
        self.position += len(block)
        return block

    def close(self) -> None:
        """Gives the connection back to the pool."""
        if self._download is not None:
            self._download.close()
            self._download = None

    def _open(self) -> None:
        headers = {"Range": f"bytes={self.position}-"} if self.position else {}
        download = self._session.send(
            "GET", self._url, scopes=self._scopes, doing=self._doing, headers=headers, stream=True
        )
        self._download = download
        self._blocks = download.blocks()
        if not self.position:
            return
        if download.status == 206:
            if not download.headers.get("content-range", "").startswith(f"bytes {self.position}-"):
                raise PassingError("sent another part of the blob than the one requested")
            return
        self._blocks = _without(self._blocks, self.position)


def _without(blocks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Drops the first `count` bytes, for a server that does not support Range."""
    for block in blocks:
        if count >= len(block):
            count -= len(block)
            continue
        yield block[count:]
        count = 0


def read_blob(
    session: Session, repository: Repository, descriptor: Descriptor, *, subject: str = "", progress: Progress = silent
) -> Iterator[bytes]:
    """Reads a blob block by block. The blocks are verified only after the iterator has ended.

    After a broken connection, the next connection continues at the same byte. For each block, imgtool counts the tries
    anew.

    Raises:
        VerificationError: the size or the digest is not the descriptor's.
        RegistryRefusedError, CredentialsError, TemporaryError: as for other requests.
    """
    doing = f"reading blob {descriptor.short} ({descriptor.size} bytes) of {repository}"
    source = _Source(session, repository, descriptor, doing)
    content_hash = hashlib.sha256()
    began = session.retry.clock()
    try:
        while True:
            for attempt in session.attempts():
                with attempt:
                    block = source.next_block()
            if not block:
                break
            if source.position > descriptor.size:
                raise VerificationError(f"{doing}: the registry sends more bytes than expected")
            session.retry.check_time(began, doing)
            content_hash.update(block)
            progress(Transfer(subject, descriptor.short, source.position, descriptor.size))
            yield block
    finally:
        source.close()
    if source.position != descriptor.size:
        raise VerificationError(f"{doing}: the registry sent {source.position} bytes")
    actual = f"sha256:{content_hash.hexdigest()}"
    if actual != descriptor.digest:
        raise VerificationError(f"{doing}: expected {descriptor.digest}, but the bytes are {actual}")
