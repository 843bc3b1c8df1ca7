"""A registry in memory: what it says to a manifest with unknown blobs is the test's choice, and so is what it loses."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.servers.scripted import Asked, Reply, ScriptedServer
from training_imgtool.oci.registry.manifests import OCI_INDEX

Refusal = Callable[[list[str]], Reply]  # of the digests that are unknown


def _errors(status: int, *errors: Mapping[str, object]) -> Reply:
    return Reply(status, json.dumps({"errors": errors}).encode(), {"Content-Type": "application/json"})


def like_distribution(missing: list[str]) -> Reply:
    """docker-registry, Harbor, GitLab: one error per blob."""
    return _errors(400, *({"code": "MANIFEST_BLOB_UNKNOWN", "detail": digest} for digest in missing))


def like_ecr(missing: list[str]) -> Reply:
    """Amazon ECR, as seen in oras-project/oras-py#54."""
    message = f"Layers with digests '[{', '.join(missing)}]' required for pushing image into repository do not exist"
    return _errors(404, {"code": "BLOB_UPLOAD_UNKNOWN", "message": message})


def with_code(code: str, status: int = 400) -> Refusal:
    """Any other registry: a code, and not a word about which blob."""
    return lambda _: _errors(status, {"code": code, "message": "no"})


@dataclass(frozen=True, kw_only=True)
class ServerDialect:
    """How one kind of registry answers.

    Attributes:
        refusal: the answer to a manifest that names unknown blobs; None accepts it, as `crane registry serve` does.
        unasked: the status for a login that nobody asked for, without a word about the token server; 0 takes it.
        mounts_between_hosts: takes a blob of another host that `origin` names.
        creates_repositories: makes a repository when something is pushed to it.
    """

    refusal: Refusal | None = None
    unasked: int = 0
    mounts_between_hosts: bool = False
    creates_repositories: bool = True


# By the names of `oci/registry/dialects.py`. Where the words of a refusal matter, it says where they were seen.
SERVER_DIALECTS = {
    "standard": ServerDialect(),
    "docker-hub": ServerDialect(refusal=like_distribution, unasked=401),
    "google": ServerDialect(refusal=like_distribution, mounts_between_hosts=True, creates_repositories=False),
    "ecr": ServerDialect(refusal=like_ecr, creates_repositories=False),
    "ecr-public": ServerDialect(refusal=like_ecr, unasked=400),
    "github": ServerDialect(refusal=like_distribution, unasked=403),
    "azure": ServerDialect(refusal=like_distribution, unasked=401),
    "quay": ServerDialect(refusal=like_distribution, unasked=401),
    "gitlab": ServerDialect(refusal=like_distribution, unasked=401),
}


