"""The engine's event streams, as recorded: what they mean, whatever is in them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.make.engines.support import Events
from training_imgtool.base.errors import (
    CredentialsError,
    EngineUnavailableError,
    RegistryRefusedError,
    TemporaryError,
)
from training_imgtool.base.progress import Transfer
from training_imgtool.base.reference import Login
from training_imgtool.make.engines.docker.client import engine_error
from training_imgtool.make.engines.docker.events import PullLog, error_message
from training_imgtool.make.engines.docker.registry_errors import registry_error


def test_a_pull() -> None:
    shown = Events()
    log = PullLog("base x", "here:5000", None, shown)
    log.take({"status": "Pulling from library/x", "id": "sha256:1"})
    log.take({"status": "Downloading", "progressDetail": {"current": 5, "total": 10}, "id": "a"})
    log.take({"status": "Extracting", "progressDetail": {"current": 5, "total": 10}, "id": "a"})
    log.take({"status": "Download complete", "id": "a"})
    log.take({"status": "Download complete", "id": "never seen"})
    assert shown == [Transfer("base x", "a", 5, 10), Transfer("base x", "a", 10, 10)]
    with pytest.raises(RegistryRefusedError, match="base x: pull: here:5000"):
        log.take({"errorDetail": {"message": "manifest unknown"}, "error": "manifest unknown"})


def test_an_error_may_have_no_words() -> None:
    assert error_message({"errorDetail": {}}) == "an error without words"


@pytest.mark.parametrize("event", [{}, {"stream": "error"}, {"status": "error: x"}, {"aux": {"error": 1}}])
def test_other_events_are_no_errors(event: dict[str, Any]) -> None:
    assert error_message(event) is None


JO = Login(username="jo", password="canary-secret")


@pytest.mark.parametrize(
    ("message", "login", "expected"),
    [
        ("unauthorized: authentication required", None, CredentialsError),
        ("no basic auth credentials", None, CredentialsError),
        ("unauthorized: incorrect username or password", JO, CredentialsError),
        ("denied: Unauthenticated request. Unauthenticated requests do not have permission", None, CredentialsError),
        ("denied: requested access to the resource is denied", JO, RegistryRefusedError),
        ('denied: Permission "artifactregistry.repositories.uploadArtifacts" denied', JO, RegistryRefusedError),
        ('name unknown: Repository "x" not found', None, RegistryRefusedError),
        ("manifest for x@sha256:0 not found: manifest unknown: manifest unknown", None, RegistryRefusedError),
        ("manifest invalid: cannot update tag x. The repository has tag immutability", None, RegistryRefusedError),
        ("tag invalid: The image tag 'x' exists and cannot be overwritten: immutable", None, RegistryRefusedError),
        ("http: server gave HTTP response to HTTPS client", None, RegistryRefusedError),
        ("x509: certificate signed by unknown authority", None, RegistryRefusedError),
        ("dial tcp: lookup here on 1.1.1.1:53: no such host", None, TemporaryError),
        ("dial tcp 127.0.0.1:1: connect: connection refused", None, TemporaryError),
        ("read tcp 1->2: read: connection reset by peer", None, TemporaryError),
        ("net/http: TLS handshake timeout", None, TemporaryError),
        ("unexpected EOF", None, TemporaryError),
        ("failed to register layer: Error processing tar file(exit status 1): unexpected EOF", None,
         RegistryRefusedError),
        ("received unexpected HTTP status: 503 Service Unavailable", None, TemporaryError),
        ("toomanyrequests: You have reached your pull rate limit", None, TemporaryError),
        ("blob upload unknown to registry", None, TemporaryError),
        ("failed to register layer: write /x: no space left on device", None, EngineUnavailableError),
        ("words never seen before", None, RegistryRefusedError),
    ],
)  # fmt: skip
def test_what_a_refusal_means(message: str, login: Login | None, expected: type) -> None:
    found = registry_error("base x: pull", message, "here:5000", login)
    assert type(found) is expected
    assert message in found.message
    assert found.hint
    assert "canary-secret" not in f"{found}{found.hint}{found.details}"


def test_an_answer_that_is_cut_off() -> None:
    """What urllib3 makes of a chunk's length that never came."""
    error = engine_error("pulling", "unix:///d.sock", ValueError("invalid literal for int() with base 16: b''"))
    assert error.message.endswith("failed: the connection ended in the middle of an answer")
