"""What a setup.py installs. The file is parsed, not run."""

from __future__ import annotations

import ast
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_TENSORFLOW = frozenset({"tensorflow", "tensorflow-cpu", "tensorflow-gpu"})


def read_install_requires(path: Path) -> tuple[str, ...] | None:
    """Returns the requirements in `install_requires` without TensorFlow, which a spec names by itself.

    None if there is no such file, or if a program would have to run to know the list.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    assigned = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) == "setup":
            for keyword in node.keywords:
                if keyword.arg == "install_requires":
                    return _requirements(keyword.value, assigned)
    return None


def _requirements(value: ast.expr, assigned: dict[str, ast.expr]) -> tuple[str, ...] | None:
    named = assigned.get(value.id, value) if isinstance(value, ast.Name) else value
    try:
        listed = ast.literal_eval(named)
        lines = [listed] if isinstance(listed, str) else list(listed)
        parsed = [Requirement(line) for line in lines]
    except (ValueError, TypeError, InvalidRequirement):
        return None
    return tuple(str(item) for item in parsed if canonicalize_name(item.name) not in _TENSORFLOW)
