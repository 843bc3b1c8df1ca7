"""Checks documents with the JSON schemas that projects publish for their files: `compose.json`, `skypilot.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from training_imgtool.base.resources import data_file
from training_imgtool.jobs.model import Finding, Path
from training_imgtool.jobs.rules.shapes import describe, key_hint
from training_imgtool.jobs.tables import nearest

_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def published_findings(data: Any, name: str, source: str) -> Iterator[Finding]:
    """Finds values that the schema `name` does not allow, each with the most helpful reason."""
    for error in _validator(name).iter_errors(data):
        leaf = _leaf(error)
        yield from _findings(leaf, tuple(leaf.absolute_path), source)


def _leaf(error: Any) -> Any:
    """Returns the most helpful error: the deepest one inside those alternatives whose type matches the value."""
    inner = [each for each in error.context or [] if each.path or each.validator not in {"type", "anyOf", "oneOf"}]
    return _leaf(max(inner, key=lambda each: len(each.absolute_path))) if inner else error


@cache
def _validator(name: str) -> Any:
    """Makes the validator of a schema, with two keywords that only SkyPilot's schema uses."""
    from jsonschema import Draft7Validator, ValidationError
    from jsonschema.validators import extend

    def one_of(_validator: Any, words: list[str], value: Any, _schema: Any) -> Iterator[ValidationError]:
        if str(value).lower() not in [word.lower() for word in words]:
            yield ValidationError(f"{value!r} is not one of {words!r}")

    schema = json.loads(data_file(f"{name}.json", "jobs/rules").read_text("utf-8"))
    made: Any = extend
    return made(Draft7Validator, {"case_insensitive_enum": one_of, "case_sensitive_enum": one_of})(schema)


def _findings(error: Any, path: Path, source: str) -> Iterator[Finding]:
    found = describe(error.instance)
    match error.validator:
        case "additionalProperties":
            yield from _unknown_keys(error.instance, error.schema, path, source)
        case "type" | "anyOf" | "oneOf" if types := _types(error):
            message = f"{found}: expected {' or '.join(_WORDS[word] for word in types)}"
            yield Finding(path=path, message=message, source=source)
        case "enum" | "case_insensitive_enum" | "case_sensitive_enum":
            allowed = [str(word) for word in error.validator_value]
            message, hint = f"{found}: expected {', '.join(allowed)}", nearest(str(error.instance), allowed)
            yield Finding(path=path, message=message, hint=hint, source=source)
        case "required":
            missing = next(key for key in error.validator_value if key not in error.instance)
            yield Finding(path=path, message=f"{missing!r} is missing", source=source)
        case "pattern":
            expected = error.schema.get("description") or error.validator_value
            yield Finding(path=path, message=f"{found}: the schema asks for {expected!r}", source=source)
        case _:
            yield Finding(path=path, message=f"{found}: {error.message[:200]}", source=source)


def _unknown_keys(value: Mapping[str, Any], schema: Mapping[str, Any], path: Path, source: str) -> Iterator[Finding]:
    import re

    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key in value:
        if key not in known and not any(re.search(pattern, key) for pattern in patterns):
            hint = key_hint(key, known) if known else None
            yield Finding(
                path=(*path, key), message=f"{key!r} is not a key here", hint=hint, source=source, at_key=True
            )


def _types(error: Any) -> list[str]:
    """Lists the types that the schema allows at this place, in all alternatives."""
    beside = error.context or (error.parent.context if error.parent is not None else [error])
    of_place = [each for each in beside if each.validator == "type" and each.absolute_path == error.absolute_path]
    words = [each.validator_value for each in of_place or [error] if each.validator == "type"]
    flat = (word for item in words for word in ([item] if isinstance(item, str) else item))
    return [word for word in dict.fromkeys(flat) if word in _WORDS]  # without null
