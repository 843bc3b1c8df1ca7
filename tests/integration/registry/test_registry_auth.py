"""Logins and tokens against a docker-registry that trusts a token server."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oci.registry.support import Clock, clients, config, image, layer, machine, quick_retry
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from tests.servers.token_server import TokenServer
from training_imgtool.base.errors import CredentialsError, TemporaryError
from training_imgtool.base.reference import Repository, parse_repository
from training_imgtool.base.settings import Settings
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import OCI_MANIFEST
from training_imgtool.oci.registry.upload import How

pytestmark = pytest.mark.registry
CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def proxy(token_registry: str) -> Iterator[FaultProxy]:
    with FaultProxy(token_registry) as running:
        yield running


def _log_in(folder: Path, host: str, user: str, password: str) -> Settings:
    docker = folder / ".docker"
    docker.mkdir(exist_ok=True)
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    (docker / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    (docker / "config.json").chmod(0o600)
    return machine(folder)


def _repository(proxy: FaultProxy, name: str) -> Repository:
    return parse_repository(f"{proxy.host}/test/{name}")


def _push(settings: Settings, repository: Repository, content: bytes = CONTENT) -> str:
    with clients(settings) as registries:
        registry = registries.at(repository)
        registry.upload(repository, layer(content), lambda: io.BytesIO(content))
        registry.upload(repository, config(), lambda: iter((b"{}",)))
        return registry.put_manifest(repository.tag("one"), OCI_MANIFEST, image(layer(content)))


def test_one_token_serves_a_whole_push(proxy: FaultProxy, token_server: TokenServer, tmp_path: Path) -> None:
    repository = _repository(proxy, "one-token")
    _push(_log_in(tmp_path, proxy.host, "ann", "correct-horse"), repository)
    (request,) = token_server.requests
    assert request.user == "ann"
    assert request.scopes == [f"repository:{repository.path}:pull,push"]
    assert [exchange.status for exchange in proxy.log if exchange.status == 401] == [401]
    assert all("authorization" in exchange.headers for exchange in proxy.log)


def test_a_noop_costs_one_request_in_the_next_process(
    proxy: FaultProxy, token_server: TokenServer, tmp_path: Path
) -> None:
    settings = _log_in(tmp_path, proxy.host, "ann", "correct-horse")
    repository = _repository(proxy, "noop")
    digest = _push(settings, repository)
    proxy.clear()
    token_server.requests.clear()
    with clients(settings) as registries:
        assert registries.at(repository).head(repository.tag("one")) == digest
    assert proxy.methods() == ["HEAD"]  # the token for writing is good for reading
    assert token_server.requests == []
    files = list((settings.cache / "tokens").iterdir())
    assert len(files) == 1
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (settings.cache / "tokens").stat().st_mode & 0o777 == 0o700


def test_r1_no_login(proxy: FaultProxy, token_server: TokenServer, tmp_path: Path) -> None:
    repository = _repository(proxy, "r1")
    with clients(machine(tmp_path)) as registries, pytest.raises(CredentialsError) as caught:
        registries.at(repository).head(repository.tag("x"))
    assert caught.value.exit_code == 7
    assert "wants a login and there is none" in str(caught.value)
    assert f"{tmp_path}/.docker/config.json" in str(caught.value)
    assert (caught.value.hint or "").startswith(f"run `docker login {proxy.host}`; or check the name")
    assert len(token_server.requests) == 1


def test_r4_a_token_that_ends_in_the_middle_of_a_push(
    proxy: FaultProxy, token_server: TokenServer, tmp_path: Path
) -> None:
    """The registry refuses a PUT for a token that has ended; the same session takes it with a new one."""
    settings = _log_in(tmp_path, proxy.host, "ann", "correct-horse")
    repository = _repository(proxy, "r4")
    challenge = (
        f'Bearer realm="{token_server.realm}",service="test-registry",'
        f'scope="repository:{repository.path}:pull,push",error="invalid_token"'
    )
    ended = Fault(action=Action.ANSWER, method="PUT", status=401, headers={"WWW-Authenticate": challenge})
    proxy.add(ended)
    with clients(settings) as registries:
        done = registries.at(repository).upload(repository, layer(CONTENT), lambda: io.BytesIO(CONTENT))
        assert done is How.UPLOADED
        assert registries.at(repository).read(repository, layer(CONTENT), limit=1 << 30) == CONTENT
    puts = [exchange for exchange in proxy.log if exchange.method == "PUT"]
    assert [put.status for put in puts] == [401, 201]
    assert puts[0].path == puts[1].path
    assert puts[0].headers["authorization"] != puts[1].headers["authorization"]


def test_tokens_are_renewed_before_they_end(proxy: FaultProxy, token_server: TokenServer, tmp_path: Path) -> None:
    settings = _log_in(tmp_path, proxy.host, "ann", "correct-horse")
    repository = _repository(proxy, "renewed")
    wall = Clock(1_000_000.0)
    with Registries(settings, retry=quick_retry(), now=wall) as registries:
        for passed, requests in ((0, 1), (100, 1), (185, 1), (10, 2)):  # a token lasts 300 s, renewed 10 s before
            wall.now += passed
            registries.at(repository).head(repository.tag("x"))
            assert len(token_server.requests) == requests
    assert [exchange.status for exchange in proxy.log] == [401, 404, 404, 404, 404]


def test_r17_a_mount_asks_for_the_source_too(proxy: FaultProxy, token_server: TokenServer, tmp_path: Path) -> None:
    settings = _log_in(tmp_path, proxy.host, "ann", "correct-horse")
    source, target = _repository(proxy, "base"), _repository(proxy, "role")
    _push(settings, source)
    token_server.requests.clear()
    proxy.clear()
    with clients(settings) as registries:
        done = registries.at(target).upload(
            target, layer(CONTENT), lambda: io.BytesIO(CONTENT), mount_from=source, expect_missing=True
        )
    assert done is How.MOUNTED
    (request,) = token_server.requests
    assert request.scopes == [f"repository:{source.path}:pull", f"repository:{target.path}:pull,push"]
    assert [exchange.status for exchange in proxy.log] == [401, 201, 200]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_token_server_that_fails_for_now(
    proxy: FaultProxy, token_server: TokenServer, tmp_path: Path, status: int
) -> None:
    settings = _log_in(tmp_path, proxy.host, "ann", "correct-horse")
    repository = _repository(proxy, "token-server")
    token_server.status = status
    with clients(settings) as registries, pytest.raises(TemporaryError, match="its token server") as caught:
        registries.at(repository).head(repository.tag("x"))
    assert str(status) in str(caught.value)
    assert len(token_server.requests) == 7
