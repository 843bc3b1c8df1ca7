"""Evidence that a repository holds every blob of an image.

A registry may accept a manifest whose blobs it does not have: the distribution specification allows both answers. So
a manifest that the registry took is evidence only where the registry is known to refuse such manifests. imgtool tries
that once per host and version of the registry's software and keeps the answer; elsewhere it sends a HEAD request for
each blob that was not uploaded in this run, the mounted ones too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from training_imgtool.core.errors import ImgtoolError, RegistryRefusedError
from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.core.threads import SingleFlight, run_all
from training_imgtool.direct.registry.memory import RepositoryMemory, make_file_name
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import Descriptor


class Evidence:
    """What is certain about one repository in this run. Threads may call it at will.

    Args:
        registries: the clients.
        repository: which one.
        cache: the machine's cache.
        believe: False relies on nothing that earlier runs noted (`--no-cache`).

    Attributes:
        registry: the client of the repository's registry.
        memory: what this machine remembers of the repository.
        believes: whether what earlier runs noted counts.
    """

    def __init__(self, registries: Registries, repository: Repository, cache: Path, *, believe: bool = True) -> None:
        self.repository = repository
        self.memory = RepositoryMemory(cache, repository, believe=believe)
        self.believes = believe
        self.registry = registries.at(repository)
        self._answer_file = cache / "registries" / f"{make_file_name(repository.registry)}.json"
        self._heads: SingleFlight[bool] = SingleFlight()
        self._lock = threading.Lock()
        self._checks: bool | None = None

    def find(self, tag: Tag) -> Digest | None:
        """The digest of the image under a tag; None when the tag, or a blob of the image, is not there.

        A tag that this machine has seen before and that is gone makes it forget the repository. Raises what reading a
        manifest raises.
        """
        digest = self.registry.head(tag)
        if digest is None:
            if self.memory.has_tag(tag.name):
                self.forget()
            return None
        image = self.repository.digest(digest)
        if self.registry_checks() or self._is_whole(image):
            return image
        self.forget()
        return None

    def forget(self) -> None:
        """Forgets the repository and how its registry treats manifests: what this machine remembers proved wrong."""
        self.memory.clear()
        self._checks = None
        with contextlib.suppress(OSError):
            self._answer_file.unlink(missing_ok=True)

    def remembered_check(self) -> bool | None:
        """Whether the registry refuses manifests with unknown blobs; None where this machine has to try it."""
        if self._checks is None and self.believes:
            answer = read_cached(self._answer_file)
            software = self.registry.software
            if software is not None and isinstance(answer, dict) and answer.get("software") == software:
                self._checks = bool(answer.get("checks"))
        return self._checks

    def registry_checks(self) -> bool:
        """The same, tried where it is not known; the repository must exist. Never raises: no answer means no."""
        with self._lock:
            checks = self.remembered_check()
            if checks is not None:
                return checks
            try:
                tried = self.registry.checks_manifests(self.repository)
            except ImgtoolError:
                tried = None
            if tried is not None:
                write_cached(self._answer_file, {"software": self.registry.software, "checks": tried})
            self._checks = bool(tried)
            return self._checks

    def _is_whole(self, image: Digest) -> bool:
        try:
            blobs = {blob.digest: blob for blob in self._list_blobs(image)}
        except RegistryRefusedError:  # an index names an image that is gone
            return False
        return all(run_all({digest: partial(self._has_blob, blob) for digest, blob in blobs.items()}).values())

    def _list_blobs(self, image: Digest) -> Iterator[Descriptor]:
        manifest = self.registry.manifest(image)
        if not manifest.is_index:
            yield from (manifest.config, *manifest.layers)
            return
        for _, child in manifest.entries:
            yield from self._list_blobs(self.repository.digest(child.digest))

    def _has_blob(self, blob: Descriptor) -> bool:
        return self._heads.do(blob.digest, partial(self.registry.has_blob, self.repository, blob))
