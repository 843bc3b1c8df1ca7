"""Whether a document has the keys and kinds of value that its service knows: `rules/shapes.yaml`.

gcloud and kubectl forward unknown keys, other spellings and wrong enum values untouched, so nobody else
sees them before the service does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity
from training_imgtool.jobs.tables import nearest
from training_imgtool.jobs.yamlio import read_table

DURATION = re.compile(r"[0-9]+(?:\.[0-9]{1,9})?s\Z")
_RULES = "jobs/rules"
_EXTENSIBLE = {"Compose", "ComposeService", "ComposeDeploy"}  # `x-…` is the user's own
_TYPES: Mapping[str, tuple[type, ...]] = {
    "any": (object,),
    "text": (str,),
    "enum": (str,),
    "duration": (str,),
    "int": (int,),
    "int64": (int, float, str),
    "quantity": (int, float, str),
    "bool": (bool,),
}
_DOUBLE = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "text": ("text", (str,)),
    "int": ("a whole number", (int,)),
    "bool": ("true or false", (bool,)),
    "quantity": ("a number or text", (str, int, float)),
}


def shape_findings(value: Any, kind: str, path: Path = (), *, allow_unknown: bool = False) -> Iterator[Finding]:
    """What in `value` is not of the `kind`, each with its path."""
    head, _, rest = kind.partition(" ")
    if head == "any":
        return
    if value is None:
        yield Finding(path=path, message="is empty (null): the same as without the key", severity=Severity.HINT)
    elif head in {"list", "map"}:
        yield from _collection(value, head, rest, path, allow_unknown)
    elif head == "enum":
        yield from _enum(value, rest.split(), path, allow_unknown)
    elif head in _KINDS or head in {"int64", "duration", "double"}:
        yield from _scalar(value, head, path)
    else:
        yield from _object(value, head, path, allow_unknown)


def shape_keys(name: str) -> list[str]:
    """The keys of a shape."""
    return [key.removesuffix("!") for key in _shape(name)]


def well_typed(value: Any, kind: str) -> Any:
    """`value` without what is not of its kind, so that the rules see only what they expect; None if nothing is."""
    head, _, rest = kind.partition(" ")
    if head == "double":
        return _double(value)
    if head in _TYPES:
        fits = isinstance(value, _TYPES[head]) and (head in {"any", "bool"} or not isinstance(value, bool))
        return value if fits else None
    if head == "list":
        return [well_typed(item, rest) for item in value] if isinstance(value, list) else None
    if not isinstance(value, dict):
        return None
    if head == "map":
        return {key: well_typed(item, rest) for key, item in value.items()}
    kinds = {key.removesuffix("!"): of for key, of in _shape(head).items()}
    typed = {key: well_typed(item, kinds[key]) for key, item in value.items() if key in kinds}
    return {key: item for key, item in typed.items() if item is not None}


def _collection(value: Any, head: str, rest: str, path: Path, allow_unknown: bool) -> Iterator[Finding]:
    if not isinstance(value, list if head == "list" else dict):
        what = "a list" if head == "list" else "a mapping of names to values"
        yield Finding(path=path, message=f"{_describe(value)}: expected {what}")
        return
    items: Iterable[tuple[Any, Any]] = enumerate(value) if isinstance(value, list) else dict(value).items()
    for key, item in items:
        yield from shape_findings(item, rest, (*path, key), allow_unknown=allow_unknown)


def _enum(value: Any, allowed: list[str], path: Path, allow_unknown: bool) -> Iterator[Finding]:
    if value in allowed:
        return
    hint = nearest(value.upper().replace("-", "_"), allowed) if isinstance(value, str) else None
    yield Finding(
        path=path,
        message=f"{_describe(value)}: expected {', '.join(allowed)}",
        hint=hint,
        severity=Severity.WARNING if allow_unknown and isinstance(value, str) else Severity.ERROR,
    )


def _scalar(value: Any, kind: str, path: Path) -> Iterator[Finding]:
    if kind == "duration":
        if not isinstance(value, str) or not DURATION.match(value):
            seen = _describe(value).removeprefix("found ")
            message = f"{seen} is not a duration: expected seconds and an s, such as 3600s"
            yield Finding(path=path, message=message, hint=_as_duration(value))
        return
    if kind == "int64":
        if _is_int(value) or (isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value)):
            return
        yield Finding(path=path, message=f"{_describe(value)}: expected a whole number")
        return
    if kind == "double":
        if _double(value) is None:
            yield Finding(path=path, message=f"{_describe(value)}: expected a number")
        return
    what, types = _KINDS[kind]
    if isinstance(value, bool) and kind != "bool":
        hint = "put it in quotes" if kind == "text" else None
        yield Finding(path=path, message=f"{_describe(value)}: expected {what}", hint=hint)
    elif not isinstance(value, types):
        hint = "put it in quotes: 2.10 without them is the number 2.1" if kind == "text" and _is_number(value) else None
        yield Finding(path=path, message=f"{_describe(value)}: expected {what}", hint=hint)


def _object(value: Any, name: str, path: Path, allow_unknown: bool) -> Iterator[Finding]:
    shape = _shape(name)
    if not isinstance(value, dict):
        yield Finding(path=path, message=f"{_describe(value)}: expected a mapping")
        return
    kinds = {key.removesuffix("!"): kind for key, kind in shape.items()}
    for key, item in value.items():
        if key.startswith("x-") and name in _EXTENSIBLE:
            continue
        if key in kinds:
            yield from shape_findings(item, kinds[key], (*path, key), allow_unknown=allow_unknown)
            continue
        yield Finding(
            path=(*path, key),
            message=f"{key!r} is not a key here",
            hint=_key_hint(key, kinds),
            severity=Severity.WARNING if allow_unknown else Severity.ERROR,
        )
    for key in shape:
        if key.endswith("!") and value.get(key.removesuffix("!")) is None:
            yield Finding(path=path, message=f"{key.removesuffix('!')!r} is missing")


def _shape(name: str) -> Mapping[str, str]:
    shapes: Mapping[str, Mapping[str, str]] = read_table("shapes.yaml", _RULES)
    return shapes[name] if name in shapes else dict(read_table("shapes_kubernetes.yaml", _RULES)[name])


def _key_hint(key: str, kinds: Mapping[str, str]) -> str | None:
    folded = {name.replace("_", "").lower(): name for name in kinds}
    same = folded.get(key.replace("_", "").replace("-", "").lower())
    return f"it is spelt {same}" if same else nearest(key, kinds)


def _double(value: Any) -> int | float | None:
    """A number, also one written as text: Google's JSON and gcloud take both."""
    if isinstance(value, str) and _DOUBLE.match(value):
        return int(value) if value.removeprefix("-").isdecimal() else float(value)
    return value if _is_number(value) else None


def _as_duration(value: Any) -> str | None:
    if _is_int(value):
        return f"write {value}s"
    match = re.fullmatch(r"([0-9]+)\s*([smhd])[a-z]*", value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    seconds = int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
    return f"write {seconds}s"


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return f"found {text if len(text) <= 60 else text[:60] + '…'}"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
