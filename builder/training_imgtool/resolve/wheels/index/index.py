"""Finds and reads files on package indexes, over HTTP or in folders."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from training_imgtool.base.errors import LocalFileError, TemporaryError, VerificationError
from training_imgtool.base.http.addresses import DEFAULT_PORTS
from training_imgtool.base.http.client import Client
from training_imgtool.base.settings import Settings
from training_imgtool.model.requirements import normalise_name, read_bindings
from training_imgtool.resolve.wheels.index.client import MISSING, IndexClient, MissingFileError, host_of
from training_imgtool.resolve.wheels.index.credentials import without_login
from training_imgtool.resolve.wheels.index.page import ACCEPT, IndexedFile, PageError, make_page_url, parse_page
from training_imgtool.resolve.wheels.index.pip_config import make_uv_environ, read_pip_settings
from training_imgtool.resolve.wheels.index.remote_file import open_remote
from training_imgtool.resolve.wheels.uv import Indexes, find_indexes

BLOCK = 1 << 18
_PAGE_BYTES = 64 << 20
_PAGE_SECONDS = 60.0
LARGEST_FILE = 16 << 30  # bytes
_BUILD = re.compile(r"[^-]+-[^-+]+\+(cpu|cu\d+)-")


class Index:
    """This machine's indexes. Safe for several threads.

    Args:
        find: finds the indexes; called once, at the first use.
        environ: variables for credentials (UV_INDEX_…, NETRC, HOME).
        proxies: see Settings.
        ca_file: a PEM file of certificates to trust.
        insecure: hosts whose certificates imgtool does not check.
        builds: the URL to which the name of a build is added: URL/cu126 is an index for wheels whose local version is
            cu126. Only the methods for builds, and `locate` for such a wheel, use these indexes.
        pause: sleeps; tests replace it.
        bound: the only index of a package, by the package's name.
    """

    def __init__(
        self,
        find: Callable[[], Indexes],
        *,
        environ: Mapping[str, str],
        proxies: Mapping[str, str],
        ca_file: Path | None = None,
        insecure: tuple[str, ...] = (),
        builds: str = "",
        pause: Callable[[float], None] = time.sleep,
        bound: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._bound = bound or {}
        self._find = find
        self._lock = threading.Lock()
        self._indexes: Indexes | None = None
        client = Client(
            proxies=proxies, ca_file=ca_file, unverified=insecure, connections=16, answer_seconds=_PAGE_SECONDS
        )
        self._builds = builds
        own = (*((builds,) if builds else ()), *(url for urls in self._bound.values() for url in urls))
        self._client = IndexClient(client, lambda: (*self.places().urls, *own), environ=environ, pause=pause)

    def places(self) -> Indexes:
        """Returns the places where this machine looks for packages; reads the settings only once."""
        with self._lock:
            self._indexes = self._indexes or self._find()
            return self._indexes

    def locate(self, name: str, file: str, sha256: str) -> IndexedFile | None:
        """Finds a project's file by name and hash; returns None if no index has the file.

        Raises TemporaryError if an index that may have the file does not answer, CredentialsError if an index refuses.
        """
        build = _BUILD.match(file)
        for row in chain(self._list_files(name), self._list_build(name, build[1]) if build else ()):
            digest = hash_local(row.url) if row.file == file and row.url.startswith("file:") else row.sha256
            if row.file == file and digest in {None, sha256}:
                return row
        return None

    def files(self, name: str) -> tuple[IndexedFile, ...]:
        """Lists every file of a project on this machine's indexes. Raises as `locate`.

        Selects by file name, because a find-links place has files of many projects.
        """
        own = re.compile(rf"{re.escape(normalise_name(name))}-\d")
        return tuple(file for file in self._list_files(name) if own.match(normalise_name(file.file)))

    def files_of_build(self, name: str, build: str) -> tuple[IndexedFile, ...]:
        """Lists a project's files whose local version is `build`, from the index for that build. Raises as `locate`."""
        own = re.compile(rf"{re.escape(normalise_name(name))}-\d")
        return tuple(file for file in self._list_build(name, build) if own.match(normalise_name(file.file)))

    def _list_build(self, name: str, build: str) -> Iterator[IndexedFile]:
        page = make_page_url(f"{self._builds}/{build}", name)
        rows = self._list_page(page, MISSING | {403}) if self._builds else ()  # PyTorch's server says 403 for 404
        yield from (row for row in rows if (found := _BUILD.match(row.file)) and found[1] == build)

    def size(self, url: str) -> int:
        """Asks for a file's size in bytes; raises MissingFileError, TemporaryError, CredentialsError."""
        if urlsplit(url).scheme == "file":
            return _path_of(url).stat().st_size
        for attempt in self._client.attempts(url):
            with attempt:
                length = self._client.send("HEAD", url, {}).headers.get("content-length", "")
        if length.isdigit() and int(length):
            return int(length)
        return sum(len(block) for block in self.read(url, limit=LARGEST_FILE))

    def read(
        self, url: str, offset: int = 0, restarted: Callable[[], None] | None = None, *, limit: int
    ) -> Generator[bytes, None, None]:
        """Yields a file's bytes from `offset` on; raises VerificationError for a file of more than `limit` bytes.

        After a broken connection, `read` continues with a Range request. If the server cannot send a
        range, `read` calls the function `restarted` and starts from the beginning, or raises TemporaryError if the
        caller gave no function.
        """
        if urlsplit(url).scheme == "file":
            yield from _limit(_read_local(_path_of(url), offset), offset, limit, url)
            return
        for attempt in self._client.attempts(url):
            with attempt:
                headers = {"Range": f"bytes={offset}-"} if offset else {}
                answer = self._client.send("GET", url, headers, stream=True)
                try:
                    if offset and answer.status != 206:
                        if restarted is None:
                            raise TemporaryError(f"{host_of(url)} cannot continue a broken download", hint="try again")
                        restarted()
                        offset = 0
                    for block in _limit(answer.blocks(), offset, limit, url):
                        offset += len(block)
                        yield block
                finally:
                    answer.close()

    def open(self, url: str, size: int) -> BinaryIO:
        """Opens a file of `size` bytes and reads only the requested parts; raises as `read` does."""
        return open_remote(size, lambda offset: self.read(url, offset, limit=size))

    def _list_files(self, name: str) -> Iterator[IndexedFile]:
        bound = self._bound.get(normalise_name(name), ())
        places = Indexes(bound, ()) if bound else self.places()
        for place in places.find_links:
            yield from self._list_find_links(place)
        for index in places.urls:
            yield from self._list_page(make_page_url(index, name))

    def _list_find_links(self, place: str) -> Iterator[IndexedFile]:
        """Lists the files of a find-links entry: a folder, or a page."""
        if "://" in place and not place.startswith("file:"):
            yield from self._list_page(place)
            return
        folder = _path_of(place) if place.startswith("file:") else Path(place)
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                yield IndexedFile(path.name, path.absolute().as_uri(), None, None)

    def _list_page(self, url: str, missing: frozenset[int] = MISSING) -> tuple[IndexedFile, ...]:
        try:
            if urlsplit(url).scheme == "file":
                path = _path_of(url) / "index.html"
                return parse_page(path.read_bytes(), "text/html", path.as_uri())
            rows = self._fetch_page(url, missing)
            return tuple(row for row in rows if urlsplit(row.url).scheme in DEFAULT_PORTS)
        except (FileNotFoundError, NotADirectoryError, MissingFileError):
            return ()
        except PageError as error:
            raise VerificationError(f"{without_login(url)}: {error}") from error
        except OSError as error:
            raise LocalFileError(f"{without_login(url)}: {error.strerror}") from error

    def _fetch_page(self, url: str, missing: frozenset[int]) -> tuple[IndexedFile, ...]:
        for attempt in self._client.attempts(url):
            with attempt:
                answer = self._client.send("GET", url, {"Accept": ACCEPT}, limit=_PAGE_BYTES, missing=missing)
        if not answer.complete:
            raise VerificationError(f"{without_login(url)}: over {_PAGE_BYTES >> 20} MiB", hint="is this an index?")
        return parse_page(answer.body, answer.headers.get("content-type", ""), answer.url)


