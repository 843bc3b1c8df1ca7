"""Makes the JSON schema of `image.yaml` for editors, in the version draft-07, which most editors support.

The schema follows from the dataclasses of `model.spec`. An editor reads the value `3` as a number where imgtool reads
text. So the schema also allows numbers and booleans for text, except for keys whose text cannot look like a number.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, get_args, get_origin

from training_imgtool.base.errors import UsageError
from training_imgtool.base.resources import data_file
from training_imgtool.model.decode import is_required, list_field_kinds, strip_none
from training_imgtool.model.frameworks import FRAMEWORKS
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.value_rules import ENV_NAME, MAX_ENV, OWNED_ENV

_TEXT = ["string", "number", "boolean"]
_NUMBERS = ("1", "15", "2.1", "-1")  # editors read text of these forms as numbers
# Rules of `model.value_rules`, as far as a pattern can express them.
_PATTERNS = {
    "file": r"(?!/)(?!(?:.*/)?\.\.(?:/|$)).+",
    "reference": r"[A-Za-z0-9\[][A-Za-z0-9\[\]._:/-]*(?:@sha256:[0-9a-f]{64})?",
    "registry": r"[A-Za-z0-9\[][A-Za-z0-9\[\]._:-]*(?:/[a-z0-9._-]+)*",
}


def json_schema() -> dict[str, Any]:
    """Returns the schema of `image.yaml` as plain data."""
    definitions: dict[str, Any] = {}
    root = _dataclass(ImageSpec, definitions)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://json.schemastore.org/imgtool.json",  # the schema's address at SchemaStore
        "title": "imgtool's image.yaml",
        "description": "Training images, and the job that runs them.",
        **root,
        "oneOf": [{"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in FRAMEWORKS],
        "definitions": dict(sorted(definitions.items())),
    }


def output_schema(verb: str) -> dict[str, Any]:
    """Returns the schema of the document that a verb prints with `--json`; raises UsageError if it prints none."""
    schemas: dict[str, dict[str, Any]] = json.loads(data_file("outputs.json").read_text(encoding="utf-8"))
    if verb not in schemas:
        raise UsageError(f"{verb} does not print a JSON document", hint=f"those that do: {', '.join(schemas)}")
    return schemas[verb]


def _dataclass(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    kinds = list_field_kinds(kind)
    properties = {}
    required = []
    for field in dataclasses.fields(kind):
        if is_required(field):
            required.append(field.name)
        annotation, _ = strip_none(kinds[field.name])
        schema = _kind(annotation, field.metadata, definitions)
        properties[field.name] = _describe(schema, field, nullable=not is_required(field))
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _describe(schema: dict[str, Any], field: dataclasses.Field[Any], *, nullable: bool) -> dict[str, Any]:
    """Adds a key's description and default to the key's schema; with `nullable`, the schema allows null."""
    if nullable:
        schema = _nullable(schema)
    described = {"description": field.metadata["doc"], **schema}
    if isinstance(field.default, str | int):
        described["default"] = str(field.default) if isinstance(field.default, str) else field.default
    return described


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*types, "null"]}
    return schema  # a definition, which allows null itself


def _kind(kind: Any, limits: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # its place, in case it contains itself
            description = (kind.__doc__ or "").partition("\n")[0]
            shorthand = ["string"] if hasattr(kind, "SHORTHAND") else []
            schema = {**_dataclass(kind, definitions), "type": ["object", *shorthand, "null"]}
            definitions[kind.__name__] = {"description": description, **schema}
        return {"$ref": f"#/definitions/{kind.__name__}"}
    if origin is tuple:
        return {"type": "array", "items": _kind(get_args(kind)[0], limits, definitions)}
    if origin is Mapping:
        return _mapping(get_args(kind), limits, definitions)
    single = _scalar(kind, limits)
    if limits.get("several"):
        several = {"type": "array", "items": single, "minItems": 1, "uniqueItems": True}
        return {"anyOf": [_nullable(single), several]}
    return single


def _mapping(kinds: tuple[Any, Any], limits: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    key, kind = kinds
    value = _kind(kind, limits, definitions)
    if issubclass(key, StrEnum):
        values = {str(name): _nullable(value) for name in key}
        schema = {"type": "object", "additionalProperties": False, "properties": values}
        if key is not Role:
            return schema
        master = str(Role.MASTER)
        values[master] = {"allOf": [value, {"properties": {"count": {"enum": [1, None]}}}]}
        return {**schema, "anyOf": [{"required": [master]}, {"required": [str(Role.WORKER)]}]}
    if limits.get("rule") in {"env", "job_env"}:
        names = {"pattern": f"^(?:{ENV_NAME})$", "not": {"enum": sorted(OWNED_ENV)}}
        return {"type": "object", "maxProperties": MAX_ENV, "propertyNames": names, "additionalProperties": value}
    return {"type": "object", "additionalProperties": value}


def _scalar(kind: Any, limits: Mapping[str, Any]) -> dict[str, Any]:
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        ends = {name: limits[name] for name in ("minimum", "maximum") if limits.get(name) is not None}
        return {"type": "integer", **ends}
    if issubclass(kind, StrEnum):
        return {"enum": [str(choice) for choice in kind]}
    if limits.get("choices"):
        return {"enum": list(limits["choices"])}
    pattern = limits.get("pattern") or _PATTERNS.get(limits.get("rule") or "")
    if pattern:
        is_number = any(re.fullmatch(pattern, number) for number in _NUMBERS)
        return {"type": ["string", "number"] if is_number else "string", "pattern": f"^(?:{pattern})$"}
    return {"type": _TEXT}
