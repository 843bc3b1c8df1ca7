from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.oci.registry.support import machine
from training_imgtool.base.errors import CredentialsError
from training_imgtool.base.reference import Login
from training_imgtool.base.settings import Settings
from training_imgtool.oci.registry.auth.logins import (
    IDENTITY_TOKEN,
    FoundLogin,
    HostLogin,
    LoginSource,
    find_login,
    run_helper,
)

AR = "us-central1-docker.pkg.dev"


def _auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def _config(folder: Path, document: Any, mode: int = 0o600) -> Settings:
    docker = folder / ".docker"
    docker.mkdir(exist_ok=True)
    path = docker / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=1))
    path.chmod(mode)
    return machine(folder, PATH=f"{folder}/bin:/usr/bin:/bin")


def _helper(folder: Path, name: str, script: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / f"docker-credential-{name}"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


GIVES = """echo '{"ServerURL":"x","Username":"ann","Secret":"pw"}'"""


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("ann", "pw"),
        ("ann", "with:colon"),
        ("oauth2accesstoken", "ya29.token"),
        ("_json_key", '{"type": "service_account", "private_key": "-----BEGIN"}'),
        ("_json_key_base64", "eyJ0eXBlIjoi"),
        ("ann", "pässwörd"),
        ("ann", ""),
    ],
)
def test_a9_any_user_works(tmp_path: Path, user: str, password: str) -> None:
    settings = _config(tmp_path, {"auths": {"r.example:5000": _auth(user, password)}})
    found = find_login("r.example:5000", settings)
    assert found.login == Login(username=user, password=password)
    assert found.name == f"{tmp_path}/.docker/config.json"


@pytest.mark.parametrize(
    "key",
    [
        "docker.io",
        "index.docker.io",
        "https://index.docker.io/v1/",
        "https://registry-1.docker.io/v2/",
        "https://docker.io",
    ],
)
def test_r30_docker_hubs_many_names(tmp_path: Path, key: str) -> None:
    settings = _config(tmp_path, {"auths": {"r.example": _auth("no", "no"), key: _auth("ann", "pw")}})
    assert find_login("docker.io", settings).login == Login(username="ann", password="pw")


@pytest.mark.parametrize(
    "key", ["r.example", "https://r.example", "http://r.example/", "r.example/v1/", "r.example/v2"]
)
def test_keys_with_and_without_scheme(tmp_path: Path, key: str) -> None:
    settings = _config(tmp_path, {"auths": {key: _auth("ann", "pw")}})
    assert find_login("r.example", settings).login == Login(username="ann", password="pw")


@pytest.mark.parametrize("key", ["r.example:5000", "x.r.example", "r.example/team", "r.example.org", "docker.io"])
def test_other_hosts_logins_are_not_used(tmp_path: Path, key: str) -> None:
    settings = _config(tmp_path, {"auths": {key: _auth("ann", "pw")}})
    found = find_login("r.example", settings)
    assert found.login is None
    unused = f", and imgtool does not use the one for {key}" if "/" in key else ""
    assert found.tried[0] == f"{tmp_path}/.docker/config.json (no entry for r.example{unused})"


def test_a_key_for_a_part_of_the_host_is_named_beside_the_one_in_use(tmp_path: Path) -> None:
    settings = _config(tmp_path, {"auths": {"r.example": _auth("ann", "pw"), "r.example/team": _auth("bob", "pw")}})
    found = find_login("r.example", settings)
    assert found.login == Login(username="ann", password="pw")
    assert "does not use the one for r.example/team" in found.name


def test_wrapped_base64(tmp_path: Path) -> None:
    auth = base64.encodebytes(f"ann:{'x' * 80}".encode()).decode()
    assert auth.count("\n") == 2
    settings = _config(tmp_path, {"auths": {"r.example": {"auth": auth}}})
    assert find_login("r.example", settings).login == Login(username="ann", password="x" * 80)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("REGISTRY_AUTH_FILE", "own.json"),
        ("XDG_RUNTIME_DIR", "containers/auth.json"),
        ("XDG_CONFIG_HOME", "containers/auth.json"),
    ],
)
def test_podmans_files(tmp_path: Path, name: str, path: str) -> None:
    file = tmp_path / "podman" / path
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"auths": {"r.example": _auth("ann", "pw")}}))
    given = file if name == "REGISTRY_AUTH_FILE" else tmp_path / "podman"
    found = find_login("r.example", machine(tmp_path, **{name: str(given)}))
    assert (found.login, found.name) == (Login(username="ann", password="pw"), str(file))


