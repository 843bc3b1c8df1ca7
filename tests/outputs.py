"""Holds what imgtool prints with --json against its JSON schema, in every test that runs a command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import jsonschema

from training_imgtool.base.errors import UsageError
from training_imgtool.model.json_schema import output_schema


def check_output(arguments: Sequence[object], out: str) -> None:
    """Fails for a document that differs from the schema of its verb, and for a field that the schema lacks."""
    words = [str(word) for word in arguments]
    own = words[: words.index("--")] if "--" in words else words
    if "--json" not in own or not own or not out.strip():
        return
    for document in [*map(json.loads, out.splitlines())] if "--watch" in own else [json.loads(out)]:
        check_document(own[0], document)


def check_document(verb: str, document: Any) -> None:
    """Checks one document; of a command line that names no verb, that of a failure."""
    try:
        schema = _strict(verb)
    except UsageError:
        schema = _strict("push")
    wrong = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(schema).iter_errors(document))
    assert wrong is None, f"{verb}: {wrong.json_path}: {wrong.message[-500:]}"


@cache
def _strict(verb: str) -> Any:
    schema = output_schema(verb)
    jsonschema.Draft7Validator.check_schema(schema)
    return _closed(schema)


def _closed(node: Any) -> Any:
    """The schema without room for further fields, which readers have to accept and imgtool must not print."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items()}
    return {**closed, "additionalProperties": False} if isinstance(node.get("properties"), dict) else closed
