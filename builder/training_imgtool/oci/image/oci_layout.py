"""Writes images to an OCI image layout, a folder that `skopeo`, `podman` and registries' import tools can read.

Format: OCI image specification 1.1, "Image Layout". imgtool checks existing blobs instead of writing them again.
imgtool writes the index last, so that an interrupted run leaves no entry for a missing blob.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from training_imgtool.base.errors import LocalFileError, VerificationError
from training_imgtool.oci.image.image import DirectImage, as_oci
from training_imgtool.oci.registry.manifests import OCI_INDEX, Descriptor

_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
_NAME = "org.opencontainers.image.ref.name"

ReadBlob = Callable[[Descriptor], Iterator[bytes]]


def write_layout(folder: Path, name: str, image: DirectImage, read_base: ReadBlob, platform: Mapping[str, str]) -> str:
    """Adds an image to the layout in `folder`, creates the folder if it is missing, and returns the image's digest.

    A layout contains only OCI manifests. So if a base has a Docker manifest, the image has another digest in the layout
    than in a registry, but the same layers and the same config.

    Args:
        folder: the layout. This replaces an image of the same name; other images stay.
        name: the image's name, such as `master` or a tag.
        image: the image.
        read_base: reads a layer of the base that the layout does not have yet.
        platform: `os`, `architecture` and `variant` for the index.

    Raises:
        LocalFileError: imgtool cannot write to the folder, or the folder is not a layout.
        VerificationError: the bytes of a layer do not match its digest.
    """
    image = as_oci(image)
    manifest = Descriptor(image.manifest_type, image.digest, len(image.manifest))
    entry = {**manifest.document(), "platform": dict(platform), "annotations": {_NAME: name}}
    try:
        (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            present = _read_index(folder)
            for layer in image.base_layers:
                _put(folder, layer, partial(read_base, layer))
            for source in image.layers:
                _put(folder, source.descriptor, source.open)
            _put(folder, image.config_descriptor, lambda: iter((image.config,)))
            _put(folder, manifest, lambda: iter((image.manifest,)))
            _write(folder / "oci-layout", iter((_LAYOUT,)))
            _add_entry(folder, present, entry)
    except OSError as error:
        raise LocalFileError(f"{folder}: cannot be written: {error.strerror}") from error
    return image.digest


def name_image(folder: Path, digest: str, name: str) -> None:
    """Adds a second name to an image of the layout; raises LocalFileError if that fails."""
    try:
        with _lock(folder):
            present = _read_index(folder)
            entry = next((entry for entry in present["manifests"] if entry.get("digest") == digest), None)
            if entry is None:
                raise LocalFileError(f"{folder}: lost {digest}", hint="another program writes there")
            _add_entry(folder, present, {**entry, "annotations": {_NAME: name}})
    except OSError as error:
        raise LocalFileError(f"{folder}: cannot be written: {error.strerror}") from error


def _add_entry(folder: Path, present: dict[str, Any], entry: dict[str, Any]) -> None:
    """Adds an image's entry to the index. The new entry replaces an entry with the same name."""
    name = entry["annotations"][_NAME]
    others = [old for old in present["manifests"] if (old.get("annotations") or {}).get(_NAME) != name]
    index = json.dumps({**present, "manifests": [*others, entry]}, indent=1, sort_keys=True).encode() + b"\n"
    _write(folder / "index.json", iter((index,)))


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lets only one process write at a time. The lock ends with the process, so no old lock blocks a later run."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / "index.json"
    if not path.exists():
        return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    try:
        document = json.loads(path.read_bytes())
        entries = document["manifests"]
        if not isinstance(entries, list) or not all(
            isinstance(entry.get("annotations") or {}, dict) for entry in entries
        ):
            raise TypeError  # noqa: TRY301 - one message for everything that is not an index
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LocalFileError(f"{path}: not an OCI index", hint="choose another folder") from error
    return dict(document)


def _put(folder: Path, blob: Descriptor, read: Callable[[], Iterator[bytes]]) -> None:
    path = folder / "blobs" / "sha256" / blob.digest.removeprefix("sha256:")
    if path.exists() and path.stat().st_size == blob.size and _digest(path) == blob.digest:
        return
    actual, size = _write(path, read(), expected=blob.digest)
    if (actual, size) != (blob.digest, blob.size):
        raise VerificationError(f"layer {blob.short}: damaged; its {size} bytes have the digest {actual}")


def _digest(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _write(path: Path, blocks: Iterator[bytes], expected: str | None = None) -> tuple[str, int]:
    """Writes a file completely or not at all; with `expected`, writes it only if the content has this digest."""
    digest, size = hashlib.sha256(), 0
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as file:
        try:
            for block in blocks:
                file.write(block)
                digest.update(block)
                size += len(block)
            file.flush()
            actual = f"sha256:{digest.hexdigest()}"
            if expected in {None, actual}:
                os.fchmod(file.fileno(), 0o644)
                Path(file.name).replace(path)
            else:
                Path(file.name).unlink()
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    return actual, size
