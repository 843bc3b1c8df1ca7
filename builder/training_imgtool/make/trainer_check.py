"""Checks before a build that the trainer can start in its image.

The program must exist. The program and the files that it may import must parse for the image's Python. Each module that
the program or one of its files imports at the start must come from the trainer, a locked wheel or Python. imgtool
refuses only what fails for sure. An import in a function, a condition or a `try` may never run, or the program may
handle its failure.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.context.entries import Entry, Kind, OnDisk, blocks
from training_imgtool.base.errors import FieldError, FieldListError
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.progress import Note
from training_imgtool.base.version import __version__
from training_imgtool.plan.inputs import Inputs, RoleImage

if TYPE_CHECKING:
    from training_imgtool.base.context.python_source import Import, Source
    from training_imgtool.oci.machine import Machine
    from training_imgtool.resolve.wheels.import_names import ImportNames

_HINT = "--no-check skips this check"
_EXTENSION = ".so"


def check_trainer(inputs: Inputs, machine: Machine) -> None:
    """Checks the trainer of every role.

    Prints a note for each possible fault; raises FieldListError, which lists the certain faults with their places.
    """
    files = {entry.path: entry for entry in inputs.context.on_disk() if entry.path.endswith(".py")}
    digest = hashlib.sha256(json.dumps([(path, files[path].sha256) for path in sorted(files)]).encode()).hexdigest()
    checks = {(check := _Check(inputs, image, machine, files)).key_for(digest): check for image in inputs.images}
    for key, check in checks.items():
        path = machine.settings.cache / "checked" / f"{key}.json"
        notes = read_cached(path)
        if notes is None:
            check.run()
            if check.errors:
                raise FieldListError(tuple(check.errors))
            notes = check.notes
            if check.is_complete:
                write_cached(path, notes)
        for note in notes:
            machine.progress(Note(note))


class _Check:
    """Checks the code of one role.

    Attributes:
        errors: the certain faults, with their places.
        notes: the possible faults.
        is_complete: whether imgtool could read every wheel that may provide an import.
    """

    def __init__(self, inputs: Inputs, image: RoleImage, machine: Machine, files: Mapping[str, Entry]) -> None:
        self.errors: list[FieldError] = []
        self.notes: list[str] = []
        self.is_complete = True
        self._inputs, self._image, self._machine, self._files = inputs, image, machine, files
        spec = inputs.spec_file.spec
        of_role = spec.roles[image.role]
        self._starts_entry = of_role.command is None
        entry = inputs.spec_file.entry  # `python FILE` searches the file's folder first, `python -m` the current folder
        first = posixpath.dirname(entry.script) if entry.script else entry.home
        python_path = image.recipe.env.get("PYTHONPATH", "").split(":")
        folders = [f"{folder}/".removeprefix("/app/").strip("/") for folder in python_path if _is_below_app(folder)]
        self._roots = tuple(dict.fromkeys(("" if first == "." else first, *folders)))
        self._runs_lines = bool(image.recipe.template or spec.run or spec.run_after_packages)
        self._may_have_more = self._runs_lines or any(
            folder and (not _is_below_app(folder) or folder.endswith((".zip", ".egg", ".whl")))
            for folder in python_path
        )
        self._python = image.locked.variant.python

    def key_for(self, files: str) -> str:
        """Hashes everything that the result of the check depends on; `files` is the hash of the context's files."""
        locked = self._image.locked
        system = [
            self._image.recipe.base.digest,
            *([row.sha256 for row in locked.debian.packages] if locked.debian else ()),
        ]
        wheels = [*(wheel.sha256 for wheel in locked.wheels), *system, *self._image.system_packages]
        program = (self._inputs.spec_file.entry.arguments, self._starts_entry, self._roots, self._may_have_more)
        return hashlib.sha256(json.dumps([__version__, self._python, program, files, wheels]).encode()).hexdigest()

    @cached_property
    def _wheels(self) -> ImportNames:
        from training_imgtool.make.run_wheels import open_wheel_store
        from training_imgtool.resolve.wheels.import_names import ImportNames

        settings = self._machine.settings
        store = open_wheel_store(self._inputs, settings)
        return ImportNames(self._image.locked.wheels, store, settings.cache, self._python)

    @cached_property
    def _modules(self) -> _Modules:
        return _find_modules(self._inputs.context.entries, self._roots)

    def run(self) -> None:
        """Runs the check, and adds its results to `errors` and `notes`."""
        if not self._starts_entry:
            return
        entry = self._find_entry_file()
        if entry is None:
            self._report_missing_entry()
            return
        function = self._inputs.spec_file.entry.function
        if function:
            self._check_function(self._files[entry], function)
        sources = dict(self._read_reachable(entry))
        may_have_more = self._may_have_more or any(
            source.opens_up_at for path, source in sources.items() if path != entry
        )

        def list_imports(path: str) -> Iterator[tuple[Import, bool]]:
            """Yields each import that runs, and whether code above the import may change where Python searches."""
            source = sources.get(path)
            if source is not None:
                items = source.imports + (source.main_imports if path == entry and function is None else ())
                yield from ((item, bool(source.opens_up_at and item.line >= source.opens_up_at)) for item in items)

        def list_sure(path: str) -> Iterator[Import]:
            return (item for item, is_changed in list_imports(path) if not is_changed)

        taken: dict[tuple[str, Import], bool] = {}  # imports from wheels, and whether they run for sure
        for path in self._modules.reach(entry, list_sure, self._is_only_module):
            for item, is_changed in list_imports(path):
                is_sure = not (is_changed or may_have_more)
                self._check_import(path, item, is_sure=is_sure)
                taken[path, item] = is_sure
        self._note_inner(entry, sources, taken)
        taken |= {
            (path, item): False for path in sources for item in sources[path].all_imports if (path, item) not in taken
        }
        self._check_libraries(taken)

    def _note_inner(self, entry: str, sources: Mapping[str, Source], taken: Mapping[tuple[str, Import], bool]) -> None:
        """Adds a note for each module that no wheel provides and that runs if a function runs, or what it imports."""

        def list_imports(path: str) -> tuple[Import, ...]:
            source = sources.get(path)
            main = source.main_imports if source and path == entry and not self._inputs.spec_file.entry.function else ()
            return (*source.imports, *main, *source.inner_imports) if source else ()

        said: set[str] = set()
        may_have_more = self._may_have_more or any(source.opens_up_at for source in sources.values())
        for path in self._modules.reach(entry, list_imports, self._is_only_module) if not may_have_more else ():
            for item in (item for item in list_imports(path) if not item.level and (path, item) not in taken):
                top = item.module.partition(".")[0]
                if top in said or self._modules.is_own(top) or self._wheels.provides(item.module) is not False:
                    continue
                if self._find_folder(top) is None:
                    said.add(top)
                    message = f"no locked wheel provides {top}, which the program imports if a function runs"
                    hint = f"add it to requirements if it does; {_HINT}"
                    self._report(_error_at(path, item.line, message, hint=hint), is_sure=False)

    def _find_entry_file(self) -> str | None:
        entry = self._inputs.spec_file.entry
        if entry.file is not None or entry.module is None:
            return entry.file if entry.file in self._files else None
        path = self._modules.files.get(entry.module)
        if path is not None and (not path or path.endswith("/__init__.py")):
            path = self._modules.files.get(f"{entry.module}.__main__")
        return path or None

    def _report_missing_entry(self) -> None:
        entry = self._inputs.spec_file.entry
        is_sure = True
        if entry.file is not None:
            message, hint = f"{entry.file} is not in the build context", "remove it from .dockerignore"
        else:
            provided = self._modules.has(entry.name) or self._wheels.provides(entry.name)
            if provided:
                return
            is_sure = (provided is False or self._modules.is_own(entry.name)) and not self._may_have_more
            message = f"no module {entry.name} in {entry.folder}/ and no locked wheel with it"
            hint = f"trainer.source must contain the module; PYTHONPATH in env adds folders below /app; {_HINT}"
        field = "trainer.module" if entry.module else "trainer.script"
        location = self._inputs.spec_file.locate(field)
        self.is_complete &= is_sure
        self._report(FieldError(message, field=field, location=location, hint=hint), is_sure=is_sure)

    def _check_function(self, file: Entry, function: str) -> None:
        from training_imgtool.base.context.python_source import may_define

        if not may_define(b"".join(blocks(file)), function.partition(".")[0]):
            message, field = f"{file.path} does not define {function}", "trainer.function"
            self.errors.append(FieldError(message, field=field, location=self._inputs.spec_file.locate(field)))

    def _read_reachable(self, entry: str) -> Iterator[tuple[str, Source]]:
        """Yields the program's file and the files that it may import, without files that do not parse."""
        sources: dict[str, Source] = {}

        def list_imports(path: str) -> tuple[Import, ...]:
            source = self._read(path)
            if source is None:
                return ()
            sources[path] = source
            return source.all_imports

        for path in self._modules.reach(entry, list_imports, lambda _package, _name: True):
            if path in sources:
                yield path, sources[path]

    def _read(self, path: str) -> Source | None:
        from training_imgtool.base.context.python_source import read_source

        major, minor = (int(part) for part in self._python.split("."))
        if major < 3 or path not in self._files:
            return None
        try:
            return read_source(b"".join(blocks(self._files[path])), path, (major, minor))
        except SyntaxError as error:
            message, hint = f"Python {major}.{minor} cannot parse it: {error.msg}", _HINT
            if error.text and error.text.lstrip().startswith(("!", "%")):
                message = f"{error.text.strip()[:60]!r} is a command of a notebook, not Python"
                hint = f"delete the line, and put packages into requirements; {_HINT}"
            problem = _error_at(path, error.lineno or 1, message, column=error.offset or 1, hint=hint)
            self._report(problem, is_sure=sys.version_info[:2] >= (major, minor))  # else it may be newer syntax
        except (ValueError, RecursionError, MemoryError) as error:
            self.errors.append(_error_at(path, 1, f"Python cannot parse it: {error}"))
        return None

    def _is_only_module(self, package: str, name: str) -> bool:
        """Tells whether `from package import name` can only mean a module, because the package defines no such name."""
        from training_imgtool.base.context.python_source import read_module

        path = self._modules.files.get(package)
        if not path or path not in self._files:
            return path == ""  # a folder without __init__.py has only modules
        try:
            names = read_module(b"".join(blocks(self._files[path]))).names
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return names is not None and name not in names

    def _check_import(self, path: str, item: Import, *, is_sure: bool) -> None:
        """Reports an import that fails for sure, or that fails unless the image gets the module in another way."""
        module = self._modules.find_absolute(path, item)
        if module is None:
            self.errors.append(_error_at(path, item.line, "a relative import outside a package"))
        elif self._modules.is_own(module):
            missing = self._modules.find_missing(module, item)
            if missing is not None and not self._wheels.provides(module):
                left_out = self._find_left_out(path, missing)
                hint = f".dockerignore leaves it out: write !{left_out} at its end; {_HINT}" if left_out else _HINT
                message = f"the trainer has no module {missing}"
                self._report(_error_at(path, item.line, message, hint=hint), is_sure=is_sure)
        elif not (provided := self._wheels.provides(module)):
            top = module.partition(".")[0]
            name = module if self._wheels.provides(top) else top
            folder, hint = self._find_folder(top), f"add it to requirements; {_HINT}"
            if folder is not None:
                shown = posixpath.normpath(posixpath.join("/app", folder))
                hint = f"it is in {folder or '.'}, where Python does not look: env: {{PYTHONPATH: {shown}}}; {_HINT}"
            elif left_out := self._find_left_out(path, module):
                hint = f".dockerignore leaves it out: write !{left_out} at its end; {_HINT}"
            self.is_complete &= provided is not None
            if folder is not None and not is_sure:
                return
            message = f"no locked wheel provides {name}"
            if provided is None:
                message, is_sure = f"no wheel that imgtool can read provides {name}", False
            elif not is_sure:
                message += ", unless code, PYTHONPATH, `run` or a template adds it"
            self._report(_error_at(path, item.line, message, hint=hint), is_sure=is_sure)

    def _check_libraries(self, taken: Mapping[tuple[str, Import], bool]) -> None:
        """Reports imports from wheels that load a shared library that the image lacks."""
        if self._runs_lines:
            return  # these lines may install the library
        from training_imgtool.make.library_check import LibraryCheck

        check = LibraryCheck(self._inputs, self._image, self._machine)
        imports = (
            (f"{path}:{item.line}:1", item, is_sure)
            for (path, item), is_sure in taken.items()
            if not item.level and not self._modules.is_own(item.module)
        )
        for error, is_sure in check.run(imports):
            self._report(error, is_sure=is_sure)
        self.is_complete &= check.is_complete

    def _find_folder(self, top: str) -> str | None:
        """Returns a folder of the trainer that contains a module or a package `top`; None if there is none."""
        for path in self._files:
            parts = path.removesuffix(".py").split("/")
            if top in parts:
                return "/".join(parts[: parts.index(top)])
        return None

    def _find_left_out(self, path: str, module: str) -> str | None:
        """Returns the path of the module on this machine, as a pattern, if `.dockerignore` leaves the module out."""
        origin = self._files[path].origin
        if not isinstance(origin, OnDisk) or not origin.path.endswith(path):
            return None
        start = Path(origin.root, origin.path.removesuffix(path))
        absent = (name.split(".") for name in _list_prefixes(module) if not self._modules.has(name))
        for place in (posixpath.join(root, *names) for names in absent for root in self._roots):
            if (start / place).is_dir():
                return f"{place}/**"  # Docker applies `!FOLDER` only if a pattern leaves out the folder itself
            if (start / f"{place}.py").is_file():
                return f"{place}.py"
        return None

    def _report(self, error: FieldError, *, is_sure: bool) -> None:
        if is_sure:
            self.errors.append(error)
        else:
            self.notes.append(str(error))


