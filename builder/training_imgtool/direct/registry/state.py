"""Tells what a repository holds: an image counts only when the registry answers for each of its blobs.

A registry may accept a manifest whose blobs it does not have: the distribution specification allows both answers. So
a manifest that the registry took is evidence only where the registry was seen to refuse such manifests. imgtool tries
that once per host and version of the registry's software, when it pushes there anyway, and keeps the answer; elsewhere
it sends a HEAD request for each blob that was not uploaded in this run, the mounted ones too.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from training_imgtool.core.errors import ImgtoolError, RegistryRefusedError
from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.core.threads import SingleFlight, run_all
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import Descriptor, Manifest

_NAME_DIGITS = 40


def make_file_name(text: str) -> str:
    """Returns a file name for any text."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]}.json"


class RepositoryState:
    """Knows what is certain about one repository in this run. Threads may call it at will.

    Args:
        registries: the clients.
        repository: which one.
        cache: the machine's cache.
        use_cache: False relies on nothing that earlier runs noted (`--no-cache`).

    Attributes:
        registry: the client of the repository's registry.
    """

    def __init__(self, registries: Registries, repository: Repository, cache: Path, *, use_cache: bool = True) -> None:
        self.repository = repository
        self.registry = registries.at(repository)
        self._use_cache = use_cache
        self._answer_file = cache / "registries" / make_file_name(repository.registry)
        self._heads: SingleFlight[bool] = SingleFlight()
        self._lock = threading.Lock()
        self._checks: bool | None = None

    def find(self, tag: Tag) -> Digest | None:
        """Returns the image under a tag if the repository holds it whole; only reads.

        What a HEAD request says of a tag may be a proxy's memory: the image counts when its manifest was read by its
        digest. Raises what reading a manifest raises.
        """
        digest = self.registry.head(tag)
        image = self.repository.digest(digest) if digest else None
        manifest = self.registry.find_manifest(image) if image else None
        return image if manifest and (self.remembered_check() or self._is_whole(manifest)) else None

    def remembered_check(self) -> bool | None:
        """Tells whether the registry refuses manifests with unknown blobs; None where nobody has tried this version."""
        if self._checks is None and self._use_cache:
            answer = read_cached(self._answer_file)
            software = self.registry.software
            if software is not None and isinstance(answer, dict) and answer.get("software") == software:
                self._checks = bool(answer.get("checks"))
        return self._checks

    def registry_checks(self) -> bool:
        """Tells the same, and tries it where it is not known: only a run that has pushed something may call this.

        Never raises: no answer means no. With `--no-cache` the answer is no, so that the push asks for every blob.
        """
        if not self._use_cache:
            return False
        with self._lock:
            checks = self.remembered_check()
            if checks is None:
                try:
                    checks = self.registry.checks_manifests(self.repository)
                except ImgtoolError:
                    checks = None
                if checks is not None:
                    write_cached(self._answer_file, {"software": self.registry.software, "checks": checks})
                self._checks = checks = bool(checks)
            return checks

    def _is_whole(self, manifest: Manifest) -> bool:
        try:
            blobs = {blob.digest: blob for blob in self._list_blobs(manifest)}
        except RegistryRefusedError:  # an index names an image that is gone
            return False
        return all(run_all({digest: partial(self._has_blob, blob) for digest, blob in blobs.items()}).values())

    def _list_blobs(self, manifest: Manifest) -> Iterator[Descriptor]:
        if not manifest.is_index:
            yield from (manifest.config, *manifest.layers)
            return
        for _, child in manifest.entries:
            yield from self._list_blobs(self.registry.manifest(self.repository.digest(child.digest)))

    def _has_blob(self, blob: Descriptor) -> bool:
        return self._heads.do(blob.digest, partial(self.registry.has_blob, self.repository, blob))
