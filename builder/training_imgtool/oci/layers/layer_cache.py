"""Stores records of layers (digest, diff ID and size), each under a key that covers all inputs of the layers.

A record is a small JSON document that contains the record's key and a hash of the other fields, so imgtool detects a
damaged record. The manifest of a stage contains the records of the wheels' layers as an annotation, so that a second
machine can reuse the layers without the wheels. Everyone who may push can write such an annotation, so a push uses its
records for layers of wheels only, and stores nothing of them in the cache. The cache also stores the layers of wheels
and of Debian packages, as blobs that are named by their digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_imgtool.base.atomic_files import create_temporary_file, mark_used
from training_imgtool.base.errors import LocalFileError, VerificationError
from training_imgtool.base.json_cache import read_cache_file
from training_imgtool.base.reference import InvalidReferenceError, check_digest
from training_imgtool.base.settings import OTHER_CACHE
from training_imgtool.oci.registry.manifests import OCI_LAYER_GZIP, OCI_LAYER_ZSTD, Descriptor, read_descriptor

RECORDS = "dev.imgtool.records"  # name of the annotation
_BLOCK = 1 << 20
_MAX_RECORD = 64 << 20  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecord:
    """A layer that was made before: `blob` is its descriptor in manifests, `diff_id` the hash of its tar archive."""

    name: str
    blob: Descriptor
    diff_id: str


def hash_fields(fields: Mapping[str, Any]) -> str:
    """Returns the hash of `fields`, 64 hexadecimal digits, which is the key of a record."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """The layers that were made for one key; `claims` summarises the layers' paths (`path_conflicts`), if known."""

    layers: tuple[LayerRecord, ...]
    claims: Mapping[str, str] | None = None


def dump_record(key: str, record: Record) -> bytes:
    """Formats a record as JSON; equal records give equal bytes."""
    body: dict[str, Any] = {
        "key": key,
        "layers": [{"name": layer.name, **layer.blob.document(), "diffID": layer.diff_id} for layer in record.layers],
    }
    if record.claims is not None:
        body["claims"] = dict(record.claims)
    return json.dumps({**body, "check": hash_fields(body)}, sort_keys=True, indent=1).encode() + b"\n"


def read_record(data: bytes, key: str) -> Record:
    """Reads a record; raises VerificationError if it is damaged or belongs to another key."""
    try:
        body = json.loads(data)
        if body.pop("check") != hash_fields(body) or body["key"] != key:
            raise VerificationError(f"layer record {key[:12]} is damaged, or has another key")
        layers = tuple(
            LayerRecord(
                name=str(layer["name"]),
                blob=read_descriptor(layer, f"layer record {key[:12]}"),
                diff_id=check_digest(layer["diffID"]),
            )
            for layer in body["layers"]
        )
        if len({layer.blob.digest for layer in layers}) < len(layers):
            raise VerificationError(f"layer record {key[:12]}: names a layer twice")
        if not {layer.blob.media_type for layer in layers} <= {OCI_LAYER_GZIP, OCI_LAYER_ZSTD}:
            raise VerificationError(f"layer record {key[:12]}: contains an entry that is not a layer")
        claims = body.get("claims")
        return Record(layers, {str(path): str(claims[path]) for path in claims} if claims is not None else None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidReferenceError) as error:
        raise VerificationError(f"layer record {key[:12]} cannot be read: {error}") from error


def dump_records(records: Mapping[str, Record]) -> str:
    """Formats records as the text of the annotation `RECORDS`; equal records give equal texts."""
    return json.dumps({key: dump_record(key, records[key]).decode() for key in sorted(records)})


def read_records(annotations: object) -> dict[str, Record]:
    """Reads the records in a manifest's annotations; returns {} if the records are damaged or missing."""
    text = annotations.get(RECORDS) if isinstance(annotations, dict) else None
    try:
        return {key: read_record(record.encode(), key) for key, record in json.loads(text or "{}").items()}
    except (ValueError, AttributeError, RecursionError, VerificationError):
        return {}


