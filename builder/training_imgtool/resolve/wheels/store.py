"""The wheel cache: `CACHE/wheels/<2 digits>/<sha256>/<file>`, filled from this machine's indexes.

The name of a file's folder is the file's hash. The store checks the hash during the download, and renames the file at
the end. The next run continues a broken download. The file `url` beside a wheel contains the wheel's last URL on an
index.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, BinaryIO

from training_imgtool.base.atomic_files import mark_used
from training_imgtool.base.errors import LocalFileError, TemporaryError, VerificationError
from training_imgtool.base.json_cache import read_cache_file, read_cached, write_cached
from training_imgtool.base.progress import Done, Note, Outcome, Planned, Progress, Transfer, silent
from training_imgtool.base.sanitize import join_lines
from training_imgtool.base.settings import OTHER_CACHE, Settings
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.wheels.index.credentials import without_login

if TYPE_CHECKING:
    from training_imgtool.resolve.wheels.index.index import Index

SUBJECT = "wheels"
BLOCK = 1 << 18
ReadArtifact = Callable[[Wheel], "Iterator[bytes] | None"]


class WheelGoneError(VerificationError):
    """A wheel of the lock is no longer on any index."""


class WheelStore:
    """The wheel cache of one machine. Safe for several threads and processes.

    Args:
        settings: the machine's settings for the cache and the network.
        index: the indexes; by default those of the settings.
        read_artifact: reads a wheel from the images' registry, which has wheels that imgtool built elsewhere or that no
            index has any more; None if the registry does not have it.
        options: returns the options about indexes and folders in the spec's requirements.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        index: Index | None = None,
        read_artifact: ReadArtifact = lambda _: None,
        options: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._read_artifact, self._options = read_artifact, options
        self._root = settings.cache / "wheels"
        self._settings = settings
        if index:
            self.index = index

    @cached_property
    def index(self) -> Index:
        """The machine's indexes, opened at the first request; most runs send no request."""
        from training_imgtool.resolve.wheels.index.index import open_index

        return open_index(self._settings, self._options())

    def path(self, wheel: Wheel) -> Path | None:
        """Returns the wheel's file if the cache has it with the right size, else None."""
        path = self._place(wheel)
        try:
            state = path.lstat()
        except OSError:
            return None
        if state.st_size != wheel.size:
            return None
        mark_used(path, state)
        return path

    def require(self, wheel: Wheel) -> Path:
        """Returns the wheel's file; raises LocalFileError if the cache does not have it."""
        path = self.path(wheel)
        if path is None:
            raise LocalFileError(f"{wheel.file} is not in the cache {self._root}", hint="imgtool build fetches it")
        return path

    def fetch(self, wheels: Iterable[Wheel], progress: Progress = silent, jobs: int = 4) -> None:
        """Downloads the missing `wheels`, `jobs` at a time.

        Raises VerificationError if no index has a file with the lock's hash, TemporaryError, CredentialsError,
        LocalFileError. After an error, complete downloads stay in the cache.
        """
        missing = [wheel for wheel in dict.fromkeys(wheels) if self.path(wheel) is None]
        if not missing:
            return
        if len(missing) > 1:
            progress(Planned(SUBJECT, sum(wheel.size for wheel in missing)))
        stop = Flag()
        missing.sort(key=lambda wheel: -wheel.size)  # the largest takes longest
        pool = ThreadPoolExecutor(min(jobs, len(missing)), thread_name_prefix="wheels")
        try:
            for future in [pool.submit(self._fetch_one, wheel, progress, stop) for wheel in missing]:
                future.result()
        except BaseException:
            stop.set()  # other downloads end at their next block
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()
        if len(missing) > 1:
            progress(Done(SUBJECT, Outcome.FETCHED, f"{len(missing)} wheels"))

    def open_remote(self, wheel: Wheel) -> BinaryIO:
        """Opens a wheel on an index, to read parts; raises LookupError if no index has the wheel, TemporaryError."""
        for url in self._list_urls(wheel):
            return self.index.open(url, wheel.size)
        raise LookupError(wheel.file)

    def put(self, wheel_file: str, content: io.BufferedIOBase) -> Wheel:
        """Caches a wheel that this machine built, and reads its name and version from the file name."""
        name, version = wheel_file.split("-")[:2]
        sha256, size = hashlib.file_digest(content, "sha256").hexdigest(), content.seek(0, os.SEEK_END)
        wheel = Wheel(name=name.replace("_", "-"), version=version, file=wheel_file, sha256=sha256, size=size)
        if self.path(wheel) is None:
            with self._open_part(wheel) as (part, growing, target):
                part.truncate(0)
                content.seek(0)
                part.writelines(iter(lambda: content.read(BLOCK), b""))
                part.flush()
                growing.replace(target)
        return wheel

    def fetch_unhashed(self, file: str, url: str) -> Wheel:
        """Downloads a wheel whose hash no index states, once; returns it with its hash and size. Raises as `fetch`."""
        from training_imgtool.resolve.wheels.index.index import LARGEST_FILE

        record = self._root / "unhashed.json"
        with suppress(TypeError, KeyError):
            wheel = Wheel(**read_cached(record)[without_login(url)])
            if self.path(wheel) is not None:
                return wheel
        self._root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._root) as stream:
            stream.writelines(self.index.read(url, limit=LARGEST_FILE))
            stream.seek(0)
            wheel = self.put(file, stream)
        write_cached(record, {**(read_cached(record) or {}), without_login(url): asdict(wheel)})  # others write, too
        return wheel

    def remember(self, sha256: str, url: str) -> None:
        """Stores the URL of the file with this hash, for the next download."""
        place = self._root / sha256[:2] / sha256
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            (place / "url").write_text(without_login(url), encoding="utf-8")

    def _fetch_one(self, wheel: Wheel, progress: Progress, stop: Flag) -> None:
        place = self._place(wheel)
        if place.exists() and self.path(wheel) is None:
            progress(Note(f"{wheel.file} in the cache is damaged; fetching it again"))
            with suppress(OSError):
                place.unlink()
        self._download(wheel, progress, stop)

    def _download(self, wheel: Wheel, progress: Progress, stop: Flag) -> None:
        """Downloads a wheel into the cache, and continues a broken download; ends early when `stop` is set."""
        with self._open_part(wheel) as (part, growing, target):
            ready = self.path(wheel)
            if ready is not None:  # another process was faster
                growing.unlink()
                return
            digest = hashlib.sha256()
            have = hash_part(part, digest, wheel.size)
            part.seek(have)
            part.truncate()

            def restart() -> None:
                nonlocal digest, have
                digest, have = hashlib.sha256(), 0
                part.seek(0)
                part.truncate()

            try:
                for block in self._read_bytes(wheel, have, restart, progress):
                    if stop.is_set():
                        part.flush()
                        return
                    part.write(block)
                    digest.update(block)
                    have += len(block)
                    progress(Transfer(SUBJECT, wheel.file, have, wheel.size))
            except VerificationError:
                part.truncate(0)  # the downloaded bytes belong to another file
                raise
            part.flush()
            if have != wheel.size or digest.hexdigest() != wheel.sha256:
                part.truncate(0)
                raise VerificationError(
                    f"{wheel.file}: got {have} bytes with sha256 {digest.hexdigest()}, "
                    f"the lock says {wheel.size} bytes with {wheel.sha256}",
                    hint=f"the index serves another file; to use it, run imgtool lock --upgrade-package {wheel.name}",
                )
            growing.replace(target)

    def _read_bytes(
        self, wheel: Wheel, offset: int, restarted: Callable[[], None], progress: Progress
    ) -> Iterator[bytes]:
        """Yields a wheel's bytes from `offset` on, from its last URL or else from an index."""
        from training_imgtool.resolve.wheels.index.client import MissingFileError

        if wheel.source and (artifact := self._read_artifact(wheel)):
            yield from _from_start(artifact, restarted)
            return
        for url in self._list_urls(wheel, progress):
            try:
                yield from self.index.read(url, offset, restarted, limit=wheel.size)
            except MissingFileError:
                restarted()
                offset = 0
                continue
            self.remember(wheel.sha256, url)
            return
        if wheel.source is not None:
            raise VerificationError(
                f"image.lock names {wheel.file}, which another machine built from {wheel.source.origin}; "
                "neither this machine nor the images' registry has this wheel",
                hint="push once from that machine, so that the registry stores the wheel; "
                f"or run imgtool lock --upgrade-package {wheel.name} to build it here",
            )
        if artifact := self._read_artifact(wheel):
            yield from _from_start(artifact, restarted)
        else:
            raise WheelGoneError(
                f"no index of this machine has {wheel.file} with sha256 {wheel.sha256}",
                hint="name the wheel's index or folder in UV_INDEX_URL or UV_FIND_LINKS, or run imgtool lock --upgrade",
            )

    def _list_urls(self, wheel: Wheel, progress: Progress = silent) -> Iterator[str]:
        with suppress(OSError, UnicodeDecodeError):
            hint = (read_cache_file(self._place(wheel).parent / "url") or b"").decode("utf-8", "replace").strip()
            if hint and not hint.startswith("file:"):  # `locate` has checked the hash of a local file
                yield hint
        with suppress(TemporaryError) if wheel.source else nullcontext():  # the error then names the source
            if found := self.index.locate(wheel.name, wheel.file, wheel.sha256):
                if found.yanked is not None:
                    progress(Note(describe_yank(wheel.file, found.yanked)))
                yield found.url

    def _place(self, wheel: Wheel) -> Path:
        return self._root / wheel.sha256[:2] / wheel.sha256 / wheel.file

    @contextmanager
    def _open_part(self, wheel: Wheel) -> Iterator[tuple[BinaryIO, Path, Path]]:
        """Opens the locked file of a partial download; yields it, its path, and its final path."""
        target = self._place(wheel)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            growing = target.with_name("part")
            with open_locked(growing) as part:
                yield part, growing, target
        except OSError as error:
            raise LocalFileError(
                f"{error.filename or target}: {error.strerror or error}",
                hint=OTHER_CACHE,
            ) from error


def describe_yank(what: str, why: str) -> str:
    """Returns a sentence for the user: the publishers withdrew a release (PEP 592), and why."""
    return f"{what} was yanked{f': {join_lines(why)}' if why else ''}; imgtool lock --upgrade takes another if it can"


def _from_start(blocks: Iterator[bytes], restarted: Callable[[], None]) -> Iterator[bytes]:
    """Yields the blocks of a whole file, and discards the part that an earlier download left."""
    restarted()
    yield from blocks


@contextmanager
def open_locked(path: Path) -> Iterator[BinaryIO]:
    """Opens `path` for reading and writing, and locks it; starts again if another process replaces the file."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        stream = os.fdopen(handle, "r+b")
        fcntl.flock(handle, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(stream.fileno()).st_ino:
                break
        stream.close()  # another process renamed the file while this one waited
    with stream:
        yield stream


def hash_part(part: BinaryIO, digest: hashlib._Hash, size: int) -> int:
    """Hashes the bytes that an earlier download left; returns their number."""
    part.seek(0)
    have = 0
    while block := part.read(BLOCK):
        digest.update(block)
        have += len(block)
    if have < size:
        return have
    part.seek(0)
    part.truncate()
    return 0
