"""A base image that needs no download: busybox, and a `python` that does nothing; put into a registry by hand."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BASE_REPOSITORY = "library/python"
BASE_TAG = "3.11-slim-bookworm"
_BUSYBOX = Path("/bin/busybox")
_PROGRAMS = ("sh", "cat", "cp", "echo", "env", "false", "ln", "ls", "mkdir", "printf", "rm", "seq", "sleep", "true")
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Image:
    """An image's three parts."""

    manifest: bytes
    config: bytes
    layer: bytes

    @property
    def digest(self) -> str:
        """What names it."""
        return _digest(self.manifest)


@cache
def base_image(platform: str = "linux/amd64") -> Image:
    """The stand-in for python:3.11-slim-bookworm, the same bytes each time; its config names `platform`."""
    tar = _layer()
    layer = gzip.compress(tar, 1, mtime=0)
    config = json.dumps(
        {
            **dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False)),
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(tar)]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "tests"}],
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _described(config, "application/vnd.docker.container.image.v1+json"),
            "layers": [_described(layer, "application/vnd.docker.image.rootfs.diff.tar.gzip")],
        }
    ).encode()
    return Image(manifest, config, layer)


def put_base(host: str, tag: str = BASE_TAG, platform: str = "linux/amd64") -> None:
    """Puts the base into the registry at HOST:PORT."""
    image = base_image(platform)
    connection = http.client.HTTPConnection(host, timeout=20)
    for blob in (image.layer, image.config):
        connection.request("POST", f"/v2/{BASE_REPOSITORY}/blobs/uploads/")
        begun = connection.getresponse()
        begun.read()
        _, _, place = begun.headers["Location"].partition(host)
        connection.request("PUT", f"{place}&digest={_digest(blob)}", blob)
        _done(connection)
    put_manifest(connection, tag, image.manifest)
    connection.close()


def put_manifest(connection: http.client.HTTPConnection, tag: str, manifest: bytes) -> None:
    """Lets a tag of the base's repository name this manifest."""
    connection.request("PUT", f"/v2/{BASE_REPOSITORY}/manifests/{tag}", manifest, {"Content-Type": _MANIFEST})
    _done(connection)


def _done(connection: http.client.HTTPConnection) -> None:
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 201, text


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _described(data: bytes, media_type: str) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "tmp", "usr", "usr/bin", "usr/local", "usr/local/bin", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        files = {"etc/os-release": b"ID=debian\nVERSION_ID=12\n", "usr/local/bin/python3.11": b"#!/bin/sh\nexit 0\n"}
        if _BUSYBOX.is_file():  # without it only an engine misses something
            files["bin/busybox"] = _BUSYBOX.read_bytes()
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(data)
            tar.addfile(entry, io.BytesIO(data))
        for name in _PROGRAMS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return buffer.getvalue()
