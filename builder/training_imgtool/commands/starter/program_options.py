"""Reads the command-line options that a program defines: with argparse, absl's or TensorFlow's flags, or click."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPTION = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_-]*")
_ARGUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_MARKS = frozenset({"mark_flag_as_required", "mark_flags_as_required"})


@dataclass(frozen=True, slots=True)
class Option:
    """An option, such as `--epochs`, or an argument without dashes."""

    name: str
    required: bool


def read_options(tree: ast.Module) -> tuple[Option, ...]:
    """Returns the options and the required arguments of a program, in the order of its file."""
    calls = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda call: call.lineno)
    options = {option.name: option for call in calls if (option := _option(call))}
    marked = {f"--{name}" for call in calls if _name(call) in _MARKS for name in _texts(call)}
    return tuple(Option(name, option.required or name in marked) for name, option in options.items())


def _option(call: ast.Call) -> Option | None:
    """The option or the required argument that a call defines."""
    name, texts = _name(call), [*_texts(call)]
    is_required = any(word.arg == "required" and _is_true(word.value) for word in call.keywords)
    if name.startswith("DEFINE_") and texts and _ARGUMENT.fullmatch(texts[0]):
        return Option(f"--{texts[0]}", is_required)
    if name not in {"add_argument", "option", "argument"}:
        return None
    long = next((text for text in texts if _OPTION.fullmatch(text)), None)
    if long is not None:
        return Option(long, is_required)
    is_optional = any(word.arg in {"nargs", "default"} for word in call.keywords)
    is_argument = name in {"add_argument", "argument"} and len(texts) == 1 and _ARGUMENT.fullmatch(texts[0])
    return Option(texts[0], required=True) if is_argument and not is_optional else None


def _name(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _texts(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        nodes = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        yield from (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