@pytest.mark.parametrize(
    ("entry", "login"),
    [
        ({"identitytoken": "t", **_auth("ann", "")}, Login(username=IDENTITY_TOKEN, password="t")),
        ({"username": "ann", "password": "pw"}, Login(username="ann", password="pw")),
        ({}, None),
        ({"auth": ""}, None),
        ("text", None),
        ({"auth": base64.b64encode(b"ann:pw\0\0").decode()}, Login(username="ann", password="pw")),
    ],
)
def test_forms_of_an_entry(tmp_path: Path, entry: Any, login: Login | None) -> None:
    assert find_login("r.example", _config(tmp_path, {"auths": {"r.example": entry}})).login == login


def test_an_empty_helper_stands_for_the_file(tmp_path: Path) -> None:
    auths = {"r.example": {"auth": base64.b64encode(b"me:secret").decode()}}
    document = {"auths": auths, "credsStore": "absent", "credHelpers": {"r.example": ""}}
    assert find_login("r.example", _config(tmp_path, document)).login == Login(username="me", password="secret")


def test_no_config_is_nobody(tmp_path: Path) -> None:
    found = find_login("r.example", machine(tmp_path))
    tried = (f"{tmp_path}/.docker/config.json (not there)", f"{tmp_path}/.config/containers/auth.json (not there)")
    assert (found.login, found.tried) == (None, tried)


@pytest.mark.parametrize("text", ["", "{}", '{"auths": null}', '{"auths": []}', "\ufeff{}", '{"credHelpers": []}'])
def test_an_empty_config_is_nobody(tmp_path: Path, text: str) -> None:
    assert find_login("r.example", _config(tmp_path, text)).login is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{\n "auths": {,}\n}', r"config\.json:2:12: not JSON"),
        ("[]", r"config\.json:1: not a JSON object"),
        ('{"auths": {\n"r.example": {"auth": "canary!"}}}', r"config\.json: auths\.r\.example\.auth is not base64"),
        ('{"auths": {\n\n"r.example": {"auth": "Y2FuYXJ5"}}}', r"config\.json: .* does not contain USER:PASSWORD"),
        ('{"auths": {"r.example": {"auth": "OmNhbmFyeQ=="}}}', "does not contain USER:PASSWORD"),
        ('{"credsStore": "../../bin/sh"}', "is not the name of a credential helper"),
        ('{"credHelpers": {"r.example": 7}}', "is not the name of a credential helper"),
    ],
)
def test_a7_a_broken_config(tmp_path: Path, text: str, says: str) -> None:
    settings = _config(tmp_path, text)
    with pytest.raises(CredentialsError, match=says) as caught:
        find_login("r.example", settings)
    assert caught.value.exit_code == 7
    assert "canary" not in str(caught.value)


def test_a7_the_config_is_a_folder(tmp_path: Path) -> None:
    settings = machine(tmp_path)
    (settings.docker_config / "config.json").mkdir(parents=True)
    with pytest.raises(CredentialsError, match=r"config\.json"):
        find_login("r.example", settings)


def test_a7_docker_config_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/config.json").write_text(json.dumps({"auths": {"r.example": _auth("ann", "pw")}}))
    settings = machine(tmp_path, DOCKER_CONFIG=str(tmp_path / "elsewhere"))
    assert find_login("r.example", settings).login == Login(username="ann", password="pw")


def test_a8_netrc_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine r.example login ann password pw\n")
    assert find_login("r.example", machine(tmp_path, NETRC=str(tmp_path / ".netrc"))).login is None


def test_only_the_helper_for_this_registry_is_run(tmp_path: Path) -> None:
    _helper(tmp_path, "mine", f"cat > {tmp_path}/asked; {GIVES}")
    _helper(tmp_path, "other", f"touch {tmp_path}/other-was-run; {GIVES}")
    helpers = {"r.example": "mine", "s.example": "other"}
    settings = _config(tmp_path, {"credHelpers": helpers, "credsStore": "other"})
    found = find_login("r.example", settings)
    assert found.login == Login(username="ann", password="pw")
    assert found.name == "docker-credential-mine"
    assert (tmp_path / "asked").read_text() == "r.example"
    assert not (tmp_path / "other-was-run").exists()


def test_the_store_is_asked_for_docker_hub_by_its_old_name(tmp_path: Path) -> None:
    _helper(tmp_path, "store", f"cat > {tmp_path}/asked; {GIVES}")
    find_login("docker.io", _config(tmp_path, {"credsStore": "store"}))
    assert (tmp_path / "asked").read_text() == "https://index.docker.io/v1/"


