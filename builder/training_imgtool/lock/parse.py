"""The lock's grammar, and reading it strictly: what is in a lock goes into Dockerfiles and paths."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from training_imgtool.core.errors import InputError
from training_imgtool.core.reference import InvalidReferenceError, check_digest, parse_reference
from training_imgtool.plan import DebianPackage, Lock, LockedDebian, LockedVariant, Source, UnusedPath, Variant, Wheel
from training_imgtool.spec.model import Accelerator, Role
from training_imgtool.spec.requirements import normalise_name

LOCK_VERSION = 2
_SUM_LINE = 4  # from 0; the sum says nothing of its own place
_VERSION = r"[0-9][0-9A-Za-z.+!_-]*"
_WHEEL = {
    "name": r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?",
    "version": _VERSION,
    "size": "",
    "sha256": r"[0-9a-f]{64}",
    "file": r"[A-Za-z0-9][\w.+!-]*\.whl",
}
_UNUSED = r"[\w+-][\w.+-]*(?:/[\w+-][\w.+-]*)*"  # a path below site-packages
_ARCHIVE = r"[A-Za-z0-9][\w.+!-]*\.(?:tar\.gz|zip|tar)"
_LIBRARY = r"[^\x00-\x20\x7f/]+"
_ORIGIN, _COMMIT = r"[^\x00-\x1f\x7f]+", r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_NEEDED = "needed_libraries"  # locks from before this key stay current
_DEBIAN = ("debian", "debian_engine", "debian_requested")
_PACKAGE = {  # Debian Policy 5.6.7 and 5.6.12
    "name": r"[a-z0-9][a-z0-9.+-]+",
    "version": r"[0-9][A-Za-z0-9.+~:-]*",
    "architecture": r"[a-z0-9-]+",
    "sha256": r"[0-9a-f]{64}",
    "file": r"(?!\.\.?/)[\w.+~:%-]+(?:/(?!\.\.?(?:/|\Z))[\w.+~:%-]+)*\.deb",
}
TEXTS = {  # the variant's fields in the order of the file; "?" marks those that may be left out
    "name": r"[a-z0-9]+(?:[._-][a-z0-9]+)*",
    "package": r"tensorflow(?:-[a-z]+)?",
    "tensorflow": r"\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?",
    "python": r"3\.\d{1,2}",
    "cuda?": r"\d+(?:\.\d+)+",
    "cudnn?": r"\d+(?:\.\d+)+",
    "base": r"[A-Za-z0-9][\w./:@\[\]-]*",
    "os?": r"[a-z]+[0-9.]+",
    "python_from": r"image|apt|deadsnakes",
    "python_executable": r"(?:/[\w.+-]+)+",
}
LISTS = {
    "apt?": r"[a-z0-9][a-z0-9.+:-]*(?:=[\w.+:~-]+)?",
    "libraries?": r"lib[\w.+-]+",
    "requirements": r"[^\x00-\x1f\x7f]+",
    "constraints?": r"[^\x00-\x1f\x7f]+",
    "notes?": r"[^\x00-\x1f\x7f]+",
}


class DamagedLockError(InputError):
    """The file is not a lock; `imgtool lock` replaces it."""


def parse_lock(data: bytes, name: str) -> Lock:
    """Parses the lock in `data`; raises InputError.

    Args:
        data: the file.
        name: its name, for messages.
    """
    raw = _toml(data, name)
    lock = _lock(raw, name)
    text = data.decode()
    if raw["sum"] != sum_text(text) or not text.splitlines()[_SUM_LINE].startswith("sum = "):
        raise DamagedLockError(
            f"{name}: its rows do not add up to its sum: somebody edited or merged them",
            hint="imgtool lock writes a new one",
        )
    return lock


def sum_text(text: str) -> str:
    """Returns the sha256 of a lock's lines but that with the sum: a row that a merge loses or doubles changes it."""
    lines = (line for line in text.splitlines() if not line.startswith("sum = "))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _toml(data: bytes, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise DamagedLockError(
            f"{name}: not a lock: {error}", hint="imgtool lock writes a new one; a merge conflict leaves such a file"
        ) from None


def _lock(raw: Mapping[str, Any], name: str) -> Lock:
    reader = _Reader(name)
    version = raw.get("version")
    if type(version) is int and version > LOCK_VERSION:
        raise InputError(
            f"{name}: written by a newer imgtool (lock version {version}, this one reads {LOCK_VERSION})",
            hint="update imgtool",
        )
    if type(version) is int and version == 1:
        raise DamagedLockError(f"{name}: written by an older imgtool", hint="imgtool lock writes a new one")
    if version != LOCK_VERSION or type(version) is not int:
        raise reader.error("version", f"expected {LOCK_VERSION}, found {version!r}")
    reader.check_keys(raw, "", ("version", "inputs", "platform", "sum", "variant"))
    variants = raw.get("variant")
    if not isinstance(variants, list) or not variants:
        raise reader.error("variant", "expected at least one [[variant]]")
    reader.text(raw, "", "sum", r"[0-9a-f]{64}")
    lock = Lock(
        inputs=reader.text(raw, "", "inputs", r"[0-9a-f]{64}"),
        platform=reader.text(raw, "", "platform", r"[a-z0-9]+/[a-z0-9]+(?:/[a-z0-9]+)?"),
        variants=tuple(reader.variant(row, f"variant[{index}]") for index, row in enumerate(variants)),
    )
    names = [locked.variant.name for locked in lock.variants]
    roles = [role for locked in lock.variants for role in locked.variant.roles]
    if len(set(names)) != len(names) or len(set(roles)) != len(roles):
        raise reader.error("variant", "a name or a role occurs twice")
    return lock


class _Reader:
    """Takes values out of parsed TOML, each checked; `where` is the path of the table they are in."""

    def __init__(self, name: str) -> None:
        self._name = name

    def error(self, where: str, message: str) -> InputError:
        return DamagedLockError(f"{self._name}: {where}: {message}", hint="imgtool lock writes a new one")

    def check_keys(self, row: Mapping[str, Any], where: str, keys: Iterable[str]) -> None:
        unknown = sorted(set(row) - set(keys))
        if unknown:
            raise self.error(f"{where}.{unknown[0]}".lstrip("."), "unknown key")

    def check_once(self, names: Iterable[str], where: str) -> None:
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise self.error(where, f"{twice[0]} is there twice")

    def text(self, row: Mapping[str, Any], where: str, key: str, pattern: str) -> str:
        value = row.get(key)
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            shown = "nothing" if value is None else repr(value)[:80]
            raise self.error(f"{where}.{key}".lstrip("."), f"expected {pattern}, found {shown}")
        return value

    def texts(self, row: Mapping[str, Any], where: str, key: str, pattern: str) -> tuple[str, ...]:
        values = row.get(key.rstrip("?"), [] if key.endswith("?") else None)
        if not isinstance(values, list):
            raise self.error(f"{where}.{key}".rstrip("?"), "expected a list of texts")
        for value in values:
            if not isinstance(value, str) or not re.fullmatch(pattern, value):
                raise self.error(f"{where}.{key}".rstrip("?"), f"expected {pattern}, found {value!r}"[:160])
        return tuple(values)

    def variant(self, row: object, where: str) -> LockedVariant:
        if not isinstance(row, dict):
            raise self.error(where, "expected a table")
        fields = {
            *TEXTS,
            *LISTS,
            *_DEBIAN,
            "roles",
            "accelerator",
            "base_digest",
            "installer",
            "wheels",
            "unused",
            _NEEDED,
        }
        self.check_keys(row, where, (field.rstrip("?") for field in fields))
        texts = {
            field.rstrip("?"): None
            if field.endswith("?") and field[:-1] not in row
            else self.text(row, where, field.rstrip("?"), pattern)
            for field, pattern in TEXTS.items()
        }
        lists = {field.rstrip("?"): self.texts(row, where, field, pattern) for field, pattern in LISTS.items()}
        wheels = row.get("wheels")
        if not isinstance(wheels, list):
            raise self.error(f"{where}.wheels", "expected a list")
        rows = tuple(self.wheel(wheel, f"{where}.wheels[{index}]") for index, wheel in enumerate(wheels))
        self.check_once((normalise_name(row.name) for row in rows), f"{where}.wheels")
        try:
            parse_reference(str(texts["base"]))
            digest = check_digest(str(row.get("base_digest")))
            roles = tuple(Role(role) for role in self.texts(row, where, "roles", r"[a-z]+"))
            accelerator = Accelerator(str(row.get("accelerator")))
        except (InvalidReferenceError, ValueError) as error:
            raise self.error(where, str(error)) from None
        return LockedVariant(
            variant=Variant(roles=roles, accelerator=accelerator, **texts, **lists),  # type: ignore[arg-type]
            base_digest=digest,
            installer=self.wheel(row.get("installer"), f"{where}.installer"),
            wheels=rows,
            unused=self.unused(row.get("unused", []), f"{where}.unused"),
            needed_libraries=self.texts(row, where, _NEEDED, _LIBRARY) if _NEEDED in row else None,
            debian=self.debian(row, where),
        )

    def debian(self, row: Mapping[str, Any], where: str) -> LockedDebian | None:
        if not set(_DEBIAN) & set(row):
            return None
        packages = row.get("debian", [])
        if not isinstance(packages, list) or ("debian" in row) is ("debian_engine" in row):
            raise self.error(f"{where}.debian", "expected a list of Debian packages, or debian_engine in its place")
        engine = self.text(row, where, "debian_engine", r"[^\x00-\x1f\x7f]+") if "debian_engine" in row else ""
        parsed = tuple(self.package(item, f"{where}.debian[{index}]") for index, item in enumerate(packages))
        self.check_once((f"{package.name}:{package.architecture}" for package in parsed), f"{where}.debian")
        return LockedDebian(
            requested=self.texts(row, where, "debian_requested", LISTS["apt?"]),
            packages=parsed,
            engine=engine,
        )

    def package(self, row: object, where: str) -> DebianPackage:
        if not isinstance(row, dict):
            raise self.error(where, "expected a Debian package: { name, version, architecture, size, sha256, file }")
        self.check_keys(row, where, (*_PACKAGE, "size"))
        size = self.size(row, where)
        return DebianPackage(size=size, **{key: self.text(row, where, key, rule) for key, rule in _PACKAGE.items()})

    def unused(self, rows: object, where: str) -> tuple[UnusedPath, ...]:
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.error(where, "expected a list of { path, size, rule }")
        for row in rows:
            self.check_keys(row, where, ("path", "size", "rule"))
        return tuple(
            UnusedPath(
                path=self.text(row, where, "path", _UNUSED),
                size=self.size(row, where),
                rule=self.text(row, where, "rule", r"[A-Za-z][\w ]*"),
            )
            for row in rows
        )

    def size(self, row: Mapping[str, Any], where: str) -> int:
        size = row.get("size")
        if type(size) is not int or size <= 0:
            raise self.error(f"{where}.size", f"expected a number of bytes, found {size!r}")
        return size

    def wheel(self, row: object, where: str, file: str = _WHEEL["file"]) -> Wheel:
        if not isinstance(row, dict):
            raise self.error(where, "expected a wheel: { name, version, size, sha256, file }")
        self.check_keys(row, where, (*_WHEEL, "source"))
        size = self.size(row, where)
        patterns = {**_WHEEL, "file": file}
        texts = {key: self.text(row, where, key, pattern) for key, pattern in patterns.items() if pattern}
        if file == _WHEEL["file"] and not _names_file(texts["name"], texts["version"], texts["file"]):
            raise self.error(where, f"{texts['file']} is not a wheel of {texts['name']} {texts['version']}")
        return Wheel(
            size=size, source=self.source(row["source"], f"{where}.source") if "source" in row else None, **texts
        )

    def source(self, row: object, where: str) -> Source:
        if not isinstance(row, dict):
            raise self.error(where, "expected a source: { archive, python }")
        self.check_keys(row, where, ("archive", "python", "origin", "commit"))
        return Source(
            archive=self.wheel(row.get("archive"), f"{where}.archive", _ARCHIVE),
            python=self.text(row, where, "python", TEXTS["python"]),
            origin=self.text(row, where, "origin", _ORIGIN) if "origin" in row else "",
            commit=self.text(row, where, "commit", _COMMIT) if "commit" in row else "",
        )


def _names_file(name: str, version: str, file: str) -> bool:
    """Says whether a wheel's file name begins with this name and version, as pip compares them."""
    file_name, _, rest = file.partition("-")
    file_version = rest.partition("-")[0]
    if normalise_name(file_name) != normalise_name(name):
        return False
    if file_version == version:
        return True
    from packaging.version import InvalidVersion, Version

    try:
        return Version(file_version.replace("_", "-")) == Version(version)
    except InvalidVersion:
        return False
