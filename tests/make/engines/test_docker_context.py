"""Which engine is meant: the order of the settings, and what each wrong one says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from training_imgtool.base.errors import EngineUnavailableError
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.make.engines.docker.context import DEFAULT_HOST, checked_host, find_endpoint


def settings(home: Path, **environ: str) -> Settings:
    return from_environment({"HOME": str(home), **environ})


def add_context(home: Path, name: str, meta: Any, certificates: tuple[str, ...] = ()) -> None:
    folder = hashlib.sha256(name.encode()).hexdigest()
    path = home / ".docker/contexts/meta" / folder / "meta.json"
    path.parent.mkdir(parents=True)
    path.write_text(meta if isinstance(meta, str) else json.dumps(meta))
    tls = home / ".docker/contexts/tls" / folder / "docker"
    tls.mkdir(parents=True)
    for certificate in certificates:
        (tls / f"{certificate}.pem").write_text("")


def config(home: Path, text: str) -> None:
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker/config.json").write_text(text)


def endpoint_of(host: str, **more: object) -> dict[str, object]:
    return {"Name": "x", "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False, **more}}}


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"auths": {}}', '{"currentContext": "default"}', '{"x": 1}'])
def test_without_settings_it_is_the_usual_socket(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        config(tmp_path, text)
    found = find_endpoint(settings(tmp_path))
    assert (found.url, found.source, found.tls) == (DEFAULT_HOST, "the default", False)


def test_the_order_is_that_of_the_docker_command(tmp_path: Path) -> None:
    for name in ("current", "named"):
        add_context(tmp_path, name, endpoint_of(f"unix:///{name}.sock"))
    config(tmp_path, '{"currentContext": "current"}')
    found = find_endpoint(settings(tmp_path))
    assert (found.url, found.source) == ("unix:///current.sock", "Docker context 'current'")
    found = find_endpoint(settings(tmp_path, DOCKER_CONTEXT="named"))
    assert found.url == "unix:///named.sock"
    assert find_endpoint(settings(tmp_path, DOCKER_CONTEXT="default")).url == DEFAULT_HOST
    found = find_endpoint(settings(tmp_path, DOCKER_CONTEXT="named", DOCKER_HOST="unix:///host.sock"))
    assert (found.url, found.source) == ("unix:///host.sock", "DOCKER_HOST")


def test_docker_config_moves_everything(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    add_context(tmp_path, "x", endpoint_of("unix:///x.sock"))
    (tmp_path / ".docker").rename(tmp_path / "elsewhere/config")
    found = find_endpoint(settings(tmp_path, DOCKER_CONFIG=str(tmp_path / "elsewhere/config"), DOCKER_CONTEXT="x"))
    assert found.url == "unix:///x.sock"


def test_a_context_brings_its_certificates(tmp_path: Path) -> None:
    add_context(tmp_path, "far", endpoint_of("tcp://far:2376"), ("ca", "cert", "key"))
    add_context(tmp_path, "loose", endpoint_of("tcp://loose:2376", SkipTLSVerify=True), ("ca", "cert", "key"))
    add_context(tmp_path, "plain", endpoint_of("tcp://plain:2375"))
    far = find_endpoint(settings(tmp_path, DOCKER_CONTEXT="far"))
    assert (far.tls, far.verify) == (True, True)
    assert far.ca is not None
    assert far.ca.is_file()
    assert not find_endpoint(settings(tmp_path, DOCKER_CONTEXT="loose")).verify
    assert not find_endpoint(settings(tmp_path, DOCKER_CONTEXT="plain")).tls


def test_docker_host_takes_certificates_from_the_environment(tmp_path: Path) -> None:
    host = {"DOCKER_HOST": "tcp://far:2376"}
    assert not find_endpoint(settings(tmp_path, **host)).tls
    for name in ("ca", "cert", "key"):
        (tmp_path / f"{name}.pem").write_text("")
    found = find_endpoint(settings(tmp_path, **host, DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH=str(tmp_path)))
    assert (found.tls, found.verify, found.cert) == (True, True, tmp_path / "cert.pem")
    found = find_endpoint(settings(tmp_path, **host, DOCKER_TLS="1", DOCKER_CERT_PATH=str(tmp_path)))
    assert (found.tls, found.verify) == (True, False)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ("{", "cannot be used"),
        ("[]", "cannot be used"),
        ({"Endpoints": {}}, "cannot be used: KeyError"),
        ({"Endpoints": {"docker": {"Host": 7}}}, "does not contain a Docker host"),
        (endpoint_of("ssh://me@far"), "ssh is not supported"),
        (endpoint_of(""), "not the address of a Docker Engine"),
    ],
)
def test_a_broken_context_is_named(tmp_path: Path, meta: Any, message: str) -> None:
    add_context(tmp_path, "odd", meta)
    with pytest.raises(EngineUnavailableError, match=message) as caught:
        find_endpoint(settings(tmp_path, DOCKER_CONTEXT="odd"))
    assert "'odd'" in caught.value.message
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("how", ["DOCKER_CONTEXT", "currentContext of config.json"])
def test_a_context_that_is_not_there_says_who_named_it(tmp_path: Path, how: str) -> None:
    config(tmp_path, '{"currentContext": "gone"}')
    environ = {"DOCKER_CONTEXT": "gone"} if how == "DOCKER_CONTEXT" else {}
    with pytest.raises(EngineUnavailableError, match=f"'gone' .from {how}. does not exist"):
        find_endpoint(settings(tmp_path, **environ))


@pytest.mark.parametrize(
    ("missing", "message"), [("ca", "has no ca.pem"), ("key", "needs both"), ("cert", "needs both")]
)
def test_missing_certificates_are_named(tmp_path: Path, missing: str, message: str) -> None:
    for name in {"ca", "cert", "key"} - {missing}:
        (tmp_path / f"{name}.pem").write_text("")
    environ = {"DOCKER_HOST": "tcp://far:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    with pytest.raises(EngineUnavailableError, match=message):
        find_endpoint(settings(tmp_path, **environ))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("unix:///var/run/docker.sock", "unix:///var/run/docker.sock"),
        (" tcp://10.0.0.1:2375 ", "tcp://10.0.0.1:2375"),
        ("http://localhost:2375", "tcp://localhost:2375"),
        ("tcp://[::1]:2375", "tcp://[::1]:2375"),
    ],
)
def test_good_hosts(host: str, url: str) -> None:
    assert checked_host(host, "DOCKER_HOST") == url


@pytest.mark.parametrize(
    "host",
    [
        "tcp://",
        "tcp://far",
        "tcp://far:99999",
        "tcp://u:p@far:1",
        "unix://",
        "npipe:////./pipe/x",
        "far",
    ],
)
def test_bad_hosts(host: str) -> None:
    with pytest.raises(EngineUnavailableError, match=r"DOCKER_HOST: .*expected unix:///PATH or tcp://HOST:PORT"):
        checked_host(host, "DOCKER_HOST")


def test_ssh_is_refused_with_a_way_out() -> None:
    with pytest.raises(EngineUnavailableError, match="ssh is not supported") as caught:
        checked_host("ssh://far", "DOCKER_HOST")
    assert "ssh -NL" in str(caught.value.hint)


@pytest.mark.parametrize(
    "host", ["tcp://u:CANARY@127.0.0.1:9", "tcp://CANARY@h:9", "ssh://u:CANARY@h", "https://u:CAN/ARY@h:9"]
)
def test_a_login_in_the_address_is_refused_and_never_shown(tmp_path: Path, host: str) -> None:
    for make in (lambda: find_endpoint(settings(tmp_path, DOCKER_HOST=host)), lambda: checked_host(host, "x")):
        with pytest.raises(EngineUnavailableError) as refused:
            make()
        assert "CAN" not in str(refused.value)
        assert "…@h" in str(refused.value) or "…@127" in str(refused.value)
