"""Writes job files as YAML that all parsers read alike, and reads job files with the line and column of every value.

Parsers disagree on scalars without quotes. PyYAML reads YAML 1.1, but `y` and `n` as text. gcloud uses ruamel.yaml with
YAML 1.1, where `y` is true and `1e3` is a number. kubectl reads YAML 1.2 with parts of 1.1. So imgtool writes every
string in double quotes, in ASCII, on one line, and reads other people's files as gcloud does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from training_imgtool.base.errors import InputError
from training_imgtool.base.resources import data_file
from training_imgtool.base.yamlfile.tree import MAX_DEPTH
from training_imgtool.jobs.model import Finding, Path

_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_SHORT_BOOL = {"y": True, "Y": True, "n": False, "N": False}  # booleans of YAML 1.1, which PyYAML leaves as text
_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+\Z")  # also left as text
_SCALAR_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp")}
_LONGEST = 1_000_000  # characters
_MOST_NODES = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where a value begins (line and column from 1), and its text if it is a scalar without quotes."""

    line: int
    column: int
    bare: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """One YAML document: its data, maps from the paths of values and keys to their marks, and faults in its YAML."""

    data: Any
    marks: Mapping[Path, Mark]
    keys: Mapping[Path, Mark]
    findings: tuple[Finding, ...]


def to_yaml(document: Any) -> str:
    """Writes one document as YAML: keys in the given order, strings in quotes, numbers and booleans without."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML calls it with the value
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"')

    def mapping(dumper: yaml.SafeDumper, value: dict[str, Any]) -> yaml.MappingNode:
        pairs = [(_key(yaml, key), dumper.represent_data(item)) for key, item in value.items()]
        return yaml.MappingNode("tag:yaml.org,2002:map", pairs)

    Dumper.add_representer(str, text)
    Dumper.add_representer(dict, mapping)
    dumped: str = yaml.dump(
        document, Dumper=Dumper, sort_keys=False, allow_unicode=False, width=2**31, default_flow_style=False
    )
    return dumped


def _key(yaml: Any, key: str) -> Any:
    bare = _BARE_KEY.match(key) and key.lower() not in _WORDS
    return yaml.ScalarNode("tag:yaml.org,2002:str", key, style=None if bare else '"')


@cache
def read_table(name: str, folder: str = "data") -> Any:
    """Reads the YAML table `name` from a folder of imgtool's own package."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(data_file(name, folder).read_text("utf-8"), Loader=loader)  # noqa: S506


def reread(parsed: Parsed, booleans: frozenset[str]) -> Any:
    """Returns the data as a service reads it that treats only `booleans` as booleans, and `22:22` as text."""

    def value(data: Any, path: Path) -> Any:
        if isinstance(data, dict):
            return {key: value(item, (*path, key)) for key, item in data.items()}
        if isinstance(data, list):
            return [value(item, (*path, index)) for index, item in enumerate(data)]
        bare = parsed.marks[path].bare if path in parsed.marks else None
        if bare is None or data is None:
            return data
        is_text = bare.lower() not in booleans if isinstance(data, bool) else ":" in bare
        return bare if is_text else data

    return value(parsed.data, ())


def read(text: str, file: str) -> list[Parsed]:
    """Parses each document of a YAML or JSON text, an empty one as None; raises InputError with line and column."""
    import yaml

    if len(text) > _LONGEST:
        raise InputError(f"{file}: {len(text)} characters: a job file may have {_LONGEST} at most")
    _check_characters(text, file)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(yaml.parse(text, Loader=loader), file)
        nodes = list(yaml.compose_all(text, Loader=loader))
        return [_Reader(yaml, file).document(node) for node in nodes if node is not None]
    except yaml.YAMLError as error:
        line, column, problem = _explain(error)
        raise InputError(f"{file}:{line}:{column}: not YAML: {problem}") from error
    except RecursionError as error:
        raise InputError(f"{file}: an alias stands inside its own anchor, or aliases nest too deeply") from error


