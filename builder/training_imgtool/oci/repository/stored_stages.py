"""Finds the image of a stage by the stage's key, in this machine's cache or with one request to the registry.

The cache contains only stages that this machine made or an engine made for it, because everyone who may push to the
repository can move a stage's tag.

A stage's image has the tag `STAGE-KEY` in the repository. The manifest contains the whole config, in the field `data`
of the config's descriptor (OCI image specification 1.1, "Descriptors"), so that one GET returns manifest and config.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from training_imgtool.base.errors import ImgtoolError, RegistryRefusedError, VerificationError
from training_imgtool.base.json_cache import make_file_name, read_cached, write_cached
from training_imgtool.base.reference import Digest, Repository, Tag
from training_imgtool.oci.image.image import DirectImage, StoredImage
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import Manifest, parse_manifest, require_platform, sha256_digest

_MAX_BYTES = 32 << 20
_KEY_DIGITS = 32  # as many as in a role's tag


def tag_of_stage(repository: Repository, label: str, key: str) -> Tag:
    """Returns the tag of a stage's image: the stage's label and the first digits of the stage's key."""
    return repository.tag(f"{label}-{key[:_KEY_DIGITS]}")


class StoredStages:
    """Reads and caches the manifests and configs of stages and bases."""

    def __init__(self, registries: Registries, cache: Path) -> None:
        self._registries = registries
        self._cache = cache

    def stage(self, tag: Tag) -> StoredImage | None:
        """Returns the stage's image if the repository has it."""
        if stored := _read(self._path_of(tag), tag.repository):
            return stored
        return self.find(tag)

    def find(self, ref: Tag | Digest) -> StoredImage | None:
        """Returns an image if the repository has it, without the cache."""
        registry = self._registries.at(ref.repository)
        try:
            manifest = registry.manifest(ref)
            config = _read_inline(manifest) or registry.read(ref.repository, manifest.config)
        except RegistryRefusedError:
            return None
        return StoredImage(manifest, config, ref.repository)

    def base(self, base: Digest, platform: str) -> StoredImage:
        """Returns a base image's manifest and config; requests them only once.

        Raises RegistryRefusedError if the base is missing, InputError if the base is for another platform, and the same
        errors as `Registry.manifest` and `Registry.read`.
        """
        stored = self._read_base(base)
        require_platform(stored.config, platform, f"base image {base}")
        return stored

    def _read_base(self, base: Digest) -> StoredImage:
        path = self._cache / "bases" / make_file_name(base.digest)
        stored = _read(path, base.repository)
        if stored is not None and stored.manifest.digest == base.digest:
            return stored
        registry = self._registries.at(base.repository)
        try:
            manifest = registry.manifest(base)
        except RegistryRefusedError as error:
            if registry.head(base) is not None:
                raise
            raise RegistryRefusedError(
                f"base image {base}: the lock pins this image, but the registry does not have it (any more)",
                hint="run `imgtool lock --upgrade` to lock the image that the base's tag names now, "
                "or set IMGTOOL_MIRRORS to a registry that has the locked image",
            ) from error
        stored = StoredImage(manifest, registry.read(base.repository, manifest.config), base.repository)
        _write(path, stored)
        return stored

    def keep(self, tag: Tag, stored: StoredImage) -> None:
        """Caches the image of a stage that this machine made."""
        _write(self._path_of(tag), stored)

    def forget(self, tag: Tag) -> None:
        """Removes a stage's image from the cache because the registry has lost it, or has another image."""
        with contextlib.suppress(OSError):
            self._path_of(tag).unlink(missing_ok=True)

    def _path_of(self, tag: Tag) -> Path:
        return self._cache / "stages" / make_file_name(str(tag))


def make_stored(image: DirectImage, repository: Repository) -> StoredImage:
    """Converts a pushed image to a StoredImage, to which stages can be appended."""
    return StoredImage(parse_manifest(image.manifest, image.manifest_type, image.digest), image.config, repository)


def as_stage(image: DirectImage, annotations: Mapping[str, str]) -> DirectImage:
    """Adds annotations and the whole config to the config's descriptor in the manifest; returns the new image."""
    document = json.loads(image.manifest)
    document["config"]["data"] = base64.b64encode(image.config).decode()
    if annotations:  # Docker's manifests have no annotations, but registries accept those of a descriptor
        document["config"]["annotations"] = dict(annotations)
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


def _read(path: Path, repository: Repository) -> StoredImage | None:
    """Reads a file of the cache, and checks the manifest's digest and the config's digest."""
    try:
        document = read_cached(path, _MAX_BYTES)
        manifest = parse_manifest(base64.b64decode(document["manifest"]), str(document["type"]), str(path))
        config = base64.b64decode(document["config"])
        intact = manifest.digest == document["digest"] and sha256_digest(config) == manifest.config.digest
    except (ValueError, KeyError, TypeError, RecursionError, ImgtoolError):
        return None
    return StoredImage(manifest, config, repository) if intact else None


def _write(path: Path, stored: StoredImage) -> None:
    """Writes a manifest and its config into the cache."""
    if sha256_digest(stored.config) != stored.manifest.config.digest:
        raise VerificationError(f"{stored.manifest.digest}: the manifest names another config")
    document = {
        "type": stored.manifest.media_type,
        "digest": stored.manifest.digest,
        "manifest": base64.b64encode(stored.manifest.body).decode(),
        "config": base64.b64encode(stored.config).decode(),
    }
    write_cached(path, document, _MAX_BYTES)
