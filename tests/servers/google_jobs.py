"""A loopback stand-in for the two job APIs of Google: it takes a job only when the strict schema does."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import schemas
from tests.servers.json_handler import JsonHandler
from tests.servers.running import running

_PATHS = {
    re.compile(r"/v1/projects/[^/]+/jobs(\?.*)?\Z"): "ai-platform",
    re.compile(r"/v1/projects/[^/]+/locations/[^/]+/customJobs(\?.*)?\Z"): "vertex-api",
    re.compile(r"/v1/projects/[^/]+/locations/[^/]+/hyperparameterTuningJobs(\?.*)?\Z"): "vertex-tuning",
}


class JobServer(ThreadingHTTPServer):
    """Remembers the bodies that it was sent, accepted or not."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[Any] = []
        self.paths: list[str] = []
        self.jobs: list[Any] = []
        self.delay = 0.0  # seconds until a job that was sent is there

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(JsonHandler, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: JobServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.paths.append(self.path)
        kind = next((kind for pattern, kind in _PATHS.items() if pattern.match(self.path)), None)
        wrong = schemas.complaints(kind, body) if kind else [f"no such path {self.path}"]
        if wrong:
            self.answer(400, _status(wrong))
        elif kind == "ai-platform":
            self._store({**body, "state": "QUEUED"})
        else:
            self._store(
                {**body, "name": f"{self._collection()}/{len(self.server.jobs) + 1}", "state": "JOB_STATE_PENDING"}
            )

    def do_GET(self) -> None:
        collection = self._collection()
        own = [job for job in self.server.jobs if job.get("name", collection).startswith(collection)]
        self.answer(200, {collection.rpartition("/")[2]: own} if own else {})

    def _collection(self) -> str:
        return self.path.partition("?")[0].removeprefix("/v1/")

    def _store(self, job: Any) -> None:
        time.sleep(self.server.delay)
        self.server.jobs.append(job)
        self.answer(200, job)


def _status(wrong: list[str]) -> Any:
    """A google.rpc.Status as the real services answer a bad request."""
    violations = [{"field": text.partition(":")[0], "description": text} for text in wrong]
    detail = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}
    return {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": wrong[0], "details": [detail]}}


@contextmanager
def serving() -> Iterator[JobServer]:
    """The server, running in a thread until the block ends."""
    with running(server := JobServer()):
        yield server


def gcloud_runner(answers: Path) -> list[Path]:
    """The command line of `gcloud_many`, which gives its answers at that path."""
    gcloud = Path(shutil.which("gcloud") or "").resolve()
    library = next(path for path in (gcloud.parents[1] / "lib", gcloud.parents[2] / "lib") if path.is_dir())
    python = next((library.parent / "platform").glob("bundledpython*/bin/python3"), Path("python3"))
    return [python, Path(__file__).with_name("gcloud_many.py"), library, answers]


def gcloud_environment(server: JobServer, config: Path) -> dict[str, str]:
    """The variables with which gcloud speaks to the server, without credentials; skips where there is no gcloud."""
    schemas.need()
    if shutil.which("gcloud") is None:
        pytest.skip("no gcloud program on this machine")
    settings = {
        "CONFIG": str(config),
        "AUTH_DISABLE_CREDENTIALS": "True",
        "CORE_PROJECT": "my-project",
        "CORE_DISABLE_PROMPTS": "1",
        "CORE_DISABLE_USAGE_REPORTING": "1",
        "COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        "CORE_DISABLE_FILE_LOGGING": "1",
        "API_ENDPOINT_OVERRIDES_ML": server.url,
        "API_ENDPOINT_OVERRIDES_AIPLATFORM": server.url,
    }
    return {f"CLOUDSDK_{key}": value for key, value in settings.items()}
