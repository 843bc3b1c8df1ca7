from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oci.registry.support import clients, image, layer, machine
from tests.servers.scripted import Asked, Reply, ScriptedServer
from training_imgtool.base.errors import CredentialsError, ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.base.http.client import Answer
from training_imgtool.base.reference import Repository, parse_repository
from training_imgtool.base.sanitize import join_lines, mask_secrets
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.dialects import find_dialect
from training_imgtool.oci.registry.failures import (
    BlobUnknownError,
    RepositoryMissingError,
    is_immutable_refusal,
    make_error,
    passing,
    server_text,
)
from training_imgtool.oci.registry.manifests import OCI_INDEX, OCI_MANIFEST, sha256_digest

AR = "us-docker.pkg.dev"


Errors = bytes | Sequence[Mapping[str, object]]


def _answer(status: int, body: Errors = b"", method: str = "GET", **headers: str) -> Answer:

    raw = body if isinstance(body, bytes) else json.dumps({"errors": body}).encode()
    return Answer(method, "https://h/v2/a", status, {k.replace("_", "-"): v for k, v in headers.items()}, (), raw)


def _error(answer: Answer, host: str, doing: str) -> ImgtoolError:
    return make_error(answer, host=host, dialect=find_dialect(host), doing=doing)


CONTENT = layer(b"content")
REQUESTS: dict[str, Callable[[Registry, Repository], object]] = {
    "head": lambda registry, place: registry.head(place.tag("a")),
    "manifest": lambda registry, place: registry.manifest(place.tag("a")),
    "find_manifest": lambda registry, place: registry.find_manifest(place.tag("a")),
    "blob": lambda registry, place: b"".join(registry.blob(place, CONTENT)),
    "read": lambda registry, place: registry.read(place, CONTENT),
    "has_blob": lambda registry, place: registry.has_blob(place, CONTENT),
    "upload": lambda registry, place: registry.upload(place, CONTENT, lambda: iter((b"content",))),
    "put_manifest": lambda registry, place: registry.put_manifest(place.tag("a"), OCI_MANIFEST, image(CONTENT)),
    "put_referrer": lambda registry, place: registry.put_referrer(
        place.digest(sha256_digest(image(CONTENT))), image(CONTENT)
    ),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_an_answer_that_is_no_success_is_none(tmp_path: Path, request_name: str) -> None:
    """Whatever its body and headers say."""
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()
    headers = {"Content-Type": OCI_INDEX, "Docker-Content-Digest": sha256_digest(body)}
    for status in (299, 400, 409):
        with ScriptedServer([Reply(status, body, headers)]) as server, clients(machine(tmp_path)) as registries:
            place = parse_repository(f"{server.host}/team/image")
            with pytest.raises(ImgtoolError):
                REQUESTS[request_name](registries.at(place), place)


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code", "hint"),
    [
        (400, "NAME_INVALID", RegistryRefusedError, 6, None),
        (401, "UNAUTHORIZED", CredentialsError, 7, "docker login"),
        (403, "DENIED", RegistryRefusedError, 6, "rights to pull and to push"),
        (404, "NAME_UNKNOWN", RepositoryMissingError, 6, "created first"),
        (404, "MANIFEST_UNKNOWN", RegistryRefusedError, 6, "no such tag or digest"),
        (405, "UNSUPPORTED", RegistryRefusedError, 6, "read-only"),
        (413, "SIZE_INVALID", RegistryRefusedError, 6, "limits the size"),
        (415, "", RegistryRefusedError, 6, "type of manifest"),
        (418, "", RegistryRefusedError, 6, None),
    ],
)
def test_refusals(status: int, code: str, kind: type[ImgtoolError], exit_code: int, hint: str | None) -> None:
    errors = [{"code": code, "message": "the words"}] if code else b""
    error = _error(_answer(status, errors), "h.example", "uploading x")
    assert type(error) is kind
    assert error.exit_code == exit_code
    assert str(error).startswith(f"uploading x: refused (HTTP {status}{f' {code}' if code else ''} from h.example)")
    assert ("the server says: " in str(error)) is bool(code)
    assert hint is None or hint in (error.hint or "")


def test_r2_artifact_registrys_403_names_the_role_and_the_repository() -> None:
    said = 'Permission "artifactregistry.repositories.uploadArtifacts" denied on resource (or it may not exist)'
    error = _error(_answer(403, [{"code": "DENIED", "message": said}]), AR, "x")
    assert "or it may not exist" in str(error)
    assert "Artifact Registry Writer" in (error.hint or "")
    assert "--create-repository" in (error.hint or "")


def test_r3_artifact_registrys_404_says_how_to_create() -> None:
    error = _error(_answer(404, [{"code": "NAME_UNKNOWN", "message": "not found"}]), AR, "x")
    assert isinstance(error, RepositoryMissingError)
    assert "--create-repository" in (error.hint or "")


def test_the_servers_detail_is_shown_where_it_is_text() -> None:
    """As docker-registry tells that its disk is full."""
    full = "write /var/lib/registry/data: no space left on device"
    errors: list[dict[str, object]] = [{"code": "UNKNOWN", "message": "unknown error", "detail": full}]
    assert server_text(_answer(500, errors)) == f"UNKNOWN: unknown error ({full})"
    errors[0]["detail"] = {"Op": "write"}
    assert server_text(_answer(500, errors)) == "UNKNOWN: unknown error"


@pytest.mark.parametrize("errors", [b"", [{"code": "BLOB_UNKNOWN"}], [{"code": "NAME_UNKNOWN"}]])
def test_a_part_of_an_image_that_is_gone(errors: Errors) -> None:
    answer = replace(_answer(404, errors), url="https://h/v2/library/python/blobs/sha256:0")
    assert "push that image again" in (_error(answer, "h", "reading blob 0").hint or "")


