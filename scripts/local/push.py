"""Puts an image of a few tar layers into a registry on this machine, with the standard library alone.

It exists so that stand-in bases can be had on a machine without Docker, and without imgtool itself.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Layer:
    """A layer as a gzip file."""

    path: Path
    digest: str
    diff_id: str
    size: int


class PushError(Exception):
    """The registry did not take something."""


def compress(tar: Path, target: Path, level: int) -> Layer:
    """Makes the layer `target` from a tar with gzip's `level`; the same tar gives the same bytes."""
    diff_id = hashlib.sha256()
    new = target.with_suffix(".new")
    with tar.open("rb") as source, new.open("wb") as raw, gzip.GzipFile("", "wb", level, raw, mtime=0) as packed:
        while block := source.read(_BLOCK):
            diff_id.update(block)
            packed.write(block)
    new.replace(target)
    layer = Layer(target, _sha256(target), f"sha256:{diff_id.hexdigest()}", target.stat().st_size)
    target.with_suffix(".json").write_text(json.dumps({"digest": layer.digest, "diff_id": layer.diff_id}))
    return layer


def compressed(target: Path) -> Layer | None:
    """The layer that `compress` made earlier, or None when it is missing or damaged."""
    try:
        layer = json.loads(target.with_suffix(".json").read_text())
        if _sha256(target) != layer["digest"]:
            return None
        return Layer(target, layer["digest"], layer["diff_id"], target.stat().st_size)
    except (OSError, ValueError, KeyError):
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


class Registry:
    """One registry, spoken to in plain HTTP."""

    def __init__(self, address: str) -> None:
        self._address = address

    def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request on a connection of its own; raises PushError when nothing answers."""
        connection = http.client.HTTPConnection(self._address, timeout=120, blocksize=_BLOCK)
        try:
            connection.request(method, path, body, dict(headers or {}))  # type: ignore[arg-type]
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise PushError(f"{self._address}: {error}") from error
        finally:
            connection.close()

    def labels(self, repository: str, tag: str) -> Mapping[str, str] | None:
        """The labels of an image that is there, or None when the tag is not."""
        status, _, body = self.request("GET", f"/v2/{repository}/manifests/{tag}", None, {"Accept": _MANIFEST})
        if status != http.HTTPStatus.OK:
            return None
        manifest = json.loads(body)
        if "config" not in manifest:
            return {}
        status, _, body = self.request("GET", f"/v2/{repository}/blobs/{manifest['config']['digest']}")
        if status != http.HTTPStatus.OK:
            return None
        return json.loads(body).get("config", {}).get("Labels") or {}

    def put_blob(self, repository: str, digest: str, path: Path) -> None:
        """Uploads a file in one request unless the repository has it."""
        if self.request("HEAD", f"/v2/{repository}/blobs/{digest}")[0] == http.HTTPStatus.OK:
            return
        status, headers, body = self.request("POST", f"/v2/{repository}/blobs/uploads/")
        if status != http.HTTPStatus.ACCEPTED:
            raise PushError(f"{self._address}: an upload to {repository} was answered with {status}: {body[:200]!r}")
        where = urlsplit(headers["Location"])
        query = f"{where.query}&digest={digest}" if where.query else f"digest={digest}"
        size = {"Content-Length": str(path.stat().st_size), "Content-Type": "application/octet-stream"}
        with path.open("rb") as stream:
            status, _, body = self.request("PUT", f"{where.path}?{query}", stream, size)
        if status != http.HTTPStatus.CREATED:
            raise PushError(f"{self._address}: the layer of {repository} was answered with {status}: {body[:200]!r}")

    def put_image(
        self,
        repository: str,
        tag: str,
        layers: list[Layer],
        config: Mapping[str, object],
        *,
        created: str,
        scratch: Path,
    ) -> str:
        """Pushes an image and returns its digest, after the registry has answered for it.

        Args:
            repository: the path in the registry.
            tag: the tag to set.
            layers: lowest first.
            config: the `config` member of the image configuration: Env, Cmd, Labels.
            created: the image's date, RFC 3339.
            scratch: a folder for the configuration on its way.
        """
        image = {
            "architecture": "amd64",
            "config": config,
            "created": created,
            "history": [{"created": created, "created_by": "imgtool stand-in base"} for _ in layers],
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        }
        file = scratch / "config.json"
        file.write_text(json.dumps(image, sort_keys=True, separators=(",", ":")))
        digest = _sha256(file)
        for layer in layers:
            self.put_blob(repository, layer.digest, layer.path)
        self.put_blob(repository, digest, file)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "size": file.stat().st_size, "digest": digest},
            "layers": [{"mediaType": _LAYER, "size": layer.size, "digest": layer.digest} for layer in layers],
        }
        body = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
        name = f"/v2/{repository}/manifests"
        status, _, answer = self.request("PUT", f"{name}/{tag}", body, {"Content-Type": _MANIFEST})
        pushed = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if status != http.HTTPStatus.CREATED:
            raise PushError(
                f"{self._address}: the manifest of {repository} was answered with {status}: {answer[:200]!r}"
            )
        if self.request("HEAD", f"{name}/{pushed}", None, {"Accept": _MANIFEST})[0] != http.HTTPStatus.OK:
            raise PushError(f"{self._address}: {repository}@{pushed} is not there after its push")
        return pushed
