"""Faults made by rule: each key of a good file misspelt, retyped, moved or given twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from training_imgtool.core.errors import ImgtoolError
from training_imgtool.jobs.lint import lint
from training_imgtool.jobs.model import Severity

KINDS = ("misspelt", "retyped", "moved", "duplicated")
FREE = frozenset({
    "labels", "annotations", "matchLabels", "nodeSelector", "nodeLabels", "selector", "limits", "requests", "data",
    "stringData", "parameters", "environment", "envs", "secrets", "configs", "args", "services", "volumes", "networks",
    "depends_on", "driver_opts", "options", "sysctls", "extra_hosts", "file_mounts", "accelerators", "plugins",
    "deserved", "capability", "minResources", "volumeAttributes", "tfReplicaSpecs", "additional_contexts", "models",
})  # fmt: skip
"""Mappings whose keys are the user's own, or that the service takes whatever they are."""
ANY = frozenset({"status", "config", "mlPolicy", "podGroupPolicy", "runtimePatches", "podTemplateOverrides"})
"""Mappings that nothing looks into: other programs read them, or several versions differ."""


class Place(NamedTuple):
    """A key in a tree of YAML nodes: the mapping that has it, its index there, and the mapping around that."""

    mapping: yaml.MappingNode
    position: int
    outer: yaml.MappingNode | None
    name: str


class KeyFault(NamedTuple):
    """A file with one fault, and the lines where lint may name it."""

    kind: str
    path: str
    text: str
    lines: frozenset[int]


def places(node: yaml.Node, outer: yaml.MappingNode | None = None, name: str = "", path: str = "") -> Iterator[Place]:
    """The keys below a node that a service knows by name."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from places(item, outer, "", path)
    elif isinstance(node, yaml.MappingNode):
        for index, (key, value) in enumerate(node.value):
            if key.tag.endswith(":merge") or key.value.startswith("x-"):
                continue
            if name not in FREE:
                yield Place(node, index, outer, f"{path}.{key.value}")
            if key.value not in ANY:
                yield from places(value, node if name not in FREE else None, key.value, f"{path}.{key.value}")


def faults(text: str, step: int) -> Iterator[KeyFault]:
    """One file per kind of fault and every `step`th key of one YAML document without anchors."""
    many = len(list(places(_tree(text))))
    for number in range(0, many, step):
        for kind in KINDS:
            tree = _tree(text)
            if fault := _fault(tree, list(places(tree))[number], kind):
                yield fault


def _fault(tree: yaml.Node, place: Place, kind: str) -> KeyFault | None:
    mapping, index = place.mapping, place.position
    key, value = mapping.value[index]
    mark = yaml.ScalarNode(key.tag, key.value)
    if kind == "misspelt":
        mark.value = key.value[:-2] + key.value[-1:] + key.value[-2:-1] if len(key.value) > 3 else key.value + "x"
        if mark.value == key.value:
            mark.value += "x"
        mapping.value[index] = (mark, value)
    elif kind == "retyped":
        plain = yaml.ScalarNode("tag:yaml.org,2002:str", "wrong type", style='"')
        pair = (yaml.ScalarNode("tag:yaml.org,2002:str", "wrong"), plain)
        wrong = yaml.MappingNode("tag:yaml.org,2002:map", [pair], flow_style=True)
        mapping.value[index] = (mark, wrong if isinstance(value, yaml.ScalarNode) else plain)
    elif kind == "moved":
        outer = place.outer
        if outer is None or any(other.value == key.value for other, _ in outer.value):
            return None
        del mapping.value[index]
        outer.value.append((mark, value))
    else:
        mapping.value.insert(index + 1, (mark, value))
    made = yaml.serialize(tree, Dumper=yaml.CSafeDumper)
    return KeyFault(kind, place.name.removeprefix("."), made, _lines(tree, _tree(made), mark))


def _tree(text: str) -> yaml.Node:
    tree = yaml.compose(text, Loader=yaml.CSafeLoader)
    assert tree is not None
    return tree


def _lines(tree: yaml.Node, again: yaml.Node, mark: yaml.ScalarNode) -> frozenset[int]:
    """The line of the marked key in the text that was made, and of its twin."""
    lines: set[int] = set()

    def walk(old: yaml.Node, new: yaml.Node) -> None:
        if isinstance(old, yaml.MappingNode) and isinstance(new, yaml.MappingNode):
            for (key, value), (there, inner) in zip(old.value, new.value, strict=True):
                if key is mark:
                    twins = [twin for twin, _ in new.value if twin.value == key.value]
                    lines.update(line for twin in (there, *twins, inner) for line in [twin.start_mark.line + 1])
                walk(value, inner)
        elif isinstance(old, yaml.SequenceNode) and isinstance(new, yaml.SequenceNode):
            for item, other in zip(old.value, new.value, strict=True):
                walk(item, other)

    walk(tree, again)
    return frozenset(lines)


def named(fault: KeyFault, quiet: frozenset[str]) -> bool:
    """Whether lint says something new about the fault at one of its lines."""
    return any(line in fault.lines and text not in quiet for line, text in said(fault.text))


def said(text: str) -> list[tuple[int, str]]:
    """The lines and texts of what lint finds wrong, but hints."""
    try:
        messages: Any = lint(text, "f", region="us-central1")
    except ImgtoolError:
        return []
    return [(each.line, f"{each.field}: {each.message}") for each in messages if each.severity is not Severity.HINT]


def count(text: str, step: int = 1) -> dict[tuple[str, bool], list[KeyFault]]:
    """The faults of every `step`th key by kind, and whether they are named."""
    quiet = frozenset(message for _, message in said(text))
    made: dict[tuple[str, bool], list[KeyFault]] = defaultdict(list)
    for fault in faults(text, step):
        made[fault.kind, named(fault, quiet)].append(fault)
    return made
