"""Pushing to a real docker-registry through a proxy that breaks things: one test per fault."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.registry.conftest import Bench
from tests.oci.registry.support import clients, layer, machine
from tests.servers.fault_proxy import Action, Fault
from tests.servers.registry_process import run_registry
from training_imgtool.base.errors import RegistryRefusedError, TemporaryError, VerificationError
from training_imgtool.base.http.client import Body, Client
from training_imgtool.base.reference import parse_repository
from training_imgtool.oci.registry.manifests import sha256_digest
from training_imgtool.oci.registry.upload import How, blocks_of, with_query

pytestmark = pytest.mark.registry
CONTENT = bytes(range(256)) * 4096 * 3  # 3 MiB: more than one block, more than the kernel's buffers


def _upload(bench: Bench, content: bytes = CONTENT, *, expect_missing: bool = False) -> How:
    return bench.registry.upload(
        bench.repository, layer(content), lambda: io.BytesIO(content), expect_missing=expect_missing
    )


def _stored(bench: Bench, content: bytes = CONTENT) -> bool:
    return bench.registry.read(bench.repository, layer(content), limit=1 << 30) == content


def test_an_upload_is_head_post_put(bench: Bench) -> None:
    assert _upload(bench) is How.UPLOADED
    assert bench.proxy.methods() == ["HEAD", "POST", "PUT"]
    assert _stored(bench)


def test_a_present_blob_is_not_sent_again(bench: Bench) -> None:
    _upload(bench)
    _forget(bench)
    assert _upload(bench) is How.PRESENT
    assert bench.proxy.methods() == ["HEAD"]
    assert bench.proxy.bytes_up() == 0


def _forget(bench: Bench) -> None:
    bench.registry.uploads.forget((bench.repository, layer(CONTENT).digest))
    bench.proxy.clear()


def test_many_threads_send_a_blob_once(bench: Bench) -> None:
    results: list[How] = []
    threads = [threading.Thread(target=lambda: results.append(_upload(bench))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [How.UPLOADED] * 12
    assert bench.proxy.methods() == ["HEAD", "POST", "PUT"]


@pytest.mark.parametrize("content", [b"", b"x"], ids=["empty", "one byte"])
def test_the_smallest_blobs(bench: Bench, content: bytes) -> None:
    assert _upload(bench, content) is How.UPLOADED
    assert bench.registry.has_blob(bench.repository, layer(content))


@pytest.mark.parametrize(
    "fault",
    [
        Fault(action=Action.CUT_BEFORE, at=1),
        Fault(action=Action.CUT_AFTER, at=1),
        Fault(action=Action.CUT_BEFORE, at=2),
        Fault(action=Action.CUT_AFTER, at=2),
        Fault(action=Action.CUT_BEFORE, at=3),
        Fault(action=Action.CUT_BODY, at=3, after=0),
        Fault(action=Action.CUT_BODY, at=3, after=1_000_000),
        Fault(action=Action.CUT_BODY, at=3, after=3_000_000),
    ],
    ids=lambda fault: f"{fault.action}-{fault.at}-{fault.after}",
)
def test_r9_a_cut_connection_is_tried_again_from_byte_0(bench: Bench, fault: Fault) -> None:
    bench.proxy.add(fault)
    assert _upload(bench) in {How.UPLOADED, How.PRESENT}
    assert _stored(bench)
    puts = [exchange for exchange in bench.proxy.log if exchange.method == "PUT"]
    assert puts[-1].received == len(CONTENT)
    assert puts[-1].received_sha256 == layer(CONTENT).digest.removeprefix("sha256:")
    assert bench.events.notes


def test_r10_commit_stored_response_lost(bench: Bench) -> None:
    bench.proxy.add(Fault(action=Action.CUT_AFTER, method="PUT"))
    assert _upload(bench) is How.UPLOADED
    assert bench.proxy.methods()[:4] == ["HEAD", "POST", "PUT", "HEAD"]
    assert bench.proxy.methods().count("PUT") == 1
    assert bench.proxy.bytes_up() == len(CONTENT)


def test_r12_a_stale_session_is_opened_anew(bench: Bench) -> None:
    def spoil(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        return status, {**headers, "location": headers["location"].replace("_state=", "_state=x")}, body

    bench.proxy.add(Fault(action=Action.CHANGE, method="POST", change=spoil))
    assert _upload(bench) is How.UPLOADED
    assert bench.proxy.methods().count("POST") == 2
    assert [e.status for e in bench.proxy.log if e.method == "PUT"] == [404, 201]


def test_r8_a_proxy_that_limits_bodies(bench: Bench) -> None:
    html = b"<html><head><title>413 Request Entity Too Large</title></head></html>"
    bench.proxy.add(Fault(action=Action.ANSWER, method="PUT", status=413, body=html, times=-1))
    with pytest.raises(RegistryRefusedError) as caught:
        _upload(bench)
    assert layer(CONTENT).short in str(caught.value)
    assert str(len(CONTENT)) in str(caught.value)
    assert "title" not in str(caught.value)
    assert "limits the size" in (caught.value.hint or "")


def test_r14_content_that_is_not_the_descriptors(bench: Bench) -> None:
    wrong = bytes(len(CONTENT))
    with pytest.raises(VerificationError, match="content on this machine is sha256:") as caught:
        bench.registry.upload(bench.repository, layer(CONTENT), lambda: io.BytesIO(wrong))
    assert sha256_digest(wrong) in str(caught.value)
    assert layer(CONTENT).digest in str(caught.value)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(action=Action.ANSWER, path="mount=", status=403),
        Fault(action=Action.ANSWER, path="mount=", status=503),
        Fault(action=Action.CUT_BEFORE, path="mount="),
        Fault(action=Action.CUT_AFTER, path="mount="),
    ],
    ids=lambda fault: f"{fault.action}-{fault.status}",
)
def test_r17_a_refused_mount_falls_back(bench: Bench, fault: Fault) -> None:
    bench.proxy.add(fault)
    source = bench.repository.child("source")
    done = bench.registry.upload(bench.repository, layer(CONTENT), lambda: io.BytesIO(CONTENT), mount_from=source)
    assert done is How.UPLOADED
    assert bench.proxy.methods() == ["HEAD", "POST", "POST", "PUT"]
    assert bench.events.notes == []


def test_a_copy_across_registries_touches_no_disk(
    bench: Bench, tls_registry: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    _upload(bench)
    target = parse_repository(f"{tls_registry}/copied/{bench.repository.path}")
    settings = machine(tmp_path, IMGTOOL_CA_FILE=str(certificate[0]))
    bench.proxy.clear()
    bench.proxy.add(Fault(action=Action.CUT_ANSWER, method="GET", after=1_500_000))
    with clients(settings) as registries:
        done = registries.copy_blob(bench.repository, layer(CONTENT), target)
        assert done is How.UPLOADED
        assert registries.at(target).read(target, layer(CONTENT), limit=1 << 30) == CONTENT
        assert registries.copy_blob(bench.repository, layer(CONTENT), target) is How.UPLOADED
    assert bench.proxy.methods() == ["GET", "GET"]
    begin = int(bench.proxy.log[1].headers["range"].removeprefix("bytes=").removesuffix("-"))
    assert 0 < begin <= 1_500_000
    assert bench.proxy.log[1].sent == len(CONTENT) - begin
    assert not any(tmp_path.rglob("*"))


def test_copies_at_once_do_not_block_each_other(bench: Bench) -> None:
    """As many copies within one registry as there are connections: reads and writes must not share them."""
    contents = [bytes([number]) * 400_000 for number in range(24)]
    for content in contents:
        _upload(bench, content)
    target = bench.repository.child("copy")
    bench.proxy.add(Fault(action=Action.ANSWER, path="mount=", status=405, times=-1))
    hows: list[How] = []

    def copy(content: bytes) -> None:
        hows.append(bench.registries.copy_blob(bench.repository, layer(content), target))

    threads = [threading.Thread(target=copy, args=(content,), daemon=True) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert hows == [How.UPLOADED] * 24


def test_r13_a_slow_link_may_take_longer_than_connecting_may(bench: Bench) -> None:
    """urllib3 holds every block of a body to the limit for connecting; ours is the idle limit there."""
    content = CONTENT * 3
    bench.proxy.rate = 6_000_000
    client = Client(proxies={}, ca_file=None, connect_seconds=0.02, idle_seconds=5)
    url = f"http://{bench.proxy.host}/v2/{bench.repository.path}/blobs/uploads/"
    location = client.send("POST", url, headers={}).headers["location"]
    put = client.send(
        "PUT",
        with_query(location, {"digest": sha256_digest(content)}),
        headers={},
        body=Body(partial(blocks_of, lambda: iter((content,)), "x"), len(content)),
    )
    client.close()
    assert put.status == 201


def test_r13_the_total_limit_ends_a_slow_upload(bench: Bench) -> None:
    def slow() -> Iterator[bytes]:
        for _ in range(100):
            bench.clock.now += 100
            yield b"x" * 1000

    descriptor = layer(b"x" * 100_000)
    with pytest.raises(TemporaryError, match="not done within 3600 s"):
        bench.registry.upload(bench.repository, descriptor, slow)
    assert 36_000 <= bench.proxy.bytes_up() <= 37_000


@pytest.mark.parametrize("new", [False, True], ids=["asked for first", "believed to be new"])
def test_a_blob_that_the_registry_was_killed_while_storing_is_sent_again(tmp_path: Path, new: bool) -> None:
    """docker-registry 2.8 makes a blob's link and then writes it: an empty one answers 500 from then on."""
    data = tmp_path / "data"
    with run_registry(tmp_path / "one", data=data) as running:
        repository = parse_repository(f"{running.host}/team/x")
        client = clients(machine(tmp_path)).at(repository)
        blob, content = layer(b"content"), b"content"
        client.upload(repository, blob, lambda: iter((content,)))
        (link,) = data.glob(f"**/_layers/sha256/{blob.digest[7:]}/link")
        link.write_bytes(b"")
    with run_registry(tmp_path / "two", data=data) as again:
        repository = parse_repository(f"{again.host}/team/x")
        client = clients(machine(tmp_path)).at(repository)
        mount = repository if new else None
        sent = client.upload(repository, blob, lambda: iter((content,)), mount_from=mount, expect_missing=new)
        assert sent is How.UPLOADED
        assert client.read(repository, blob) == content
