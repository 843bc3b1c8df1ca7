"""An API server for TFJobs and JobSets: `scripts/services up kubernetes` builds it, this starts it on loopback."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
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

from tests.jobs import schemas

PROGRAMS = Path(__file__).resolve().parents[2] / ".services" / "kubernetes"
CRDS = {"TFJob": ("tfjobs", "kubeflow.org_tfjobs.v1.9.4.yaml"),
        "JobSet": ("jobsets", "jobset.x-k8s.io_jobsets.v0.12.0.yaml")}  # fmt: skip
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


class ApiServer:
    """The server's address, and what it says to an object."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._trust = ssl._create_unverified_context()

    def create(self, document: Any) -> str | None:
        """Why the server refuses to create the object; None when it would. Nothing is stored."""
        plural, _ = CRDS[document["kind"]]
        namespace = document["metadata"].get("namespace", "default")
        path = f"/apis/{document['apiVersion']}/namespaces/{namespace}/{plural}?dryRun=All&fieldValidation=Strict"
        status, answer = self.send(path, document)
        return None if status == 201 else str(answer.get("message"))

    def send(self, path: str, body: Any | None = None) -> tuple[int, Any]:
        """The status and the JSON of a GET, or of a POST with a body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, context=self._trust, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            return error.code, json.loads(text) if text.startswith("{") else {"message": text}


class _Core(BaseHTTPRequestHandler):
    """A stand-in for the cluster's own API server: it has nothing, and allows everything."""

    def do_GET(self) -> None:
        self._answer(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(201, {**review, "status": {"allowed": True}})

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """The server with both CRDs, until the block ends; skips where it is not built."""
    schemas.need()
    programs = (PROGRAMS / "etcd", PROGRAMS / "apiextensions-apiserver")
    if not all(program.exists() for program in programs):
        pytest.skip("no Kubernetes API server here (scripts/services up kubernetes)")
    core, etcd, peers, port = (_free_port() for _ in range(4))
    config = folder / "core.yaml"
    config.write_text(_CONFIG.format(port=core))
    store = [f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}"]
    store += [f"--listen-peer-urls=http://127.0.0.1:{peers}", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync"]
    options = [f"--{name}={config}" for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")]
    options += [f"--etcd-servers=http://127.0.0.1:{etcd}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
    options += ["--authentication-skip-lookup", "--enable-priority-and-fairness=false"]
    options += [f"--cert-dir={folder / 'certificates'}", f"--disable-admission-plugins={_ADMISSION}"]
    with ExitStack() as running:
        stand_in = ThreadingHTTPServer(("127.0.0.1", core), _Core)
        running.callback(stand_in.server_close)
        thread = threading.Thread(target=stand_in.serve_forever, daemon=True)
        thread.start()
        running.callback(stand_in.shutdown)
        for program, arguments in zip(programs, (store, options), strict=True):
            log = running.enter_context((folder / f"{program.name}.log").open("w"))
            process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
            running.callback(process.wait)
            running.callback(process.terminate)
        server = ApiServer(f"https://127.0.0.1:{port}")
        _install(server)
        yield server


def _install(server: ApiServer) -> None:
    for kind, (_, file) in CRDS.items():
        crd = yaml.load((schemas.FOLDER / file).read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        _until(
            lambda crd=crd: server.send("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)[0] in {201, 409}
        )
        path = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}"
        _until(lambda path=path: server.send(path)[0] == 200)
        smallest = {"apiVersion": path.removeprefix("/apis/"), "kind": kind, "metadata": {"name": "x"}, "spec": 1}
        _until(lambda smallest=smallest: "spec" in (server.create(smallest) or ""))


def _until(ready: Any) -> None:
    """Waits, a minute at most, for what a server that starts does not do at once."""
    end = time.monotonic() + 60
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
