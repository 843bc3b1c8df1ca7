"""The rules of a well-behaved client, read off the proxy's log."""

from __future__ import annotations

import io
import json
from functools import partial

import pytest

from tests.integration.registry.conftest import Bench
from tests.oci.registry.support import config, image, layer
from tests.servers.fault_proxy import Action, Exchange, Fault
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.reference import Repository
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import OCI_INDEX, OCI_MANIFEST, sha256_digest

pytestmark = pytest.mark.registry
LAYERS = (b"first layer" * 10_000, b"second layer" * 50_000)


def _push_everything(registries: Registries, repository: Repository) -> str:
    """An image of two layers, an index of it, and a tag, in the order that the specification wants."""
    registry = registries.at(repository)
    for content in LAYERS:
        registry.upload(repository, layer(content), partial(io.BytesIO, content))
    registry.upload(repository, config(), lambda: iter((b"{}",)))
    body = image(*(layer(content) for content in LAYERS))
    child = registry.put_manifest(repository.digest(sha256_digest(body)), OCI_MANIFEST, body)
    entry = {"mediaType": OCI_MANIFEST, "digest": child, "size": len(body)}
    entry |= {"platform": {"os": "linux", "architecture": "amd64"}}
    index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}).encode()
    return registry.put_manifest(repository.tag("done"), OCI_INDEX, index)


def _without_digest(exchange: Exchange) -> dict[str, list[str]]:
    return {name: value for name, value in exchange.query.items() if name != "digest"}


def test_a_push_keeps_every_rule(bench: Bench) -> None:
    _push_everything(bench.registries, bench.repository)
    log = bench.proxy.log
    assert not any(exchange.path == "/v2/" for exchange in log)
    assert all(exchange.headers["user-agent"].startswith("imgtool/") for exchange in log)
    posts = [number for number, exchange in enumerate(log) if exchange.method == "POST"]
    assert len(posts) == 3
    for number in posts:
        head, post, put = log[number - 1 : number + 2]
        assert (head.method, put.method) == ("HEAD", "PUT")
        (digest,) = put.query["digest"]
        assert head.path.endswith(digest)
        location = post.answer_headers["location"]
        assert location.endswith(put.path + "?" + location.partition("?")[2])  # used as it is, but for the digest
        assert sorted(_without_digest(put)) == ["_state"]
        assert int(put.headers["content-length"]) == put.received
        assert "transfer-encoding" not in put.headers
        assert digest == f"sha256:{put.received_sha256}"
    assert not any(exchange.method == "PATCH" for exchange in log)
    manifests = [exchange for exchange in log if exchange.method == "PUT" and "/manifests/" in exchange.path]
    assert [exchange.headers["content-type"] for exchange in manifests] == [OCI_MANIFEST, OCI_INDEX]
    assert [exchange.path.rpartition("/")[2][:7] for exchange in manifests] == ["sha256:", "done"]
    assert log.index(manifests[0]) > max(posts) + 1  # blobs first, then the image, then the index under its tag
    assert log[-1] is manifests[1]


def test_an_abandoned_session_is_deleted(bench: Bench) -> None:
    def broken() -> io.BytesIO:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.registry.upload(bench.repository, layer(b"x"), broken)
    (deleted,) = [exchange for exchange in bench.proxy.log if exchange.method == "DELETE"]
    (opened,) = [exchange for exchange in bench.proxy.log if exchange.method == "POST"]
    assert opened.answer_headers["location"].partition("?")[0].endswith(deleted.path)
    assert deleted.status in {204, 404}


def test_a_session_that_cannot_be_deleted_is_no_error(bench: Bench) -> None:
    def broken() -> io.BytesIO:
        raise OSError(5, "Input/output error")

    bench.proxy.add(Fault(action=Action.ANSWER, method="DELETE", status=500, times=-1))
    with pytest.raises(ImgtoolError, match="Input/output error") as caught:
        bench.registry.upload(bench.repository, layer(b"x"), broken)
    assert caught.value.exit_code == 9
    assert bench.proxy.methods().count("DELETE") == 1
