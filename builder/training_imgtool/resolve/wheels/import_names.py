"""Finds the modules that the wheels of a lock provide.

imgtool reads the list of files in a wheel: from the cache, or else from the index, with one or two range requests.
If imgtool can read neither, it does not know the wheel's modules, and refuses nothing because of them.
"""

from __future__ import annotations

import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.resources import data_file
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.wheels.store import WheelStore

_EXTENSIONS = (".so", ".pyd")
_ALWAYS_THERE = frozenset({"__main__", "sitecustomize", "usercustomize", "test"})  # standard modules too
_OTHER_SYSTEMS = frozenset({"_overlapped", "_scproxy", "_winapi", "msilib", "msvcrt", "nt", "winreg", "winsound"})
_HARMLESS_PATHS = ("distutils-precedence.pth", "-nspkg.pth")  # these add no modules with other names than their files


@cache
def _read_versions(table: str) -> dict[str, tuple[int, ...]]:
    """Maps modules of the standard library to the version of Python that added (`since`) or removed (`until`) them."""
    rows = _read_table()[table].items()
    return {name: tuple(map(int, version.split("."))) for version, names in rows for name in names.split()}


@cache
def _read_table() -> dict[str, Any]:
    return tomllib.loads(data_file("modules.toml").read_text(encoding="utf-8"))


class ImportNames:
    """The modules that the image's Python and some wheels provide.

    Args:
        wheels: the wheels.
        store: has the wheels' files, or their addresses on an index.
        cache: remembers the results by the wheel's hash.
        python: the image's version of Python, such as 3.11.
    """

    def __init__(self, wheels: tuple[Wheel, ...], store: WheelStore, cache: Path, python: str) -> None:
        self._python = tuple(int(part) for part in python.split("."))
        self._wheels = wheels
        self._store = store
        self._cache = cache / "imports"
        self._names = {wheel.name.lower().replace("_", "-").replace(".", "-") for wheel in wheels}
        self._offline = False

    def provides(self, module: str) -> bool | None:
        """Returns whether Python or a wheel provides a module; None if imgtool cannot read a wheel that may do so."""
        top = module.partition(".")[0]
        if self._is_standard(top) or self._is_named(module):
            return True
        if top == "distutils" and "setuptools" in self._names:
            return True  # which contains a copy
        roots, complete = self._roots
        if any(f"{module}.".startswith(f"{root}.") or root.startswith(f"{module}.") for root in roots):
            return True
        return False if complete else None

    def _is_standard(self, top: str) -> bool:
        """Returns whether the standard library of the image's Python, not of the running one, contains a module."""
        since, until = _read_versions("since"), _read_versions("until")
        if top in since or top in until:
            return since.get(top, (3,)) <= self._python < until.get(top, (4,))
        return (top in sys.stdlib_module_names and top not in _OTHER_SYSTEMS) or top in _ALWAYS_THERE

    def _is_named(self, module: str) -> bool:
        """Returns whether a module's name is that of a wheel, or a known name for a wheel or namespace package."""
        distributions = _read_table()["distributions"]
        if distributions.get(module.partition(".")[0]) in self._names:
            return True
        if not module.partition(".")[0].islower():
            return False  # module names are case-sensitive
        parts = module.replace("_", "-").split(".")
        otherwise_named = {*distributions.values(), "protobuf"} - {"attrs", "setuptools"}
        names = {"-".join(parts[:end]) for end in range(1, len(parts) + 1)} - otherwise_named
        return bool(names & self._names) or (parts[:2] == ["google", "protobuf"] and "protobuf" in self._names)

    @cached_property
    def _roots(self) -> tuple[frozenset[str], bool]:
        """The top-level modules of the wheels, and whether imgtool could read every wheel."""
        with ThreadPoolExecutor(8, thread_name_prefix="import names") as pool:
            answers = list(pool.map(self._read_names, self._wheels))
        return frozenset(name for answer in answers for name in answer or ()), None not in answers

    def _read_names(self, wheel: Wheel) -> list[str] | None:
        path = self._cache / f"{wheel.sha256}.json"
        present = read_cached(path)
        if isinstance(present, list):
            return present
        members = self._list_members(wheel)
        if members is None or any(map(_adds_paths, members)):
            return None
        roots = sorted(set(find_root_modules(members)))
        write_cached(path, roots)
        return roots

    def _list_members(self, wheel: Wheel) -> list[str] | None:
        try:
            if path := self._store.path(wheel):
                with zipfile.ZipFile(path) as archive:
                    return archive.namelist()
            if self._offline or wheel.source is not None:
                return None
            with zipfile.ZipFile(self._store.open_remote(wheel)) as archive:
                return archive.namelist()
        except (ImgtoolError, OSError, LookupError, zipfile.BadZipFile):
            self._offline = True  # other wheels would have to wait just as long
            return None


def find_root_modules(members: Iterable[str]) -> Iterator[str]:
    """Lists the dotted names of a wheel's modules and packages, except those inside a package with `__init__.py`."""
    paths = [find_installed_path(member) for member in members if not member.endswith("/")]
    packages = {path.rpartition("/")[0] for path in paths if path.endswith("/__init__.py")}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if not name.endswith((".py", *_EXTENSIONS)):
            continue
        parts = folder.split("/") if folder else []
        inside = next((end for end in range(1, len(parts) + 1) if "/".join(parts[:end]) in packages), None)
        yield ".".join(parts[:inside] if inside else [*parts, name.partition(".")[0]])


def find_installed_path(member: str) -> str:
    """Returns a member's path below site-packages; if pip installs it elsewhere, returns its path in the wheel."""
    parts = member.split("/")
    if parts[0].endswith(".data") and len(parts) > 2 and parts[1] in {"purelib", "platlib"}:
        return "/".join(parts[2:])
    return member


def _adds_paths(member: str) -> bool:
    return member.endswith(".pth") and "/" not in find_installed_path(member) and not member.endswith(_HARMLESS_PATHS)
