"""Puts direct images into one repository: blobs first, each once, then the manifest that names them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from training_imgtool.core.errors import RegistryRefusedError
from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.registry.evidence import Evidence
from training_imgtool.direct.registry.pending_heads import PendingHeads
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.failures import BlobUnknownError, TagImmutableError
from training_imgtool.registry.manifests import Descriptor
from training_imgtool.registry.upload import How, Uploaded

_SMALL = 1 << 20  # bytes; sending as much takes about as long as a HEAD request
_AT_ONCE = 4  # uploads, as crane and BuildKit do per registry

Read = Callable[[], Iterator[bytes]]


class Publisher:
    """Pushes to one repository. Threads may call it at will.

    Args:
        registries: the clients.
        evidence: of the repository that images go to.
        progress: receives every block.
        pending: requests for the images' tags whose answers uploads wait for.
    """

    def __init__(
        self, registries: Registries, evidence: Evidence, progress: Progress, pending: PendingHeads | None = None
    ) -> None:
        self.repository = evidence.repository
        self.evidence = evidence
        self._pending = pending or PendingHeads({})
        self._registries = registries
        self._registry = evidence.registry
        self._memory = evidence.memory
        self._progress = progress
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload")
        self._mounts = True  # whether to believe the registry when it says that it mounted a blob
        self._lock = threading.Lock()
        self._uploaded: set[str] = set()  # digests of blobs that the repository lacked before this run
        self._mounted: set[str] = set()  # digests of blobs that nobody sent, as the registry says that it mounted them
        self._proofs: dict[str, Future[None]] = {}  # by digest: an upload, a mount or a HEAD request of this run

    def close(self, *, wait: bool = False) -> None:
        """Begins no further upload; with `wait` those that began have ended when this returns."""
        self._pending.close()
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def remember(self, digests: Iterable[str]) -> None:
        """Notes blobs that a manifest from this repository names."""
        self._memory.add_blobs(digests)

    def forget(self, digests: Iterable[str]) -> None:
        """Drops what memory and this run know of blobs, except for uploads under way."""
        digests = tuple(digests)
        self._memory.forget_blobs(digests)
        with self._lock:
            for digest in digests:
                if digest in self._proofs and self._proofs[digest].done():
                    del self._proofs[digest]
                    self._registry.uploads.forget((self.repository, digest))

    def settle(self) -> None:
        """Waits for the uploads under way, whatever they come to: what failed is begun anew when it is needed."""
        with self._lock:
            proofs = tuple(self._proofs.values())
        wait(proofs)

    def was_missing(self, digest: str) -> bool:
        """Whether the repository lacked a blob until this run uploaded it."""
        return digest in self._uploaded

    def require(self, descriptor: Descriptor, data: bytes) -> None:
        """Makes sure that the repository has a small blob; raises what uploading raises. An image must be there."""
        put = partial(self._put, descriptor, lambda: iter((data,)), "", before=lambda: None)
        self._prove(descriptor, put, believe=self.evidence.registry_checks())
        with self._lock:
            proof = self._proofs.get(descriptor.digest)
        if proof is not None:
            proof.result()

    def send(self, layer: LayerSource, subject: str, mount_from: Repository | None = None) -> None:
        """Begins to upload a layer while others are made; `publish` waits for it.

        Args:
            layer: the layer.
            subject: whose it is, for progress.
            mount_from: a repository of the same registry that may have the layer.
        """
        put = partial(self._put, layer.descriptor, layer.open, subject, mount_from, check_size=layer.is_claim)
        self._prove(layer.descriptor, put, believe=not layer.is_claim)

    def publish(self, image: DirectImage, ref: Tag, subject: str, base: Repository) -> Digest:
        """Uploads what the repository lacks of an image and puts its manifest under the tag.

        Returns once every blob of the image was uploaded, mounted or confirmed in this run, or the registry is known
        to refuse a manifest with unknown blobs. If the registry refuses the manifest, for whatever reason, while some
        of its blobs were only remembered, this asks for every blob, sends what is missing, and puts it once more.

        Args:
            image: the image.
            ref: the tag.
            subject: whose image it is, for progress.
            base: the repository of the layers below the image's own.

        Raises:
            BlobUnknownError: the registry lacks layers that lie in the repository itself.
            RegistryRefusedError, CredentialsError, TemporaryError, VerificationError: as the registry client.
            ImageExistsError: an image has the tag already, and nothing of this one was sent.
        """
        with self._lock:
            assumed = [d for d in _list_digests(image) if d not in self._proofs and self._memory.has_blob(d)]
        try:
            self._put_image(image, ref, subject, base)
        except TagImmutableError:
            raise
        except RegistryRefusedError as error:
            if not assumed and not isinstance(error, BlobUnknownError):
                raise
            self._mounts = False  # memory is wrong, or what the registry said of a mount
            self.evidence.forget()
            self.settle()
            self.forget(_list_digests(image))
            self._put_image(image, ref, subject, base)
        return self.repository.digest(image.digest)

    def _put_image(self, image: DirectImage, ref: Tag, subject: str, base: Repository) -> None:
        config = image.config_descriptor
        for descriptor in image.base_layers:
            copy = partial(self._copy, descriptor, base, subject)
            self._prove(descriptor, copy if base != self.repository else partial(self._confirm, descriptor))
        for layer in image.layers:
            self.send(layer, subject)
        before = partial(self._pending.require_missing, ref)
        self._prove(config, partial(self._put, config, lambda: iter((image.config,)), subject, before=before))
        self._wait_for(image)
        self._pending.require_missing(ref)
        if self.evidence.remembered_check() is False:
            self._confirm_all(image)  # beside the manifest, so that it costs no round trip
        self._registry.put_manifest(ref, image.manifest_type, image.manifest)
        if not (self.evidence.believes and self.evidence.registry_checks()):
            self._confirm_all(image)
        self._wait_for(image)
        self.remember(_list_digests(image))

    def _wait_for(self, image: DirectImage) -> None:
        with self._lock:
            proofs = [self._proofs[digest] for digest in _list_digests(image) if digest in self._proofs]
        for proof in proofs:
            proof.result()

    def _confirm_all(self, image: DirectImage) -> None:
        """Asks for the blobs of which this run has no proof yet, and for those that the registry says it mounted."""
        for descriptor in _list_blobs(image):
            with self._lock:
                if descriptor.digest in self._mounted:
                    self._mounted.discard(descriptor.digest)
                    self._proofs.pop(descriptor.digest, None)
            self._prove(descriptor, partial(self._confirm, descriptor), believe=False)

    def _prove(self, descriptor: Descriptor, work: Callable[[], None], *, believe: bool = True) -> None:
        """Runs `work` unless the blob is proven or, with `believe`, remembered. Threads that make layers call it."""
        with self._lock:
            proof = self._proofs.get(descriptor.digest)
            failed = proof is not None and proof.done() and proof.exception() is not None
            if failed or (proof is None and not (believe and self._memory.has_blob(descriptor.digest))):
                self._proofs[descriptor.digest] = self._pool.submit(work)

    def _confirm(self, descriptor: Descriptor) -> None:
        if not self._registry.has_blob(self.repository, descriptor):
            raise BlobUnknownError(
                f"{self.repository} lacks blob {descriptor.short}",
                digests=(descriptor.digest,),
                hint="run the command again",
            )
        self._memory.add_blobs((descriptor.digest,))

    def _put(
        self,
        descriptor: Descriptor,
        read: Read,
        subject: str,
        mount_from: Repository | None = None,
        before: Callable[[], None] | None = None,
        *,
        check_size: bool = False,
    ) -> None:
        mount_from = mount_from if self._mounts and mount_from != self.repository else None
        asks_in_mount = self._mounts and mount_from is None and descriptor.size <= _SMALL
        uploaded = self._registry.upload(
            self.repository,
            descriptor,
            read,
            mount_from=self.repository if asks_in_mount else mount_from,
            expect_missing=asks_in_mount,
            check_size=check_size,
            subject=subject,
            progress=self._progress,
            before=before or self._pending.require_any_missing,
        )
        if uploaded.how is How.UPLOADED:
            self._uploaded.add(descriptor.digest)
        self._note(uploaded)

    def _note(self, uploaded: Uploaded) -> None:
        digest = uploaded.descriptor.digest
        if uploaded.how is How.MOUNTED:
            self._mounted.add(digest)
        self._memory.add_blobs((digest,))

    def _copy(self, descriptor: Descriptor, base: Repository, subject: str) -> None:
        copied = self._registries.copy_blob(
            base, descriptor, self.repository, mount=self._mounts, subject=subject, progress=self._progress
        )
        self._note(copied)


def _list_blobs(image: DirectImage) -> tuple[Descriptor, ...]:
    return (*image.base_layers, *(layer.descriptor for layer in image.layers), image.config_descriptor)


def _list_digests(image: DirectImage) -> tuple[str, ...]:
    return tuple(blob.digest for blob in _list_blobs(image))
