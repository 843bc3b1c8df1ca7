"""Defines `key`, which makes a dataclass field for a key of `image.yaml`, with the key's limits and description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any


def key(
    doc: str,
    *,
    default: Any = ...,
    pattern: str | None = None,
    expected: str | None = None,
    hint: str | None = None,
    choices: tuple[str, ...] = (),
    minimum: int | None = None,
    maximum: int | None = None,
    rule: str | None = None,
    several: bool = False,
) -> Any:
    """Returns a dataclass field for a key of the spec.

    Args:
        doc: the key's description, which editors show.
        default: the value of a missing key; without a default, the key is required.
        pattern: a pattern for the whole text, or for each item of a list; ASCII, in the syntax of JSON schema.
        expected: `pattern` in words, for error messages.
        hint: what to write instead of a text that `pattern` refuses.
        choices: the texts that the key allows.
        minimum: the smallest number that the key allows.
        maximum: the largest number that the key allows.
        rule: the name of a rule of `model.value_rules`.
        several: whether a list is also allowed; then the field gets its first value, and `Reader.several` all values.
    """
    metadata = {
        "doc": doc,
        "pattern": pattern,
        "expected": expected,
        "hint": hint,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "rule": rule,
        "several": several,
    }
    if default is ...:
        return field(metadata=metadata)
    if isinstance(default, dict):
        frozen: Mapping[str, Any] = MappingProxyType(default)
        return field(default_factory=lambda: frozen, metadata=metadata)
    return field(default=default, metadata=metadata)