def test_r20_unknown_blobs_are_named() -> None:
    one, two = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
    errors = [{"code": "MANIFEST_BLOB_UNKNOWN", "message": "blob unknown", "detail": d} for d in (one, two, one)]
    error = _error(_answer(400, errors, "PUT"), "h", "x")
    assert isinstance(error, BlobUnknownError)
    assert error.digests == (one, two)


@pytest.mark.parametrize("status", [408, 429, 499, 500, 502, 503, 504, 507, 522])
def test_passing_statuses(status: int) -> None:
    error = passing(_answer(status, retry_after="3"), 0.0)
    assert error is not None
    assert error.retry_after == 3.0


@pytest.mark.parametrize("code", ["TOOMANYREQUESTS", "UNKNOWN", "UNAVAILABLE", "BLOB_UPLOAD_INVALID"])
def test_passing_codes(code: str) -> None:
    assert passing(_answer(404, [{"code": code, "message": ""}]), 0.0)


@pytest.mark.parametrize("status", [200, 201, 202, 301, 400, 401, 403, 404, 405, 409, 413, 501, 505])
def test_final_statuses(status: int) -> None:
    assert passing(_answer(status), 0.0) is None


def test_r19_immutability_is_not_tried_again() -> None:
    body = b'{"errors":[{"code":"UNKNOWN","message":"cannot update tag, tag immutability is enabled"}]}'
    assert is_immutable_refusal(_answer(400, body))
    assert passing(_answer(400, body), 0.0) is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<html><body>502 Bad Gateway</body></html>", ""),
        (b"", ""),
        (b"404 page not found\n", "404 page not found"),
        (
            b'{"errors":[{"code":"X","message":"\\u001b[31mred\\u001b[0m \\u202eevil\\nline"}]}',
            "X: red \\u202eevil line",
        ),
        (b'{"errors":{}}', ""),
        (b'{"errors":["a"]}', ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[" * 60_000, mask_secrets("[" * 2000)),
    ],
)
def test_r7_o6_the_servers_text(body: bytes, text: str) -> None:
    assert server_text(_answer(500, body)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\r\nc", "a b c"),
        ("\x1b]0;title\x07x", r"\x1b]0;title\x07x"),
        ("\x1b]8;;http://evil\x1b\\click", r"\x1b]8;;http://evil\x1b" + "\\click"),
        ("a\u202eb\u2066c\u200b", r"a\u202eb\u2066c\u200b"),
        ("x" * 400, "x" * 300 + "…"),
    ],
)
def test_o6_foreign_text_is_cleaned(text: str, expected: str) -> None:
    assert join_lines(text) == expected


def test_o7_what_could_be_a_secret_is_masked() -> None:
    digest = f"sha256:{'0a' * 32}"
    text = f"token eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.abc.def of {digest} at https://ann:pw@host/x"
    assert mask_secrets(text) == f"token … of {digest} at https://…@host/x"


def test_an_error_names_three_codes_of_many() -> None:
    error = _error(_answer(400, [{"code": code} for code in "DBCAA"]), "h", "asking")
    assert error.message.startswith("asking: refused (HTTP 400 A B C from h)")


def test_a_tag_that_nobody_may_read_is_not_there_where_uploads_are_taken(tmp_path: Path) -> None:
    """So Artifactory answers for a tag that does not exist; the upload is given up again."""

    def reply(asked: Asked) -> Reply:
        if asked.method == "POST" and can_push:
            return Reply(202, headers={"Location": "/v2/team/image/blobs/uploads/1"})
        return Reply(204) if asked.method == "DELETE" else Reply(403, b'{"errors": [{"message": "not for you"}]}')

    (tmp_path / ".docker").mkdir()
    for can_push in (True, False):
        with ScriptedServer(reply) as server, clients(machine(tmp_path)) as registries:
            logins = {"auths": {server.host: {"auth": "dTpw"}}}
            (tmp_path / ".docker/config.json").write_text(json.dumps(logins))
            tag = parse_repository(f"{server.host}/team/image").tag("a")
            if can_push:
                assert registries.at(tag.repository).head(tag) is None
                assert [asked.method for asked in server.asked] == ["HEAD", "GET", "POST", "DELETE"]  # /v2/
            else:
                with pytest.raises(RegistryRefusedError, match="the server says: not for you"):
                    registries.at(tag.repository).head(tag)


def test_a_limit_that_lasts_for_hours_is_not_waited_for(tmp_path: Path) -> None:
    headers = {"RateLimit-Remaining": "0;w=21600"}
    body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "unauthenticated pull rate limit"}]}'
    with ScriptedServer([Reply(429, body, headers)]) as server, clients(machine(tmp_path)) as registries:
        place = parse_repository(f"{server.host}/team/image")
        with pytest.raises(
            TemporaryError, match=r"unauthenticated pull rate limit.* your limit for 6 hours is used up"
        ) as caught:
            registries.at(place).manifest(place.tag("a"))
    assert "docker login" in str(caught.value.hint)
    assert len(server.asked) == 2


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_to_nowhere_is_the_answer(tmp_path: Path, status: int) -> None:
    with ScriptedServer([Reply(status)]) as server, clients(machine(tmp_path)) as registries:
        place = parse_repository(f"{server.host}/team/image")
        with pytest.raises(RegistryRefusedError, match=f"refused \\(HTTP {status} from {server.host}\\)"):
            registries.at(place).manifest(place.tag("a"))
    assert len(server.asked) == 1
