"""Reads manifests without network access: media types, descriptors, and an index's image for a platform.

Formats: OCI image specification 1.1 (manifest, index, descriptor) and Docker's image manifest version 2,
schema 2, whose documents differ only in media types.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from training_imgtool.base.errors import InputError, RegistryRefusedError, VerificationError
from training_imgtool.base.reference import InvalidReferenceError, check_digest

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
OCI_LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
OCI_EMPTY = "application/vnd.oci.empty.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER_GZIP = "application/vnd.docker.image.rootfs.diff.tar.gzip"

MANIFEST_TYPES = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX)
INDEX_TYPES = frozenset({OCI_INDEX, DOCKER_INDEX})
LARGEST_MANIFEST = 4 * 1024 * 1024  # bytes that every registry accepts (distribution specification 1.1)
_LARGEST_CHILDREN = 10_000
_IMPLIED = {"amd64": "v1", "arm": "v7", "arm64": "v8"}  # variants by architecture


class NoPlatformError(RegistryRefusedError):
    """An index has no image for a platform."""


def sha256_digest(data: bytes) -> str:
    """Returns `sha256:` and the hash of `data` in hexadecimal."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Describes a blob or a manifest: media type, digest, and size in bytes."""

    media_type: str
    digest: str
    size: int

    def document(self) -> dict[str, Any]:
        """Returns the descriptor as a JSON object for a manifest."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}

    @property
    def short(self) -> str:
        """Returns the first 12 digits of the digest, for messages."""
        return self.digest.removeprefix("sha256:")[:12]


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and processor, such as `linux/amd64` or `linux/arm/v7`."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))

    @property
    def normal(self) -> Platform:
        """Returns the platform without a variant that the architecture implies, as containerd does (v8 of arm64)."""
        return replace(self, variant="") if _IMPLIED.get(self.architecture) == self.variant else self


def parse_platform(text: str) -> Platform:
    """Parses `OS/ARCH[/VARIANT]`; raises InvalidReferenceError otherwise."""
    parts = text.split("/")
    if len(parts) not in {2, 3} or not all(parts):
        raise InvalidReferenceError(f"{text!r} is not a platform: expected OS/ARCHITECTURE such as linux/amd64")
    return Platform(*parts)


def require_platform(config: bytes, platform: str, image: str) -> None:
    """Checks that an image's config (`os`, `architecture`, `variant`) names the expected platform.

    A single manifest does not name the image's platform, and an index may name a wrong platform. Engines use the
    platform in the config when they start the image. A config without a variant matches every variant.

    Args:
        config: the image's config, a JSON document.
        platform: the expected platform, `OS/ARCH[/VARIANT]`.
        image: the image's name for messages.

    Raises:
        InputError: the image is for another platform.
        VerificationError: the config names no platform.
    """
    try:
        document = read_document(config)
        parts = [document["os"], document["architecture"], document.get("variant") or ""]
    except (ValueError, KeyError, TypeError, AttributeError):
        parts = []
    if not parts or not all(isinstance(part, str) for part in parts) or not all(parts[:2]):
        raise VerificationError(f"{image}: its config names no platform, so imgtool cannot tell where the image runs")
    actual, wanted = Platform(*parts), parse_platform(platform)
    if actual.normal not in {wanted.normal, replace(wanted, variant="")}:
        shown = "".join(letter if letter.isprintable() else "?" for letter in str(actual)[:60])
        raise InputError(
            f"{image} is an image for {shown}, but the spec's platform is {platform}",
            hint="set `platform:` to the base's, or name a base for this platform; a `docker push` from a machine "
            "with another platform may have replaced the base",
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest or index, as exact bytes and as a JSON object.

    Attributes:
        media_type: one of MANIFEST_TYPES.
        digest: the digest of `body`.
        body: the bytes that the registry stores; a copy of an image must have exactly these bytes.
        document: the JSON object, including unknown fields. Do not change it.
    """

    media_type: str
    digest: str
    body: bytes
    document: Mapping[str, Any]

    @property
    def is_index(self) -> bool:
        """Returns whether this is an index, which names one manifest per platform."""
        return self.media_type in INDEX_TYPES

    @property
    def entries(self) -> tuple[tuple[Mapping[str, Any], Descriptor], ...]:
        """Returns each entry of an index as JSON and as a descriptor; raises VerificationError if one is invalid."""
        entries = self.document.get("manifests")
        if not isinstance(entries, list) or len(entries) > _LARGEST_CHILDREN:
            raise VerificationError(f"the index {self.digest} has no readable list of manifests")
        return tuple(
            (entry, read_descriptor(entry, f"{self.digest}: manifests[{number}]"))
            for number, entry in enumerate(entries)
        )

    @property
    def descriptor(self) -> Descriptor:
        """Returns this manifest's own descriptor."""
        return Descriptor(self.media_type, self.digest, len(self.body))

    @property
    def config(self) -> Descriptor:
        """Reads the descriptor of the image's config; raises VerificationError if the manifest has none."""
        return read_descriptor(self.document.get("config"), f"{self.digest}: config")

    @property
    def layers(self) -> tuple[Descriptor, ...]:
        """Reads the layers' descriptors, lowest first; raises VerificationError if one is not a descriptor."""
        layers = self.document.get("layers")
        if not isinstance(layers, list):
            raise VerificationError(f"manifest {self.digest} has no list of layers")
        return tuple(read_descriptor(layer, f"{self.digest}: layers[{number}]") for number, layer in enumerate(layers))


