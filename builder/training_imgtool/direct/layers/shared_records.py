"""Layer records in the registry: with them another machine uses layers without having the wheels.

A record is a small artifact (OCI image specification 1.1, "Guidance for an artifact") that names the layers as its
own, so that the registry keeps them as long as the record, and carries the record's text as an annotation, so that one
GET reads it. Records lie beside the images in `imgtool-layers`, where every spec of the registry finds them and mounts
the layers from; if that repository is not writable, in the images' own. On Docker Hub they always lie in the images'
own: a push to a new repository would create it, public by default. A record is a claim, not a proof: the registry has
the layers that it names, or this machine makes them and they must come out as it says. Whoever can write records
decides what images contain, so imgtool reads records only under the path that it pushes images to.
"""

from __future__ import annotations

import json
import threading
from functools import partial

from training_imgtool.core.errors import ImgtoolError, TemporaryError
from training_imgtool.core.reference import DOCKER_HUB, Repository, Tag
from training_imgtool.core.threads import SingleFlight, run_all
from training_imgtool.direct.layers.layer_cache import RECORD_TYPE, read_record
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_EMPTY, OCI_MANIFEST, Descriptor, sha256_digest

STORE = "imgtool-layers"
RECORD = "dev.imgtool.layers"
_EMPTY = b"{}"
_AT_ONCE = 4


def store_of(repository: Repository) -> Repository:
    """The repository for the records of a repository's layers: its sibling `imgtool-layers`; on Docker Hub, itself."""
    if repository.registry == DOCKER_HUB:
        return repository
    folder = repository.path.rpartition("/")[0]
    return Repository(repository.registry, f"{folder}/{STORE}" if folder else STORE)


class RegistryRecords:
    """Records for images of one repository. A registry that has none, or accepts none, is no error.

    With `believe` false it reads none, and the new ones replace those in the registry (`--no-cache`).
    """

    def __init__(self, registries: Registries, repository: Repository, *, believe: bool = True) -> None:
        self.store = store_of(repository)
        self._repository = repository
        self._registry = registries.at(repository)
        self._lock = threading.Lock()
        self._waiting: dict[str, bytes] = {}
        # Once per layer: docker-registry refuses a manifest while somebody mounts a layer of it again.
        self._mounts: SingleFlight[bool] = SingleFlight()
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
        """Takes a record, which `leave` writes."""
        with self._lock:
            self._waiting[key] = record

    def disbelieve(self) -> bool:
        """Reads no more records, since one was wrong. Returns whether this run has used any."""
        self._read = False
        return self._used

    def leave(self) -> None:
        """Writes the records; the images' repository must have their layers by now."""
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
        shared = self.store == self._repository or all(map(self._mount, layers))
        if not (shared and self._put(self.store, key, record, layers)) and not self._unwell:
            self._put(self._repository, key, record, layers)

    def _mount(self, blob: Descriptor) -> bool:
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
            self._unwell |= isinstance(error, TemporaryError)  # the images are up, and records only save time
            return False
        return True


def _tag(place: Repository, key: str) -> Tag:
    return place.tag(f"layers-{key[:32]}")
