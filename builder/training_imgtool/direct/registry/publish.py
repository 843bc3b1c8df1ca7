"""Puts direct images into one repository: blobs first, each once, then the manifest that names them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.registry.known_blobs import KnownBlobs
from training_imgtool.direct.registry.pending_heads import Asked
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.http.failures import BlobUnknownError
from training_imgtool.registry.manifests import Descriptor

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
        asked: the question whether the images are there already, when its answer is still on its way.
    """

    def __init__(
        self,
        registries: Registries,
        repository: Repository,
        cache: Path,
        progress: Progress,
        asked: Asked | None = None,
    ) -> None:
        self.repository = repository
        self.asked = asked
        self._registries = registries
        self._registry = registries.at(repository)
        self._known = KnownBlobs(cache, repository)
        self._progress = progress
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload")
        self._mounts = True  # the registry is believed when it says that a blob is there instead of opening an upload
        self._lock = threading.Lock()
        self._sending: dict[str, Future[None]] = {}

    def close(self, *, wait: bool = False) -> None:
        """Begins nothing more, and lets what was begun end; with `wait` it has when this returns."""
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def remember(self, digests: Iterable[str]) -> None:
        """Takes note of blobs that a manifest served from this repository names."""
        self._known.arrived(digests)

    def forget(self, digests: Iterable[str]) -> None:
        """Has blobs asked for again, but for those that are on their way."""
        known = tuple(digests)
        self._known.forget(known)
        with self._lock:
            for digest in known:
                if digest in self._sending and self._sending[digest].done():
                    del self._sending[digest]

    def send(self, layer: LayerSource, subject: str, mount_from: Repository | None = None) -> None:
        """Begins to upload a layer while others are still being made; `publish` waits for it.

        Args:
            layer: which.
            subject: whose it is, for progress.
            mount_from: a repository of the same registry that may have it.
        """
        self._submit(layer.descriptor, partial(self._put, layer.descriptor, layer.open, subject, mount_from))

    def publish(self, image: DirectImage, ref: Tag, subject: str, base: Repository) -> Digest:
        """Uploads what the repository lacks of an image and puts its manifest under the tag.

        Args:
            image: the image.
            ref: the tag to put it under.
            subject: whose it is, for progress.
            base: where the layers below the image's own are.

        Raises:
            BlobUnknownError: the registry lacks layers that lie in the repository itself.
            RegistryRefusedError, CredentialsError, TemporaryError, VerificationError: as the registry client.
            ThereError: an image turned out to be under the tag already, and nothing of this one was sent.
        """
        try:
            self._put_image(image, ref, subject, base)
        except BlobUnknownError:  # what is remembered of this repository is wrong, or what it said of a mount
            self._mounts = False
            self.forget(_digests(image))
            self._put_image(image, ref, subject, base)
        return self.repository.digest(image.digest)

    def _put_image(self, image: DirectImage, ref: Tag, subject: str, base: Repository) -> None:
        config = image.config_descriptor
        for descriptor in image.base_layers if base != self.repository else ():
            self._submit(descriptor, partial(self._copy, descriptor, base, subject))
        for layer in image.layers:
            self.send(layer, subject)
        before = partial(self.asked.unless_there, ref) if self.asked else None
        self._submit(config, partial(self._put, config, lambda: iter((image.config,)), subject, before=before))
        with self._lock:
            under_way = [self._sending[digest] for digest in _digests(image) if digest in self._sending]
        for task in under_way:
            task.result()
        if self.asked:
            self.asked.unless_there(ref)
        self._registry.put_manifest(ref, image.manifest_type, image.manifest)
        self.remember(_digests(image))

    def _submit(self, descriptor: Descriptor, work: Callable[[], None]) -> None:
        """Runs `work` unless the blob is there or under way. Called by whoever makes layers, so from any thread."""
        with self._lock:
            if descriptor.digest not in self._sending and not self._known.there(descriptor.digest):
                self._sending[descriptor.digest] = self._pool.submit(work)

    def _put(
        self,
        descriptor: Descriptor,
        read: Read,
        subject: str,
        mount_from: Repository | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        mount_from = mount_from if self._mounts and mount_from != self.repository else None
        one_question = self._mounts and mount_from is None and descriptor.size <= _SMALL
        self._registry.upload(
            self.repository,
            descriptor,
            read,
            mount_from=self.repository if one_question else mount_from,
            expect_missing=one_question,
            subject=subject,
            progress=self._progress,
            before=before or (self.asked.unless_all_there if self.asked else None),
        )
        self._known.arrived((descriptor.digest,))

    def _copy(self, descriptor: Descriptor, base: Repository, subject: str) -> None:
        self._registries.copy_blob(
            base, descriptor, self.repository, mount=self._mounts, subject=subject, progress=self._progress
        )
        self._known.arrived((descriptor.digest,))


def _digests(image: DirectImage) -> tuple[str, ...]:
    blobs = (*image.base_layers, *(layer.descriptor for layer in image.layers), image.config_descriptor)
    return tuple(blob.digest for blob in blobs)
