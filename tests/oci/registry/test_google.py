from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.oci.registry.support import machine
from tests.servers.registry_process import free_port
from tests.servers.scripted import Reply, ScriptedServer
from training_imgtool.base.errors import CredentialsError, TemporaryError
from training_imgtool.base.reference import Login, parse_repository
from training_imgtool.oci.registry.auth import google
from training_imgtool.oci.registry.auth.logins import FoundLogin, find_login

REPOSITORY = parse_repository("us-central1-docker.pkg.dev/my-project/training/mnist")
NAME = "projects/my-project/locations/us-central1/repositories/training"


@pytest.fixture(scope="module")
def key() -> str:
    """A private key for service accounts, PEM."""
    made = rsa.generate_private_key(65537, 2048)
    return made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _account_file(path: Path, token_uri: str, key: str) -> Path:
    """A service account's key file; its token server may be anywhere, unlike that of a user's file."""
    document = {"type": "service_account", "client_email": "a@p.iam.gserviceaccount.com", "project_id": "p"}
    document |= {"private_key": key, "private_key_id": "1", "client_id": "1", "token_uri": token_uri}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def _token(seconds: int = 3600) -> Reply:
    document = {"access_token": "ya29.fresh", "expires_in": seconds, "token_type": "Bearer"}
    return Reply(200, json.dumps(document).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The process's environment of a machine without Google's credentials: google.auth reads it."""
    made = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "NO_GCE_CHECK": "true", "GOOGLE_CLOUD_PROJECT": "p"}
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    return made


def _login(host: str, folder: Path) -> FoundLogin:
    return find_login(host, machine(folder))


@pytest.mark.usefixtures("environ")
def test_a_login_from_application_default_credentials(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer([_token(200), _token(3600)]) as server:
        path = _account_file(tmp_path / "adc.json", f"http://{server.host}/token", key)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        found = _login("us-docker.pkg.dev", tmp_path)
        assert found.login == Login(username="oauth2accesstoken", password="ya29.fresh")
        assert len(server.asked) == 1
        for _ in range(2):  # the first token ends soon
            assert found.login is not None
            assert len(server.asked) == 2


@pytest.mark.usefixtures("environ")
def test_gclouds_file_is_found(tmp_path: Path, key: str) -> None:
    with ScriptedServer([_token()]) as server:
        file = tmp_path / ".config/gcloud/application_default_credentials.json"
        _account_file(file, f"http://{server.host}/token", key)
        assert _login("gcr.io", tmp_path).login is not None


@pytest.mark.usefixtures("environ")
def test_a1_no_credentials_says_where_it_looked(tmp_path: Path) -> None:
    found = _login("us-docker.pkg.dev", tmp_path)
    assert found.login is None
    assert found.tried[-1].startswith(
        "Google's application default credentials (Your default credentials were not found"
    )


@pytest.mark.usefixtures("environ")
def test_a1_a_search_that_takes_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(google, "_MOST_SECONDS", 0.2)
    monkeypatch.setattr("google.auth.default", lambda **_: ended.wait(20))
    assert "no answer within" in _login("us-docker.pkg.dev", tmp_path).tried[-1]
    ended.set()


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '{"type": "canary"}', '{"type": "service_account"}', '{"type":"authorized_user"}']
)
@pytest.mark.usefixtures("environ")
def test_a2_a_broken_file_is_named_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    path = tmp_path / "adc.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with pytest.raises(CredentialsError, match=r"adc\.json") as caught:
        find_login("us-docker.pkg.dev", machine(tmp_path, GOOGLE_APPLICATION_CREDENTIALS=str(path)))
    assert caught.value.exit_code == 7
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        {"error": "invalid_grant", "error_description": "Token has been expired or revoked."},
        {"error": "invalid_grant", "error_subtype": "invalid_rapt", "error_description": "reauth related error"},
    ],
)
@pytest.mark.usefixtures("environ")
def test_a3_credentials_that_ended(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch, document: dict[str, str]
) -> None:
    reply = Reply(400, json.dumps(document).encode(), {"Content-Type": "application/json"})
    with ScriptedServer([reply]) as server:
        path = _account_file(tmp_path / "adc.json", f"http://{server.host}/token", key)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        found = _login("gcr.io", tmp_path)
        with pytest.raises(CredentialsError, match="does not accept the credentials") as caught:
            _ = found.login
        assert "gcloud auth application-default login" in (caught.value.hint or "")
        assert "PRIVATE" not in str(caught.value)
        assert len(server.asked) == 1


@pytest.mark.usefixtures("environ")
def test_a4_a_token_endpoint_that_does_not_answer(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _account_file(tmp_path / "adc.json", f"http://127.0.0.1:{free_port()}/token", key)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    found = _login("gcr.io", tmp_path)
    with pytest.raises(TemporaryError, match="cannot be reached") as caught:
        _ = found.login
    assert caught.value.exit_code == 8
