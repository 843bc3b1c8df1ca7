"""The trainer's files are those of the context, and the training module can be imported; nothing runs it.

A container imports it as a module, so that code under `if __name__ == "__main__"` does not run. Without a container
this module reads its source: the file exists, it parses, and the modules that it imports at its top are in the image.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from training_imgtool.core.python_parser import parse_python
from training_imgtool.verify.case import Case
from training_imgtool.verify.checks.python import describe_end, format_failure
from training_imgtool.verify.facts import Finding, Status
from training_imgtool.verify.interesting_paths import SITE

_IN_SITE = re.compile(f"{SITE}([^/]+)")
_BUNDLED = frozenset({"__future__", "builtins", "distutils", "imp", "asyncore", "asynchat", "smtpd"})


def make_findings(case: Case) -> Iterator[Finding]:
    """Yields one finding: the files are those of the context, and the module imports."""
    imported = _import(case)
    complaints = list(case.compared.complaints["trainer"]) if case.own_seen else []
    if not complaints:
        yield imported
        return
    if imported.status is Status.MISMATCH:
        complaints.append(imported.found)
    yield case.differs("trainer", complaints, f"the {len(case.copied.files)} files of the context")


def _import(case: Case) -> Finding:
    """Returns what importing the module came to."""
    imported = case.run_part("trainer")
    if case.facts.run is None:
        return _check_source(case)
    if imported is None:
        return _explain_unfinished(case)
    module, expected = case.image.plan.entry.name, _format_command(case)
    if "error" in imported:
        return case.wrong("trainer", f"{module} does not import: {format_failure(imported)}", expected)
    if "left" in imported:
        return case.warn("trainer", f"{module} left with exit code {imported['left']} while it was imported", expected)
    return case.ok("trainer", f"{imported.get('file') or module}", expected)


def _explain_unfinished(case: Case) -> Finding:
    module = case.image.plan.entry.name
    if case.run_part("importing") is None:
        return case.unseen("trainer", "tensorflow did not get that far")
    if (case.run_part("end") or {}).get("late"):
        problem = f"importing {module} does not end: it works while it is imported"
        return case.warn("trainer", problem, _format_command(case))
    return case.wrong("trainer", f"{module} does not import: {describe_end(case)}", _format_command(case))


@dataclass(frozen=True, slots=True)
class _Code:
    """The trainer's sources by their paths below /app, and the folders there that Python searches, as prefixes."""

    files: Mapping[str, str]
    roots: tuple[str, ...]

    def names(self) -> set[str]:
        """Returns what can be imported from these folders."""
        paths = [path.removeprefix(root) for root in self.roots for path in self.files if path.startswith(root)]
        return {path.partition("/")[0].removesuffix(".py") for path in paths}

    def paths_of(self, module: str, *ends: str) -> list[str]:
        """Returns the files that a module may be, those that exist."""
        stems = [root + module.replace(".", "/") for root in self.roots]
        return [path for stem in stems for end in ends if (path := stem + end) in self.files]


def _read_code(case: Case) -> tuple[_Code, bool]:
    """Reads the trainer's code, and whether PYTHONPATH names folders elsewhere."""
    files = {item["path"].removeprefix("app/"): str(item["text"]) for item in case.facts.tree.of("source")}
    folders = [posixpath.normpath(folder) for folder in case.facts.env.get("PYTHONPATH", "").split(":") if folder]
    inside = [folder for folder in folders if f"{folder}/".startswith("/app/")]
    entry = case.image.plan.entry
    first = posixpath.dirname(entry.script) if entry.script else entry.home
    roots = [f"{folder}/".lstrip("/") for folder in ("" if first == "." else first, *(folder[5:] for folder in inside))]
    return _Code(files, tuple(dict.fromkeys(roots))), len(inside) < len(folders)


def _check_source(case: Case) -> Finding:
    """Returns what the trainer's files say without running them."""
    entry, expected = case.image.plan.entry, _format_command(case)
    module = entry.name
    if not case.own_seen:
        return case.unseen("trainer", "not all layers above the base were read")
    code, elsewhere = _read_code(case)
    installed = _list_installed_names(case)
    start = code.paths_of(module, ".py", "/__main__.py") if entry.module else [p for p in code.files if p == entry.file]
    if not start and entry.module and (elsewhere or module.partition(".")[0] in installed):
        return case.ok("trainer", f"{module} is not in /app, so nothing read it", expected)
    if not start:
        return case.wrong("trainer", f"/app has no {entry.file or module.replace('.', '/') + '.py'}", expected)
    importable = installed | code.names() | _BUNDLED | sys.stdlib_module_names
    for path in _follow_imports(start[0], code):
        try:
            tree = parse_python(code.files[path])
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f"/app/{path}:{line}" if line else f"/app/{path}"
            return case.wrong("trainer", f"{module} does not import: {error.args[0]} ({where})", expected)
        missing = (
            [] if elsewhere else [name for name in _list_imports(tree) if name[0].partition(".")[0] not in importable]
        )
        if missing:
            problem = f"{module} does not import: no module {missing[0][0]} in the image (/app/{path}:{missing[0][1]})"
            return case.wrong("trainer", problem, expected)
    return case.ok("trainer", f"/app/{start[0]}, read and not run", expected)


def _list_installed_names(case: Case) -> set[str]:
    """Lists what can be imported from site-packages: by the packages' RECORDs, and by the files and folders there."""
    names = {name for item in case.facts.tree.of("record") for name in item["names"]}
    names |= {posixpath.basename(item["path"]).partition(".")[0] for item in case.facts.tree.of("module")}
    for listing in case.facts.listings.values():
        names |= {match[1] for folder in listing.folders if (match := _IN_SITE.match(folder))}
    return names


def _format_command(case: Case) -> str:
    return " ".join(("python", *case.image.plan.entry.arguments))


def _follow_imports(start: str, code: _Code) -> Iterator[str]:
    """Yields the trainer's own files that importing the first one loads by absolute imports, packages' own first."""
    seen: set[str] = set()
    queue = [start]
    while queue:
        path = queue.pop(0)
        if path in seen or path not in code.files:
            continue
        seen.add(path)
        parts = path.split("/")[:-1]
        queue += ["/".join([*parts[: count + 1], "__init__.py"]) for count in range(len(parts))]
        yield path
        try:
            names = [name for name, _ in _list_imports(parse_python(code.files[path]))]
        except (SyntaxError, ValueError):
            continue
        for name in names:
            queue += code.paths_of(name, ".py", "/__init__.py")


def _list_imports(tree: ast.Module) -> list[tuple[str, int]]:
    """Lists the absolute imports at the top of a file: those in functions, `if` and `try` may never run."""
    modules: list[tuple[str, int]] = []
    for node in tree.body:
        match node:
            case ast.Import(names=names):
                modules += [(alias.name, node.lineno) for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                modules.append((module, node.lineno))
                modules += [(f"{module}.{alias.name}", node.lineno) for alias in names]
    return modules