class LayerCache:
    """Stores records and blobs in a folder.

    Several processes may use it, because a file gets its name once it is complete.

    Args:
        folder: the folder.
        use_cache: if false, the cache finds no record but keeps new ones (`--no-cache`).

    Attributes:
        use_cache: whether the cache finds records.
        given: records of wheels' layers from the images' own repository; the folder does not keep them.
        used: the records of wheels' layers in this run.
    """

    def __init__(self, folder: Path, *, use_cache: bool = True) -> None:
        self.use_cache = use_cache
        self.given: dict[str, Record] = {}
        self.used: dict[str, Record] = {}
        self._records = folder / "layers"
        self._blobs = folder / "blobs" / "sha256"

    def find(self, key: str) -> Record | None:
        """Returns the record of `key` from the folder; None if it is missing or damaged."""
        return self._read(key) if self.use_cache else None

    def find_wheels(self, key: str) -> Record | None:
        """Returns the record of wheels' layers from the folder or from `given`; None if it is missing or damaged."""
        record = self.find(key) or (self.given.get(key) if self.use_cache else None)
        if record is not None:
            self.used[key] = record
        return record

    def keep_wheels(self, key: str, record: Record) -> None:
        """Stores a record as `keep` does; another machine may get it by the stage's manifest."""
        self.keep(key, record)
        self.used[key] = record

    @property
    def is_own(self) -> bool:
        """Whether this machine made all layers of wheels that this run uses."""
        return not any(self.given.get(key) is record for key, record in self.used.items())

    def keep(self, key: str, record: Record) -> None:
        """Stores the record of the layers that this machine made for `key`; raises LocalFileError if that fails."""
        self._write(self._records / key[:2] / f"{key}.json", (dump_record(key, record),))

    def records_of(self, layers: Collection[str]) -> dict[str, Record]:
        """Returns the records used in this run that consist only of layers whose digests are in `layers`."""
        return {
            key: record
            for key, record in self.used.items()
            if record.layers and all(layer.blob.digest in layers for layer in record.layers)
        }

    def _read(self, key: str) -> Record | None:
        path = self._records / key[:2] / f"{key}.json"
        try:
            data = read_cache_file(path, _MAX_RECORD)
            if data is not None:
                mark_used(path, path.stat())
                return read_record(data, key)
        except OSError:
            pass
        except VerificationError:
            self.forget(key)
        return None

    def forget(self, key: str) -> None:
        """Deletes the record of `key`; the caller knows that the record is wrong."""
        self.given.pop(key, None)
        (self._records / key[:2] / f"{key}.json").unlink(missing_ok=True)

    def has_blob(self, blob: Descriptor) -> bool:
        """Returns whether the cache has a blob of this digest and size; only `read_blob` checks the blob's content."""
        path = self.blob_path(blob.digest)
        try:
            state = path.lstat()
        except OSError:
            return False
        mark_used(path, state)
        return stat.S_ISREG(state.st_mode) and state.st_size == blob.size

    def keep_blob(self, blocks: Iterable[bytes]) -> tuple[str, int]:
        """Stores a blob and returns its digest and size; raises LocalFileError if that fails."""
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for block in blocks:
                digest.update(block)
                size += len(block)
                yield block

        self._write(None, counted(), name=lambda: self._blobs / digest.hexdigest())
        return f"sha256:{digest.hexdigest()}", size

    def read_blob(self, blob: Descriptor) -> Iterator[bytes]:
        """Yields the blob's bytes; raises VerificationError at the end if they do not match the digest."""
        path = self.blob_path(blob.digest)
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
                    yield block
        except OSError as error:
            raise LocalFileError(f"{path}: cannot be read: {error.strerror}") from error
        if f"sha256:{digest.hexdigest()}" != blob.digest:
            path.unlink(missing_ok=True)
            raise VerificationError(
                f"{path}: damaged, removed", hint="run the command again; imgtool then makes the layer again"
            )

    def blob_path(self, digest: str) -> Path:
        """Returns the path in the cache for the blob with this digest."""
        return self._blobs / digest.removeprefix("sha256:")

    def _write(self, path: Path | None, blocks: Iterable[bytes], *, name: Callable[[], Path] | None = None) -> None:
        """Writes a file completely or not at all; `name` is called after the last byte and returns the path."""
        folder = path.parent if path else self._blobs
        temporary = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary, handle = create_temporary_file(folder, 0o600)
            with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                file.writelines(blocks)
            os.replace(temporary, name() if name else path or folder)  # noqa: PTH105 - as everywhere: the one atomic step
            temporary = None
        except OSError as error:
            message = f"{folder}: cannot be written: {error.strerror}"
            raise LocalFileError(message, hint=OTHER_CACHE) from error
        finally:
            if temporary:
                temporary.unlink(missing_ok=True)