def open_index(settings: Settings, options: tuple[str, ...] = ()) -> Index:
    """Opens the indexes that uv and pip use on this machine with a requirements file's options."""
    environ = make_uv_environ(settings.environ, ca_file=settings.ca_file)
    certificate = environ.get("SSL_CERT_FILE")
    trusted = f"{environ.get('UV_INSECURE_HOST', '')} {read_pip_settings(settings.environ).get('trusted-host', '')}"
    bound: dict[str, tuple[str, ...]] = {}
    for one in read_bindings(options):
        bound[one.package] = (*bound.get(one.package, ()), one.url)
    return Index(
        lambda: find_indexes(environ, options),
        environ=environ,
        proxies=settings.proxies,
        ca_file=Path(certificate) if certificate else None,
        insecure=tuple(trusted.split()),
        builds=settings.build_indexes,
        bound=bound,
    )


def _limit(blocks: Iterable[bytes], have: int, limit: int, url: str) -> Iterator[bytes]:
    """Yields the blocks; raises an error when they and the `have` bytes before them exceed `limit` bytes."""
    for block in blocks:
        have += len(block)
        if have > limit:
            file = unquote(urlsplit(url).path.rpartition("/")[2])
            raise VerificationError(
                f"{file}: {host_of(url) or 'its folder'} sends more than the {limit} bytes expected",
                hint="the index's file is not the one that the lock names by its hash and size",
            )
        yield block


def hash_local(url: str) -> str:
    """Hashes a local file, to tell it from a file with the same name on another index."""
    try:
        with _path_of(url).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def _path_of(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _read_local(path: Path, offset: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            while block := stream.read(BLOCK):
                yield block
    except FileNotFoundError as error:
        raise MissingFileError(str(path)) from error
    except OSError as error:
        raise LocalFileError(f"{path}: {error.strerror}") from error
