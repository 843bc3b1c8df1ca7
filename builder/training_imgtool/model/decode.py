"""Converts a YAML file's nodes to frozen dataclasses, and collects every error with its place in the file.

The annotations of a dataclass decide the types: `str`, `int`, `bool`, StrEnum, `tuple[X, ...]`, `Mapping[K, V]`,
dataclasses or `X | None`. So `3` and `"3"` mean the same. A key with an empty value gets the key's default.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from training_imgtool.base.errors import FieldError, InputError
from training_imgtool.base.hidden import remember_secret
from training_imgtool.base.resources import data_file
from training_imgtool.base.secret_text import (
    detect_argument_secrets,
    detect_command_secret,
    detect_line_secret,
    detect_named_secret,
    detect_secret,
)
from training_imgtool.base.yamlfile.tree import Items, Node, Position, Scalar, Table
from training_imgtool.model.value_rules import (
    MAX_ENV,
    RULES,
    check_env_name,
    check_text,
    find_nearest,
    find_word,
    quote,
)

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z")
_LONGEST_TEXT = 32_768  # a quarter of the longest argument of a command line (Linux, MAX_ARG_STRLEN)
_LONGEST_KEY = 60
_HIDDEN_KEY = "(a secret)"
_WRONG: Any = object()  # replaces a value with a recorded error
_NO_LIMITS: Mapping[str, Any] = MappingProxyType({})
_HINT = (
    "everyone who gets the image or job file can read it; name the variable in job.secrets, let the trainer fetch it "
    "at run time, or list {path} in allow_secrets if it is not a secret"
)
_WRITE = dict.fromkeys(("spot", "preemptible", "use_spot"), "scheduling: {strategy: SPOT}")
_LIST_KEYS = {"requirements": "python_packages takes a list of requirements"}


@cache
def list_field_kinds(kind: type) -> dict[str, Any]:
    """Returns the type of each field of a dataclass, by the field's name."""
    return get_type_hints(kind)


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Returns whether a field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@cache
def list_key_paths(kind: type, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Returns, by name, the paths of all keys in a dataclass and its parts, such as `job.region` for `region`."""
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
    """Returns (X, True) for an annotation `X | None`, otherwise the annotation itself and False."""
    if isinstance(annotation, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return kinds[0], True
    return annotation, False


def convert(kind: Any, text: str, limits: Mapping[str, Any], folder: Path) -> Any:
    """Converts `text` to a value of type `kind`; raises InputError if the text breaks one of `limits`."""
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
        raise InputError(wrong, hint=limits.get("hint"))
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
    """Describes the values that a key can have, for messages."""
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
    """Joins names as `a, b or c`; if there are more than eight, only the first eight."""
    texts = [str(name) for name in names]
    if len(texts) > 8:
        return f"{', '.join(texts[:8])} …"
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


class Reader:
    """Reads one file's tree.

    Args:
        file: the file's name, for locations.
        folder: the folder from which relative paths start.
        root: the dataclass of the whole file, for hints.
        allowed: paths of keys whose values look like secrets but are not.
    """

    def __init__(self, file: str, folder: Path, *, root: type, allowed: frozenset[str] = frozenset()) -> None:
        self.positions: dict[str, Position] = {}
        self.several: dict[str, tuple[Any, ...]] = {}  # the lists of keys that accept one value or several
        self._file = file
        self._folder = folder
        self._root = root
        self._allowed = allowed
        self._errors: list[tuple[Position, FieldError]] = []

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """The errors so far, in the order of the file."""
        return tuple(error for _, error in sorted(self._errors, key=lambda pair: pair[0]))

    def failed(self, path: str) -> bool:
        """Returns whether the key at `path`, or a key below it, has an error."""
        return any(error.field == path or error.field.startswith(f"{path}.") for _, error in self._errors)

    def fail(self, path: str, message: str, *, hint: str | None = None, at: Position | None = None) -> Any:
        """Records an error about the key at `path`; returns `_WRONG`."""
        place = at or find_position(self.positions, path)
        location = f"{self._file}:{place.line}:{place.column}"
        self._errors.append((place, FieldError(message, field=path, location=location, hint=hint)))
        return _WRONG

    def read(self, annotation: Any, node: Node, path: str, limits: Mapping[str, Any] = _NO_LIMITS) -> Any:
        """Converts `node` to the type `annotation`; returns `_WRONG` if it has an error."""
        kind, _ = strip_none(annotation)
        origin = get_origin(kind)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self._dataclass(kind, node, path)
        if origin is tuple:
            return self._tuple(get_args(kind)[0], node, path, limits)
        if origin is Mapping:
            return self._mapping(kind, node, path, limits)
        if isinstance(node, Items) and limits.get("several"):
            return self._several(kind, node, path, limits)
        if not isinstance(node, Scalar):
            hint = _LIST_KEYS.get(path) if isinstance(node, Items) else None
            return self.fail(path, f"expected {describe(kind, limits)}, found {_describe_node(node)}", hint=hint)
        return self._scalar(kind, node.text, path, limits)

    def _dataclass(self, kind: type, node: Node, path: str) -> Any:
        if isinstance(node, Scalar) and node.null:
            node = Table(node.at, ())
        shorthand = getattr(kind, "SHORTHAND", None)
        if isinstance(node, Scalar) and shorthand is not None:
            node = Table(node.at, ((Scalar(node.at, shorthand, quoted=False), node),))
        fields = {field.name: field for field in dataclasses.fields(kind)}
        if not isinstance(node, Table):
            message = f"expected a mapping with {join_names(fields)}, found {_describe_node(node)}"
            return self.fail(path, message, hint=_suggest_mapping(kind, fields, node))
        given: dict[str, Node] = {}
        for key, value in node.entries:
            known = key.text in fields
            # the value of a misspelt key is read, too, so that all errors come together, and none says "missing"
            name = key.text if known else self._report_unknown(key, path, fields)
            if name in fields and (known or name not in {other.text for other, _ in node.entries}):
                given[name] = value
                self._place(_child(path, name), key, value)
        values = {}
        for name, field in fields.items():
            value = self._field(field, list_field_kinds(kind)[name], given.get(name), _child(path, name))
            if value is not dataclasses.MISSING:
                values[name] = value
        return _WRONG if any(value is _WRONG for value in values.values()) else kind(**values)

    def _field(self, field: dataclasses.Field[Any], annotation: Any, node: Node | None, path: str) -> Any:
        """Returns the value of a field; MISSING if the field gets its default."""
        kind, optional = strip_none(annotation)
        required = is_required(field)
        if node is not None and not (isinstance(node, Scalar) and node.null):
            value = self.read(annotation, node, path, field.metadata)
            return dataclasses.MISSING if value is _WRONG and not required else value
        if required:
            wanted = describe(kind, field.metadata)
            message = f"expected {wanted}, found nothing" if node else f"missing: expected {wanted}"
            return self.fail(path, message, hint=field.metadata["doc"] if wanted == "text" else None)
        if dataclasses.is_dataclass(kind) and not optional:  # rules also apply to defaults
            self.read(kind, Table(find_position(self.positions, path), ()), path)
        elif isinstance(field.default, str) and field.metadata.get("rule"):
            self._scalar(str, field.default, path, field.metadata)
        return dataclasses.MISSING

    def _place(self, path: str, key: Scalar, value: Node) -> None:
        """Records a key's place: that of a scalar value that is not empty, otherwise that of the key itself."""
        self.positions[path] = value.at if isinstance(value, Scalar) and not value.null else key.at

    def _report_unknown(self, key: Scalar, path: str, options: Iterable[str]) -> str | None:
        """Records an error for an unknown key; returns the known key that its author probably meant."""
        names = list(options)
        plain = key.text.partition("[")[0]  # jax[cuda12]
        folded = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", plain).replace("-", "_").lower()
        other = find_word("keys", folded) or find_word("keys", folded.removesuffix("s"))
        close = other if other in names else find_nearest(folded, names)
        elsewhere = list_key_paths(self._root).get(folded, ())[:3]
        if elsewhere and folded not in names and other not in names:
            close = " or ".join(elsewhere)
        if folded in _WRITE and _WRITE[folded].partition(":")[0] in names:
            close, hint = None, f"write {_WRITE[folded]}"
        else:
            hint = f"did you mean {close}?" if close else f"allowed here: {', '.join(names)}"
            hint += " `accelerator: gpu` brings CUDA" if "cuda" in key.text.removeprefix(plain) else ""
        name = _HIDDEN_KEY if detect_secret(key.text) else quote(key.text)
        self.fail(_join(path, key.text), f"unknown key {name}", hint=hint, at=key.at)
        return close

    def _tuple(self, kind: Any, node: Node, path: str, limits: Mapping[str, Any]) -> Any:
        if not isinstance(node, Items):
            hint = None
            if isinstance(node, Scalar) and not detect_line_secret(node.text):
                hint = self._suggest_list(kind, node.text, limits)
            elif isinstance(node, Table) and limits.get("rule") == "arguments":
                hint = "write one argument per item: ['--NAME=VALUE']"
            return self.fail(path, f"expected a list, found {_describe_node(node)}", hint=hint)
        texts = tuple(item.text if isinstance(item, Scalar) else "" for item in node.items)
        secrets = detect_argument_secrets(texts) if limits.get("rule") == "arguments" else {}
        values = []
        for index, item in enumerate(node.items):
            child = f"{path}[{index}]"
            self.positions[child] = item.at
            if index in secrets and self._secret(child, secrets[index], texts[index]):
                continue
            values.append(self._element(kind, item, child, limits))
        return _WRONG if any(value is _WRONG for value in values) else tuple(values)

    def _suggest_list(self, kind: Any, text: str, limits: Mapping[str, Any]) -> str | None:
        """Suggests how to write `text` as a list; None if imgtool cannot split the text into valid items."""
        whole = [text]
        for words in (re.split(r",\s+", text.strip()), text.split(), text.split(","), whole):
            with suppress(InputError):
                if dataclasses.is_dataclass(kind) or (len(words) == 1 and words is not whole):
                    continue
                for word in words:
                    check_text(word)
                    convert(kind, word, limits, self._folder)
                if len(words) > 1 or not re.search(r"\s", text):
                    return f"write [{', '.join(map(quote, words))}]"
        return None

    def _several(self, kind: Any, node: Items, path: str, limits: Mapping[str, Any]) -> Any:
        """Reads a list for a key that usually has a single value; records all values, and returns the first."""
        values = self._tuple(kind, node, path, limits)
        if values is _WRONG:
            return _WRONG
        if not values or len(set(values)) != len(values):
            return self.fail(path, f"expected different values, found {', '.join(values) or 'an empty list'}")
        self.several[path] = values
        return values[0]

    def _mapping(self, annotation: Any, node: Node, path: str, limits: Mapping[str, Any]) -> Any:
        key_kind, kind = get_args(annotation)
        if not isinstance(node, Table):
            wrong = f"expected {describe(annotation, limits)}, found {_describe_node(node)}"
            return self.fail(path, wrong, hint=_suggest_entries(kind, node))
        is_env = limits.get("rule") in {"env", "job_env"}
        if is_env and len(node.entries) > MAX_ENV:
            return self.fail(path, f"expected at most {MAX_ENV} variables, found {len(node.entries)}")
        values = {}
        for key, value in node.entries:
            child = _join(path, key.text)
            self._place(child, key, value)
            name = self._key(key_kind, key, path, is_env=is_env)
            if name is _WRONG:
                continue
            text = value.text if isinstance(value, Scalar) else ""
            kind_of_secret = detect_named_secret(name, text) or (detect_command_secret(text) if is_env else None)
            if kind_of_secret and self._secret(child, kind_of_secret, text):
                continue
            values[name] = self._element(kind, value, child, limits)
        return _WRONG if any(value is _WRONG for value in values.values()) else MappingProxyType(values)

    def _key(self, kind: Any, key: Scalar, path: str, *, is_env: bool) -> Any:
        if issubclass(kind, StrEnum):
            if key.text in list(kind):
                return kind(key.text)
            self._report_unknown(key, path, list(kind))
            return _WRONG
        if kind_of_secret := detect_secret(key.text):
            return self.fail(_join(path, key.text), f"the key looks like {kind_of_secret}", at=key.at)
        try:
            check_text(key.text)
            if is_env:
                check_env_name(key.text)
        except InputError as error:
            return self.fail(_join(path, key.text), error.message, hint=error.hint, at=key.at)
        return key.text

    def _element(self, kind: Any, node: Node, path: str, limits: Mapping[str, Any]) -> Any:
        """Returns an item of a list, or a value of a mapping with free keys. An empty value is an error here."""
        if isinstance(node, Scalar) and node.null and not dataclasses.is_dataclass(kind):
            word = f"the word {node.text}" if node.text else "an empty text"
            return self.fail(path, "expected a value, found nothing", hint=f'write "{node.text}" for {word}')
        return self.read(kind, node, path, limits)

    def _scalar(self, kind: Any, text: str, path: str, limits: Mapping[str, Any]) -> Any:
        secret = (detect_command_secret if limits.get("rule") in {"arguments", "lines"} else detect_secret)(text)
        if secret and self._secret(path, secret, text):
            return _WRONG
        try:
            check_text(text, lines=limits.get("rule") in {"arguments", "job_env", "lines"})
            return convert(kind, text, limits, self._folder)
        except InputError as error:
            return self.fail(path, error.message, hint=error.hint)

    def _secret(self, path: str, kind: str, text: str) -> bool:
        """Records an error for a value like `kind` unless `allow_secrets` lists it; returns whether it did."""
        if path in self._allowed:
            return False
        remember_secret(text)
        self.fail(path, f"the value looks like {kind}, so it is not shown", hint=_HINT.format(path=path))
        return True


def find_position(positions: Mapping[str, Position], path: str) -> Position:
    """Returns the place of the key at `path`, or of the nearest parent with a place, or else the start of the file."""
    while path and path not in positions:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return positions.get(path, Position(1, 1))


def _suggest_mapping(kind: type, fields: Iterable[str], node: Node) -> str | None:
    """Suggests how to write a scalar, such as `2`, `V100:1` or a target's name, as a mapping of the type `kind`."""
    if not isinstance(node, Scalar) or detect_line_secret(node.text) or not node.text.isprintable():
        return None
    text, _, count = node.text.partition(":")
    if text.isdecimal() and "count" not in fields:
        return None
    if "count" not in fields or not (count.isdecimal() or text.isdecimal()):
        kinds = {name: strip_none(each)[0] for name, each in list_field_kinds(kind).items()}
        names = [name for name, each in kinds.items() if isinstance(each, type) and issubclass(each, StrEnum)]
        usual = "type" if "type" in fields else "machine"
        name = next((name for name in names if node.text in list(kinds[name])), usual)
        return f"write {{{name}: {_name_gpu(node.text)}}}" if name in fields else None
    kind_of = f"type: {_name_gpu(text) if count else 'TYPE'}, " if "type" in fields else ""
    return f"write {{{kind_of}count: {count or text}}}"


def _name_gpu(text: str) -> str:
    """Returns Google's name of a GPU, such as NVIDIA_TESLA_V100 for V100; other texts as they are."""
    names = re.findall(r"^NVIDIA_\w+", data_file("machines/gpus.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    word = f"_{text.upper().replace('-', '_')}_"
    return next((name for name in names if word in f"_{name}_"), text)


def _suggest_entries(kind: Any, node: Node) -> str | None:
    """Suggests how to write a list of names, or of NAME=VALUE, as a mapping with values of the type `kind`."""
    texts = [item.text for item in node.items if isinstance(item, Scalar)] if isinstance(node, Items) else []
    if not texts or not all(re.fullmatch(r"\w+(?:=[^,\s]+)?", text) and not detect_line_secret(text) for text in texts):
        return None
    empty = "VALUE"
    if dataclasses.is_dataclass(kind):
        empty = "{name: NAME}" if "name" in {field.name for field in dataclasses.fields(kind)} else "{}"
    pairs = (text.partition("=")[::2] for text in texts)
    return f"write {{{', '.join(f'{name}: {value or empty}' for name, value in pairs)}}}"


def _describe_node(node: Node) -> str:
    if isinstance(node, Scalar):
        return "nothing" if node.null else "a secret" if detect_line_secret(node.text) else quote(node.text)
    return "a list" if isinstance(node, Items) else "a mapping"


def _join(path: str, name: str) -> str:
    """Returns the path of the key `name` for a message; shortens the name, and hides it if it looks like a secret."""
    if detect_secret(name):
        return _child(path, _HIDDEN_KEY)
    name = name[:_LONGEST_KEY]
    return _child(path, name if name.isprintable() else "".join(c if c.isprintable() else "?" for c in name))


def _child(path: str, field: str) -> str:
    """Returns the path of the key `field` in the mapping at `path`."""
    return f"{path}.{field}" if path else field
