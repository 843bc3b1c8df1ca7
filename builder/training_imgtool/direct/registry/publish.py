"""Puts direct images into one repository: blobs first, each once, then the manifest that names them."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from training_imgtool.core.errors import RegistryRefusedError, VerificationError
from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.core.threads import run_all
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.registry.state import RepositoryState
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.failures import BlobUnknownError, TagImmutableError
from training_imgtool.registry.manifests import Descriptor
from training_imgtool.registry.upload import How, Uploaded

_SMALL_BLOBS = "attestations"  # what progress calls blobs that belong to no layer
_SMALL = 1 << 20  # bytes; sending as much takes about as long as a HEAD request
_PROBE = 65536  # bytes of each blob that `read_back` compares
_AT_ONCE = 4  # uploads, as crane and BuildKit do per registry

Read = Callable[[], Iterator[bytes]]


class Publisher:
    """Pushes to one repository. Threads may call it at will.

    Args:
        registries: the clients.
        state: of the repository that images go to.
        progress: receives every block.
    """

    def __init__(self, registries: Registries, state: RepositoryState, progress: Progress) -> None:
        self.repository = state.repository
        self.state = state
        self._registries = registries
        self._registry = state.registry
        self._progress = progress
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload")
        self._mounts = True  # whether to believe the registry when it says that it mounted a blob
        self._lock = threading.Lock()
        self._waiting: list[tuple[Future[None], Callable[[], None]]] = []  # what the pool has not begun
        self._sent: dict[str, tuple[Descriptor, Read]] = {}  # blobs that the repository lacked before this run
        self._mounted: set[str] = set()  # digests of blobs that nobody sent, as the registry says that it mounted them
        self._expected: set[str] = set()  # digests that manifests of the repository name: the registry must confirm
        self._proofs: dict[str, Future[None]] = {}  # by digest: an upload, a mount or a HEAD request of this run

    def close(self, *, wait: bool = False) -> None:
        """Begins no further upload; with `wait` those that began have ended when this returns."""
        with self._lock:
            dropped, self._waiting = self._waiting, []
        for proof, _ in dropped:  # those who wait for one learn of it
            proof.cancel()
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def expect(self, blobs: Iterable[Descriptor]) -> None:
        """Notes blobs that a manifest of this repository names, so that nobody sends them before the registry asks."""
        with self._lock:
            self._expected.update(blob.digest for blob in blobs)

    def was_missing(self, digest: str) -> bool:
        """Tells whether the repository lacked a blob until this run uploaded it."""
        return digest in self._sent

    def require(self, descriptor: Descriptor, data: bytes, *, again: bool = False) -> None:
        """Makes sure that the repository has a small blob; with `again`, whatever it has said. Raises as uploading."""
        if again:
            with self._lock:
                self._forget((descriptor,))
        self._prove(descriptor, partial(self._put, descriptor, lambda: iter((data,)), _SMALL_BLOBS), expect=False)
        self._proofs[descriptor.digest].result()

    def send(self, layer: LayerSource, subject: str) -> None:
        """Begins to upload a layer while others are made; `publish` waits for it."""
        self._prove(layer.descriptor, partial(self._put, layer.descriptor, layer.open, subject))

    def publish(self, image: DirectImage, ref: Tag, subject: str, base: Repository) -> Digest:
        """Uploads what the repository lacks of an image and puts its manifest under the tag.

        Returns once every blob of the image was uploaded, mounted or confirmed in this run, or the registry was seen
        to refuse a manifest with unknown blobs. If the registry refuses the manifest, for whatever reason, while some
        of its blobs were only expected, this asks for every blob, sends what is missing, and puts it once more.

        Args:
            image: the image.
            ref: the tag.
            subject: whose image it is, for progress.
            base: the repository of the layers below the image's own.

        Raises:
            BlobUnknownError: the registry lacks layers that lie in the repository itself.
            RegistryRefusedError, CredentialsError, TemporaryError, VerificationError: as the registry client.
        """
        with self._lock:
            guessed = {blob.digest for blob in list_blobs(image)} & self._expected - self._proofs.keys()
        for is_last in (False, True):
            try:
                self._send_blobs(image, subject, base)
                self._registry.put_manifest(ref, image.manifest_type, image.manifest)
                if not self.state.registry_checks():
                    self._confirm_all(image)
                    self._wait_for(image)
                break
            except TagImmutableError:
                raise
            except RegistryRefusedError as error:
                if is_last or not (guessed or isinstance(error, BlobUnknownError)):
                    raise
                self._start_again(image)
        self.expect(list_blobs(image))
        return self.repository.digest(image.digest)

    def read_back(self, images: Iterable[Digest]) -> None:
        """Reads images and a random part of every blob that this run sent, and compares them with what it sent.

        Raises VerificationError if the registry has something else, and what reading raises.
        """
        run_all({image: partial(self._registry.manifest, image) for image in images})
        run_all({digest: partial(self._compare, *sent) for digest, sent in self._sent.items()}, most=_AT_ONCE)

    def _compare(self, blob: Descriptor, read: Read) -> None:
        start = secrets.randbelow(max(1, blob.size - _PROBE + 1))
        length = min(_PROBE, blob.size)
        blocks, position, sent = read(), 0, b""
        for block in blocks:
            sent += block[max(0, start - position) :]
            position += len(block)
            if len(sent) >= length:
                break
        if self._registry.read_range(self.repository, blob, start, length) != sent[:length]:
            raise VerificationError(
                f"{self.repository}: blob {blob.short} has other bytes from {start} on than this run sent",
                hint="the registry, or what is in front of it, damages content: delete the blob there and push again",
            )

    def _send_blobs(self, image: DirectImage, subject: str, base: Repository) -> None:
        config = image.config_descriptor
        for descriptor in image.base_layers:
            copy = partial(self._copy, descriptor, base, subject)
            self._prove(descriptor, copy if base != self.repository else partial(self._confirm, descriptor))
        for layer in image.layers:
            self.send(layer, subject)
        self._prove(config, partial(self._put, config, lambda: iter((image.config,)), subject))
        if self.state.remembered_check() is False:
            self._confirm_all(image)  # beside the uploads, so that it costs no round trip
        self._wait_for(image)

    def _start_again(self, image: DirectImage) -> None:
        """Drops what this run assumes of an image's blobs, so that it asks for each; what failed begins anew.

        What another role has begun meanwhile, after a refusal of its own, stays: else both would send it.
        """
        with self._lock:
            before = dict(self._proofs)
        wait(before.values())
        self._mounts = False
        with self._lock:
            stale = [blob for blob in list_blobs(image) if self._proofs.get(blob.digest) is before.get(blob.digest)]
            self._forget(stale)

    def _forget(self, blobs: Iterable[Descriptor]) -> None:
        """Drops what is known of blobs; the caller holds the lock."""
        for blob in blobs:
            self._expected.discard(blob.digest)
            self._proofs.pop(blob.digest, None)
            self._registry.uploads.forget((self.repository, blob.digest))

    def _wait_for(self, image: DirectImage) -> None:
        with self._lock:
            proofs = [self._proofs[blob.digest] for blob in list_blobs(image) if blob.digest in self._proofs]
        for proof in proofs:
            proof.result()

    def _confirm_all(self, image: DirectImage) -> None:
        """Asks for the blobs of which this run has no proof yet, and for those that the registry says it mounted."""
        for descriptor in list_blobs(image):
            with self._lock:
                if descriptor.digest in self._mounted:
                    self._mounted.discard(descriptor.digest)
                    self._proofs.pop(descriptor.digest, None)
            self._prove(descriptor, partial(self._confirm, descriptor), expect=False)

    def _prove(self, descriptor: Descriptor, work: Callable[[], None], *, expect: bool = True) -> None:
        """Runs `work` unless the blob is proven or, with `expect`, expected. Threads that make layers call it."""
        with self._lock:
            proof = self._proofs.get(descriptor.digest)
            failed = proof is not None and proof.done() and proof.exception() is not None
            if failed or (proof is None and not (expect and descriptor.digest in self._expected)):
                self._proofs[descriptor.digest] = Future()
                self._waiting.append((self._proofs[descriptor.digest], work))
                self._pool.submit(self._run_one)

    def _run_one(self) -> None:
        """Runs one of those that wait, by chance: jobs that push the same image then begin with different blobs."""
        with self._lock:
            if not self._waiting:
                return
            proof, work = self._waiting.pop(secrets.randbelow(len(self._waiting)))
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised where the proof is read
            proof.set_exception(error)
        else:
            proof.set_result(None)

    def _confirm(self, descriptor: Descriptor) -> None:
        if not self._registry.has_blob(self.repository, descriptor):
            raise BlobUnknownError(
                f"{self.repository} lacks blob {descriptor.short}",
                digests=(descriptor.digest,),
                hint="run the command again",
            )

    def _put(self, descriptor: Descriptor, read: Read, subject: str) -> None:
        asks_in_mount = self._mounts and descriptor.size <= _SMALL
        uploaded = self._registry.upload(
            self.repository,
            descriptor,
            read,
            mount_from=self.repository if asks_in_mount else None,
            expect_missing=asks_in_mount,
            subject=subject,
            progress=self._progress,
        )
        self._note(uploaded, read)

    def _note(self, uploaded: Uploaded, read: Read) -> None:
        if uploaded.how is How.UPLOADED:
            self._sent[uploaded.descriptor.digest] = uploaded.descriptor, read
        if uploaded.how is How.MOUNTED:
            self._mounted.add(uploaded.descriptor.digest)

    def _copy(self, descriptor: Descriptor, base: Repository, subject: str) -> None:
        copied = self._registries.copy_blob(
            base, descriptor, self.repository, mount=self._mounts, subject=subject, progress=self._progress
        )
        self._note(copied, partial(self._registries.at(base).blob, base, descriptor))


def list_blobs(image: DirectImage) -> tuple[Descriptor, ...]:
    """Lists the layers of an image, lowest first, and its config."""
    return (*image.base_layers, *(layer.descriptor for layer in image.layers), image.config_descriptor)
