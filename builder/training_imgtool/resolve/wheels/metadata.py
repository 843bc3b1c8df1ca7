"""Reads the metadata of a lock's wheels, and checks that the lock satisfies it.

The resolver gets a wheel's requirements from an index, but only the wheel's own METADATA is evidence. imgtool reads
METADATA from wheels in the cache. For other wheels, range requests fetch only the zip's directory and METADATA.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO

from training_imgtool.base.errors import InputError, TemporaryError, VerificationError
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.threads import run_all
from training_imgtool.base.wheel_zip import ZIP_ERRORS
from training_imgtool.model.lock import Variant, Wheel
from training_imgtool.resolve.versions.closure import (
    Package,
    find_broken,
    is_same_version,
    parse_metadata,
    takes_python,
)
from training_imgtool.resolve.versions.markers import marker_environment
from training_imgtool.resolve.wheels.index.page import IndexedFile
from training_imgtool.resolve.wheels.store import WheelStore

_METADATA = re.compile(r"[^/]+\.dist-info/METADATA\Z")
_AT_ONCE = 16
_MOST_METADATA = 8 << 20  # bytes
_DAMAGED = (*ZIP_ERRORS, ValueError)


class WheelMetadata:
    """Reads the metadata of wheels, and stores it under the wheel's hash.

    Args:
        store: has the wheels' files, or their addresses on an index.
        cache: the machine's cache.
    """

    def __init__(self, store: WheelStore, cache: Path) -> None:
        self._store, self._cache = store, cache / "metadata"

    def check_closed(
        self, wheels: Iterable[Wheel], variant: Variant, platform: str, *, own: Collection[str], everything: bool
    ) -> tuple[Package, ...]:
        """Returns the wheels' metadata; raises InputError if they require a package that is missing or does not fit.

        Args:
            wheels: the wheels of one variant, without pip's.
            variant: the variant.
            platform: a platform such as linux/amd64.
            everything: whether to read also wheels that are not in the cache and whose metadata imgtool has not stored.
            own: the normalised names of the project's own packages, whose code is in the image.

        Also raises VerificationError for a damaged wheel, and what fetching raises.
        """
        packages = self._read_all(wheels, everything=everything)
        names = {package.name for package in packages}
        others = {name: variant.package for name in variant.framework.packages if name not in names}
        markers = marker_environment(variant.python, platform)
        broken = tuple(find_broken(packages, markers, provided=others, wanted=variant.requirements, own=own))
        if broken:
            raise InputError(
                f"{variant.name} ({', '.join(variant.roles)}): the locked packages do not fit together: {broken[0]}",
                hint="run imgtool lock to resolve again; if that fails in the same way, the index's metadata "
                "differ from the metadata in the wheels",
                details=broken,
            )
        return packages

    def list_requiring(self, wheels: Iterable[Wheel], name: str) -> tuple[Package, ...]:
        """Returns the metadata of the wheels that require the package `name` without an extra; raises as `of_file`."""
        own = re.compile(rf"{re.escape(name)}(?![\w.-])(?!.*\bextra\b)", re.IGNORECASE)
        return tuple(row for row in self._read_all(wheels, everything=True) if any(map(own.match, row.requires)))

    def _read_all(self, wheels: Iterable[Wheel], *, everything: bool) -> tuple[Package, ...]:
        jobs = {wheel.sha256: partial(self._read, wheel, everything=everything) for wheel in wheels}
        return tuple(run_all(jobs, most=_AT_ONCE).values())

    def of_release(self, name: str, version: str) -> Package | None:
        """Reads the metadata of one wheel of a release; None if the release has no wheel. Raises as `of_file` does."""
        files = (file for file in self._store.index.files(name) if file.file.endswith(".whl"))
        file = next((file for file in files if is_same_version(file.file.split("-")[1], version)), None)
        return replace(self.of_file(file), name=name, version=version) if file else None

    def list_unfit(self, wheels: Iterable[Wheel], python: str) -> tuple[Wheel, ...]:
        """Returns the wheels whose Requires-Python excludes the minor version `python`; raises as `of_file` does."""
        rows = {wheel.sha256: wheel for wheel in wheels}
        packages = run_all(
            {sha256: partial(self._read, rows[sha256], everything=True) for sha256 in rows}, most=_AT_ONCE
        )
        return tuple(rows[sha256] for sha256, row in packages.items() if not takes_python(row.requires_python, python))

    def of_file(self, file: IndexedFile) -> Package:
        """Reads the metadata of a wheel that no lock pins yet; raises VerificationError or TemporaryError."""
        index = self._store.index
        size = file.size or index.size(file.url)
        try:
            return _read(index.open(file.url, size), file.file)
        except (LookupError, TemporaryError, OSError, *_DAMAGED):  # also for servers without ranges
            if file.has_metadata:
                text = b"".join(index.read(f"{file.url}.metadata", limit=_MOST_METADATA))
                return parse_metadata(text.decode("utf-8", "replace"), file.file.partition("-")[0])
            data = b"".join(index.read(file.url, limit=size))
        try:
            return _read(io.BytesIO(data), file.file)
        except (LookupError, *_DAMAGED) as error:
            raise VerificationError(f"{file.file}: damaged wheel: it contains no METADATA") from error

    def _read(self, wheel: Wheel, *, everything: bool) -> Package:
        is_here = self._store.path(wheel) is not None
        names = (wheel.sha256, f"{wheel.sha256}-index")  # the hash proves only the metadata of a whole wheel
        for name in names if everything and not is_here else names[:1]:
            if (present := read_cached(self._cache / f"{name}.json")) is not None:
                return Package(**{**present, "requires": tuple(present["requires"])})
        if not everything and not is_here:
            return Package(name=wheel.name, version=wheel.version)
        package = self._read_anew(wheel)
        write_cached(self._cache / f"{names[not is_here]}.json", asdict(package))
        return package

    def _read_anew(self, wheel: Wheel) -> Package:
        if self._store.path(wheel) is None and wheel.source is None:
            with suppress(LookupError, TemporaryError, OSError, *_DAMAGED):  # no index, or no ranges
                return _read(self._store.open_remote(wheel), wheel.file)
        self._store.fetch((wheel,))
        path = self._store.require(wheel)
        try:
            with path.open("rb") as stream:
                return _read(stream, wheel.file)
        except (LookupError, OSError, *_DAMAGED) as error:
            raise VerificationError(f"{path.name}: damaged wheel: {error}", hint=f"remove {path}, run again") from error


def _read(stream: IO[bytes], file: str) -> Package:
    """Reads a wheel's METADATA; raises LookupError if it is missing, `_DAMAGED`, and what reading `stream` raises."""
    with zipfile.ZipFile(stream) as archive:
        name = next((name for name in archive.namelist() if _METADATA.match(name)), None)
        if name is None:
            raise LookupError("no METADATA")
        return parse_metadata(archive.read(name).decode("utf-8", "replace"), file.partition("-")[0])
