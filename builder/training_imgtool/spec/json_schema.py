"""The JSON schema of `image.yaml` for editors (draft-07, which the YAML language servers know best).

It comes from the dataclasses of `spec.model`, as the reader does. An editor reads YAML before it checks
it, so text that is a number or a word such as `true` there is allowed where text is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, get_args, get_origin

from training_imgtool.spec.kinds import is_required, list_field_kinds, strip_none
from training_imgtool.spec.model import ImageSpec, Role
from training_imgtool.spec.value_rules import ENV_NAME, MAX_ENV, OWNED_ENV

_TEXT = ["string", "number", "boolean"]


def json_schema() -> dict[str, Any]:
    """The schema as plain data; the same every time."""
    definitions: dict[str, Any] = {}
    root = _dataclass(ImageSpec, definitions)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "imgtool's image.yaml",
        "description": "TensorFlow training images, one per role, and the job that runs them.",
        **root,
        "definitions": dict(sorted(definitions.items())),
    }


def _dataclass(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    kinds = list_field_kinds(kind)
    properties = {}
    required = []
    for field in dataclasses.fields(kind):
        if is_required(field):
            required.append(field.name)
        annotation, _ = strip_none(kinds[field.name])
        schema = _kind(annotation, field.metadata, definitions)
        properties[field.name] = _described(schema, field, nullable=not is_required(field))
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _described(schema: dict[str, Any], field: dataclasses.Field[Any], *, nullable: bool) -> dict[str, Any]:
    """A property: `schema` with what an editor shows; null where a missing value has a meaning."""
    if nullable:
        schema = _nullable(schema)
    described = {"description": field.metadata["doc"], **schema}
    if isinstance(field.default, str | int):  # None says nothing, and a StrEnum is its text
        described["default"] = str(field.default) if isinstance(field.default, str) else field.default
    return described


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*types, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _kind(kind: Any, limits: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # its place, should it name itself
            description = (kind.__doc__ or "").partition("\n")[0]
            definitions[kind.__name__] = {"description": description, **_dataclass(kind, definitions)}
        return {"$ref": f"#/definitions/{kind.__name__}"}
    if origin is tuple:
        return {"type": "array", "items": _kind(get_args(kind)[0], limits, definitions)}
    if origin is Mapping:
        return _mapping(get_args(kind), limits, definitions)
    return _scalar(kind, limits)


def _mapping(kinds: tuple[Any, Any], limits: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    key, kind = kinds
    value = _kind(kind, limits, definitions)
    if issubclass(key, StrEnum):
        schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {str(name): _nullable(value) for name in key},
        }
        return {**schema, "required": [str(Role.MASTER)]} if key is Role else schema
    if limits.get("rule") == "env":
        names = {"pattern": f"^(?:{ENV_NAME})$", "not": {"enum": sorted(OWNED_ENV)}}
        return {"type": "object", "maxProperties": MAX_ENV, "propertyNames": names, "additionalProperties": value}
    return {"type": "object", "additionalProperties": value}


def _scalar(kind: Any, limits: Mapping[str, Any]) -> dict[str, Any]:
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        minimum = limits.get("minimum")
        return {"type": "integer"} if minimum is None else {"type": "integer", "minimum": minimum}
    if issubclass(kind, StrEnum):
        return {"enum": [str(choice) for choice in kind]}
    if limits.get("choices"):
        return {"enum": list(limits["choices"])}
    if limits.get("pattern"):
        # A pattern is for strings only, so a number passes it: editors turn 3.11 into one.
        return {"type": ["string", "number"], "pattern": f"^(?:{limits['pattern']})$"}
    return {"type": _TEXT}
