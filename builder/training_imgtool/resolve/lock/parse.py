"""Reads a lock strictly, because its values become parts of Dockerfiles and paths.

The dataclasses in `plan` define the format: a row contains exactly the fields of its dataclass, and each text matches
its field's pattern.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, get_args, get_origin

from training_imgtool.base.errors import InputError
from training_imgtool.base.reference import InvalidReferenceError, parse_reference
from training_imgtool.base.toml import parse_toml
from training_imgtool.model.decode import is_required, list_field_kinds, strip_none
from training_imgtool.model.lock import Lock, LockedVariant, Variant, Wheel
from training_imgtool.model.requirements import normalise_name

LOCK_VERSION = 2
_SUM_LINE = 4  # from 0; the sum does not cover its own line


class DamagedLockError(InputError):
    """The file is not a valid lock; `imgtool lock` replaces it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="imgtool lock writes a new one")


def parse_lock(data: bytes, name: str) -> Lock:
    """Parses the lock in `data`; raises InputError.

    Args:
        data: the file.
        name: the file's name, for messages.
    """
    try:
        text = data.decode()
        raw = parse_toml(text)
    except ValueError as error:
        raise DamagedLockError(f"{name}: not a lock, perhaps because of a merge conflict: {error}") from None
    _check_version(raw.pop("version", None), name)
    total, rows = raw.pop("sum", None), raw.pop("variant", None)
    if not isinstance(rows, list) or not rows:
        raise DamagedLockError(f"{name}: variant: expected at least one [[variant]]")
    try:
        lock: Lock = _read_row(Lock, {**raw, "variants": rows}, "")
        _check_names(lock)
    except _WrongError as error:
        raise DamagedLockError(f"{name}: {error}") from None
    if total != sum_text(text) or not text.split("\n")[_SUM_LINE].startswith("sum = "):
        raise DamagedLockError(f"{name}: its rows do not match its checksum, because somebody edited or merged them")
    return lock


def sum_text(text: str) -> str:
    """Returns the sha256 of a lock's lines except the line `sum`. It changes if a merge drops or repeats a row."""
    whole = text.replace("\r\n", "\n").removesuffix("\n")
    lines = (line for line in whole.split("\n") if not line.startswith("sum = "))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _check_version(version: object, name: str) -> None:
    if type(version) is int and version > LOCK_VERSION:
        raise InputError(
            f"{name}: written by a newer imgtool (lock version {version}, this one reads {LOCK_VERSION})",
            hint="update imgtool",
        )
    if version != LOCK_VERSION or type(version) is not int:
        raise DamagedLockError(f"{name}: version: expected {LOCK_VERSION}, found {version!r}")


class _WrongError(Exception):
    """A fault in a lock, after its place: `variant[0].wheels[3].size: …`."""


def _read_row(kind: type, row: object, where: str) -> Any:
    """Converts a table to a dataclass; `where` is the table's place in the file."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(row, dict):
        raise _WrongError(f"{where}: expected a table with {', '.join(fields)}")
    if kind is LockedVariant:  # one table has the fields of both
        own = {key: value for key, value in row.items() if key not in fields}
        row = {"variant": own, **{key: row[key] for key in row if key in fields}}
    if unknown := sorted(set(row) - set(fields)):
        raise _WrongError(f"{_join(where, unknown[0])}: unknown key")
    values = {}
    for name, field in fields.items():
        annotation, optional = strip_none(list_field_kinds(kind)[name])
        place = where if annotation is Variant else _join(where, name).replace("variants", "variant")
        if name in row:
            values[name] = _read_value(annotation, row[name], place, field.metadata.get("pattern", ""))
        elif is_required(field):
            values[name] = None if optional else () if get_origin(annotation) is tuple else _missing(place)
    return kind(**values)


def _read_value(kind: Any, value: object, where: str, pattern: str) -> Any:
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise _WrongError(f"{where}: expected a list, found {value!r:.80}")
        return tuple(
            _read_value(get_args(kind)[0], item, f"{where}[{number}]", pattern) for number, item in enumerate(value)
        )
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _read_row(kind, value, where)
    if kind is int:
        if type(value) is not int or value <= 0:
            raise _WrongError(f"{where}: expected a number of bytes, found {value!r:.80}")
        return value
    if issubclass(kind, StrEnum):
        if value not in list(kind):
            raise _WrongError(f"{where}: expected {', '.join(kind)}, found {value!r:.80}")
        return kind(value)
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise _WrongError(f"{where}: expected {pattern}, found {value!r:.80}")
    return value


def _missing(where: str) -> Any:
    raise _WrongError(f"{where}: missing")


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _check_names(lock: Lock) -> None:
    """Checks that no name occurs twice, and that the name of each wheel file matches its package and version."""
    _check_once((locked.variant.name for locked in lock.variants), "variant")
    _check_once((role for locked in lock.variants for role in locked.variant.roles), "variant")
    for number, locked in enumerate(lock.variants):
        where = f"variant[{number}]"
        try:
            parse_reference(locked.variant.base)
        except InvalidReferenceError as error:
            raise _WrongError(f"{where}.base: {error}") from None
        packages = locked.debian.packages if locked.debian else ()
        _check_once((normalise_name(wheel.name) for wheel in locked.wheels), f"{where}.wheels")
        _check_once((f"{package.name}:{package.architecture}" for package in packages), f"{where}.debian.packages")
        for place, wheel in ((f"{where}.installer", locked.installer), *_list_wheels(locked, where)):
            if not _names_file(wheel):
                raise _WrongError(f"{place}: {wheel.file} is not a wheel of {wheel.name} {wheel.version}")


def _list_wheels(locked: LockedVariant, where: str) -> Iterable[tuple[str, Wheel]]:
    return ((f"{where}.wheels[{number}]", wheel) for number, wheel in enumerate(locked.wheels))


def _check_once(names: Iterable[str], where: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise _WrongError(f"{where}: {twice[0]} appears twice")


def _names_file(wheel: Wheel) -> bool:
    """Returns whether a wheel's file name begins with the wheel's name and version, compared as pip does."""
    file_name, _, rest = wheel.file.partition("-")
    file_version = rest.partition("-")[0]
    if normalise_name(file_name) != normalise_name(wheel.name) or not wheel.file.endswith(".whl"):
        return False
    if file_version == wheel.version:
        return True
    from packaging.version import Version

    try:
        return Version(file_version.replace("_", "-")) == Version(wheel.version)
    except ValueError:
        return False
