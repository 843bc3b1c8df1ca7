"""Putting manifests into a real docker-registry: what is believed, what is refused, and tags that may not move."""

from __future__ import annotations

import io
import urllib.request
from functools import partial

import pytest

from tests.integration.registry.conftest import Bench
from tests.oci.registry.support import config, image, layer
from tests.servers.fault_proxy import Action, Fault
from training_imgtool.base.errors import TemporaryError, VerificationError
from training_imgtool.oci.registry.failures import BlobUnknownError, TagImmutableError
from training_imgtool.oci.registry.manifests import OCI_MANIFEST, sha256_digest
from training_imgtool.oci.registry.upload import How

pytestmark = pytest.mark.registry


def test_r11_manifest_stored_response_lost(bench: Bench) -> None:
    bench.push_image(b"first", tag="other")
    bench.proxy.clear()
    bench.proxy.add(Fault(action=Action.CUT_AFTER, method="PUT"))
    body = image(layer(b"first"))
    bench.registry.put_manifest(bench.repository.tag("two"), OCI_MANIFEST, body)
    assert bench.proxy.methods() == ["PUT", "HEAD"]


def test_r14_a_registry_that_stores_under_another_digest(bench: Bench) -> None:
    def lie(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        return status, {**headers, "docker-content-digest": f"sha256:{'0' * 64}"}, body

    bench.proxy.add(Fault(action=Action.CHANGE, path="/manifests/", method="PUT", change=lie, times=-1))
    bench.proxy.add(Fault(action=Action.ANSWER, path="/manifests/", method="HEAD", status=404, times=-1))
    with pytest.raises(VerificationError, match="the registry stored 'sha256:0000"):
        bench.push_image(b"x")


def test_r15_a_registry_that_says_201_and_has_nothing(bench: Bench) -> None:
    bench.push_image(b"layer")
    bench.proxy.clear()
    bench.proxy.add(Fault(action=Action.ANSWER, method="PUT", status=201, times=-1))
    body = image(layer(b"layer"), config_content=b"{}").replace(b'"schemaVersion"', b' "schemaVersion"')
    with pytest.raises(VerificationError, match="does not have it"):
        bench.registry.put_manifest(bench.repository.tag("t"), OCI_MANIFEST, body)
    assert bench.proxy.methods() == ["PUT", "HEAD", "HEAD", "PUT", "HEAD"]


def test_a_201_is_believed_when_it_names_the_digest(bench: Bench) -> None:
    _, body = _one_more(bench)
    bench.registry.put_manifest(bench.repository.tag("t"), OCI_MANIFEST, body)
    assert bench.proxy.methods() == ["PUT"]


def test_a_201_that_names_no_digest_is_asked_about(bench: Bench) -> None:
    digest, body = _one_more(bench)
    bench.proxy.add(Fault(action=Action.CHANGE, method="PUT", change=_without_digest))
    assert bench.registry.put_manifest(bench.repository.tag("t"), OCI_MANIFEST, body) == digest
    assert bench.proxy.methods() == ["PUT", "HEAD"]
    assert bench.proxy.log[1].path.endswith(digest)


def _one_more(bench: Bench) -> tuple[str, bytes]:
    """A manifest whose blobs are there, with its digest; the log is empty again."""
    bench.push_image(b"layer")
    bench.proxy.clear()
    body = image(layer(b"layer")).replace(b'"schemaVersion"', b' "schemaVersion"')
    return sha256_digest(body), body


def _without_digest(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    return status, {name: value for name, value in headers.items() if name != "docker-content-digest"}, body


IMMUTABLE = (
    b'{"errors":[{"code":"MANIFEST_INVALID","message":"failed precondition: cannot update tag one. '
    b'The repository has enabled tag immutability"}]}'
)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, IMMUTABLE),
        (400, b'{"errors":[{"code":"TAG_INVALID","message":"The image tag already exists and is immutable"}]}'),
        (412, b'{"errors":[{"code":"PRECONDITION","message":"configured as immutable, cannot be updated"}]}'),
        (409, b'{"errors":[{"code":"CONFLICT","message":"tag exists"}]}'),
    ],
    ids=["artifact registry", "ecr", "harbor", "409"],
)
def test_r18_r19_an_immutable_tag(bench: Bench, status: int, body: bytes) -> None:
    digest, one = bench.push_image(b"old")
    bench.push_image(b"new", tag="two")
    bench.proxy.clear()
    bench.proxy.add(Fault(action=Action.ANSWER, method="PUT", status=status, body=body, times=-1))
    same = bench.registry.put_manifest(bench.repository.tag("one"), OCI_MANIFEST, image(one))
    assert same == digest
    new = image(layer(b"new"))
    with pytest.raises(TagImmutableError) as caught:
        bench.registry.put_manifest(bench.repository.tag("one"), OCI_MANIFEST, new)
    assert digest in str(caught.value)
    assert sha256_digest(new) in str(caught.value)
    assert caught.value.exit_code == 6
    assert bench.proxy.methods() == ["PUT", "HEAD", "PUT", "HEAD"]  # not tried again


