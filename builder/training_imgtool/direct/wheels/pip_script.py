"""The text of the console scripts that a given pip writes, read from that pip's own wheel.

It changed between releases (25.0 dropped `import re`, 26 the suffix test), so no copy here could be
right for every locked pip. The two places it has lived are `PipScriptMaker.script_template` and, when that
does not exist, distlib's `SCRIPT_TEMPLATE`; the source is parsed, never run.
"""

from __future__ import annotations

import ast
import textwrap

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.layers.wheel_zip import WheelFile, read

_INSTALL = "pip/_internal/operations/install/wheel.py"
_DISTLIB = "pip/_vendor/distlib/scripts.py"


def read_template(pip: WheelFile) -> str:
    """The template, with `%(module)s`, `%(import_name)s` and `%(func)s`; else raises NeedsEngineError."""
    for path, name in ((_INSTALL, "script_template"), (_DISTLIB, "SCRIPT_TEMPLATE")):
        member = next((member for member in pip.members if member.name == path), None)
        if member and (text := _find_assigned(read(pip, member).decode(), name)) is not None:
            if all(field in text for field in ("%(module)s", "%(import_name)s", "%(func)s")):
                return text
            break
    raise NeedsEngineError(f"{pip.path.name}: the console script that this pip writes is not known")


def _find_assigned(source: str, name: str) -> str | None:
    """The string assigned to `name`, plain or in `textwrap.dedent`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assign) or [getattr(target, "id", "") for target in node.targets] != [name]:
            continue
        value, dedent = node.value, False
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "textwrap.dedent" and len(value.args) == 1:
            value, dedent = value.args[0], True
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return textwrap.dedent(value.value) if dedent else value.value
    return None