@pytest.mark.parametrize(
    "script",
    [
        "echo 'credentials not found in native keychain'; exit 1",
        "echo 'no credentials found' >&2; exit 1",
        """echo '{"ServerURL":"","Username":"","Secret":""}'""",
        "exit 0",
    ],
)
def test_a6_a_helper_that_has_none(tmp_path: Path, script: str) -> None:
    _helper(tmp_path, "store", script)
    settings = _config(tmp_path, {"credsStore": "store", "auths": {"r.example": {}}})
    found = find_login("r.example", settings)
    assert found.login is None
    assert found.tried[0] == "docker-credential-store (has none for r.example)"


def test_a6_a_refresh_token_from_a_helper(tmp_path: Path) -> None:
    _helper(tmp_path, "store", """echo '{"Username":"<token>","Secret":"refresh"}'""")
    found = find_login("r.example", _config(tmp_path, {"credsStore": "store"}))
    assert found.login == Login(username=IDENTITY_TOKEN, password="refresh")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "docker-credential-store, which Docker's config names for r.example, is not on PATH"),
        (
            "echo 'the vault is closed' >&2; exit 3",
            r"failed for r\.example \(exit code 3\); its output: the vault is closed",
        ),
        ("exit 2", r"\(exit code 2\); its output: nothing"),
        ("echo hello", "other than the expected JSON"),
        ("echo '[]'", "other than the expected JSON"),
        ("""echo '{"Username":1,"Secret":2}'""", "without a user name and secret"),
        ("printf '\\033[31mred' >&2; exit 1", "its output: red"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_a6_a_helper_that_fails(tmp_path: Path, script: str | None, says: str) -> None:
    if script is not None:
        _helper(tmp_path, "store", script)
    with pytest.raises(CredentialsError, match=says) as caught:
        find_login("r.example", _config(tmp_path, {"credsStore": "store"}))
    assert caught.value.exit_code == 7


def test_a6_a_helper_that_cannot_be_run(tmp_path: Path) -> None:
    _helper(tmp_path, "store", "")
    (tmp_path / "bin/docker-credential-store").write_text("#!/no/such/shell\n")
    with pytest.raises(CredentialsError, match="docker-credential-store cannot be run: No such file"):
        find_login("r.example", _config(tmp_path, {"credsStore": "store"}))


@pytest.mark.parametrize("script", ["sleep 60", "sleep 60 & exec 1>&- 2>&-; wait", "sleep 60 &"])
def test_a6_a_helper_that_hangs_goes_with_its_children(tmp_path: Path, script: str) -> None:
    _helper(tmp_path, "store", f"{script}\n")
    environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    began = time.monotonic()
    with pytest.raises(CredentialsError, match="within 0 s"):
        run_helper("store", "r.example", environ, seconds=0.3)
    assert time.monotonic() - began < 30


def test_a6_a_helpers_secret_is_not_in_messages(tmp_path: Path) -> None:
    secret = "canary" * 10
    _helper(tmp_path, "store", f"echo 'cannot decrypt {secret} with key' >&2; exit 1")
    with pytest.raises(CredentialsError, match="cannot decrypt … with key") as caught:
        find_login("r.example", _config(tmp_path, {"credsStore": "store"}))
    assert "canary" not in str(caught.value)


def _google(login: Login | None) -> Any:
    def find(settings: Settings) -> tuple[LoginSource | None, str]:
        return (lambda: login) if login else None, "Google"

    return find


def test_the_order_is_docker_then_google_then_nobody(tmp_path: Path) -> None:
    token = Login(username="oauth2accesstoken", password="t")
    settings = _config(tmp_path, {"auths": {AR: _auth("_json_key", "{}")}})
    assert find_login(AR, settings, google=_google(token)).login == Login(username="_json_key", password="{}")
    settings = _config(tmp_path, {})
    assert find_login(AR, settings, google=_google(token)).login == token
    assert find_login("r.example", settings, google=_google(token)).login is None
    found = find_login(AR, settings, google=_google(None))
    assert (found.login, found.tried[-1]) == (None, "Google")


def test_a_search_is_made_once_and_its_error_kept() -> None:
    calls: list[int] = []

    def fail() -> FoundLogin:
        calls.append(1)
        raise CredentialsError("broken")

    host = HostLogin("r.example", fail)
    for _ in range(3):
        with pytest.raises(CredentialsError, match="broken"):
            host.login()
    assert len(calls) == 1
