"""Group A: credentials that are missing, wrong, expired or not readable. Exit 7 with what was tried, never a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.faults.project import CANARY, Project
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from tests.servers.scripted import Reply, ScriptedServer

GOOGLE = "us-docker.pkg.dev/my-project/training"
LOGIN_AGAIN = "gcloud auth application-default login"


def docker_config(project: Project, content: object) -> Path:
    """Docker's config.json with this content, JSON or text."""
    path = project.home / ".docker/config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def helper(project: Project, host: str, script: str) -> None:
    """A credential helper for `host` that is this shell script."""
    folder = project.home / "bin"
    folder.mkdir()
    program = folder / "docker-credential-test"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    project.env["PATH"] = f"{folder}:{project.env['PATH']}"
    docker_config(project, {"credHelpers": {host: "test", "other.example.com": "not-for-us"}, "auths": {}})


def google_file(project: Project, content: str) -> Path:
    """GOOGLE_APPLICATION_CREDENTIALS with this content."""
    path = project.home / "adc.json"
    path.write_text(content)
    project.env |= {"IMGTOOL_REGISTRY": GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS": str(path)}
    return path


def service_account(project: Project, token_uri: str) -> Path:
    """The credentials of a service account whose token server is here."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
    account = {
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": "1",
        "private_key": pem,
        "client_email": "robot@my-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }
    return google_file(project, json.dumps(account))


def test_a02_file_that_is_missing(project: Project) -> None:
    project.env |= {"IMGTOOL_REGISTRY": GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS": "nothere.json"}
    says = ["nothere.json (GOOGLE_APPLICATION_CREDENTIALS): not a file of Google credentials"]
    for arguments in (("push", "--json"), ("config",)):
        project.refused(*arguments, code=7, says=says, hint=LOGIN_AGAIN)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", f'{{"type": "strange", "private_key": "x{CANARY[1:]}"}}', '{"type": "service_account"}']
)
def test_a02_file_that_is_wrong(project: Project, content: str) -> None:
    path = google_file(project, content)
    says = [f"{path} (GOOGLE_APPLICATION_CREDENTIALS): not a file of Google credentials"]
    ended = project.refused("push", "--json", code=7, says=says, hint=LOGIN_AGAIN)
    assert CANARY[1:] not in ended.out + ended.err


def test_a03_login_that_has_ended(project: Project) -> None:
    """Google's invalid_grant: the same command as for no login, and no second try."""
    body = json.dumps({"error": "invalid_grant", "error_description": "Reauthentication is needed"}).encode()
    with ScriptedServer([Reply(400, body, {"Content-Type": "application/json"})]) as server:
        service_account(project, f"http://{server.host}/token")
        ended = project.refused("push", "--json", code=7, says=["Reauthentication is needed"], hint=LOGIN_AGAIN)
        assert len(server.asked) == 1
    assert "PRIVATE KEY" not in ended.out + ended.err


def test_a04_token_server_that_does_not_answer(project: Project) -> None:
    service_account(project, "http://127.0.0.1:9/token")
    project.refused("push", "--json", code=8, says=["Google"])


@pytest.mark.registry
def test_a05_a_registry_that_makes_repositories_itself(pushing: Project, proxy: FaultProxy) -> None:
    """--create-repository is for Artifact Registry."""
    arguments = ("push", "--create-repository", "--json")
    pushing.refused(*arguments, code=3, says=["Artifact Registry", proxy.host])
    assert {exchange.method for exchange in proxy.log} == {"HEAD"}


@pytest.mark.registry
def test_a06_helper_that_is_missing(pushing: Project, proxy: FaultProxy) -> None:
    docker_config(pushing, {"credHelpers": {proxy.host: "nothere"}})
    says = [f"docker-credential-nothere, which Docker's config names for {proxy.host}, is not on PATH"]
    for arguments in (("push", "--json"), ("config",), ("build", "--push", "--dry-run")):
        pushing.refused(*arguments, code=7, says=says, hint="install it, or remove 'nothere'")
    assert proxy.log == []


@pytest.mark.registry
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo my keychain is locked; exit 1", "failed for {host} (exit code 1); it says: my keychain is locked"),
        ("echo hello", "answered for {host} with something that is not its JSON"),
        ("echo '[1]'", "answered for {host} with something that is not its JSON"),
        ("exec yes", "docker-credential-test"),
        ("echo 'password=hunter2hunter2' >&2; exit 3", "failed for {host} (exit code 3)"),
    ],
)
def test_a06_helper_that_fails(pushing: Project, proxy: FaultProxy, script: str, says: str) -> None:
    helper(pushing, proxy.host, script)
    ended = pushing.refused("push", "--json", code=7, says=[says.format(host=proxy.host)])
    assert "hunter2" not in ended.out + ended.err
    assert proxy.log == []


