"""The console scripts of a project, read from pyproject.toml, setup.cfg or setup.py; nothing is run."""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training_imgtool.core.errors import FieldError
from training_imgtool.spec.value_rules import find_nearest, quote

_FIELD = "trainer.script"
_TARGET = re.compile(r"\s*(?P<module>[A-Za-z_][\w.]*)\s*:\s*(?P<function>[A-Za-z_][\w.]*)\s*(?:\[.*\]\s*)?\Z", re.ASCII)
_CURE = "name its function: trainer: {source: ., module: MODULE, function: FUNCTION}"


def find_console_script(folder: Path, name: str) -> tuple[str, str]:
    """Returns the module and the function that the console script `name` of the project in `folder` calls.

    Raises FieldError: there is no such script, or a setup.py computes its scripts.
    """
    scripts = read_console_scripts(folder)
    if name not in scripts:
        close = find_nearest(name, sorted(scripts))
        hint = f"did you mean {close}?" if close else _CURE
        raise FieldError(f"no file and no console script is called {quote(name)}", field=_FIELD, hint=hint)
    match = _TARGET.match(scripts[name])
    if match is None:
        raise FieldError(f"{name} = {quote(scripts[name])}: expected MODULE:FUNCTION", field=_FIELD)
    return match["module"], match["function"]


def read_console_scripts(folder: Path) -> dict[str, str]:
    """Returns the console scripts of the project in `folder`: name to MODULE:FUNCTION; raises FieldError."""
    return {**_of_setup_py(folder / "setup.py"), **_of_setup_cfg(folder / "setup.cfg"), **_of_pyproject(folder)}


def _of_pyproject(folder: Path) -> Mapping[str, str]:
    try:
        document = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise FieldError(f"pyproject.toml: {error}", field=_FIELD) from error
    scripts = _table(_table(_table(document, "tool"), "poetry"), "scripts") | _table(
        _table(document, "project"), "scripts"
    )
    return {name: target for name, target in scripts.items() if isinstance(target, str)}


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _of_setup_cfg(path: Path) -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, configparser.Error) as error:
        raise FieldError(f"setup.cfg: {error}", field=_FIELD) from error
    return _lines(parser.get("options.entry_points", "console_scripts", fallback="").splitlines())


def _of_setup_py(path: Path) -> Mapping[str, str]:
    try:
        tree = ast.parse(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise FieldError(f"setup.py: {error}", field=_FIELD) from error
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = [word.value for call in calls for word in call.keywords if word.arg == "entry_points"]
    try:
        values = [ast.literal_eval(value) for value in given]
    except ValueError as error:
        message = "setup.py computes its entry points, and imgtool does not run it"
        raise FieldError(message, field=_FIELD, hint=_CURE) from error
    lines: list[str] = []
    for value in values:
        if isinstance(value, str):
            lines += re.sub(r"(?ms)\A.*?^\[console_scripts\]|^\[.*", "", value).splitlines()
        elif isinstance(value, dict):
            scripts = value.get("console_scripts", [])
            lines += scripts.splitlines() if isinstance(scripts, str) else [str(line) for line in scripts]
    return _lines(lines)


def _lines(lines: list[str]) -> Mapping[str, str]:
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): target.strip() for name, _, target in pairs}
