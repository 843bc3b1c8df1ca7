"""Turns a registry's refusal into an error with an exit code, a hint, and the server's text, marked as the server's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from training_imgtool.base.errors import CredentialsError, ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.base.http.client import Answer
from training_imgtool.base.http.retry import PassingError, retry_after
from training_imgtool.base.sanitize import join_lines, mask_secrets
from training_imgtool.oci.registry.dialects import (
    IMMUTABLE,
    NO_SUCH_REPOSITORY,
    PASSING_CODES,
    PASSING_STATUSES,
    Dialect,
)

_DIGEST = r"sha256:[0-9a-f]{64}"
_USED_UP = r"0;\s*w=([1-9][0-9]{3,8})$"  # no requests left in a window of many seconds
_HINTS = {
    405: "the registry, or a proxy in front of it, is read-only",
    413: "a proxy in front of the registry limits the size of a request; raise its limit",
    415: "the registry may not know this type of manifest",
}


class RepositoryMissingError(RegistryRefusedError):
    """The repository does not exist, or the login may not see the repository."""


class BlobUnknownError(RegistryRefusedError):
    """The registry lacks blobs of a manifest (MANIFEST_BLOB_UNKNOWN). The caller can upload these blobs again.

    Args:
        digests: the blobs that the registry named; empty if it named none.
    """

    def __init__(self, message: str, *, digests: tuple[str, ...], hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.digests = digests


class TagImmutableError(RegistryRefusedError):
    """The tag names another manifest and cannot be moved."""


@dataclass(frozen=True, slots=True)
class ServerError:
    """One entry in the list `errors` of the distribution specification, with text that the server wrote.

    Attributes:
        code: the code in upper case.
        message: the message for people.
        detail: the unchanged detail, at most 2000 characters.
        reason: the detail if it is text, such as a message of the operating system.
    """

    code: str
    message: str
    detail: str
    reason: str

    def __str__(self) -> str:
        reason = "" if self.reason in self.message else f" ({self.reason})"
        return f"{self.code}: {self.message}{reason}".strip(": ")


def server_errors(answer: Answer) -> tuple[ServerError, ...]:
    """Reads the errors in an answer's JSON body; returns an empty tuple if the body has another form."""
    try:
        document = json.loads(answer.body)
        entries = document["errors"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    if not isinstance(entries, list):
        return ()
    return tuple(
        ServerError(
            join_lines(str(entry.get("code", "")), 60).upper(),
            mask_secrets(str(entry.get("message", ""))),
            str(entry.get("detail", ""))[:2000],
            mask_secrets(detail) if isinstance(detail := entry.get("detail"), str) else "",
        )
        for entry in entries[:10]
        if isinstance(entry, dict)
    )


def server_text(answer: Answer) -> str:
    """Returns the server's text for a message, without secrets; returns an empty text for HTML or other markup."""
    errors = server_errors(answer)
    if errors:
        return mask_secrets("; ".join(map(str, errors)))
    text = answer.body[:2000].decode("utf-8", "replace").strip()
    markup = "html" in answer.headers.get("content-type", "") or text.startswith(("<", "{"))
    return "" if markup else mask_secrets(text)


def is_immutable_refusal(answer: Answer) -> bool:
    """Returns whether a registry refused a manifest because its tag is immutable (Artifact Registry, ECR, Harbor)."""
    return 400 <= answer.status < 500 and (
        answer.status in {409, 412} or bool(re.search(IMMUTABLE, answer.body.decode("utf-8", "replace")))
    )


def passing(answer: Answer, now: float) -> PassingError | None:
    """Makes the PassingError for an answer after which imgtool tries again, else None. `now` is the wall clock."""
    codes = {error.code for error in server_errors(answer)}
    if answer.status < 400 or (answer.status in {401, 403}) or is_immutable_refusal(answer):
        return None
    if answer.status not in PASSING_STATUSES and not codes & PASSING_CODES:
        return None
    said = server_text(answer)
    reason = f"answered {answer.status}{f' (the server says: {said})' if said else ''}"
    window = re.match(_USED_UP, answer.headers.get("ratelimit-remaining", ""))
    final = _limit_error(answer, reason, int(window[1])) if window and answer.status == 429 else None
    return PassingError(
        reason,
        retry_after=retry_after(answer.headers.get("retry-after"), now),
        final=final,
        tries=2 if final else None,
        status=answer.status,
    )


def _limit_error(answer: Answer, reason: str, seconds: int) -> TemporaryError:
    """Makes the error for a limit that lasts for hours, such as Docker Hub's limit for anonymous users."""
    return TemporaryError(
        f"{urlsplit(answer.url).netloc} {reason}: your limit for {seconds / 3600:.0f} hours is used up",
        hint="log in with `docker login`, because each account has its own limit, or run the same command again later",
    )


def make_error(answer: Answer, *, host: str, dialect: Dialect, doing: str) -> ImgtoolError:
    """Makes the error for an answer that is final but not a success.

    Args:
        answer: the answer.
        host: the registry.
        dialect: has the hints.
        doing: what imgtool did, such as `uploading layer 0123456789ab (12 MB) to HOST/PATH`.
    """
    errors = server_errors(answer)
    codes = {error.code for error in errors}
    said = server_text(answer)
    code = " ".join(sorted(codes)[:3])
    where = f"HTTP {answer.status}{f' {code}' if code else ''} from {host}"
    message = f"{doing}: refused ({where})"
    if said and said != code:
        message += f"; the server says: {said}"
    if "MANIFEST_BLOB_UNKNOWN" in codes or ("BLOB_UNKNOWN" in codes and answer.method == "PUT"):
        digests = tuple(dict.fromkeys(re.findall(_DIGEST, " ".join(f"{e.message} {e.detail}" for e in errors))))
        return BlobUnknownError(
            f"{doing}: blobs of the manifest are missing ({where})", digests=digests, hint="run the command again"
        )
    if answer.status == 404 and answer.method == "GET" and "/blobs/" in answer.url:
        return RegistryRefusedError(
            message,
            hint="the registry lacks part of the image: push that image again, or set IMGTOOL_MIRRORS to a "
            "registry that has the whole image",
        )
    return _by_status(answer.status, codes, host, dialect)(message)


def _by_status(status: int, codes: set[str], host: str, dialect: Dialect) -> Callable[[str], ImgtoolError]:
    """Returns the function that makes the error for an HTTP status, with the right class and a hint."""
    if codes & NO_SUCH_REPOSITORY or (status == 404 and not codes):
        return partial(RepositoryMissingError, hint=dialect.missing_hint.format(host=host))
    if status == 401:
        return partial(CredentialsError, hint=dialect.login_hint.format(host=host))
    if status == 403 or "DENIED" in codes:
        return partial(RegistryRefusedError, hint=dialect.denied_hint.format(host=host))
    hint = _HINTS.get(status)
    if "MANIFEST_UNKNOWN" in codes:
        hint = "there is no such tag or digest; check the name"
    elif "MANIFEST_INVALID" in codes:
        hint = _HINTS[415]
    elif status == 400 and not codes:
        hint = f"check whether {host} expects TLS or plain HTTP"
    return partial(RegistryRefusedError, hint=hint)