@dataclass(frozen=True, kw_only=True)
class _Modules:
    """The modules in a role's code, under the names that the image's Python imports.

    Attributes:
        files: the file of each module or package, by dotted name; the empty text for a folder without __init__.py.
        opaque: the dotted names of symbolic links and extension modules, which may contain any other name.
    """

    files: Mapping[str, str]
    opaque: frozenset[str]

    def is_own(self, module: str) -> bool:
        """Returns whether the trainer's code contains the first part of a dotted name."""
        return module.partition(".")[0] in self.files

    def has(self, module: str) -> bool:
        """Returns whether the trainer's code contains a module, or a name in `opaque` that may contain the module."""
        return module in self.files or any(f"{module}.".startswith(f"{name}.") for name in self.opaque)

    def find_missing(self, module: str, item: Import) -> str | None:
        """Returns the first module that an import needs and the trainer lacks. Plain folders contain only modules."""
        is_folder = self.files.get(module) == "" and module not in self.opaque
        needed = [module, *(f"{module}.{name}" for name in item.names if is_folder and name != "*")]
        return next((name for name in needed if not self.has(name)), None)

    @cached_property
    def _names(self) -> dict[str, str]:
        return {path: name for name, path in reversed(tuple(self.files.items())) if path}

    def find_absolute(self, path: str, item: Import) -> str | None:
        """Returns the absolute name of an import's module; None if a relative import leads out of all packages."""
        if not item.level:
            return item.module
        own = self._names.get(path, "")
        parts = own.split(".") if path.endswith("/__init__.py") else own.split(".")[:-1]
        if item.level > len(parts):
            return None
        return ".".join([*parts[: len(parts) - item.level + 1], *filter(None, [item.module])])

    def reach(
        self,
        entry: str,
        list_imports: Callable[[str], Iterable[Import]],
        is_module: Callable[[str, str], bool],
    ) -> Iterator[str]:
        """Yields the program's file and the files that it imports, directly or through others.

        `is_module(x, name)` tells whether `from x import name` imports the module `x.name` if that module exists.
        """
        packages = _list_prefixes(self._names.get(entry, "").rpartition(".")[0])  # -m runs their __init__.py
        waiting = [entry, *filter(None, map(self.files.get, packages))]
        found = set(waiting)
        while waiting:
            path = waiting.pop()
            modules = [(self.find_absolute(path, item), item.names) for item in list_imports(path)]
            inner = [module for module, _ in modules if module is not None]
            inner += [
                f"{module}.{name}"
                for module, names in modules
                if module is not None
                for name in names
                if f"{module}.{name}" in self.files and is_module(module, name)
            ]
            files = {file for name in inner for above in _list_prefixes(name) if (file := self.files.get(above))}
            waiting += sorted(files - found)
            found |= files
            yield path