def _check_depth(events: Iterable[Any], file: str) -> None:
    """Raises InputError for values that are nested too deeply for PyYAML, which calls itself for each level."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith(("SequenceStartEvent", "MappingStartEvent"))
        depth -= kind.endswith(("SequenceEndEvent", "MappingEndEvent"))
        if depth > MAX_DEPTH:
            line, column = event.start_mark.line + 1, event.start_mark.column + 1
            raise InputError(f"{file}:{line}:{column}: nested deeper than {MAX_DEPTH} levels")


def _explain(error: Any) -> tuple[int, int, str]:
    """Returns the line, the column and the problem of PyYAML's error."""
    mark = getattr(error, "problem_mark", None)
    return (mark.line + 1, mark.column + 1, error.problem) if mark else (1, 1, str(error))


def _check_characters(text: str, file: str) -> None:
    """Raises InputError for a character that YAML forbids; PyYAML's parsers count its place differently."""
    from yaml.reader import Reader

    if bad := Reader.NON_PRINTABLE.search(text):
        before = text[: bad.start()]
        line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
        problem = f"YAML does not allow the character U+{ord(bad[0]):04X}"
        raise InputError(f"{file}:{line}:{column}: not YAML: {problem}")


class _Reader:
    """Makes plain data from a node tree, and records the line and column of each value."""

    def __init__(self, yaml: Any, file: str) -> None:
        self._yaml = yaml
        self._file = file
        self._construct = yaml.constructor.SafeConstructor()
        self._marks: dict[Path, Mark] = {}
        self._keys: dict[Path, Mark] = {}
        self._findings: list[Finding] = []
        self._nodes = 0

    def document(self, node: Any) -> Parsed:
        data = self._value(node, ())
        return Parsed(data=data, marks=self._marks, keys=self._keys, findings=tuple(self._findings))

    def _value(self, node: Any, path: Path) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise InputError(f"{self._file}: more than {_MOST_NODES} values once aliases are expanded")
        bare = isinstance(node, self._yaml.ScalarNode) and not node.style
        start = node.start_mark
        self._marks[path] = Mark(line=start.line + 1, column=start.column + 1, bare=node.value if bare else None)
        if isinstance(node, self._yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, self._yaml.SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value) if isinstance(key_node, self._yaml.ScalarNode) else None
            if key is None:
                self._findings.append(Finding(path=path, message="a key that is not text; readers differ on it"))
            elif key_node.tag == "tag:yaml.org,2002:merge":
                merged = self._merge(value_node, path)
            elif key in data:
                line = key_node.start_mark.line + 1
                message = f"given twice (again on line {line}): gcloud uses the first, PyYAML the last, kubectl none"
                self._findings.append(Finding(path=(*path, key), message=message, source="YAML 1.2", at_key=True))
            else:
                start = key_node.start_mark
                self._keys[*path, key] = Mark(line=start.line + 1, column=start.column + 1)
                data[key] = self._value(value_node, (*path, key))
        return {**merged, **data}

    def _merge(self, node: Any, path: Path) -> dict[str, Any]:
        """Reads the keys that `<<` merges from one or more mappings; for a key in several, the first mapping counts."""
        nodes = node.value if isinstance(node, self._yaml.SequenceNode) else [node]
        values = [self._value(item, path) for item in nodes]
        return {key: item for value in reversed(values) if isinstance(value, dict) for key, item in value.items()}

    def _scalar(self, node: Any, path: Path) -> Any:
        if node.tag not in _SCALAR_TAGS:
            self._findings.append(Finding(path=path, message=f"a job file cannot contain the tag {node.tag}"))
            return node.value
        if node.tag == "tag:yaml.org,2002:timestamp":
            return node.value
        if not node.style and node.tag == "tag:yaml.org,2002:str":
            if node.value in _SHORT_BOOL:
                return _SHORT_BOOL[node.value]
            if _EXPONENT.match(node.value):
                return float(node.value.replace("_", ""))
        try:
            return self._construct.construct_object(node)
        except (ValueError, self._yaml.YAMLError):
            return node.value
