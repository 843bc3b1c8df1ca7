"""Puts direct images into one repository: blobs first, each once, then the manifest that names them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from builder.direct.image import DirectImage
from builder.direct.known import KnownBlobs
from builder.direct.layers import LayerSource
from builder.progress import Progress
from builder.reference import Digest, Repository, Tag
from builder.registry.connect import Registries
from builder.registry.failures import BlobUnknownError
from builder.registry.manifests import Descriptor

_SMALL = 1 << 20  # bytes: sending costs about as much as asking
_AT_ONCE = 4  # uploads; what crane and BuildKit allow themselves per registry

Read = Callable[[], Iterator[bytes]]


class Publisher:
    """Pushes to one repository. Threads may call it at will.

    Args:
        registries: the clients.
        repository: where images go.
        cache: where this machine remembers what is there.
        progress: is told of every block.
    """

    def __init__(self, registries: Registries, repository: Repository, cache: Path, progress: Progress) -> None:
        self.repository = repository
        self._registries = registries
        self._registry = registries.at(repository)
        self._known = KnownBlobs(cache, repository)
        self._progress = progress
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload")
        self._lock = threading.Lock()
        self._sending: dict[str, Future[None]] = {}

    def close(self) -> None:
        """Lets what was begun end, and begins nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def remember(self, digests: Iterable[str]) -> None:
        """Takes note of blobs that a manifest served from this repository names."""
        self._known.arrived(digests)

    def send(self, layer: LayerSource, subject: str) -> None:
        """Begins to upload a layer while others are still being made; `publish` waits for it."""
        self._submit(layer.descriptor, partial(self._put, layer.descriptor, layer.open, subject))

    def publish(self, image: DirectImage, refs: tuple[Tag, ...], subject: str, base: Repository | None) -> Digest:
        """Uploads what the repository lacks of an image and puts its manifest under every tag.

        Args:
            image: the image.
            refs: tags to put it under.
            subject: whose it is, for progress.
            base: where the base's layers are, when that is another repository.

        Raises:
            RegistryRefusedError, CredentialsError, TemporaryError, VerificationError: as the registry client.
        """
        self._blobs(image, subject, base)
        try:
            self._manifests(image, refs)
        except BlobUnknownError:
            self._known.forget(_digests(image))
            self._sending.clear()
            self._blobs(image, subject, base)
            self._manifests(image, refs)
        return self.repository.digest(image.digest)

    def _blobs(self, image: DirectImage, subject: str, base: Repository | None) -> None:
        for descriptor in image.base_layers:
            self._submit(descriptor, partial(self._copy, descriptor, base, subject))
        for layer in image.layers:
            self.send(layer, subject)
        config = image.config_descriptor
        self._submit(config, partial(self._put, config, lambda: iter((image.config,)), subject))
        for digest in _digests(image):
            self._sending[digest].result()

    def _manifests(self, image: DirectImage, refs: tuple[Tag, ...]) -> None:
        for ref in refs:
            self._registry.put_manifest(ref, image.manifest_type, image.manifest)
        self._known.arrived(_digests(image))

    def _submit(self, descriptor: Descriptor, work: Callable[[], None]) -> None:
        """Runs `work` unless the blob is there or under way. Called by whoever makes layers, so from any thread."""
        with self._lock:
            if descriptor.digest in self._sending:
                return
            if self._known.there(descriptor.digest):
                done: Future[None] = Future()
                done.set_result(None)
                self._sending[descriptor.digest] = done
            else:
                self._sending[descriptor.digest] = self._pool.submit(work)

    def _put(self, descriptor: Descriptor, read: Read, subject: str) -> None:
        blind = descriptor.size <= _SMALL and not self._known.begun(descriptor.digest)
        self._known.begin(descriptor.digest)
        self._registry.upload(
            self.repository, descriptor, read, expect_missing=blind, subject=subject, progress=self._progress
        )

    def _copy(self, descriptor: Descriptor, base: Repository | None, subject: str) -> None:
        if base is None or base == self.repository:
            return
        self._registries.copy_blob(base, descriptor, self.repository, subject=subject, progress=self._progress)


def _digests(image: DirectImage) -> tuple[str, ...]:
    blobs = (*image.base_layers, *(layer.descriptor for layer in image.layers), image.config_descriptor)
    return tuple(blob.digest for blob in blobs)