@pytest.mark.registry
def test_a06_helper_that_hangs(pushing: Project, proxy: FaultProxy) -> None:
    helper(pushing, proxy.host, "sleep 300")
    pushing.refused("push", "--json", code=7, says=["docker-credential-test did not answer within 10 s"])


@pytest.mark.registry
@pytest.mark.parametrize("script", ["true", "echo credentials not found in native keychain; exit 1"])
def test_a06_helper_that_has_none(pushing: Project, proxy: FaultProxy, script: str) -> None:
    """Then nobody pushes, which this registry allows; one that does not names all that was tried."""
    helper(pushing, proxy.host, script)
    assert pushing.run("push").code == 0
    proxy.add(Fault(action=Action.ANSWER, times=-1, status=401, headers={"WWW-Authenticate": 'Basic realm="x"'}))
    says = [f"docker-credential-test (has none for {proxy.host})"]
    pushing.refused("push", code=7, says=says, hint=f"docker login {proxy.host}")


@pytest.mark.registry
def test_a06_helper_whose_login_is_used(pushing: Project, proxy: FaultProxy) -> None:
    """Only the helper of this registry runs, and its password goes nowhere but to the registry."""
    helper(pushing, proxy.host, f"""read host; echo '{{"Username": "robot", "Secret": "{CANARY}"}}'""")
    assert pushing.run("push").code == 0
    assert {exchange.headers.get("authorization", "")[:6] for exchange in proxy.log} == {"Basic "}
    (pushing.home / "bin/docker-credential-test").unlink()
    assert pushing.leaks() == []


@pytest.mark.registry
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "config.json:1:2: not JSON"),
        ("[]", "config.json:1: not a JSON object"),
        ('{"auths": {\n"HOST": {"auth": "Zm9v"}}}', "config.json:2: auths.HOST.auth does not hold USER:PASSWORD"),
        ('{"auths": {"HOST": {"auth": "%%%"}}}', "config.json:1: auths.HOST.auth is not base64"),
        ('{"credsStore": "../../bin/sh"}', "is not the name of a credential helper"),
    ],
)
def test_a07_broken_config(pushing: Project, proxy: FaultProxy, content: str, says: str) -> None:
    docker_config(pushing, content.replace("HOST", proxy.host))
    for arguments in (("push", "--json"), ("config", "-o", "config.yaml")):
        pushing.refused(*arguments, code=7, says=[f"{pushing.home}/.docker/", says.replace("HOST", proxy.host)])
    assert proxy.log == []


@pytest.mark.registry
def test_a07_config_is_a_folder(pushing: Project) -> None:
    (pushing.home / ".docker/config.json").unlink()
    (pushing.home / ".docker/config.json").mkdir()
    pushing.refused("push", code=7, says=["config.json cannot be read: Is a directory"], hint="DOCKER_CONFIG")


@pytest.mark.registry
def test_a07_another_folder_and_what_others_can_read(pushing: Project) -> None:
    config = pushing.home / ".docker/config.json"
    config.chmod(0o644)
    ended = pushing.run("push")
    assert ended.code == 0
    assert f"note: {config} holds passwords and can be read by others: chmod 600" in ended.err
    other = pushing.home / "other"
    other.mkdir()
    (other / "config.json").write_text("{")
    says = [f"{other}/config.json:1:2: not JSON"]
    pushing.refused("push", code=7, says=says, env={"DOCKER_CONFIG": str(other)})


@pytest.mark.registry
def test_a08_netrc_is_not_read(pushing: Project, proxy: FaultProxy) -> None:
    netrc = pushing.home / ".netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    assert pushing.run("push").code == 0
    sent = {exchange.headers["authorization"] for exchange in proxy.log}
    assert len(sent) == 1
    config = json.loads((pushing.home / ".docker/config.json").read_text())
    assert sent == {f"Basic {config['auths'][proxy.host]['auth']}"}


@pytest.mark.parametrize("option", ["--password", "--token", "--username"])
def test_a10_no_password_on_the_command_line(project: Project, option: str) -> None:
    project.refused("push", option, "x", "--json", code=2, says=[f"No such option: {option}"])
