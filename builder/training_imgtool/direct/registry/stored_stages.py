"""Images of stages that a repository already has, by content key: from this machine, else with one request.

A stage's image lies in the repository under `STAGE-KEY`, like a role's. Its manifest carries its config as the
descriptor's `data` (OCI image specification 1.1, "Descriptors"), so one GET brings both.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from training_imgtool.core.errors import ImgtoolError, RegistryRefusedError, VerificationError
from training_imgtool.core.json_cache import read_cache_file, write_cache_file
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.registry.memory import RepositoryMemory, make_file_name
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import Manifest, parse_manifest, require_platform, sha256_digest

_MAX_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """An image's manifest and config, exact bytes."""

    manifest: Manifest
    config: bytes


class StoredStages:
    """Looks up and keeps the manifests and configs of stages and bases."""

    def __init__(self, registries: Registries, cache: Path) -> None:
        self._registries = registries
        self._cache = cache

    def stage(self, tag: Tag) -> Stored | None:
        """The stage's image, when the repository has it."""
        path = self._path_of(tag)
        stored = _read(path)
        if stored is not None:
            return stored
        registry = self._registries.at(tag.repository)
        try:
            manifest = registry.manifest(tag)
            config = _read_inline(manifest) or registry.read(tag.repository, manifest.config)
        except RegistryRefusedError:
            return None
        stored = Stored(manifest, config)
        _write(path, stored)
        return stored

    def base(self, base: Digest, platform: str) -> Stored:
        """A base image's manifest and config; a digest never changes, so they are read once.

        Raises RegistryRefusedError when there is none, InputError when it is for another platform, and what
        reading raises.
        """
        stored = self._read_base(base)
        require_platform(stored.config, platform, f"base image {base}")
        return stored

    def _read_base(self, base: Digest) -> Stored:
        path = self._cache / "bases" / f"{make_file_name(base.digest)}.json"
        stored = _read(path)
        if stored is not None and stored.manifest.digest == base.digest:
            return stored
        registry = self._registries.at(base.repository)
        try:
            manifest = registry.manifest(base)
        except RegistryRefusedError as error:
            if registry.head(base) is not None:
                raise
            raise RegistryRefusedError(
                f"base image {base}: the registry has no such image (any more); the lock pins it",
                hint="`imgtool lock --upgrade` takes what the base's tag names now; "
                "IMGTOOL_MIRRORS names a registry that has it",
            ) from error
        stored = Stored(manifest, registry.read(base.repository, manifest.config))
        _write(path, stored)
        return stored

    def keep(self, tag: Tag, image: DirectImage) -> None:
        """Remembers a stage's image that was just pushed."""
        _write(self._path_of(tag), make_stored(image))

    def forget(self, tag: Tag) -> None:
        """Forgets a stage that the registry turned out not to have, or to have anew."""
        with contextlib.suppress(OSError):
            self._path_of(tag).unlink(missing_ok=True)

    def _path_of(self, tag: Tag) -> Path:
        return RepositoryMemory(self._cache, tag.repository).stage_file(tag)


def make_stored(image: DirectImage) -> Stored:
    """An image that was just made, as one to append to."""
    return Stored(parse_manifest(image.manifest, image.manifest_type, image.digest), image.config)


def with_inline_config(image: DirectImage) -> DirectImage:
    """The same image, its manifest carrying the config's bytes."""
    document = json.loads(image.manifest)
    document["config"] = {**document["config"], "data": base64.b64encode(image.config).decode()}
    manifest = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return replace(image, manifest=manifest, digest=sha256_digest(manifest))


def _read_inline(manifest: Manifest) -> bytes | None:
    descriptor = manifest.document.get("config")
    data = descriptor.get("data") if isinstance(descriptor, dict) else None
    if not isinstance(data, str):
        return None
    try:
        config = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        return None
    return config if sha256_digest(config) == manifest.config.digest else None


def _read(path: Path) -> Stored | None:
    """A file of the cache, if it is whole: the manifest's digest is checked, and the config against the manifest."""
    try:
        document = json.loads(read_cache_file(path, _MAX_BYTES) or b"")
        manifest = parse_manifest(base64.b64decode(document["manifest"]), str(document["type"]), str(path))
        config = base64.b64decode(document["config"])
        intact = manifest.digest == document["digest"] and sha256_digest(config) == manifest.config.digest
    except (ValueError, KeyError, TypeError, RecursionError, ImgtoolError):
        return None
    return Stored(manifest, config) if intact else None


def _write(path: Path, stored: Stored) -> None:
    """Keeps a manifest and its config."""
    if sha256_digest(stored.config) != stored.manifest.config.digest:
        raise VerificationError(f"{stored.manifest.digest}: the config is not the one that the manifest names")
    document = {
        "type": stored.manifest.media_type,
        "digest": stored.manifest.digest,
        "manifest": base64.b64encode(stored.manifest.body).decode(),
        "config": base64.b64encode(stored.config).decode(),
    }
    write_cache_file(path, json.dumps(document).encode())
