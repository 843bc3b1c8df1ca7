"""What an upload asks of a session, for hosts that no test can reach."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, cast

import pytest

from tests.oci.registry.support import layer, quick_retry
from training_imgtool.base.errors import ImgtoolError, RegistryRefusedError, VerificationError
from training_imgtool.base.http.addresses import origin_of
from training_imgtool.base.http.client import Answer
from training_imgtool.base.http.retry import Attempt
from training_imgtool.base.progress import silent
from training_imgtool.base.reference import parse_repository
from training_imgtool.oci.registry.auth.challenges import Scopes, scope_texts
from training_imgtool.oci.registry.dialects import find_dialect
from training_imgtool.oci.registry.failures import make_error
from training_imgtool.oci.registry.session import Session
from training_imgtool.oci.registry.upload import BlobUpload, How, with_query


class _Recorder:
    """A Session that answers from a list and keeps what it was asked."""

    def __init__(self, host: str, *answers: tuple[int, Mapping[str, str]], refused: bytes = b"") -> None:
        self.host = host
        self._refused = refused  # the body of every refusal
        self.origin = origin_of(f"https://{host}")
        self.dialect = find_dialect(host)
        self.retry = quick_retry()
        self.asked: list[tuple[str, str, tuple[str, ...]]] = []
        self._answers = list(answers)

    url = Session.url

    def attempts(self) -> Iterator[Attempt]:
        return self.retry.attempts(self.host)

    def send(self, method: str, url: str, *, scopes: Scopes, body: Any = None, **_: Any) -> Answer:
        if body is not None:
            assert b"".join(body.open())
        self.asked.append((method, url, scope_texts(scopes)))
        status, headers = self._answers.pop(0)
        return Answer(method, url, status, headers, (), self._refused if status >= 400 else b"")

    def refusal(self, answer: Answer, doing: str) -> ImgtoolError:
        return make_error(answer, host=self.host, dialect=self.dialect, doing=doing)


def _body() -> Iterator[bytes]:
    return iter((b"content",))


def _upload(recorder: _Recorder, target: str, source: str) -> How:
    upload = BlobUpload(
        session=cast("Session", recorder),
        repository=parse_repository(target),
        descriptor=layer(b"content"),
        open_body=_body,
        mount_from=parse_repository(source),
        expect_missing=True,
        subject="",
        progress=silent,
    )
    return upload.run()


EU, US = "eu-docker.pkg.dev", "us-docker.pkg.dev"


@pytest.mark.parametrize("source", [f"{US}/p/r/base", "gcr.io/p/base"])
def test_google_mounts_across_its_hosts_with_origin(source: str) -> None:
    recorder = _Recorder(EU, (201, {}), (200, {}))
    assert _upload(recorder, f"{EU}/p/r/role", source) is How.MOUNTED
    (method, url, scopes), (confirmed, *_) = recorder.asked
    assert confirmed == "HEAD"
    host, _, path = source.partition("/")
    assert method == "POST"
    assert url.endswith(
        f"?mount={layer(b'content').digest.replace(':', '%3A')}&from={path.replace('/', '%2F')}&origin={host}"
    )
    assert scopes == ("repository:p/r/role:pull,push",)


def test_a_mount_within_a_host_has_no_origin_and_both_scopes() -> None:
    recorder = _Recorder(EU, (201, {}), (200, {}))
    assert _upload(recorder, f"{EU}/p/r/role", f"{EU}/p/r/base") is How.MOUNTED
    (_, url, scopes), _ = recorder.asked
    assert "origin" not in url
    assert scopes == ("repository:p/r/base:pull", "repository:p/r/role:pull,push")


@pytest.mark.parametrize("source", ["docker.io/library/python", f"{US}/p/r/base"])
def test_other_hosts_are_never_asked_to_mount(source: str) -> None:
    recorder = _Recorder("ghcr.io", (202, {"location": "/v2/p/role/blobs/uploads/1"}), (201, {}))
    assert _upload(recorder, "ghcr.io/p/role", source) is How.UPLOADED
    assert [(method, "mount" in url) for method, url, _ in recorder.asked] == [("POST", False), ("PUT", False)]


def test_mounting_from_the_repository_itself_asks_and_opens_in_one() -> None:
    recorder = _Recorder("ghcr.io", (202, {"location": "/v2/p/role/blobs/uploads/1"}), (201, {}))
    assert _upload(recorder, "ghcr.io/p/role", "ghcr.io/p/role") is How.UPLOADED
    assert [(method, "from=p%2Frole" in url) for method, url, _ in recorder.asked] == [("POST", True), ("PUT", False)]
    there = _Recorder("ghcr.io", (201, {}), (200, {}))
    assert _upload(there, "ghcr.io/p/role", "ghcr.io/p/role") is How.MOUNTED


@pytest.mark.parametrize(
    ("status", "code", "again"),
    [
        (404, "", True),
        (404, "BLOB_UPLOAD_UNKNOWN", True),
        (404, "NAME_UNKNOWN", False),
        (400, "DIGEST_INVALID", True),
        (400, "SIZE_INVALID", True),
        (400, "BLOB_UPLOAD_UNKNOWN", False),
        (405, "DIGEST_INVALID", False),
    ],
)
def test_which_refusals_of_the_content_are_tried_once_more(status: int, code: str, *, again: bool) -> None:
    """In a new upload, after a look whether the blob is there by now."""
    refused = json.dumps({"errors": [{"code": code}]}).encode() if code else b""
    opened = (202, {"location": "/v2/p/role/blobs/uploads/1"})
    recorder = _Recorder("ghcr.io", opened, (status, {}), (404, {}), (204, {}), opened, (201, {}), refused=refused)
    with nullcontext() if again else pytest.raises(RegistryRefusedError):
        assert _upload(recorder, "ghcr.io/p/role", "docker.io/p/base") is How.UPLOADED
    more = ["HEAD", "DELETE", "POST", "PUT"] if again else ["DELETE"]
    assert [method for method, _, _ in recorder.asked] == ["POST", "PUT", *more]


def test_a_blob_that_the_registry_stores_under_another_digest_is_no_success() -> None:
    """It is sent once more, in a new upload."""
    opened, other = (202, {"location": "/v2/p/role/blobs/uploads/1"}), f"sha256:{'0' * 64}"
    wrong = (201, {"docker-content-digest": other})
    recorder = _Recorder("ghcr.io", opened, wrong, (404, {}), (204, {}), opened, wrong, (204, {}))
    with pytest.raises(VerificationError, match=f"the registry stored '{other}'"):
        _upload(recorder, "ghcr.io/p/role", "docker.io/p/base")
    right = (201, {"docker-content-digest": layer(b"content").digest})
    again = _Recorder("ghcr.io", opened, wrong, (404, {}), (204, {}), opened, right)
    assert _upload(again, "ghcr.io/p/role", "docker.io/p/base") is How.UPLOADED


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h/u", "https://h/u?digest=sha256:1"),
        ("https://h/u?_state=a%2Fb%3D", "https://h/u?_state=a%2Fb%3D&digest=sha256:1"),
        ("https://h/u?a=&b", "https://h/u?a=&b&digest=sha256:1"),
    ],
)
def test_a_query_is_kept_byte_for_byte(url: str, expected: str) -> None:
    assert with_query(url, {"digest": "sha256:1"}) == expected
