"""Pipelines of docs/ci.md and those that they use, run in a flat and in a nested project, keyless or with a login.

The services' names are the real ones: a proxy leads their TLS to one server here, which gives GitHub's tokens,
exchanges them as Google does, and passes on what carries the right login to a registry.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.steps import inputs_of, run_component, run_steps
from tests.cosign import Recorder
from tests.integration.push_world import IMGTOOL, SPEC, Machine, Project, Wheels, make_base
from tests.servers.certificates import make_certificate
from tests.servers.fault_proxy import Action, Exchange, Fault, FaultProxy
from tests.servers.registry_process import run_registry
from tests.servers.relay import pass_on, serve

pytestmark = pytest.mark.registry
CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs/ci.md").read_text()
GOOGLE = "us-central1-docker.pkg.dev"
OIDC, STS, IAM = "pipelines.actions.githubusercontent.com", "sts.googleapis.com", "iamcredentials.googleapis.com"
ACCOUNT = "images@my-project.iam.gserviceaccount.com"
HOSTS = (GOOGLE, "registry.example.com", OIDC, STS, IAM)
PROVIDER = "projects/123456789/locations/global/workloadIdentityPools/github/providers/github"
LAYOUTS = (pytest.param("flat", marks=pytest.mark.long), "nested")


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


LOGINS = {
    GOOGLE: basic("oauth2accesstoken", "ya29.google"),
    "registry.example.com": basic("gitlab-ci-token", "job-token"),
}
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {  # the login that a service asks for, and what it gives
    OIDC: ("Bearer request-token", {"value": "signed-by-github"}),
    STS: (
        "",
        {
            "access_token": "federated",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "token_type": "Bearer",
            "expires_in": 3600,
        },
    ),
    IAM: ("Bearer federated", {"accessToken": "ya29.google", "expireTime": "2099-01-01T00:00:00Z"}),
}


class Cloud(FaultProxy):
    """All services behind one TLS server; who has no login gets 401."""

    def __init__(self, upstream: str, certificate: tuple[Path, Path]) -> None:
        super().__init__(upstream)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def begin(self, exchange: Exchange, target: str) -> Fault | None:
        super().begin(exchange, target)
        host, login = exchange.headers["host"], exchange.headers.get("authorization", "")
        if host in ANSWERS:
            asked, answer = ANSWERS[host]
            right = login == asked
            body = json.dumps(answer if right else {"error": "no"}).encode()
            headers = {"Content-Type": "application/json"}
            return Fault(action=Action.ANSWER, status=200 if right else 401, headers=headers, body=body)
        if login != LOGINS[host]:
            headers = {"WWW-Authenticate": 'Basic realm="registry"'}
            return Fault(action=Action.ANSWER, status=401, headers=headers, body=b"{}")
        exchange.headers["authorization"] = ""
        return Fault(action=Action.CHANGE, change=_to_https)


def _to_https(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    if "location" in headers:
        headers["location"] = headers["location"].replace("http://", "https://", 1)
    return status, headers, body


@dataclass
class World:
    folder: Path
    cloud: Cloud
    proxy: str
    certificate: Path
    base_host: str
    wheels: Wheels

    def project(self, place: Path, layout: str, registry: str) -> Path:
        """A checkout with a commit; the spec at its root with the program beside it, or below images/."""
        folder = place if layout == "flat" else place / "images/demo"
        project = Project(folder, self.wheels, BASE)
        spec = SPEC.format(name="demo", more=f"registry: {registry}\n" if registry else "")
        if layout == "flat":
            shutil.rmtree(folder / "trainer")
            project.write("task.py", f'print("{place.parent.name}")\n')
            spec = spec.replace("{source: trainer, module: trainer.task}", "task.py")
        project.write("image.yaml", spec)
        project.lock()
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "first")):
            subprocess.run(["git", *words], cwd=place, check=True)
        return place

    def machine(self, place: Path, **env: str) -> Machine:
        """A runner: nothing but wheels in its cache, `pip` that installs nothing since imgtool is there."""
        machine = Machine(place / "machine", "", self.base_host, **env)
        machine.give(self.wheels)
        programs = place / "programs"
        programs.mkdir()
        (programs / "pip").write_text('#!/bin/sh\ntest "$1" = install && echo "$@" | grep -q .\n')
        (programs / "pip").chmod(0o755)
        machine.env["PATH"] = f"{programs}:{machine.env['PATH']}"
        machine.env.pop("IMGTOOL_REGISTRY")
        machine.env |= {
            "HTTPS_PROXY": self.proxy,
            "NO_PROXY": "127.0.0.1",
            "IMGTOOL_CA_FILE": str(self.certificate),
            "IMGTOOL": "git+https://git.example.com/team/imgtool@COMMIT",
            "CI": "true",
        }
        return machine


BASE = make_base(texts={"usr/local/bin/python3.11": b"#!/bin/sh\n"})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("ci")
    certificate = make_certificate(folder / "tls", name=HOSTS[0], others=HOSTS[1:])
    with run_registry(folder / "registry") as running, Cloud(running.host, certificate) as cloud:
        BASE.put(running.host)
        host, _, port = cloud.host.partition(":")

        def connect(client: socket.socket) -> None:
            with client:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(4096)
                name = head.split()[1].decode().partition(":")[0]
                assert name in HOSTS, name
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                with socket.create_connection((host, int(port))) as server:
                    pass_on(client, server)

        listener = socket.create_server(("127.0.0.1", 0))
        with serve(listener, connect):
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            wheels = Wheels(folder / "wheels")
            yield World(folder, cloud, address, certificate[0], running.host, wheels)


def recipe(title: str) -> dict[str, Any]:
    """The pipeline below a heading of the page."""
    part = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```yaml\n(.*?)```", part, re.DOTALL)
    return dict(yaml.safe_load(block))


def check_job(job: Path, host: str) -> None:
    named = re.findall(r"[\w.-]+/[\w./-]+@sha256:[0-9a-f]{64}", job.read_text())
    assert (len(named), len(set(named))) == (3, 1), job.read_text()
    assert all(name.startswith(f"{host}/") for name in named)


def leave_google_credentials(workspace: Path) -> dict[str, str]:
    """What google-github-actions/auth leaves: a file in the workspace, and variables that name it."""
    path = workspace / "gha-creds-8f6d0a1b2c3d4e5f.json"
    document = {
        "universe_domain": "googleapis.com",
        "type": "external_account",
        "audience": f"//iam.googleapis.com/{PROVIDER}",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"https://{STS}/v1/token",
        "service_account_impersonation_url": f"https://{IAM}/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken",
        "credential_source": {
            "url": f"https://{OIDC}/idtoken?api-version=2.0&audience=x",
            "headers": {"Authorization": "Bearer request-token"},
            "format": {"type": "json", "subject_token_field_name": "value"},
        },
    }
    path.write_text(json.dumps(document))
    names = ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "GOOGLE_GHA_CREDS_PATH")
    return dict.fromkeys(names, str(path))


def github(tmp_path: Path, workspace: Path) -> dict[str, str]:
    (tmp_path / "temp").mkdir()
    return {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace), "RUNNER_TEMP": str(tmp_path / "temp")}


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_github_without_a_key_to_artifact_registry(world: World, layout: str, tmp_path: Path) -> None:
    """GitHub's identity becomes Google's: no step has a password."""
    (job,) = recipe("GitHub Actions, to Artifact Registry")["jobs"].values()
    workspace = world.project(tmp_path / "checkout", layout, f"{GOOGLE}/my-project/{layout}")
    machine = world.machine(tmp_path)
    env = {**machine.env, **job["env"], **github(tmp_path, workspace)}
    world.cloud.clear()
    assert [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step][
        2
    ] == "google-github-actions/auth"
    env |= leave_google_credentials(workspace)
    run_steps(job["steps"], workspace, env, {})
    check_job(workspace / "config.yaml", GOOGLE)
    asked = [exchange.headers["host"] for exchange in world.cloud.log]
    assert asked.index(OIDC) < asked.index(STS) < asked.index(IAM)
    assert not [exchange for exchange in world.cloud.log if exchange.status >= 500]
    cosign = Recorder(tmp_path / "cosign")  # Sigstore's services cannot be reached from tests
    env["PATH"] = f"{cosign.folder}:{env['PATH']}"
    assert "`imgtool sign --locked` after the push" in PAGE
    shell(["imgtool", "sign", "--locked"], workspace, env)
    (call,) = cosign.calls()
    named = {word for word in call["arguments"] if "@sha256:" in word}
    assert named == set(re.findall(rf"{GOOGLE}/\S+@sha256:\w+", (workspace / "config.yaml").read_text()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cloud_build(world: World, layout: str, tmp_path: Path) -> None:
    """With a file of credentials in place of the metadata server, which Google's library asks by an address."""
    (step,) = recipe("Cloud Build")["steps"]
    workspace = world.project(tmp_path / "workspace", layout, f"{GOOGLE}/my-project/{layout}")
    machine = world.machine(tmp_path)
    env = {**machine.env, **dict(line.split("=", 1) for line in step["env"]), **leave_google_credentials(workspace)}
    words = [step["entrypoint"], *(word.replace("$$", "$") for word in step["args"])]
    shell(words, workspace, env)
    check_job(workspace / "config.yaml", GOOGLE)


