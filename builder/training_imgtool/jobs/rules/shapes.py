"""Checks that a document has only keys and kinds of values that its service knows, with the tables in `rules/`.

gcloud and kubectl forward unknown keys, misspelt keys and wrong enum values unchanged, so no other program finds them
before the service does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity
from training_imgtool.jobs.rules import names
from training_imgtool.jobs.rules.images import image_findings
from training_imgtool.jobs.tables import nearest
from training_imgtool.jobs.yamlio import read_table

DURATION = re.compile(r"[0-9]+(?:\.[0-9]{1,9})?s\Z")
_TABLES = ("shapes.yaml", "shapes_kubernetes.yaml", "shapes_others.yaml")
_OBJECT = {"apiVersion!": "text", "kind!": "text", "metadata!": "ObjectMeta", "status": "any"}
_DOUBLE = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "any": (object,),
    "text": (str,),
    "enum": (str,),
    "duration": (str,),
    "image": (str,),
    "int": (int,),
    "int64": (int, float, str),
    "quantity": (int, float, str),
    "bool": (bool,),
}
_WORDS = {"text": "text", "int": "a whole number", "bool": "true or false", "quantity": "a number or text"}
Rules = Mapping[str, Callable[[Any, Path, Any], Iterable[Finding]]]
"""Rules that a table cannot express: functions of a shape's value, its path and the whole document."""


class Checker:
    """Checks values against shapes: tables that give the kind of each key's value.

    Args:
        rules: further rules, by shape.
        root: the whole document for these rules, without values of a wrong kind.
        allow_unknown: whether keys and words that the tables lack are only warnings.
    """

    def __init__(self, rules: Rules, root: Any, *, allow_unknown: bool) -> None:
        self._rules, self._root = rules, root
        self._unknown = Severity.WARNING if allow_unknown else Severity.ERROR

    def findings(self, value: Any, kind: str, path: Path = ()) -> Iterator[Finding]:
        """Finds the parts of `value` that do not match `kind`, each with its path."""
        head, rest = _split(_resolve(kind))
        name, of, most = [*head.split(":"), "", ""][:3]
        if head == "any":
            return
        if value is None:
            yield Finding(path=path, message="is empty (null): the same as without the key", severity=Severity.HINT)
        elif name in {"list", "list+", "map"}:
            yield from self._collection(value, name, of, rest, path)
            if most and isinstance(value, list | dict) and len(value) > int(most):
                yield Finding(path=path, message=f"has {len(value)}: expected {most} at most")
        elif head == "enum":
            yield from self._enum(value, ["" if word == "''" else word for word in rest.split()], path)
        elif head == "image":
            yield from _typed(value, "text", path)
            yield from image_findings(value, path)
        elif head in _TYPES or head == "double":
            yield from _scalar(value, head, rest, path)
        elif head in names.FORMATS:
            yield from _formatted(value, head, path)
        else:
            yield from self._object(value, head, path)

    def _collection(self, value: Any, head: str, of: str, rest: str, path: Path) -> Iterator[Finding]:
        listed = head != "map"
        if not isinstance(value, list if listed else dict):
            what = "a list" if listed else "a mapping of names to values"
            yield Finding(path=path, message=f"{describe(value)}: expected {what}")
            return
        if head == "list+" and not value:
            yield Finding(path=path, message="is empty: expected at least one")
        items: Iterable[tuple[Any, Any]] = enumerate(value) if isinstance(value, list) else dict(value).items()
        seen: set[str] = set()
        for key, item in items:
            if not listed and of and (message := names.FORMATS[of](str(key))):
                yield Finding(path=(*path, key), message=message, at_key=True)
            name = item.get(of) if listed and of and isinstance(item, dict) else None
            if isinstance(name, str) and name in seen:
                yield Finding(path=(*path, key, of), message=f"{name!r} appears twice")
            seen.add(str(name))
            yield from self.findings(item, rest, (*path, key))

    def _enum(self, value: Any, allowed: list[str], path: Path) -> Iterator[Finding]:
        if value in allowed:
            return
        hint = nearest(value.upper().replace("-", "_"), allowed) if isinstance(value, str) else None
        severity = self._unknown if isinstance(value, str) else Severity.ERROR
        message = f"{describe(value)}: expected {', '.join(filter(None, allowed))}"
        yield Finding(path=path, message=message, hint=hint, severity=severity)

    def _object(self, value: Any, name: str, path: Path) -> Iterator[Finding]:
        shape = _shape(name)
        if not isinstance(value, dict):
            yield Finding(path=path, message=f"{describe(value)}: expected a mapping")
            return
        kinds = _keys(shape)
        for key, item in value.items():
            if key in kinds:
                yield from self.findings(item, kinds[key], (*path, key))
            else:
                message, hint = f"{key!r} is not a key here", key_hint(key, kinds)
                yield Finding(path=(*path, key), message=message, hint=hint, severity=self._unknown, at_key=True)
        for key in shape:
            if key.endswith("!") and value.get(key.removesuffix("!")) is None:
                yield Finding(path=path, message=f"{key.removesuffix('!')!r} is missing")
        yield from _choices(value, shape, path)
        if name in self._rules:
            yield from self._rules[name](well_typed(value, name), path, self._root)


def shape_findings(value: Any, kind: str, rules: Rules | None = None, *, allow_unknown: bool) -> Iterator[Finding]:
    """Finds the parts of a document that do not match `kind`, or that violate a rule of their shape."""
    return Checker(rules or {}, well_typed(value, kind), allow_unknown=allow_unknown).findings(value, kind)


