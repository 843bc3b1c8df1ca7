"""Reads files for Python 2 as far as a proposal needs it: the imports, the calls, and whether a file trains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_MODULES = frozenset(  # modules that Python 3 has renamed or removed
    """__builtin__ BaseHTTPServer ConfigParser Cookie HTMLParser Queue SimpleHTTPServer SocketServer StringIO Tkinter
    anydbm cPickle cStringIO commands cookielib copy_reg dummy_thread httplib itertools.imap itertools.izip md5
    robotparser sets sha thread tkFileDialog tkMessageBox urllib2 urlparse xmlrpclib""".split()  # noqa: SIM905
)
_PRINTS = re.compile(r"([ \t]*)(?:print|exec)\b(?![ \t]*[=.\[])")
_LONGEST = 12  # lines of one statement at most, to limit the time for text that only looks like one
_TO_3 = tuple(
    (re.compile(pattern, re.MULTILINE), new)
    for pattern, new in (
        (r"([:;])[ \t]*(?:print|exec)[ \t]+[^\n;]+", r"\1 pass"),
        (r"\bexcept[ \t]+([\w.]+|\([^()\n]*\))[ \t]*,[ \t]*(\w+)[ \t]*:", r"except \1 as \2:"),
        (r"^([ \t]*raise[ \t]+[\w.]+)[ \t]*,[^\n]*", r"\1"),
        (r"<>", "!="),
        (r"`([^`\n]+)`", r"repr(\1)"),
        (r"(?<![\w.])0([0-7]+)(?![\w.])", r"0o\1"),
        (r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)[lL]\b", r"\1"),
        (r"\b[uU][rR](?=['\"])", "r"),
        (r"\bdef[ \t]+(\w+)\(([^()\n]*)\(([^()\n]*)\)([^()\n]*)\):", r"def \1(\2\3\4):"),
        (r"\blambda[ \t]*\(([^()\n]*)\)[ \t]*:", r"lambda \1:"),
    )
)


def parse_python_2(text: str) -> ast.Module | None:
    """Parses a file of Python 2 without its `print` and `exec` statements; None if the file is not Python 2 either.

    Line numbers do not change. The tree contains the file's imports and calls, but cannot be run.
    """
    text = "\n".join(_leave_out_prints(text.splitlines()))
    for pattern, new in _TO_3:
        text = pattern.sub(new, text)
    for plain in (text, text.expandtabs(8)):
        try:
            return ast.parse(plain)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _leave_out_prints(lines: list[str]) -> Iterator[str]:
    """Yields the lines, with `pass` in place of a `print` or `exec` statement and empty lines for its other lines."""
    rest, opened = 0, 0
    for line in lines:
        starts = rest == 0 and _PRINTS.match(line)
        if starts:
            rest, opened = _LONGEST, 0
        if rest == 0:
            yield line
            continue
        opened += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        rest = rest - 1 if opened > 0 or line.endswith("\\") else 0
        yield f"{starts[1]}pass" if starts else ""


def find_module_of_2(tree: ast.Module) -> int:
    """Returns the first top-level line that imports a module that only Python 2 has; 0 if there is none."""
    for node in tree.body:
        if isinstance(node, ast.Import) and any(alias.name in _MODULES for alias in node.names):
            return node.lineno
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            if node.module in _MODULES or names & _MODULES:
                return node.lineno
    return 0


def is_module_of_2(module: str) -> bool:
    """Tells whether a module is in the standard library of Python 2 but not of Python 3."""
    return module in _MODULES
