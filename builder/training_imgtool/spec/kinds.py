"""The kinds of values in a spec: their description in words, and their conversion from text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from training_imgtool.core.errors import InputError
from training_imgtool.spec.value_rules import RULES, find_nearest, quote

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z")
_LONGEST_TEXT = 32_768  # a command line's longest argument is four times that (Linux, MAX_ARG_STRLEN)


@cache
def list_field_kinds(kind: type) -> dict[str, Any]:
    """Returns a dataclass's fields by name, with their annotations as types."""
    return get_type_hints(kind)


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Returns whether a field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@cache
def list_key_paths(kind: type, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Returns the paths of each key name below a dataclass: `region` at `job.region`."""
    occurrences: dict[str, tuple[str, ...]] = {}
    for name, annotation in list_field_kinds(kind).items():
        path = f"{prefix}{name}"
        occurrences[name] = (*occurrences.get(name, ()), path)
        inner, _ = strip_none(annotation)
        if get_origin(inner) is Mapping:
            inner, path = get_args(inner)[1], f"{path}.<name>"
        elif get_origin(inner) is tuple:
            inner, path = get_args(inner)[0], f"{path}[]"
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            for key, paths in list_key_paths(inner, f"{path}.").items():
                occurrences[key] = (*occurrences.get(key, ()), *paths)
    return occurrences


def strip_none(annotation: Any) -> tuple[Any, bool]:
    """Returns `X` and True for `X | None`, else the annotation and False."""
    if isinstance(annotation, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return kinds[0], True
    return annotation, False


def convert(kind: Any, text: str, limits: Mapping[str, Any], folder: Path) -> Any:
    """Converts `text` to `kind` within its limits; raises InputError."""
    if len(text) > _LONGEST_TEXT:
        raise InputError(f"expected at most {_LONGEST_TEXT} characters, found {len(text)}")
    wrong = f"expected {describe(kind, limits)}, found {quote(text)}"
    if kind is bool:
        if text not in {"true", "false"}:
            meant = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
            word = meant.get(text.lower(), text.lower())
            raise InputError(wrong, hint=f"write {word}" if word in {"true", "false"} else None)
        return text == "true"
    if kind is int:
        return _convert_integer(text, limits, wrong)
    if issubclass(kind, StrEnum) or limits.get("choices"):
        choices = list(kind) if issubclass(kind, StrEnum) else limits["choices"]
        if text not in choices:
            close = find_nearest(text, choices)
            raise InputError(wrong, hint=f"did you mean {close}?" if close else None)
        return kind(text)
    if limits.get("pattern") and not re.fullmatch(limits["pattern"], text, re.ASCII):
        raise InputError(wrong)
    rule = RULES.get(limits.get("rule") or "")
    return rule(text, folder) if rule else text


def _convert_integer(text: str, limits: Mapping[str, Any], wrong: str) -> int:
    if not _INTEGER.match(text):
        is_odd_number = re.fullmatch(r"[-+]?[0-9][0-9_.eExX]{0,17}", text)
        raise InputError(wrong, hint="write a whole number, such as 2" if is_odd_number else None)
    minimum, maximum = limits.get("minimum"), limits.get("maximum")
    if (minimum is not None and int(text) < minimum) or (maximum is not None and int(text) > maximum):
        raise InputError(wrong)
    return int(text)


def describe(kind: Any, limits: Mapping[str, Any]) -> str:
    """Returns in words what a key expects."""
    kind, _ = strip_none(kind)
    if dataclasses.is_dataclass(kind):
        return f"a mapping with {join_names(field.name for field in dataclasses.fields(kind))}"
    if get_origin(kind) is tuple:
        return "a list"
    if get_origin(kind) is Mapping:
        keys = get_args(kind)[0]
        return f"a mapping with {join_names(keys)}" if issubclass(keys, StrEnum) else "a mapping (`key: value` lines)"
    return _described_scalar(kind, limits)


def _described_scalar(kind: type, limits: Mapping[str, Any]) -> str:
    if kind is bool:
        return "true or false"
    if kind is int:
        minimum, maximum = limits.get("minimum"), limits.get("maximum")
        if maximum is not None:
            return f"a whole number from {minimum} to {maximum}"
        return "a whole number" if minimum is None else f"a whole number, at least {minimum}"
    if issubclass(kind, StrEnum) or limits.get("choices"):
        return join_names(kind if issubclass(kind, StrEnum) else limits["choices"])
    pattern = limits.get("pattern")
    return str(limits.get("expected") or (f"text that matches {pattern}" if pattern else "text"))


def join_names(names: Iterable[str]) -> str:
    """`a, b or c`; the first eight when there are more."""
    texts = [str(name) for name in names]
    if len(texts) > 8:
        return f"{', '.join(texts[:8])} …"
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