def well_typed(value: Any, kind: str) -> Any:
    """Returns `value` without its parts of a wrong kind, so that rules need not check them; None if nothing is left."""
    head, rest = _split(_resolve(kind))
    name = head.partition(":")[0]
    if head == "double":
        return _double(value)
    if head in _TYPES or head in names.FORMATS:
        return value if head == "any" or _is_typed(value, head) else None
    if name in {"list", "list+"}:
        return [well_typed(item, rest) for item in value] if isinstance(value, list) else None
    if not isinstance(value, dict):
        return None
    if name == "map":
        return {key: well_typed(item, rest) for key, item in value.items()}
    kinds = _keys(_shape(head))
    typed = {key: well_typed(item, kinds[key]) for key, item in value.items() if key in kinds}
    return {key: item for key, item in typed.items() if item is not None}


def _split(kind: str) -> tuple[str, str]:
    head, _, rest = kind.partition(" ")
    return head, rest


def _resolve(kind: str) -> str:
    """Returns the kind that a table defines under the name `kind`; if there is no such entry, `kind` itself."""
    named = _find(kind) if kind[:1].isupper() else None
    return named if isinstance(named, str) else kind


def _is_typed(value: Any, head: str) -> bool:
    """Tells whether a scalar has the type that its kind or format requires."""
    types = _TYPES.get(head) or ((str, int, float) if head in names.NUMERIC else (str,))
    return isinstance(value, types) and (head == "bool" or not isinstance(value, bool))


def _choices(value: Mapping[str, Any], shape: Mapping[str, str], path: Path) -> Iterator[Finding]:
    """Finds two keys that exclude each other (`^one`), and a mapping without any of the keys after `^some`."""
    one, some = (shape.get(rule, "").split() for rule in ("^one", "^some"))
    given = [key for key in one if value.get(key) is not None]
    if len(given) > 1:
        message = f"does not go with {given[0]}: expected one of them"
        yield Finding(path=(*path, given[1]), message=message)
    if some and all(value.get(key) is None for key in some):
        yield Finding(path=path, message=f"expected one of {', '.join(some)}")


def _typed(value: Any, kind: str, path: Path) -> Iterator[Finding]:
    """Finds a value that is not of its kind, such as `text`, `int`, `bool` or `quantity`."""
    if isinstance(value, bool) and kind != "bool":
        hint = "put it in quotes" if kind == "text" else None
    elif not isinstance(value, _TYPES[kind]):
        hint = "put it in quotes: 2.10 without them is the number 2.1" if kind == "text" and _is_number(value) else None
    else:
        return
    yield Finding(path=path, message=f"{describe(value)}: expected {_WORDS[kind]}", hint=hint)


def _scalar(value: Any, kind: str, limits: str, path: Path) -> Iterator[Finding]:
    if kind == "duration":
        if not isinstance(value, str) or not DURATION.match(value):
            seen = describe(value).removeprefix("found ")
            message = f"{seen} is not a duration: expected seconds and an s, such as 3600s"
            yield Finding(path=path, message=message, hint=_as_duration(value))
    elif kind == "int64":
        if not (_is_int(value) or (isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value))):
            yield Finding(path=path, message=f"{describe(value)}: expected a whole number")
        elif limits and int(value) < int(limits):
            yield Finding(path=path, message=f"{value}: expected {limits} or more")
    elif kind == "double":
        if _double(value) is None:
            yield Finding(path=path, message=f"{describe(value)}: expected a number")
    else:
        yield from _typed(value, kind, path)
        low, high = ([int(limit) for limit in limits.split()] + [None, None])[:2]
        if _is_int(value) and ((low is not None and value < low) or (high is not None and value > high)):
            expected = f"{low} or more" if high is None else f"{low} to {high}"
            yield Finding(path=path, message=f"{value}: expected {expected}")


def _formatted(value: Any, kind: str, path: Path) -> Iterator[Finding]:
    number = kind in names.NUMERIC
    if not isinstance(value, str) and not (number and _is_number(value)):
        yield from _typed(value, "quantity" if number else "text", path)
    elif message := names.FORMATS[kind](str(value)):
        yield Finding(path=path, message=message)


@cache
def _find(name: str) -> Any:
    """Finds an entry in the tables; stops at the table that contains it, because reading a table takes 5 ms."""
    return next((table[name] for table in map(_read, _TABLES) if name in table), None)


@cache
def _read(name: str) -> Mapping[str, Any]:
    table: Mapping[str, Any] = read_table(name, "jobs/rules")
    return table


def _shape(name: str) -> Mapping[str, str]:
    """Returns the keys of a shape; for a Kubernetes object, `spec` and the keys that every object has."""
    if (own := _find(name)) is not None:
        return dict(own)
    spec = _read("shapes_others.yaml")["^objects"][name].split()[0]
    must = "!" if spec.endswith("!") else ""
    return {**_OBJECT, f"spec{must}": spec.removesuffix("!")}


def _keys(shape: Mapping[str, str]) -> dict[str, str]:
    return {key.removesuffix("!"): kind for key, kind in shape.items() if not key.startswith("^")}


def key_hint(key: str, kinds: Iterable[str]) -> str | None:
    """Suggests a key of `kinds` that differs only in spelling or a few letters; None if there is none."""
    folded = {name.replace("_", "").lower(): name for name in kinds}
    same = folded.get(key.replace("_", "").replace("-", "").lower())
    return f"it is spelt {same}" if same else nearest(key, kinds)


def _double(value: Any) -> int | float | None:
    """Reads a number or a text with a number, because Google's JSON and gcloud accept both."""
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


def describe(value: Any) -> str:
    """Describes a value for the start of a message: `found 'x'`, `a list`."""
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
