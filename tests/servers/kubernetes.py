"""API servers on loopback: one for custom resources, and a cluster's own for Pods and Services.

`scripts/services up kubernetes kube-apiserver` builds them.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.jobs import schemas
from tests.servers.json_handler import JsonHandler
from tests.servers.running import running

PROGRAMS = Path(__file__).resolve().parents[2] / ".services"
CRDS = {"TFJob": ("tfjobs", "kubeflow.org_tfjobs.v1.9.4.yaml"),
        "JobSet": ("jobsets", "jobset.x-k8s.io_jobsets.v0.12.0.yaml"),
        "ImageCache": ("imagecaches", "imagecaches.eci.alibabacloud.com.yaml")}  # fmt: skip
_PLURALS = {
    "Task": "tasks",
    "Pod": "pods",
    "Service": "services",
    "Job": "jobs",
    **{kind: plural for kind, (plural, _) in CRDS.items()},
}
_TOKEN = "secret"
_ADMISSION = (
    "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,"
    "MutatingAdmissionPolicy"
)
_CONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: core, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: core, context: {{cluster: core, user: nobody}}}}]
users: [{{name: nobody, user: {{}}}}]
current-context: core
"""


_KUBECTL = """\
apiVersion: v1
kind: Config
clusters: [{{name: here, cluster: {{server: "{url}", insecure-skip-tls-verify: true}}}}]
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
users: [{{name: me, user: {user}}}]
current-context: here
"""


class ApiServer:
    """The server's address, and what it says to an object."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self._token = token
        self._trust = ssl._create_unverified_context()

    def create(self, document: Any) -> str | None:
        """Why the server refuses to create the object; None when it would. Nothing is stored."""
        status, answer = self.send(f"{_collection(document)}?dryRun=All&fieldValidation=Strict", document)
        return None if status == 201 else str(answer.get("message"))

    def store(self, document: Any) -> None:
        """Creates the object; fails where the server refuses it."""
        status, answer = self.send(_collection(document), document)
        assert status == 201, answer

    def objects(self, document: Any) -> dict[str, Any]:
        """The stored objects beside `document`, by name."""
        _, answer = self.send(_collection(document))
        return {item["metadata"]["name"]: {**item, "kind": document["kind"]} for item in answer["items"]}

    def kubeconfig(self, path: Path) -> Path:
        """Writes the file with which kubectl speaks to the server."""
        user = {"token": self._token} if self._token else {}
        path.write_text(_KUBECTL.format(url=self.url, user=json.dumps(user)))
        return path

    def send(self, path: str, body: Any | None = None) -> tuple[int, Any]:
        """The status and the JSON of a GET, or of a POST with a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, context=self._trust, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            return error.code, json.loads(text) if text.startswith("{") else {"message": text}


def _collection(document: Any) -> str:
    """The path of the objects of a document's kind and namespace."""
    version, kind = document["apiVersion"], document["kind"]
    group = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = document["metadata"].get("namespace", "default")
    return f"{group}/{_PLURALS[kind]}" if kind == "ImageCache" else f"{group}/namespaces/{namespace}/{_PLURALS[kind]}"


class _Core(JsonHandler, BaseHTTPRequestHandler):
    """A stand-in for the cluster's own API server: it has nothing, and allows everything."""

    def do_GET(self) -> None:
        self.answer(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(201, {**review, "status": {"allowed": True}})


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """The server with the CRDs of TFJob, JobSet and ImageCache, until the block ends; skips where it is not built."""
    core, etcd, port = (_free_port() for _ in range(3))
    config = folder / "core.yaml"
    config.write_text(_CONFIG.format(port=core))
    options = [f"--{name}={config}" for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")]
    options += ["--authentication-skip-lookup", "--enable-priority-and-fairness=false"]
    options += [f"--disable-admission-plugins={_ADMISSION}"]
    with running(ThreadingHTTPServer(("127.0.0.1", core), _Core)), ExitStack() as started:
        program = PROGRAMS / "kubernetes/apiextensions-apiserver"
        server = ApiServer(_started(started, program, options, folder, (etcd, port)), None)
        for _, file in CRDS.values():
            install(server, schemas.FOLDER / file)
        yield server


@contextmanager
def kube_apiserver(folder: Path) -> Iterator[ApiServer]:
    """A cluster's own server, until the block ends; skips where it is not built."""
    tokens, key = folder / "tokens.csv", folder / "key.pem"
    tokens.write_text(f"{_TOKEN},admin,admin,system:masters\n")
    made = rsa.generate_private_key(65537, 2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    key.write_bytes(made.private_bytes(*form))
    options = [f"--service-account-{name}={key}" for name in ("key-file", "signing-key-file")]
    options += ["--service-account-issuer=https://example.com", f"--token-auth-file={tokens}"]
    options += ["--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount,NamespaceLifecycle"]
    options += ["--service-cluster-ip-range=10.0.0.0/20"]
    with ExitStack() as running:
        ports = (_free_port(), _free_port())
        program = PROGRAMS / "kube-apiserver/kube-apiserver"
        server = ApiServer(_started(running, program, options, folder, ports), _TOKEN)
        _until(lambda: server.send("/api/v1/namespaces/default")[0] == 200)
        yield server


def _started(running: ExitStack, program: Path, options: list[str], folder: Path, ports: tuple[int, int]) -> str:
    """Starts etcd and an API server on the two ports, and returns its address; `running` ends them."""
    schemas.need()
    store, port = ports
    if not (program.exists() and (program.parent / "etcd").exists()):
        pytest.skip(f"no {program.name} here (scripts/services up {program.parent.name})")
    etcd = [f"--listen-client-urls=http://127.0.0.1:{store}", f"--advertise-client-urls=http://127.0.0.1:{store}"]
    etcd += [f"--listen-peer-urls=http://127.0.0.1:{_free_port()}", f"--data-dir={folder / 'etcd'}"]
    api = [f"--etcd-servers=http://127.0.0.1:{store}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
    api += [f"--cert-dir={folder / 'certificates'}", *options]
    for command in ([str(program.parent / "etcd"), *etcd], [str(program), *api]):
        log = running.enter_context((folder / f"{Path(command[0]).name}.log").open("w"))
        process = subprocess.Popen(command, stdout=log, stderr=log)
        running.callback(process.wait)
        running.callback(process.terminate)
    return f"https://127.0.0.1:{port}"


def install(server: ApiServer, file: Path) -> None:
    """Adds the newest version of a kind from the file of its CRD, and waits until the server knows it."""
    crd = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    crd["spec"] = {**crd["spec"], "versions": crd["spec"]["versions"][-1:], "conversion": {"strategy": "None"}}
    _until(lambda: server.send("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)[0] in {201, 409})
    version = f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}"
    _until(lambda: server.send(f"/apis/{version}")[0] == 200)
    smallest = {"apiVersion": version, "kind": crd["spec"]["names"]["kind"], "metadata": {"name": "x"}, "spec": 1}
    _until(lambda: "spec" in (server.create(smallest) or ""))


def _until(ready: Any) -> None:
    """Waits, two minutes at most, for what a server that starts does not do at once."""
    end = time.monotonic() + 120
    while True:
        try:
            if ready():
                return
        except OSError:
            pass
        assert time.monotonic() < end, "the API server does not start"
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
