"""Checks before a build that the trainer can start in its image.

The entry module exists, every file parses for the image's Python, and the imports of the entry module are available. A
file other than the entry module may import what is missing, since nothing says that it runs: that gives a note.
"""

from __future__ import annotations

import ast
import hashlib
import json
import posixpath
import sys
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from training_imgtool import __version__
from training_imgtool.build.inputs import Inputs
from training_imgtool.context.entries import Entry, blocks
from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.settings import Settings
from training_imgtool.plan import RolePlan, Wheel
from training_imgtool.spec.requirements import normalise_name
from training_imgtool.wheels.store import WheelStore

_HINT = "--no-check builds it all the same"
_MOST_NOTES = 5
# Packages whose import name is not their name on the index.
_IMPORT_NAMES = {
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv",
    "dateutil": "python-dateutil",
    "google": "protobuf",
    "grpc": "grpcio",
    "jwt": "pyjwt",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


@dataclass(frozen=True, slots=True)
class _Import:
    """An import that runs when its module loads; `level` counts the leading dots, `names` follow `import`."""

    line: int
    module: str
    level: int = 0
    names: tuple[str, ...] = ()


def check_trainer(inputs: Inputs, settings: Settings, progress: Progress) -> None:
    """Checks the trainer of every role.

    Prints what may be wrong as notes. Raises FieldListError with the places of what cannot work.
    """
    checks = {check.key: check for check in (_Check(inputs, plan, settings) for plan in inputs.plan.roles)}
    for key, check in checks.items():
        path = settings.cache / "checked" / f"{key}.json"
        notes = read_cached(path)
        if notes is None:
            errors, notes = check.run()
            if errors:
                raise FieldListError(tuple(errors))
            write_cached(path, notes)
        for note in notes[:_MOST_NOTES]:
            progress(Note(note))
        if len(notes) > _MOST_NOTES:
            progress(Note(f"and {len(notes) - _MOST_NOTES} more of these"))


class _Check:
    """The check of one role's code."""

    def __init__(self, inputs: Inputs, plan: RolePlan, settings: Settings) -> None:
        self._plan = plan
        self._spec_file = inputs.spec_file
        of_role = inputs.spec_file.spec.roles[plan.role]
        self._is_entry = of_role.command is None  # else the job starts another program
        self._is_proof = (
            of_role.template is None and inputs.spec_file.spec.template is None
        )  # else RUN may install more
        self._files = {entry.path: entry for entry in inputs.context.on_disk() if entry.path.endswith(".py")}
        entry = plan.entry  # `python FILE` searches the file's folder first, `-m` the folder that it starts in
        first = posixpath.dirname(entry.script) if entry.script else entry.home
        python_path = plan.env.get("PYTHONPATH", "").split(":")
        folders = [f"{folder}/".removeprefix("/app/").strip("/") for folder in python_path if _is_below_app(folder)]
        self._roots = tuple(dict.fromkeys(("" if first == "." else first, *folders)))
        self._wheels = _Wheels(plan.locked.wheels, settings)

    @cached_property
    def key(self) -> str:
        """The hash of all that the result depends on."""
        files = sorted((path, entry.sha256) for path, entry in self._files.items())
        wheels = [wheel.sha256 for wheel in self._plan.locked.wheels]
        python = self._plan.locked.variant.python
        values = [
            __version__,
            self._plan.entry.arguments,
            python,
            self._is_entry,
            self._is_proof,
            self._roots,
            files,
            wheels,
        ]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()

    @cached_property
    def _modules(self) -> dict[str, str]:
        """The trainer's modules and packages by dotted name; the value is the file, empty for a plain folder."""
        modules: dict[str, str] = {}
        for root in reversed(self._roots):
            for path in self._files:
                if root and not path.startswith(f"{root}/"):
                    continue
                parts = path[len(root) :].strip("/").removesuffix(".py").split("/")
                for end in range(1, len(parts)):
                    modules.setdefault(".".join(parts[:end]), "")
                modules[".".join(parts).removesuffix(".__init__")] = path
        return modules

    def run(self) -> tuple[list[FieldError], list[str]]:
        """Returns errors and notes."""
        errors: list[FieldError] = []
        notes: list[str] = []
        entry = self._entry_file()
        if self._is_entry and entry is None and (error := self._missing_entry()):
            errors.append(error)
        for path, file in self._files.items():
            tree = self._parse(path, file, errors, notes)
            problems = list(self._missing_imports(path, tree)) if tree else []
            if path == entry and self._is_entry and self._is_proof:
                errors += problems
            else:
                notes += [str(problem) for problem in problems]
        return errors, notes

    def _entry_file(self) -> str | None:
        entry = self._plan.entry
        if entry.file is not None or entry.module is None:
            return entry.file if entry.file in self._files else None
        path = self._modules.get(entry.module)
        if path is not None and (not path or path.endswith("/__init__.py")):
            path = self._modules.get(f"{entry.module}.__main__")
        return path

    def _missing_entry(self) -> FieldError | None:
        entry = self._plan.entry
        top = entry.name.partition(".")[0]
        if entry.file is not None:
            message, hint = f"{entry.file} is not in the build context", "remove it from .dockerignore"
        elif top not in self._modules and self._wheels.provides(top):
            return None
        else:
            message = f"no module {entry.name} in {entry.folder}/ and no locked wheel with {top}"
            hint = f"trainer.source must contain it; PYTHONPATH in env adds folders below /app; {_HINT}"
        field = "trainer.module" if entry.module else "trainer.script"
        return FieldError(message, field=field, location=self._spec_file.locate(field), hint=hint)

    def _parse(self, path: str, file: Entry, errors: list[FieldError], notes: list[str]) -> ast.Module | None:
        major, minor = (int(part) for part in self._plan.locked.variant.python.split("."))
        if major < 3:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(b"".join(blocks(file)), path, feature_version=(major, minor))
        except SyntaxError as error:
            message = f"Python {major}.{minor} cannot parse it: {error.msg}"
            problem = _at(path, error.lineno or 1, message, column=error.offset or 1)
            if sys.version_info[:2] < (major, minor):
                notes.append(str(problem))  # it may be syntax that this Python does not know yet
            else:
                errors.append(problem)
        except (ValueError, RecursionError, MemoryError) as error:
            errors.append(_at(path, 1, f"Python cannot parse it: {error}"))
        return None

    def _missing_imports(self, path: str, tree: ast.Module) -> Iterator[FieldError]:
        for item in _imports(tree.body):
            module = self._absolute(path, item)
            if module is None:
                yield _at(path, item.line, "a relative import outside a package")
                continue
            top = module.partition(".")[0]
            if top not in self._modules:
                if not self._wheels.provides(top):
                    yield _at(
                        path, item.line, f"no locked wheel provides {top}", hint=f"add it to requirements; {_HINT}"
                    )
            elif module not in self._modules and not self._wheels.provides(top):
                yield _at(path, item.line, f"the trainer has no module {module}")
            elif self._modules.get(module) == "":
                for name in (name for name in item.names if f"{module}.{name}" not in self._modules and name != "*"):
                    yield _at(path, item.line, f"the trainer has no module {module}.{name}")

    def _absolute(self, path: str, item: _Import) -> str | None:
        """Returns the dotted name that an import means; None for dots that lead out of the packages."""
        if not item.level:
            return item.module
        own = next((name for name, file in self._modules.items() if file == path), "")
        parts = own.split(".") if path.endswith("/__init__.py") else own.split(".")[:-1]
        if item.level > len(parts):
            return None
        return ".".join([*parts[: len(parts) - item.level + 1], *filter(None, [item.module])])


class _Wheels:
    """What the locked wheels provide: known by their names, and by the content of those in the cache."""

    def __init__(self, wheels: tuple[Wheel, ...], settings: Settings) -> None:
        self._wheels = wheels
        self._settings = settings
        self._names = {normalise_name(wheel.name) for wheel in wheels}

    def provides(self, top: str) -> bool:
        """Returns whether Python or a wheel provides the top-level name."""
        if top in sys.stdlib_module_names:
            return True
        names = {normalise_name(top), _IMPORT_NAMES.get(top, normalise_name(top))}
        if any(name == wanted or name.startswith(f"{wanted}-") for wanted in names for name in self._names):
            return True
        return top in self._content

    @cached_property
    def _content(self) -> frozenset[str]:
        """Top-level names in the wheels of the cache."""
        store = WheelStore(self._settings)
        tops = set()
        for path in filter(None, map(store.path, self._wheels)):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    parts = member.split("/")
                    if parts[0].endswith(".data"):
                        parts = parts[2:]
                    tops.add(parts[0].partition(".")[0] if parts else "")
        return frozenset(tops)


def _imports(body: list[ast.stmt]) -> Iterator[_Import]:
    """Yields the imports that run whenever a module loads: not those in functions, conditions and guarded `try`."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (_Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield _Import(node.lineno, node.module or "", node.level, tuple(alias.name for alias in node.names))
        elif _runs(node):
            yield from _imports(node.body)


def _is_below_app(folder: str) -> bool:
    return f"{folder}/".startswith("/app/")


def _runs(node: ast.stmt) -> TypeGuard[ast.With | ast.ClassDef | ast.If | ast.Try]:
    """Returns whether the statements in `node` always run when the module is the program."""
    if isinstance(node, ast.If):
        return _is_main(node.test)
    return isinstance(node, ast.With | ast.ClassDef) or (isinstance(node, ast.Try) and not node.handlers)


def _is_main(test: ast.expr) -> bool:
    return ast.unparse(test).replace('"', "'") == "__name__ == '__main__'"


def _at(path: str, line: int, message: str, *, column: int = 1, hint: str | None = _HINT) -> FieldError:
    return FieldError(message, field="", location=f"{path}:{line}:{column}", hint=hint)