def shell(words: list[str], workspace: Path, env: Mapping[str, str]) -> None:
    done = subprocess.run(words, cwd=workspace, env=dict(env), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def gitlab(workspace: Path) -> dict[str, str]:
    return {
        "CI_PROJECT_DIR": str(workspace),
        "CI_REGISTRY": "registry.example.com",
        "CI_REGISTRY_IMAGE": "registry.example.com/team/project",
        "CI_REGISTRY_USER": "gitlab-ci-token",
        "CI_REGISTRY_PASSWORD": "job-token",
    }


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_github_action(world: World, layout: str, tmp_path: Path) -> None:
    """Its own steps but the one that installs imgtool, twice: the second run finds what the first one pushed."""
    action = yaml.safe_load((CHECKOUT / "action.yml").read_text())
    workspace = world.project(tmp_path / "checkout", layout, f"{GOOGLE}/my-project/action-{layout}")
    env = {**world.machine(tmp_path).env, **github(tmp_path, workspace)}
    (tmp_path / "temp/imgtool/bin").mkdir(parents=True)
    for name in ("imgtool", "python"):
        (tmp_path / "temp/imgtool/bin" / name).symlink_to(IMGTOOL.with_name(name))
    env |= leave_google_credentials(workspace)
    given = {"spec": "." if layout == "flat" else "images/demo"}
    values = {**inputs_of(action["inputs"], given), "github.action_path": str(CHECKOUT)}
    steps = [step for step in action["runs"]["steps"] if step.get("name") != "Install"]
    seen = []
    for _ in range(2):
        outputs = run_steps(steps, workspace, env, values)
        check_job(workspace / outputs["job.job-file"], GOOGLE)
        seen.append((json.loads(outputs["push.images"]), set(json.loads(outputs["push.outcomes"]).values())))
    assert [how for _, how in seen] == [{"appended"}, {"found"}]
    assert seen[0][0] == seen[1][0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gitlab_component(world: World, layout: str, tmp_path: Path) -> None:
    """Its script, with the cache below the project, as GitLab asks for; again with what the first run left."""
    workspace = world.project(tmp_path / "checkout", layout, "")
    machine = world.machine(tmp_path)
    cache = workspace / ".cache/imgtool"
    shutil.copytree(machine.cache, cache)
    env = {**machine.env, **gitlab(workspace), "IMGTOOL_CACHE": str(cache)}
    env["IMGTOOL_REGISTRY"] = f"{env['CI_REGISTRY_IMAGE']}/{layout}"
    text = (CHECKOUT / "templates/imgtool.yml").read_text().replace("/tmp/imgtool/bin/", "")
    text = re.sub(r" *- python3 -m venv .*\n", "", text).replace("pip install", "true pip install")
    seen = []
    for _ in range(2):
        job = run_component(text, workspace, env, {} if layout == "flat" else {"spec": "images/demo"})
        references = dict(line.split("=", 1) for line in (workspace / "imgtool.env").read_text().splitlines())
        assert set(references) == {"IMGTOOL_MASTER", "IMGTOOL_WORKER", "IMGTOOL_PS"}
        check_job(workspace / job["artifacts"]["paths"][0], "registry.example.com/team/project")
        seen.append(references)
    assert seen[0] == seen[1]
