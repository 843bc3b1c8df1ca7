"""Finds out from an engine's message why a registry refused a request.

The Docker Engine reports a failed pull or push as free text in an answer with status 200. The texts are from
distribution/distribution `registry/api/errcode` and from moby's `distribution/errors.go`.
"""

from __future__ import annotations

import re

from training_imgtool.base.errors import (
    CredentialsError,
    EngineUnavailableError,
    ImgtoolError,
    RegistryRefusedError,
    TemporaryError,
)
from training_imgtool.base.reference import Login
from training_imgtool.base.sanitize import sanitize_line

_CREDENTIALS = re.compile(
    r"unauthorized|no basic auth credentials|authentication required|unauthenticated|incorrect username or password"
    r"|status:? 401",
    re.IGNORECASE,
)
_DENIED = re.compile(r"denied|insufficient_scope|forbidden|status:? 403", re.IGNORECASE)
_IMMUTABLE = re.compile(r"immutable|tag_invalid", re.IGNORECASE)
_UNKNOWN = re.compile(r"manifest[ _]unknown|name[ _]unknown|repository .*not (?:found|known)|not found", re.IGNORECASE)
_TLS = re.compile(r"x509:|server gave HTTP response to HTTPS client|tls: (?!handshake timeout)", re.IGNORECASE)
_NO_HOST = re.compile(r"no such host", re.IGNORECASE)
_TEMPORARY = re.compile(
    r"connection (?:refused|reset)|broken pipe|\bEOF\b|time-?out|timed out|deadline exceeded|network is unreachable"
    r"|no route to host|server misbehaving|too ?many ?requests|unavailable|\b(?:408|429|499|500|502|503|504|522)\b"
    r"|blob upload (?:invalid|unknown)|internal server error|bad gateway|received unexpected HTTP status: 5",
    re.IGNORECASE,
)
_UNPACKED = re.compile(r"failed to register layer: .*(?:unexpected EOF|invalid tar header)", re.IGNORECASE)
_FULL = re.compile(r"no space left on device", re.IGNORECASE)

FULL_HINT = "`docker system df` shows what takes the space, `docker builder prune` and `docker image prune` free it"


_TRY_AGAIN = "check that {host} can be reached from the engine's machine, then try again"
_TRUST = (
    "the engine must trust the registry: put its CA into /etc/docker/certs.d/{host}/ca.crt, "
    "or list it under insecure-registries in the engine's daemon.json"
)
_NO_RIGHT = (
    "{sent} may lack the right to do this (on Artifact Registry: role Artifact Registry Writer), "
    "or the repository does not exist at {host}"
)
_NO_ZSTD = (  # the engine checks the layer's digest before it unpacks the layer, so another try fails too
    "Docker before 23 does not read zstd layers: take a newer engine, `compression: gzip` in the spec, "
    "or --engine direct where the verb has it"
)
_MEANINGS: tuple[tuple[re.Pattern[str], type[ImgtoolError], str], ...] = (  # the first pattern that matches counts
    (_IMMUTABLE, RegistryRefusedError, "the tag is taken and cannot be moved: choose another one with --tag"),
    (_TLS, RegistryRefusedError, _TRUST),
    (_NO_HOST, TemporaryError, _TRY_AGAIN),
    (_CREDENTIALS, CredentialsError, ""),
    (_DENIED, RegistryRefusedError, _NO_RIGHT),
    (_FULL, EngineUnavailableError, FULL_HINT),
    (_UNPACKED, RegistryRefusedError, _NO_ZSTD),
    (_TEMPORARY, TemporaryError, _TRY_AGAIN),
    (_UNKNOWN, RegistryRefusedError, "check the name and the digest, and that the repository exists at {host}"),
)
_ELSE = (RegistryRefusedError, "the message is from {host} or from the engine")


def registry_error(
    doing: str, message: str, host: str, login: Login | None, *, engine: str = "the Docker Engine"
) -> ImgtoolError:
    """Makes the error from an engine's `message` about the registry `host`; `doing` is what the engine tried to do.

    An unknown message becomes a RegistryRefusedError, after which imgtool does not try again.
    """
    text = f"{doing}: {host} refused through {engine}: {sanitize_line(message)}"
    found = (meaning[1:] for meaning in _MEANINGS if meaning[0].search(message))
    kind, hint = next(found, _ELSE)
    if kind is CredentialsError:
        if login is None:
            return kind(f"{text} (no credentials were sent)", hint=f"log in with `docker login {host}`")
        return kind(f"{text} (sent: user {login.username!r} and a password)", hint="log in again")
    sent = "no credentials were sent, and this user" if login is None else f"user {login.username!r}"
    return kind(text, hint=hint.format(host=host, sent=sent))


def is_full(message: str) -> bool:
    """Returns whether `message` means that the engine's disk is full."""
    return bool(_FULL.search(message))
