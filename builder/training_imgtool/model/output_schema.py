"""The JSON schema of what a verb prints with `--json`, made from `data/outputs.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from training_imgtool.base.errors import UsageError
from training_imgtool.base.resources import data_file
from training_imgtool.base.version import SCHEMA


def output_schema(verb: str) -> dict[str, Any]:
    """Returns the schema of a verb's documents, ok or failed; raises UsageError for a verb that prints none."""
    tables = tomllib.loads(data_file("outputs.toml").read_text(encoding="utf-8"))
    failure = _object(tables.pop("error"))
    named = [(name, fields) for names, fields in tables.items() for name in names.split(", ")]
    found = [_document(name, fields, failure) for name, fields in named if name.split()[0] == verb]
    if not found:
        verbs = ", ".join(dict.fromkeys(name.split()[0] for name, _ in named))
        raise UsageError(f"{verb} prints no JSON document", hint=f"those that do: {verbs}")
    found.append(_document("failure", {}, failure))
    title = f"what imgtool {verb} --json prints"
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, "anyOf": found}


def _document(name: str, fields: Mapping[str, str], failure: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of one document, or of an event of `run --watch`; each may have an `error`."""
    _, is_event, event = name.partition(" --watch ")
    first = {"event": f"={event}: what happened"} if is_event else {}
    first |= {"ok": "boolean: whether the verb succeeded"} if event in {"", "ended"} else {}
    made = _object({"schema": "integer: the version of the documents", **first, **fields})
    made["properties"] |= {"schema": {"const": SCHEMA}, "error": failure}
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
