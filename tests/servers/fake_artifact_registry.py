"""Artifact Registry's REST API (v1), as far as making repositories goes, on a free port of this machine."""

from __future__ import annotations

import json
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.servers.scripted import Asked, Reply, ScriptedServer


class FakeArtifactRegistry:
    """Makes repositories in memory; each creation takes `polls` looks at its operation.

    Attributes:
        repositories: by full name, the document that made each.
        error: (HTTP status, status name, message) to answer every creation with, or None.
        failure: (google.rpc code, message) that operations end with, or None.
    """

    def __init__(self, *, polls: int = 2) -> None:
        self.repositories: dict[str, dict[str, Any]] = {}
        self.error: tuple[int, str, str] | None = None
        self.failure: tuple[int, str] | None = None
        self.polls = polls
        self._pending: dict[str, int] = {}
        self._server = ScriptedServer(self._reply)

    @property
    def endpoint(self) -> str:
        """The API's address."""
        return f"http://{self._server.host}"

    @property
    def asked(self) -> list[Asked]:
        """Every request."""
        return self._server.asked

    def _reply(self, asked: Asked) -> Reply:
        parts = urlsplit(asked.target)
        if asked.method == "POST" and parts.path.endswith("/repositories"):
            return self._create(parts.path, parse_qs(parts.query), asked)
        if asked.method == "GET" and "/operations/" in parts.path:
            return self._poll(parts.path)
        return _error(404, "NOT_FOUND", "no such method")

    def _create(self, path: str, query: dict[str, list[str]], asked: Asked) -> Reply:
        if self.error:
            return _error(*self.error)
        name = f"{path.removeprefix('/v1/')}/{query['repositoryId'][0]}"
        if name in self.repositories:
            return _error(409, "ALREADY_EXISTS", "the repository already exists")
        self.repositories[name] = {"name": name, **json.loads(asked.body or b"{}")}
        operation = f"{name.rpartition('/repositories/')[0]}/operations/op{len(self.repositories)}"
        self._pending[operation] = self.polls
        return _json(200, {"name": operation, "done": False})

    def _poll(self, path: str) -> Reply:
        operation = path.removeprefix("/v1/")
        self._pending[operation] -= 1
        if self._pending[operation] > 0:
            return _json(200, {"name": operation, "done": False})
        document: dict[str, Any] = {"name": operation, "done": True}
        if self.failure:
            document["error"] = {"code": self.failure[0], "message": self.failure[1]}
        else:
            made = list(self.repositories.values())[-1]
            kind = "type.googleapis.com/google.devtools.artifactregistry.v1.Repository"
            document["response"] = {"@type": kind, **made}
        return _json(200, document)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._server.__exit__(*details)


def _json(status: int, document: dict[str, Any]) -> Reply:
    return Reply(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


def _error(status: int, name: str, message: str) -> Reply:
    return _json(status, {"error": {"code": status, "status": name, "message": message}})
