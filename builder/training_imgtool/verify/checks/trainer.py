"""The trainer's files are those of the context, and the training module can be imported; nothing runs it.

A container imports it as a module, so that code under `if __name__ == "__main__"` does not run. Without a container
this module reads its source: the file exists, it parses, and the modules that it imports at its top are in the image.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections.abc import Iterator

from training_imgtool.verify.case import Case
from training_imgtool.verify.checks.python import ending, failure
from training_imgtool.verify.facts import Finding, Status
from training_imgtool.verify.interesting_paths import SITE

_IN_SITE = re.compile(f"{SITE}([^/]+)")
_BUNDLED = frozenset({"__future__", "builtins", "distutils", "imp", "asyncore", "asynchat", "smtpd"})


def findings(case: Case) -> Iterator[Finding]:
    """Yields one finding: the files are those of the context, and the module imports."""
    imported = _import(case)
    complaints = list(_differences(case))
    if not complaints:
        yield imported
        return
    if imported.status is Status.MISMATCH:
        complaints.append(imported.found)
    yield case.differs("trainer", complaints, f"the {len(case.copied.files)} files of the context")


def _differences(case: Case) -> Iterator[str]:
    """How the files that COPY put into the image differ from the context."""
    files, copied = case.facts.tree.files, case.copied
    if files is None or not case.own_seen:
        return
    for path, content in sorted(copied.files.items()):
        if path not in files:
            yield f"/{path} is missing"
        elif files[path][1] != content:
            link = files[path][1].removeprefix("->")
            what = "differs from the context" if link == files[path][1] else f"is a link to {link}"
            yield f"/{path} {what}"
    own = [number for number, layer in enumerate(case.facts.layers) if layer.own]
    listed = [case.facts.listings[number].files or {} for number in own if number in case.facts.listings]
    for path in sorted(files):
        of_base = own and len(listed) == len(own) and not any(path in layer for layer in listed)
        if not copied.belongs(path) and not of_base:
            yield f"/{path} is not in the context"


def _import(case: Case) -> Finding:
    """What importing the module came to."""
    told = case.ran("trainer")
    if case.facts.run is None:
        return _by_source(case)
    if told is None:
        return _unfinished(case)
    module = case.image.plan.module
    wanted = f"python -m {module}"
    if "error" in told:
        return case.wrong("trainer", f"{module} does not import: {failure(told)}", wanted)
    if "left" in told:
        return case.warn("trainer", f"{module} left with exit code {told['left']} while it was imported", wanted)
    return case.ok("trainer", f"{told.get('file') or module}", wanted)


def _unfinished(case: Case) -> Finding:
    module = case.image.plan.module
    if case.ran("importing") is None:
        return case.unseen("trainer", "tensorflow did not get that far")
    if (case.ran("end") or {}).get("late"):
        found = f"importing {module} does not end: it works while it is imported"
        return case.warn("trainer", found, f"python -m {module}")
    return case.wrong("trainer", f"{module} does not import: {ending(case)}", f"python -m {module}")


def _by_source(case: Case) -> Finding:
    """What reading the trainer's files tells."""
    module, wanted = case.image.plan.module, f"python -m {case.image.plan.module}"
    if not case.own_seen:
        return case.unseen("trainer", "not all layers above the base were read")
    sources = {one["path"].removeprefix("app/"): one["text"] for one in case.facts.tree.of("source")}
    start = _file_of(module, sources)
    if start is None:
        return case.wrong("trainer", f"/app has no {module.replace('.', '/')}.py", wanted)
    own = {path.partition("/")[0].removesuffix(".py") for path in sources}
    known = _installed_names(case) | own | _BUNDLED | sys.stdlib_module_names
    may_be_elsewhere = "PYTHONPATH" in case.facts.env
    for path in _reached(start, sources):
        try:
            tree = ast.parse(sources[path])
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f"/app/{path}:{line}" if line else f"/app/{path}"
            return case.wrong("trainer", f"{module} does not import: {error.args[0]} ({where})", wanted)
        lost = [] if may_be_elsewhere else [one for one in _imported(tree) if one[0].partition(".")[0] not in known]
        if lost:
            name, line = lost[0]
            return case.wrong(
                "trainer", f"{module} does not import: no module {name} in the image (/app/{path}:{line})", wanted
            )
    return case.ok("trainer", f"/app/{start}, read and not run", wanted)


def _installed_names(case: Case) -> set[str]:
    """What can be imported from site-packages: by the packages' RECORDs, and by the files and folders there."""
    found = {name for one in case.facts.tree.of("record") for name in one["names"]}
    found |= {posixpath.basename(one["path"]).partition(".")[0] for one in case.facts.tree.of("module")}
    for listing in case.facts.listings.values():
        found |= {match[1] for folder in listing.folders if (match := _IN_SITE.match(folder))}
    return found


def _file_of(module: str, sources: dict[str, str]) -> str | None:
    path = module.replace(".", "/")
    return next((one for one in (f"{path}.py", f"{path}/__main__.py") if one in sources), None)


def _reached(start: str, sources: dict[str, str]) -> Iterator[str]:
    """The trainer's own files that importing the first one loads by absolute imports, packages' own first."""
    seen: set[str] = set()
    queue = [start]
    while queue:
        path = queue.pop(0)
        if path in seen or path not in sources:
            continue
        seen.add(path)
        parts = path.split("/")[:-1]
        queue += ["/".join([*parts[: count + 1], "__init__.py"]) for count in range(len(parts))]
        yield path
        try:
            names = [name for name, _ in _imported(ast.parse(sources[path]))]
        except (SyntaxError, ValueError):
            continue
        for name in names:
            inside = name.replace(".", "/")
            queue += [f"{inside}.py", f"{inside}/__init__.py"]


def _imported(tree: ast.Module) -> list[tuple[str, int]]:
    """The absolute imports at the top of a file: those in functions, `if` and `try` may never run."""
    found: list[tuple[str, int]] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.module, node.lineno))
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found
