"""Makes the JSON schemas of what each verb prints with `--json` from `outputs.toml`, for `scripts/docs`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training_imgtool.base.version import SCHEMA


def write_schemas() -> str:
    """The schemas by verb, each on a line of a JSON document."""
    tables = tomllib.loads(Path(__file__).with_name("outputs.toml").read_text())
    error = _object(tables.pop("error"))
    verbs: dict[str, list[dict[str, Any]]] = {}
    for names, fields in tables.items():
        for name in names.split(", "):
            verbs.setdefault(name.split()[0], []).append(_document(name, fields))
    lines = []
    for verb, documents in verbs.items():
        schema = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": f"what imgtool {verb} --json prints",
            "anyOf": [*documents, _document("failure", {})],
            "definitions": {"error": error},
        }
        lines.append(f"{json.dumps(verb)}: {json.dumps(schema, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _document(name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Returns the schema of one document, or of an event of `run --watch`; each may have an `error`."""
    _, is_event, event = name.partition(" --watch ")
    first = {"event": f"={event}: what happened"} if is_event else {}
    first |= {"ok": "boolean: whether the verb succeeded"} if event in {"", "ended"} else {}
    made = _object({"schema": "integer: the version of the documents", **first, **fields})
    made["properties"] |= {"schema": {"const": SCHEMA}, "error": {"$ref": "#/definitions/error"}}
    made["required"] += ["error"] if {event, name} & {"failed", "stopped", "failure"} else []
    return {"title": name, **made}


def _object(fields: Mapping[str, str]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, text in fields.items():
        node = root
        for step in re.findall(r"\[\]|\{\}|[^.\[\]{}]+", path):
            if step in {"[]", "{}"}:
                kind, inner = ("array", "items") if step == "[]" else ("object", "additionalProperties")
                node.setdefault("type", kind)
                node = node.setdefault(inner, {})
            else:
                node.setdefault("type", "object")
                node.setdefault("required", []).extend([] if step in node.get("properties", ()) else [step])
                node = node.setdefault("properties", {}).setdefault(step, {})
        kind, _, node["description"] = text.partition(": ")
        kinds = [*kind.removesuffix("?").split("|"), *(["null"] if kind.endswith("?") else [])]
        node |= {"const": kind[1:]} if kind[0] == "=" else {"type": kinds if len(kinds) > 1 else kinds[0]}
    return root