def _find_modules(entries: Iterable[Entry], roots: Iterable[str]) -> _Modules:
    """Finds the modules in the folders `roots`, in the order in which Python searches; "" is the top folder."""
    files: dict[str, str] = {}
    opaque: set[str] = set()
    paths = [(entry.path, entry.kind) for entry in entries if _may_be_module(entry)]
    for root in reversed(tuple(roots)):
        for path, kind in paths:
            if root and not path.startswith(f"{root}/"):
                continue
            *folders, name = path[len(root) :].strip("/").split("/")
            name = name.partition(".")[0] if name.endswith(_EXTENSION) else name.removesuffix(".py")
            for end in range(1, len(folders) + 1):
                files.setdefault(".".join(folders[:end]), "")
            module = ".".join((*folders, name)).removesuffix(".__init__")
            files[module] = path if path.endswith(".py") else files.get(module, "")
            if kind is Kind.SYMLINK or path.endswith(_EXTENSION):
                opaque.add(module)
    return _Modules(files=files, opaque=frozenset(opaque))


def _may_be_module(entry: Entry) -> bool:
    return entry.kind is Kind.SYMLINK or (entry.kind is Kind.FILE and entry.path.endswith((".py", _EXTENSION)))


def _list_prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _is_below_app(folder: str) -> bool:
    return f"{folder}/".startswith("/app/")


def _error_at(path: str, line: int, message: str, *, column: int = 1, hint: str = _HINT) -> FieldError:
    return FieldError(message, field="", location=f"{path}:{line}:{column}", hint=hint)