def test_r20_a_manifest_whose_blob_is_gone(bench: Bench) -> None:
    """The blob was sent and then collected; the next upload sends it again although this process knew it was there."""
    content = b"collected"
    for one, data in ((config(), b"{}"), (layer(content), content)):
        bench.registry.upload(bench.repository, one, partial(io.BytesIO, data))
    url = f"http://{bench.proxy.host}/v2/{bench.repository.path}/blobs/{layer(content).digest}"
    with urllib.request.urlopen(urllib.request.Request(url, method="DELETE")) as answer:
        assert answer.status == 202
    with pytest.raises(BlobUnknownError) as caught:
        bench.registry.put_manifest(bench.repository.tag("t"), OCI_MANIFEST, image(layer(content)))
    assert caught.value.digests == (layer(content).digest,)
    again = bench.registry.upload(bench.repository, layer(content), partial(io.BytesIO, content))
    assert again is How.UPLOADED
    bench.registry.put_manifest(bench.repository.tag("t"), OCI_MANIFEST, image(layer(content)))


LACKS = (
    b'{"errors":[{"code":"DIGEST_INVALID","message":"x"},{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown"%b}]}'
)


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_blobs_that_are_there_after_all(bench: Bench, named: bool) -> None:
    """docker-registry says so while another machine mounts or uploads the same blob."""
    digest, body = _one_more(bench)
    detail = f',"detail":{{"digest":"{layer(b"layer").digest}"}}'.encode() if named else b""
    bench.proxy.add(Fault(action=Action.ANSWER, method="PUT", status=400, body=LACKS % detail, times=2))
    assert bench.registry.put_manifest(bench.repository.tag("t"), OCI_MANIFEST, body) == digest
    heads = ["HEAD"] * (1 if named else 2)
    assert bench.proxy.methods() == ["PUT", *heads, "HEAD", "PUT", *heads, "HEAD", "PUT"]


def test_a_registry_that_never_finds_what_it_has(bench: Bench) -> None:
    _, body = _one_more(bench)
    bench.proxy.add(Fault(action=Action.ANSWER, method="PUT", status=400, body=LACKS % b"", times=-1))
    with pytest.raises(TemporaryError, match="falsely reported missing blobs seven times") as caught:
        bench.registry.put_manifest(bench.repository.tag("t"), OCI_MANIFEST, body)
    assert caught.value.exit_code == 8


def test_what_is_missing_is_found_out_where_the_registry_does_not_say(bench: Bench) -> None:
    bench.push_image(b"layer")
    bench.proxy.add(Fault(action=Action.ANSWER, method="PUT", status=400, body=LACKS % b"", times=-1))
    with pytest.raises(BlobUnknownError) as caught:
        bench.registry.put_manifest(bench.repository.tag("t"), OCI_MANIFEST, image(layer(b"layer"), layer(b"lost")))
    assert caught.value.digests == (layer(b"lost").digest,)
