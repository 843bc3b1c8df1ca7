"""Reading from a real docker-registry: what is verified, what is followed, what a question costs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.integration.registry.conftest import Bench
from tests.oci.registry.support import clients, image, layer, machine, quick_retry
from tests.servers.certificates import make_certificate
from tests.servers.fault_proxy import Action, Fault
from tests.servers.scripted import Asked, Reply, ScriptedServer
from training_imgtool.base.errors import RegistryRefusedError, TemporaryError, VerificationError
from training_imgtool.base.http.client import Client
from training_imgtool.base.reference import parse_reference
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import (
    MANIFEST_TYPES,
    Descriptor,
    sha256_digest,
)

pytestmark = pytest.mark.registry
CONTENT = bytes(range(256)) * 4096 * 3


def test_head_is_one_request(bench: Bench) -> None:
    digest, _ = bench.push_image(b"x")
    bench.proxy.clear()
    assert bench.registry.head(bench.repository.tag("one")) == digest
    (only,) = bench.proxy.log
    assert only.line == f"HEAD /v2/{bench.repository.path}/manifests/one 200"
    assert only.headers["accept"] == ", ".join(MANIFEST_TYPES)
    assert only.headers["user-agent"].startswith("imgtool/")


def test_head_of_nothing_is_none(bench: Bench) -> None:
    assert bench.registry.head(bench.repository.tag("none")) is None
    assert bench.registry.head(bench.repository.digest(f"sha256:{'0' * 64}")) is None
    assert bench.proxy.methods() == ["HEAD", "HEAD"]


def test_head_without_a_digest_header_falls_back_to_get(bench: Bench) -> None:
    digest, _ = bench.push_image(b"x")

    def without(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        return status, {name: value for name, value in headers.items() if name != "docker-content-digest"}, body

    bench.proxy.clear()
    bench.proxy.add(Fault(action=Action.CHANGE, change=without, times=-1))
    assert bench.registry.head(bench.repository.tag("one")) == digest
    assert bench.proxy.methods() == ["HEAD", "GET"]


def test_a_missing_image_is_refused(bench: Bench) -> None:
    with pytest.raises(RegistryRefusedError, match=r"reading .*: refused \(HTTP 404") as caught:
        bench.registry.manifest(bench.repository.tag("none"))
    assert caught.value.exit_code == 6


def _pushed(bench: Bench) -> Descriptor:
    _, one = bench.push_image(CONTENT)
    bench.proxy.clear()
    return one


@pytest.mark.parametrize("after", [0, 1, 300_000, len(CONTENT) - 1])
def test_r16_a_broken_download_goes_on_where_it_broke(bench: Bench, after: int) -> None:
    one = _pushed(bench)
    bench.proxy.add(*(Fault(action=Action.CUT_ANSWER, method="GET", after=after) for _ in range(3)))
    assert bench.registry.read(bench.repository, one, limit=1 << 30) == CONTENT


def test_r16_a_server_without_ranges(bench: Bench) -> None:
    one = _pushed(bench)
    bench.proxy.add(Fault(action=Action.CUT_ANSWER, method="GET", after=2_000_000))

    def whole(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        return 200, {**headers, "content-range": ""}, CONTENT

    bench.proxy.add(Fault(action=Action.CHANGE, at=2, change=whole))
    assert bench.registry.read(bench.repository, one, limit=1 << 30) == CONTENT


def test_r16_a_server_that_sends_another_range_is_asked_again(bench: Bench) -> None:
    one = _pushed(bench)
    bench.proxy.add(Fault(action=Action.CUT_ANSWER, method="GET", after=2_000_000))

    def another(_: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        return 206, {**headers, "content-range": f"bytes 5-{4 + len(body)}/{len(CONTENT)}"}, CONTENT[5 : 5 + len(body)]

    bench.proxy.add(Fault(action=Action.CHANGE, at=2, change=another))
    assert bench.registry.read(bench.repository, one, limit=1 << 30) == CONTENT


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (CONTENT[:-1] + b"x", "the bytes are sha256:"),
        (CONTENT[:-1], "the registry sent 3145727 bytes"),
        (CONTENT + b"x", "sends more bytes than expected"),
    ],
    ids=["changed", "truncated", "too long"],
)
def test_r16_wrong_bytes(bench: Bench, changed: bytes, says: str) -> None:
    one = _pushed(bench)
    bench.proxy.add(Fault(action=Action.CHANGE, method="GET", change=lambda s, h, _: (s, h, changed), times=-1))
    with pytest.raises(VerificationError, match=says) as caught:
        bench.registry.read(bench.repository, one, limit=1 << 30)
    assert caught.value.exit_code == 10


def test_r16_a_manifest_that_is_not_its_digest(bench: Bench) -> None:
    digest, _ = bench.push_image(b"x")
    other = image(layer(b"other"))
    bench.proxy.add(Fault(action=Action.CHANGE, method="GET", change=lambda s, h, _: (s, h, other), times=-1))
    for ref in (bench.repository.digest(digest), bench.repository.tag("one")):
        with pytest.raises(VerificationError) as caught:
            bench.registry.manifest(ref)
        assert digest in str(caught.value)
        assert sha256_digest(other) in str(caught.value)


def test_a_manifest_over_4_mib_is_not_read(bench: Bench) -> None:
    bench.push_image(b"x")
    huge = b"{" + b" " * 5_000_000 + b"}"
    bench.proxy.add(Fault(action=Action.CHANGE, method="GET", change=lambda s, h, _: (s, h, huge), times=-1))
    with pytest.raises(RegistryRefusedError, match="more than 4194304 bytes"):
        bench.registry.manifest(bench.repository.tag("one"))


def test_r22_storage_on_another_port_gets_no_credentials(bench: Bench, tmp_path: Path) -> None:
    auth = "YW5uOnB3"  # ann:pw
    folder = tmp_path / ".docker"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"auths": {bench.proxy.host: {"auth": auth}}}))
    (folder / "config.json").chmod(0o600)
    one = _pushed(bench)
    with ScriptedServer([Reply(200, CONTENT)]) as storage, clients(machine(tmp_path)) as registries:
        location = {"Location": f"http://{storage.host}/bucket/blob?X-Signature=secret"}
        bench.proxy.add(Fault(action=Action.ANSWER, method="GET", status=307, headers=location))
        assert registries.at(bench.repository).read(bench.repository, one, limit=1 << 30) == CONTENT
        assert bench.proxy.log[0].headers["authorization"] == f"Basic {auth}"
        (asked,) = storage.asked
        assert "authorization" not in asked.headers
        assert asked.target == "/bucket/blob?X-Signature=secret"


def test_r22_redirects_end(bench: Bench) -> None:
    one = _pushed(bench)
    bench.proxy.add(Fault(action=Action.ANSWER, method="GET", status=307, headers={"Location": "/v2/x"}, times=-1))
    with pytest.raises(RegistryRefusedError, match="redirected more than 5 times"):
        bench.registry.read(bench.repository, one, limit=1 << 30)
    assert len(bench.proxy.log) == 6


@pytest.mark.parametrize("kind", ["absolute", "relative", "query"])
def test_r23_location_of_an_upload(bench: Bench, kind: str) -> None:
    def change(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        path = headers["location"].removeprefix(f"http://{bench.proxy.host}")
        location = {
            "absolute": headers["location"],
            "relative": path,
            "query": f"{path}&part=a%2Fb%3D&empty=",
        }[kind]
        return status, {**headers, "location": location}, body

    bench.proxy.add(Fault(action=Action.CHANGE, method="POST", change=change))
    bench.registry.upload(bench.repository, layer(b"x"), lambda: iter((b"x",)))
    put = bench.proxy.log[-1]
    assert put.status == 201
    assert put.query["digest"] == [layer(b"x").digest]
    if kind == "query":
        assert (put.query["part"], put.query["empty"]) == (["a/b="], [""])


def test_r23_a_missing_location(bench: Bench) -> None:
    bench.proxy.add(Fault(action=Action.ANSWER, method="POST", status=202, times=-1))
    with pytest.raises(TemporaryError, match="did not name its address") as caught:
        bench.registry.upload(bench.repository, layer(b"x"), lambda: iter((b"x",)))
    assert caught.value.exit_code == 8


def test_r13_a_stalled_answer_ends_after_the_idle_limit(bench: Bench, tmp_path: Path) -> None:
    bench.proxy.add(Fault(action=Action.DELAY, seconds=60, times=2))
    with Registries(bench.settings, retry=quick_retry(tries=2), idle_seconds=0.2) as registries:
        began = time.monotonic()
        with pytest.raises(TemporaryError, match="sent nothing for too long twice"):
            registries.at(bench.repository).head(bench.repository.tag("x"))
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("made", "says"),
    [({"days": (-30, -1)}, "not valid now"), ({"name": "other.example", "addresses": ()}, "for another host")],
    ids=["expired", "wrong host"],
)
def test_r25_a_wrong_certificate(made: dict[str, object], says: str, tmp_path: Path) -> None:
    files = make_certificate(tmp_path / "tls", **made)  # type: ignore[arg-type]
    with ScriptedServer([Reply(200)], tls=files) as server:
        client = Client(proxies={}, ca_file=files[0])
        with pytest.raises(RegistryRefusedError, match=says):
            client.send("GET", f"https://{server.host}/v2/", headers={})
        client.close()


def test_r25_http_on_a_tls_port(plain_registry: str, tmp_path: Path) -> None:
    client = Client(proxies={}, ca_file=None)
    with pytest.raises(RegistryRefusedError, match="does not speak TLS") as caught:
        client.send("GET", f"https://{plain_registry}/v2/", headers={})
    client.close()
    assert "IMGTOOL_INSECURE_REGISTRIES" in (caught.value.hint or "")


def test_r26_a_proxy_is_used(tmp_path: Path) -> None:
    def script(asked: Asked) -> Reply:
        return Reply(200, b"", {"Docker-Content-Digest": f"sha256:{'1' * 64}"})

    ref = parse_reference("registry.example:5000/a/b:c")
    with ScriptedServer(script) as proxy:
        settings = machine(
            tmp_path, HTTP_PROXY=f"http://{proxy.host}", IMGTOOL_INSECURE_REGISTRIES="registry.example:5000"
        )
        with clients(settings) as registries:
            assert registries.at(ref.repository).head(ref) == f"sha256:{'1' * 64}"
        assert proxy.asked[0].target == "http://registry.example:5000/v2/a/b/manifests/c"


def test_a_mirror_is_read_instead(bench: Bench, tmp_path: Path) -> None:
    hub = parse_reference("python:3.11-slim")
    with clients(machine(tmp_path, IMGTOOL_MIRRORS=f"docker.io={bench.proxy.host}/hub")) as registries:
        place = registries.source(hub.repository)
        assert str(place) == f"{bench.proxy.host}/hub/library/python"
        assert registries.at(place).head(place.tag("3.11-slim")) is None
        assert registries.source(bench.repository) == bench.repository
