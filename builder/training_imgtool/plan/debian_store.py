"""Fetches Debian packages from the base's archives, and keeps them in the layer cache by their sha256."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

from training_imgtool.base.errors import PackageGoneError, TemporaryError, VerificationError
from training_imgtool.base.http.client import Client
from training_imgtool.base.http.retry import PassingError, Retry
from training_imgtool.base.progress import Done, Outcome, Planned, Progress, Transfer
from training_imgtool.base.settings import Settings
from training_imgtool.base.threads import run_all
from training_imgtool.model.lock import DebianPackage
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.registry.manifests import Descriptor

SUBJECT = "packages"
_MEDIA_TYPE = "application/vnd.debian.binary-package"
_AT_ONCE = 6
_FILE_SECONDS = 3600.0
_OTHERS = "IMGTOOL_DEBIAN_MIRRORS names another archive, such as a snapshot"


class PackageStore:
    """Stores the Debian packages of one machine. Thread-safe.

    Args:
        settings: the machine's settings for the cache and the network.
        urls: the archives' addresses.
        progress: receives each download.
        pause: sleeps; replaced in tests.
    """

    def __init__(
        self,
        settings: Settings,
        urls: tuple[str, ...],
        progress: Progress,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cache = LayerCache(settings.cache / "layers")
        self._urls, self._progress = urls, progress
        self._client = Client(proxies=settings.proxies, ca_file=settings.ca_file, answer_seconds=_FILE_SECONDS)
        self._retry = Retry(tries=4, sleep=pause)

    def fetch(self, packages: tuple[DebianPackage, ...]) -> tuple[Path, ...]:
        """Fetches the packages that this machine lacks, several at a time; returns the verified files of all packages.

        Raises:
            PackageGoneError: no archive has the file.
            VerificationError: a file in an archive or in the cache does not have the sha256 of the lock.
            TemporaryError: the archives do not answer.
            LocalFileError: the cache cannot be written.
        """
        missing = [package for package in packages if not self._cache.has_blob(_describe(package))]
        if missing:
            self._progress(Planned(SUBJECT, sum(package.size for package in missing)))
            largest_first = sorted(missing, key=lambda package: -package.size)
            run_all({package.sha256: partial(self._fetch, package) for package in largest_first}, most=_AT_ONCE)
            self._progress(Done(SUBJECT, Outcome.FETCHED, f"{len(missing)} Debian packages"))
        return tuple(map(self._verify, packages))

    def _verify(self, package: DebianPackage) -> Path:
        path = self._cache.blob_path(_describe(package).digest)
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != package.sha256:
            path.unlink(missing_ok=True)
            raise VerificationError(
                f"{path}: damaged, removed", hint="run the command again: imgtool then fetches the package again"
            )
        return path

    def _fetch(self, package: DebianPackage) -> None:
        digest, _ = self._cache.keep_blob(self._download(package))
        if digest != f"sha256:{package.sha256}":
            self._cache.blob_path(digest).unlink(missing_ok=True)
            raise VerificationError(
                f"{package.file}: an archive serves a file with {digest}, which is not the file that the lock names",
                hint=f"imgtool lock --upgrade-package {package.name} locks the file that the archive has now",
            )

    def _download(self, package: DebianPackage) -> Iterator[bytes]:
        urls = tuple(f"{url}/{quote(package.file.removeprefix('./'))}" for url in self._urls)
        for url in urls:
            data = self._fetch_file(url, package)
            if data is not None:
                yield data
                return
        raise PackageGoneError(
            f"no archive of the base has {package.name} {package.version} any more",
            hint=f"imgtool lock --upgrade-package {package.name} locks the version that the archive has now; {_OTHERS}",
            details=tuple(f"{url}: there is no such file" for url in urls),
        )

    def _fetch_file(self, url: str, package: DebianPackage) -> bytes | None:
        """Fetches a file from an archive; returns None if the archive does not have the file."""
        try:
            for attempt in self._retry.attempts(f"the package archive {urlsplit(url).netloc}"):
                with attempt:
                    answer = self._client.follow("GET", url, limit=package.size + 1)
                    if answer.status in {403, 404, 410}:
                        return None
                    if answer.status != 200:
                        raise PassingError(f"answered {answer.status}", status=answer.status)
        except TemporaryError as error:
            raise TemporaryError(
                f"{package.name} {package.version}: {error.message}",
                hint=f"try again later; {_OTHERS}",
                details=(url,),
            ) from error
        self._progress(Transfer(SUBJECT, package.name, len(answer.body), package.size))
        return answer.body


def _describe(package: DebianPackage) -> Descriptor:
    return Descriptor(_MEDIA_TYPE, f"sha256:{package.sha256}", package.size)