def read_descriptor(value: Any, where: str) -> Descriptor:
    """Reads a descriptor from JSON of a registry; raises VerificationError, which names the wrong field."""
    if not isinstance(value, dict):
        raise VerificationError(f"{where} is not a descriptor")
    size, media_type = value.get("size"), value.get("mediaType", "")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 63:
        raise VerificationError(f"{where} is not a descriptor: its size is wrong")
    if not isinstance(media_type, str) or not (media_type.isascii() and media_type.isprintable()):
        raise VerificationError(f"{where} is not a descriptor: its mediaType is wrong")
    try:
        return Descriptor(media_type, check_digest(str(value.get("digest"))), size)
    except InvalidReferenceError as error:
        raise VerificationError(f"{where}: {error.message}") from error


def read_document(data: bytes) -> Any:
    """Reads a manifest, an image config or an attestation; raises ValueError if readers might interpret it differently.

    The document must be UTF-8, without duplicate names, invalid numbers or very deep nesting.
    """
    try:
        document = json.loads(data.decode(), object_pairs_hook=_join_pairs, parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()  # each reader treats half of a surrogate pair differently
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a valid JSON number")


def _join_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    joined = dict(pairs)
    if len(joined) < len(pairs):
        raise ValueError("a name occurs twice")
    return joined


def parse_manifest(body: bytes, content_type: str, where: str) -> Manifest:
    """Reads a manifest's bytes.

    Args:
        body: the bytes from the registry.
        content_type: the Content-Type header, used if the document has no `mediaType` of its own.
        where: the reference, for messages.

    Raises:
        VerificationError: engines might read the JSON differently, or header and document name different types.
        RegistryRefusedError: the type is neither an image nor an index, such as Docker's schema 1.
    """
    try:
        document = read_document(body)
    except ValueError as error:
        raise VerificationError(
            f"{where}: the registry's manifest is not JSON that every engine reads",
            hint="check that the host is a registry",
        ) from error
    if not isinstance(document, dict):
        raise VerificationError(f"{where}: the registry's manifest is not a JSON object")
    if "layers" in document and "manifests" in document:
        raise VerificationError(f"{where}: the manifest has `layers` and `manifests`; programs may read it differently")
    header = content_type.partition(";")[0].strip().lower()
    named = document.get("mediaType")
    if isinstance(named, str) and header in MANIFEST_TYPES and named != header:
        raise VerificationError(f"{where}: the registry names the type {header}, but the manifest names {named}")
    media_type = named if isinstance(named, str) else header
    if media_type not in MANIFEST_TYPES and document.get("schemaVersion") == 2:
        media_type = OCI_INDEX if "manifests" in document else OCI_MANIFEST if "layers" in document else media_type
    if media_type not in MANIFEST_TYPES:
        raise RegistryRefusedError(
            f"{where}: the registry holds a manifest of type {media_type[:100]!r}, not an image",
            hint="images of Docker's schema 1 must be pushed again with a current Docker",
        )
    return Manifest(media_type, sha256_digest(body), body, MappingProxyType(document))


def choose(index: Manifest, platform: Platform, where: str) -> Descriptor:
    """Finds the image for a platform in an index. Ignores attestations, which have the platform `unknown/unknown`.

    Prefers an entry with exactly this platform to one with an equivalent platform, such as arm64/v8 for arm64.

    Raises:
        NoPlatformError: the index has no such image.
        VerificationError: the index is malformed.
    """
    offered: list[tuple[Platform, Descriptor]] = []
    for entry, descriptor in index.entries:
        of_entry = platform_of(entry)
        if of_entry is not None and descriptor.media_type in MANIFEST_TYPES:
            offered.append((of_entry, descriptor))
    same = [item for item in offered if item[0].normal == platform.normal]
    exact = [item for item in same if item[0] == platform]
    if same:
        return (exact or same)[0][1]
    names = ", ".join(sorted({str(entry)[:40] for entry, _ in offered})[:20]) or "none"
    raise NoPlatformError(f"{where} has no image for {platform}; it has: {names}")


def platform_of(entry: Mapping[str, Any]) -> Platform | None:
    """Reads the platform of an index's entry; returns None if the entry has no platform or is an attestation."""
    platform = entry.get("platform")
    if not isinstance(platform, dict):
        return None
    os, architecture = platform.get("os"), platform.get("architecture")
    if not isinstance(os, str) or not isinstance(architecture, str) or "unknown" in {os, architecture}:
        return None
    variant = platform.get("variant")
    return Platform(os, architecture, variant if isinstance(variant, str) else "")


def index_entry(manifest: Manifest, config: Mapping[str, Any]) -> dict[str, Any]:
    """Makes an image's entry for an index, with the platform of the image's config."""
    platform = {key: config[key] for key in ("architecture", "os", "variant") if config.get(key)}
    return {**manifest.descriptor.document(), "platform": platform}


def index_body(entries: Iterable[Mapping[str, Any]]) -> tuple[str, bytes]:
    """Makes an index, in Docker's format if all images have it, else in OCI's; returns media type and bytes."""
    rows = [dict(entry) for entry in entries]
    docker = all(row["mediaType"] == DOCKER_MANIFEST for row in rows)
    media_type = DOCKER_INDEX if docker else OCI_INDEX
    document = {"schemaVersion": 2, "mediaType": media_type, "manifests": rows}
    return media_type, json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
