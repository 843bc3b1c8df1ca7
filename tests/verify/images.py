"""Small images for tests of `verify`: a spec, its lock, and an image of made-up packages in a registry.

A layer maps paths to bytes, to `Link`, or to None for a whiteout. The packages are a few lines each, so that a test
makes, pushes and examines an image in a second; on a real Python base they import.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training_imgtool.core.progress import silent
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.core.settings import Settings
from training_imgtool.lock.lockfile import dump_lock, lock_inputs
from training_imgtool.pipeline.inputs import Inputs, prepare
from training_imgtool.plan import Lock, LockedVariant
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST, Descriptor, sha256_digest
from training_imgtool.spec.load import load

TENSORFLOW = """
__version__ = "2.15.1"

class sysconfig:
    get_build_info = staticmethod(lambda: {"is_cuda_build": False})

class config:
    list_physical_devices = staticmethod(lambda kind: [])

class device:
    def __init__(self, name): pass
    __enter__ = __exit__ = lambda self, *rest: None

class Product:
    def __init__(self, rows): self.rows = rows
    def numpy(self): return self
    def tolist(self): return self.rows

def matmul(one, other):
    return Product([[sum(a * b[0] for a, b in zip(row, other))] for row in one])

executing_eagerly = lambda: True
"""
TRAINER = """
import os
import numpy
import tensorflow as tf
from trainer.model import layers

if __name__ == "__main__":
    raise SystemExit("it was run, not imported")
"""
SPEC = """
name: toy
tensorflow: "2.15.1"
python: "3.11"
accelerator: {accelerator}
env: {{TF_CPP_MIN_LOG_LEVEL: "2"}}
roles:
  master: {{machine: n1-standard-4}}
"""


@dataclass(frozen=True)
class Link:
    """A symbolic link, or a hard one."""

    target: str
    hard: bool = False


@dataclass(frozen=True)
class Raw:
    """An entry as tar has it."""

    data: bytes
    mode: int = 0o644
    uid: int = 0
    kind: bytes = tarfile.REGTYPE
    capability: bool = False


FOLDER = Raw(b"", mode=0o755, kind=tarfile.DIRTYPE)
Layer = Mapping[str, bytes | Link | Raw | None]
Change = Callable[[dict[str, Any]], None]


def write_spec(folder: Path, locked: LockedVariant, *, more: str = "") -> Path:
    """A spec with its trainer and a lock that fits; returns the folder."""
    (folder / "trainer").mkdir(parents=True, exist_ok=True)
    (folder / "trainer/__init__.py").write_text("")
    (folder / "trainer/model.py").write_text("layers = 2\n")
    (folder / "trainer/task.py").write_text(TRAINER)
    (folder / "image.yaml").write_text(SPEC.format(accelerator=locked.variant.accelerator) + more)
    spec_file = load(folder / "image.yaml")
    chosen = replace(locked, variant=replace(locked.variant, roles=tuple(spec_file.spec.roles)))
    lock = Lock(inputs=lock_inputs(spec_file), platform="linux/amd64", variants=(chosen,))
    (folder / "image.lock").write_text(dump_lock(lock))
    return folder


def inputs_of(folder: Path, settings: Settings) -> Inputs:
    """The spec's inputs; a lock that is not current fails."""
    return prepare(load(folder / "image.yaml"), settings, silent, locked=True)


def package(site: str, name: str, version: str, files: Mapping[str, bytes], requires: tuple[str, ...] = ()) -> Layer:
    """An installed package: its files, METADATA and a right RECORD."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires) + "\nA made-up package.\n\nVersion: 0\n"
    members = {**files, f"{info}/METADATA": metadata.encode()}
    rows = []
    for path, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{path},sha256={digest},{len(data)}\r\n")
    members[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\r\n"]).encode()
    return {f"{site}/{path}": data for path, data in members.items()}


def derive(
    registries: Registries, good: Digest, layers: Sequence[Layer | bytes], change: Change | None, target: Tag
) -> Digest:
    """Pushes an image with further layers on a good one, under `target`."""
    manifest = registries.at(good.repository).manifest(good)
    config = json.loads(registries.at(good.repository).read(good.repository, manifest.config))
    return _put(registries, good.repository, list(manifest.layers), config, layers, change, target)


def _put(  # noqa: PLR0917 - its callers are all above
    registries: Registries,
    source: Repository,
    below: list[Descriptor],
    config: dict[str, Any],
    layers: Sequence[Layer | bytes],
    change: Change | None,
    target: Tag,
) -> Digest:
    registry, repository = registries.at(target.repository), target.repository
    for descriptor in below:
        if source != repository:
            registries.copy_blob(source, descriptor, repository)
    descriptors = list(below)
    for layer in layers:
        archive = layer if isinstance(layer, bytes) else tar(layer)
        data = gzip.compress(archive, mtime=0)
        descriptor = Descriptor(OCI_LAYER_GZIP, sha256_digest(data), len(data))
        registry.upload(repository, descriptor, lambda data=data: iter((data,)))  # type: ignore[misc]
        descriptors.append(descriptor)
        config["rootfs"]["diff_ids"].append(sha256_digest(archive))
        config["history"] = [*(config.get("history") or []), {"created_by": "COPY somewhere"}]
    if change:
        change(config)
    body = json.dumps(config).encode()
    blob = Descriptor(OCI_CONFIG, sha256_digest(body), len(body))
    registry.upload(repository, blob, lambda: iter((body,)))
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": blob.document(),
        "layers": [{**one.document(), "mediaType": OCI_LAYER_GZIP} for one in descriptors],
    }
    return repository.digest(registry.put_manifest(target, OCI_MANIFEST, json.dumps(document).encode()))


def tar(layer: Layer) -> bytes:
    """A layer's archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in layer.items():
            member = tarfile.TarInfo(path)
            if content is None:
                folder, _, name = path.rpartition("/")
                member.name = f"{folder}/.wh.{name}".lstrip("/")
            if isinstance(content, Link):
                member.type = tarfile.LNKTYPE if content.hard else tarfile.SYMTYPE
                member.linkname = content.target
            data = content if isinstance(content, bytes) else b""
            member.mode = 0o755 if "/bin/" in path else 0o644
            if isinstance(content, Raw):
                data, member.mode, member.uid, member.type = content.data, content.mode, content.uid, content.kind
                member.pax_headers = {"SCHILY.xattr.security.capability": "x"} if content.capability else {}
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
