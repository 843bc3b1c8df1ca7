"""Pushes images to one repository: first the blobs, each only once, and then the manifest that names the blobs.

The distribution specification allows a registry to accept a manifest even if blobs of the manifest are missing. So
imgtool puts a manifest only after, for each blob, this run has uploaded the blob or the registry has confirmed that it
has the blob.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path

from training_imgtool.base.json_cache import make_file_name, read_cached, write_cached
from training_imgtool.base.progress import Progress
from training_imgtool.base.reference import Digest, Repository, Tag
from training_imgtool.oci.image.image import DirectImage
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.failures import BlobUnknownError
from training_imgtool.oci.registry.manifests import Descriptor
from training_imgtool.oci.registry.upload import How

_SMALL_BLOBS = "attestations"  # the name in progress for blobs that belong to no layer
_SMALL = 1 << 20  # bytes; sending them takes about as long as a HEAD request
_WORTH_A_NOTE = 1 << 16  # bytes of a layer; most code is smaller
_UPLOADS = 4  # in parallel, as crane and BuildKit upload per registry
_QUESTIONS = 8  # in parallel

Read = Callable[[], Iterator[bytes]]


class Publisher:
    """Pushes to one repository. Safe for threads.

    Args:
        registries: the clients.
        repository: the target.
        progress: receives every block.
        cache: the machine's cache. It remembers which repository of a host has a layer, to mount the layer from there.

    Attributes:
        registry: the client of the repository's registry.
    """

    def __init__(self, registries: Registries, repository: Repository, progress: Progress, cache: Path) -> None:
        self.repository = repository
        self._places = cache / "places"
        self.registry = registries.at(repository)
        self._registries = registries
        self._progress = progress
        self._uploads = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload")
        self._questions = ThreadPoolExecutor(_QUESTIONS, thread_name_prefix="question")
        self._lock = threading.Lock()
        self._sent: set[str] = set()  # digests of blobs that the repository lacked before this run
        self._expected: set[str] = set()  # digests that manifests of the repository name
        self._proofs: dict[str, Future[None]] = {}  # by digest: the upload or the HEAD request in this run

    def close(self, *, wait: bool = False) -> None:
        """Prevents further uploads; with `wait`, also waits for the uploads in progress."""
        for pool in (self._uploads, self._questions):
            pool.shutdown(wait=wait, cancel_futures=True)

    def expect(self, blobs: Iterable[Descriptor]) -> None:
        """Records blobs that the repository probably has, so that imgtool asks for such a blob before an upload."""
        with self._lock:
            self._expected.update(blob.digest for blob in blobs)

    def was_missing(self, digest: str) -> bool:
        """Returns whether this run uploaded a blob because the repository did not have the blob."""
        return digest in self._sent

    def require(self, descriptor: Descriptor, data: bytes) -> None:
        """Makes sure that the repository has a small blob; raises the same errors as `Registry.upload`."""
        self._prove(descriptor, partial(self._put, descriptor, lambda: iter((data,)), _SMALL_BLOBS))
        self._proofs[descriptor.digest].result()

    def send(self, layer: LayerSource, subject: str) -> None:
        """Starts to upload a layer in the background; `publish` waits for the upload."""
        self._prove(layer.descriptor, partial(self._put, layer.descriptor, layer.open, subject))

    def publish(self, image: DirectImage, ref: Tag, subject: str, base: Repository) -> Digest:
        """Uploads the missing blobs of an image and puts its manifest under the tag.

        Returns only after this run has uploaded or confirmed each blob, and the registry has accepted the manifest. If
        the registry refuses the manifest because blobs are missing after all, imgtool sends these blobs and puts the
        manifest again.

        Args:
            image: the image.
            ref: the tag.
            subject: the image's name for progress.
            base: the repository of the layers below the image's own.

        Raises:
            BlobUnknownError: the repository has lost layers of its own.
            RegistryRefusedError, CredentialsError, TemporaryError, VerificationError: as in the registry client.
        """
        self._send_blobs(image, subject, base)
        try:
            self.registry.put_manifest(ref, image.manifest_type, image.manifest)
        except BlobUnknownError:
            self._start_again(image)
            self._send_blobs(image, subject, base)
            self.registry.put_manifest(ref, image.manifest_type, image.manifest)
        self.expect(list_blobs(image))
        return self.repository.digest(image.digest)

    def _send_blobs(self, image: DirectImage, subject: str, base: Repository) -> None:
        """Uploads each blob of an image or has the registry confirm the blob, and waits until all blobs are done."""
        config = image.config_descriptor
        for descriptor in image.base_layers:
            if base == self.repository:
                self._prove(descriptor, partial(self._confirm, descriptor), self._questions)
            else:
                self._prove(descriptor, partial(self._copy, descriptor, base, subject))
        for layer in image.layers:
            self.send(layer, subject)
        self._prove(config, partial(self._put, config, lambda: iter((image.config,)), subject))
        with self._lock:
            proofs = [self._proofs[blob.digest] for blob in list_blobs(image)]
        for proof in proofs:
            proof.result()

    def _start_again(self, image: DirectImage) -> None:
        """Forgets that this run has uploaded or confirmed blobs of an image, so that it does so again.

        If another role has already started to upload a blob again, imgtool keeps that upload, so that only one role
        sends the blob.
        """
        with self._lock:
            before = dict(self._proofs)
        wait(before.values())
        with self._lock:
            stale = [blob for blob in list_blobs(image) if self._proofs.get(blob.digest) is before.get(blob.digest)]
            self._forget(stale)

    def _forget(self, blobs: Iterable[Descriptor]) -> None:
        """Forgets that this run has uploaded or confirmed blobs; the caller holds the lock."""
        for blob in blobs:
            self._expected.add(blob.digest)
            self._proofs.pop(blob.digest, None)
            self.registry.uploads.forget((self.repository, blob.digest))

    def _prove(self, descriptor: Descriptor, work: Callable[[], None], pool: ThreadPoolExecutor | None = None) -> None:
        """Starts `work` unless this run has uploaded or confirmed the blob. Several threads may call this."""
        with self._lock:
            proof = self._proofs.get(descriptor.digest)
            if proof is None or (proof.done() and proof.exception() is not None):
                self._proofs[descriptor.digest] = (pool or self._uploads).submit(work)

    def _confirm(self, descriptor: Descriptor) -> None:
        """Asks the registry for a blob, only once even if this process pushes several specs to the repository."""
        self.registry.uploads.do((self.repository, descriptor.digest), partial(self._ask, descriptor))

    def _ask(self, descriptor: Descriptor) -> How:
        if not self.registry.has_blob(self.repository, descriptor):
            raise BlobUnknownError(
                f"{self.repository} lacks blob {descriptor.short}",
                digests=(descriptor.digest,),
                hint="run the command again",
            )
        return How.PRESENT

    def _put(self, descriptor: Descriptor, read: Read, subject: str) -> None:
        """Uploads a blob. One request asks for a small, probably missing blob and opens the upload."""
        is_new = descriptor.digest not in self._expected
        asks_in_mount = descriptor.size <= _SMALL and is_new
        place = self._find_place(descriptor) if is_new else None
        how = self.registry.upload(
            self.repository,
            descriptor,
            read,
            mount_from=place or (self.repository if asks_in_mount else None),
            expect_missing=asks_in_mount,
            subject=subject,
            progress=self._progress,
        )
        self._note(descriptor, how, place)

    def _place_file(self, descriptor: Descriptor) -> Path:
        return self._places / make_file_name(f"{self.repository.registry} {descriptor.digest}")

    def _find_place(self, descriptor: Descriptor) -> Repository | None:
        """Returns another repository of the same registry to which this machine has pushed the blob, or None."""
        path = read_cached(self._place_file(descriptor)) if descriptor.size >= _WORTH_A_NOTE else None
        return replace(self.repository, path=path) if isinstance(path, str) and path != self.repository.path else None

    def _copy(self, descriptor: Descriptor, base: Repository, subject: str) -> None:
        """Mounts a layer of the base, if that is on another host, from where this machine has put it; or copies it."""
        is_elsewhere = base.registry != self.repository.registry
        place = self._find_place(descriptor) if is_elsewhere else None
        copy = self._registries.copy_blob
        how = copy(base, descriptor, self.repository, mount_from=place, subject=subject, progress=self._progress)
        self._note(descriptor, how, place)

    def _note(self, descriptor: Descriptor, how: How, place: Repository | None) -> None:
        """Remembers for this run what it has uploaded, and for later runs that the repository has the blob."""
        if how is How.UPLOADED:
            self._sent.add(descriptor.digest)
        if descriptor.size >= _WORTH_A_NOTE and (place is None or how is How.UPLOADED):
            write_cached(self._place_file(descriptor), self.repository.path)


def list_blobs(image: DirectImage) -> tuple[Descriptor, ...]:
    """Lists the layers of an image, lowest first, and its config."""
    return (*image.base_layers, *(layer.descriptor for layer in image.layers), image.config_descriptor)
