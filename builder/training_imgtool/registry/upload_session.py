"""Upload sessions: opened, given content, given up (distribution specification, "Pushing blobs")."""

from __future__ import annotations

import contextlib
from urllib.parse import urlencode, urlsplit, urlunsplit

from training_imgtool.core.errors import ImgtoolError
from training_imgtool.core.reference import Repository
from training_imgtool.registry.auth.challenges import push
from training_imgtool.registry.http.addresses import next_url
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.transport import Answer
from training_imgtool.registry.session import Session

_CANCEL_SECONDS = 2.0


def start_upload(session: Session, repository: Repository, doing: str) -> str:
    """Opens an upload session and returns its address; raises as `Session.send`."""
    answer = session.send("POST", session.url(repository, "blobs/uploads/"), scopes=push(repository.path), doing=doing)
    if answer.status != 202:
        raise session.refused(answer, doing)
    return upload_location(session, answer, doing)


def upload_location(session: Session, answer: Answer, doing: str) -> str:
    """Where to send content: the Location header, absolute or relative, its query kept."""
    location = answer.headers.get("location")
    if not location:
        raise PassingError("opened an upload without saying where (no Location)")
    return next_url(answer.url, location, session.origin, doing)


def cancel_upload(session: Session, repository: Repository, location: str, doing: str) -> None:
    """Best effort: an abandoned session is the registry's to clean up."""
    with contextlib.suppress(PassingError, ImgtoolError):
        session.send("DELETE", location, scopes=push(repository.path), doing=doing, seconds=_CANCEL_SECONDS)


def with_query(url: str, added: dict[str, str]) -> str:
    """A URL with more query parameters; what it has stays byte for byte."""
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, urlencode(added, safe=":"))))
    return urlunsplit(parts._replace(query=query))
