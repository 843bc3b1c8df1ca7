"""Layer records in the registry: what making a layer taught one machine, another takes over without the wheels.

A record is a small artifact (OCI image specification 1.1, "Guidance for an artifact") that names the layers as its
own, so that they are kept as long as it is, and carries the record's text as an annotation: reading one is one GET.
Records lie beside the images in `imgtool-layers`, where every spec of the registry finds them and mounts the layers
from; where that cannot be written, in the images' own repository. On Docker Hub always there: a push to a new
repository makes it, for the whole world to read unless the account says otherwise. A record is a claim, not a proof:
the layers that it names must be there, or are made here and must come out as it says. Who may write records may decide
what is in images, so they lie under the path that images are pushed to, and nowhere else.
"""

from __future__ import annotations

import json
import threading
from functools import partial

from training_imgtool.core.errors import ImgtoolError, TemporaryError
from training_imgtool.core.reference import DOCKER_HUB, Repository, Tag
from training_imgtool.core.single_flight import SingleFlight
from training_imgtool.core.threads import run_all
from training_imgtool.direct.layers.layer_cache import RECORD_TYPE, read_record
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_EMPTY, OCI_MANIFEST, Descriptor, sha256_digest

STORE = "imgtool-layers"
RECORD = "dev.imgtool.layers"
_EMPTY = b"{}"
_AT_ONCE = 4


def store_of(repository: Repository) -> Repository:
    """Where the records of a repository's layers lie: its sibling `imgtool-layers`; on Docker Hub, there."""
    if repository.registry == DOCKER_HUB:
        return repository
    folder = repository.path.rpartition("/")[0]
    return Repository(repository.registry, f"{folder}/{STORE}" if folder else STORE)


class RegistryRecords:
    """Records for images of one repository. A registry that has none, or takes none, is no error.

    With `believe` false none is read, and those that are left replace what was there (`--no-cache`).
    """

    def __init__(self, registries: Registries, repository: Repository, *, believe: bool = True) -> None:
        self.store = store_of(repository)
        self._repository = repository
        self._registry = registries.at(repository)
        self._lock = threading.Lock()
        self._waiting: dict[str, bytes] = {}
        self._mounts: SingleFlight[bool] = (
            SingleFlight()
        )  # docker-registry refuses a manifest while a layer of it is mounted again
        self._read = believe
        self._used = False
        self._unwell = False

    def get(self, key: str) -> bytes | None:
        """The record of `key`, or None."""
        places = dict.fromkeys((self.store, self._repository)) if self._read else ()
        record = next((record for place in places if (record := self._get(place, key))), None)
        self._used |= record is not None
        return record

    def put(self, key: str, record: bytes) -> None:
        """Takes a record, for `leave`."""
        with self._lock:
            self._waiting[key] = record

    def disbelieve(self) -> bool:
        """Reads no more records: one was wrong, and better ones are on their way. Returns whether any was used."""
        self._read = False
        return self._used

    def leave(self) -> None:
        """Leaves what was taken for others; the layers must be in the images' repository by now."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        run_all({key: partial(self._leave, key, record) for key, record in waiting.items()}, most=_AT_ONCE)

    def _get(self, place: Repository, key: str) -> bytes | None:
        try:
            annotations = self._registry.manifest(_tag(place, key)).document.get("annotations")
        except ImgtoolError:
            return None
        text = annotations.get(RECORD) if isinstance(annotations, dict) else None
        return text.encode() if isinstance(text, str) else None

    def _leave(self, key: str, record: bytes) -> None:
        if self._unwell:
            return
        layers = tuple(layer.blob for layer in read_record(record, key).layers)
        shared = self.store == self._repository or all(map(self._mounted, layers))
        if not (shared and self._put(self.store, key, record, layers)) and not self._unwell:
            self._put(self._repository, key, record, layers)

    def _mounted(self, blob: Descriptor) -> bool:
        return self._mounts.do(blob.digest, partial(self._registry.mount, self.store, blob, self._repository))

    def _put(self, place: Repository, key: str, record: bytes, layers: tuple[Descriptor, ...]) -> bool:
        empty = Descriptor(OCI_EMPTY, sha256_digest(_EMPTY), len(_EMPTY))
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": RECORD_TYPE,
            "config": empty.document(),
            "layers": [layer.document() for layer in layers],
            "annotations": {RECORD: record.decode()},
        }
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        try:
            self._registry.upload(place, empty, lambda: iter((_EMPTY,)), mount_from=place, expect_missing=True)
            self._registry.put_manifest(_tag(place, key), OCI_MANIFEST, body)
        except ImgtoolError as error:
            self._unwell |= isinstance(error, TemporaryError)  # the images are up: nobody waits for records
            return False
        return True


def _tag(place: Repository, key: str) -> Tag:
    return place.tag(f"layers-{key[:32]}")
