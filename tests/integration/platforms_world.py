"""A base for two processors, and the locks of a spec that is made for both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.integration.push_world import BASE, BASE_TAG, Base, Project
from tests.oci.registry.support import machine as settings_of
from training_imgtool.base.reference import parse_repository
from training_imgtool.model.load import load
from training_imgtool.model.lock import Lock
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import DOCKER_INDEX, Descriptor, sha256_digest
from training_imgtool.resolve.lock.lockfile import dump_lock, lock_inputs, lock_path, read_lock
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.versions.resolve import resolve

PLATFORMS = ["linux/amd64", "linux/arm64"]


def other_platform(base: Base) -> Base:
    """The same base for arm64."""
    config = json.dumps(json.loads(base.config) | {"architecture": "arm64", "variant": "v8"}).encode()
    document = json.loads(base.manifest)
    document["config"] |= {"digest": sha256_digest(config), "size": len(config)}
    return replace(base, config=config, manifest=json.dumps(document).encode())


def put_index(host: str, bases: dict[str, Base]) -> None:
    """Puts the bases and their index."""
    entries = []
    for platform, base in bases.items():
        base.put(host)
        os, architecture = platform.split("/")
        descriptor = Descriptor(base.media_type, base.digest, len(base.manifest)).document()
        entries.append({**descriptor, "platform": {"os": os, "architecture": architecture}})
    body = json.dumps({"schemaVersion": 2, "mediaType": DOCKER_INDEX, "manifests": entries}).encode()
    repository = parse_repository(f"{host}/{BASE}")
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        registries.at(repository).put_manifest(repository.tag(BASE_TAG), DOCKER_INDEX, body)


def lock_platforms(project: Project, bases: dict[str, Base]) -> None:
    """Writes a lock per platform by hand; TensorFlow's package has another name on each."""
    project.wheels.add("tensorflow", {"tensorflow/__init__.py": b"__version__ = '2.15.1'\n"}, version="2.15.1")
    project.lock()
    variants = read_lock(project.folder / "image.lock").variants
    for platform in PLATFORMS:
        spec_file = load(project.folder / "image.yaml").for_platform(platform)
        chosen = {variant.name: variant for variant in resolve(spec_file.spec, load_matrix()).variants}
        locked = tuple(
            replace(
                old,
                variant=(variant := chosen[old.variant.name]),
                base_digest=bases[platform].digest,
                wheels=tuple(wheel for wheel in old.wheels if wheel.name in {"dumb-init", "numpy", variant.package}),
            )
            for old in variants
        )
        lock = Lock(inputs=lock_inputs(spec_file), platform=platform, variants=locked)
        lock_path(spec_file).write_text(dump_lock(lock))
