"""Small images for tests of `verify`: a spec, its lock, and an image of made-up packages in a registry.

A layer maps paths to bytes. The packages are a few lines each, so that a test makes, pushes and examines an image in a
second; on a real Python base they import.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from training_imgtool.base.reference import Digest, Tag
from training_imgtool.base.settings import Settings
from training_imgtool.model.load import load
from training_imgtool.model.lock import Lock, LockedVariant
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import OCI_LAYER_GZIP, Descriptor, sha256_digest
from training_imgtool.plan.inputs import Inputs, prepare
from training_imgtool.plan.project_files import SpecChoice
from training_imgtool.resolve.lock.lockfile import dump_lock, lock_inputs

TENSORFLOW = """
__version__ = "2.15.1"

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


Layer = Mapping[str, bytes]


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
    return prepare(load(folder / "image.yaml"), Machine.open(settings), SpecChoice(locked=True))


def derive(registries: Registries, good: Digest, layers: Sequence[Layer], target: Tag) -> Digest:
    """Pushes an image with further layers on a good one, under `target`."""
    source, repository = good.repository, target.repository
    registry, manifest = registries.at(repository), registries.at(source).manifest(good)
    config = json.loads(registries.at(source).read(source, manifest.config))
    document = json.loads(manifest.body)
    for descriptor in manifest.layers:
        if source != repository:
            registries.copy_blob(source, descriptor, repository)
    for layer in layers:
        archive = tar(layer)
        data = gzip.compress(archive, mtime=0)
        descriptor = Descriptor(OCI_LAYER_GZIP, sha256_digest(data), len(data))
        registry.upload(repository, descriptor, lambda data=data: iter((data,)))  # type: ignore[misc]
        document["layers"].append(document["layers"][-1] | {"digest": descriptor.digest, "size": descriptor.size})
        config["rootfs"]["diff_ids"].append(sha256_digest(archive))
        config["history"].append({"created_by": "COPY somewhere"})
    body = json.dumps(config).encode()
    document["config"] |= {"digest": sha256_digest(body), "size": len(body)}
    blob = Descriptor(document["config"]["mediaType"], sha256_digest(body), len(body))
    registry.upload(repository, blob, lambda: iter((body,)))
    return repository.digest(registry.put_manifest(target, manifest.media_type, json.dumps(document).encode()))


def tar(layer: Layer) -> bytes:
    """A layer's archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in layer.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