class MemoryRegistry:
    """Blobs and manifests by repository. Counts requests by method and kind, such as `HEAD blobs`.

    Args:
        refusal: the answer to a manifest that names unknown blobs; None accepts it, as `crane registry serve` does.
        referrers: whether it has the referrers API.
        dialect: the name of a dialect; its refusal counts where `refusal` is None.
    """

    def __init__(
        self,
        refusal: Refusal | None = None,
        referrers: bool = False,
        dialect: str = "standard",
    ) -> None:
        self.dialect = SERVER_DIALECTS[dialect]
        self.refusal = refusal or self.dialect.refusal
        self.referrers = referrers
        self.blobs: dict[str, dict[str, bytes]] = {}
        self.manifests: dict[str, dict[str, tuple[str, bytes]]] = {}
        self.promises = False  # whether it says of every blob that it mounted it
        self.keeps = False  # whether it drops what is uploaded for a digest that it has, as docker-registry does
        self._uploads = 0
        self._parts: dict[str, bytes] = {}  # the content of open uploads, as crane and cosign send it
        self._lock = threading.Lock()
        self._server = ScriptedServer(self._reply)

    @property
    def host(self) -> str:
        return self._server.host

    @property
    def requests(self) -> list[Asked]:
        return self._server.asked

    def counted(self) -> Counter[str]:
        """How many requests of each kind came since the last `clear`."""
        kinds = (re.sub(r".*/(manifests|blobs)/.*", r"\1", request.target) for request in self.requests)
        return Counter(f"{request.method} {kind}" for request, kind in zip(self.requests, kinds, strict=True))

    def clear(self) -> None:
        """Forgets the requests so far."""
        self.requests.clear()

    def wipe(self) -> None:
        """Loses everything, as a registry in memory that was started again."""
        self.blobs.clear()
        self.manifests.clear()

    def lose(self, digest: str) -> None:
        """Loses a blob in every repository."""
        for blobs in self.blobs.values():
            blobs.pop(digest, None)

    def broken(self) -> list[str]:
        """The names of manifests that name blobs which their repository does not have."""
        return [
            f"{path}:{name}"
            for path, manifests in self.manifests.items()
            for name, (_, body) in manifests.items()
            if self._missing(path, body)
        ]

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._server.__exit__(*details)

    def _missing(self, path: str, body: bytes) -> list[str]:
        document = json.loads(body)
        if "manifests" in document:
            known = self.manifests.get(path, {})
            return [entry["digest"] for entry in document["manifests"] if entry["digest"] not in known]
        blobs = [document["config"], *document["layers"]]
        return [blob["digest"] for blob in blobs if blob["digest"] not in self.blobs.get(path, {})]

    def _reply(self, asked: Asked) -> Reply:
        parts = urlsplit(asked.target)
        if self.dialect.unasked and (barred := self._bar(asked, parts.path)):
            return barred
        match = re.fullmatch(r"/v2/(.+?)/(manifests|blobs|referrers)/(.+)", parts.path) or re.fullmatch(
            r"/v2/(.+?)/(blobs)/(uploads/)", parts.path
        )
        if not match:
            return Reply(200 if parts.path == "/v2/" else 404)
        path, kind, name = match.groups()
        if path not in self.blobs and not self.dialect.creates_repositories:
            return _errors(404, {"code": "NAME_UNKNOWN", "message": f"there is no repository {path}"})
        with self._lock:
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            if kind == "referrers":
                return self._referrers(path, name)
            return self._blob(asked, path, name, query) if kind == "blobs" else self._manifest(asked, path, name)

    def _bar(self, asked: Asked, path: str) -> Reply | None:
        """The answer to whoever has no token; None for who has one."""
        sent = asked.headers.get("authorization", "")
        if path == "/token":
            return Reply(200, b'{"token": "good"}') if sent.startswith("Basic ") else Reply(401)
        if sent == "Bearer good":
            return None
        challenge = {"WWW-Authenticate": f'Bearer realm="http://{self.host}/token"'}
        return Reply(self.dialect.unasked) if sent else Reply(401, headers=challenge)

    def _manifest(self, asked: Asked, path: str, name: str) -> Reply:
        manifests = self.manifests.setdefault(path, {})
        if asked.method == "PUT":
            missing = self._missing(path, asked.body)
            if missing and self.refusal:
                return self.refusal(missing)
            digest = f"sha256:{hashlib.sha256(asked.body).hexdigest()}"
            for key in (name, digest):
                manifests[key] = (asked.headers["content-type"], asked.body)
            subject = json.loads(asked.body).get("subject") if self.referrers else None
            listed = {"OCI-Subject": subject["digest"]} if subject else {}
            return Reply(201, headers={"Docker-Content-Digest": digest, **listed})
        if name not in manifests:
            return _errors(404, {"code": "MANIFEST_UNKNOWN"})
        media_type, body = manifests[name]
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        return Reply(200, body, {"Content-Type": media_type, "Docker-Content-Digest": digest})

    def _referrers(self, path: str, subject: str) -> Reply:
        """The referrers API (distribution specification 1.1)."""
        if not self.referrers:
            return Reply(404, b"404 page not found")
        entries = {}
        for media_type, body in self.manifests.get(path, {}).values():
            document = json.loads(body)
            if document.get("subject", {}).get("digest") == subject:
                digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
                entry = {"mediaType": media_type, "digest": digest, "size": len(body)}
                extra = {key: document[key] for key in ("artifactType", "annotations") if key in document}
                entries[digest] = entry | extra
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(entries.values())}
        return Reply(200, json.dumps(index).encode(), {"Content-Type": OCI_INDEX})

    def _upload(self, asked: Asked, path: str, name: str, query: Mapping[str, str]) -> Reply:
        """An open upload: content in a PATCH and then a PUT, or in a PUT alone."""
        if asked.method == "PATCH":
            self._parts[name] = asked.body
            return Reply(202, headers={"Location": f"/v2/{path}/blobs/{name}"})
        if asked.method == "PUT":
            content = self._parts.pop(name, b"") + asked.body
            if not (self.keeps and query["digest"] in self.blobs[path]):
                self.blobs[path][query["digest"]] = content
            return Reply(201)
        return Reply(204)

    def _blob(self, asked: Asked, path: str, name: str, query: Mapping[str, str]) -> Reply:
        blobs = self.blobs.setdefault(path, {})
        if asked.method == "POST":
            is_foreign = "origin" in query and not self.dialect.mounts_between_hosts
            source = {} if is_foreign else self.blobs.get(query.get("from", ""), {})
            if query.get("mount", "") in source:
                blobs[query["mount"]] = source[query["mount"]]
                return Reply(201)
            if self.promises and "mount" in query:
                return Reply(201)
            self._uploads += 1
            return Reply(202, headers={"Location": f"/v2/{path}/blobs/uploads/{self._uploads}"})
        if name.startswith("uploads/"):
            return self._upload(asked, path, name, query)
        if name not in blobs:
            return _errors(404, {"code": "BLOB_UNKNOWN"})
        return Reply(200, blobs[name], {"Content-Length": str(len(blobs[name]))} if asked.method == "HEAD" else {})
