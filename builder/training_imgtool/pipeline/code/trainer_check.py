"""Checks before a build that the trainer can start in its image.

The entry module exists, every file parses for the image's Python, and the imports of the entry module and of the files
that it surely imports are available. Any other file may import what is missing, since nothing says that it runs: that
gives a note.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from training_imgtool.context.entries import Entry, blocks
from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.settings import Settings
from training_imgtool.core.version import __version__
from training_imgtool.pipeline.inputs import Inputs
from training_imgtool.plan import RolePlan

if TYPE_CHECKING:
    from training_imgtool.context.python_source import Source
    from training_imgtool.pipeline.code.trainer_modules import TrainerModules
    from training_imgtool.wheels.import_names import ImportNames

_MOST_NOTES = 5


def check_trainer(inputs: Inputs, settings: Settings, progress: Progress) -> None:
    """Checks the trainer of every role.

    Prints what may be wrong as notes. Raises FieldListError with the places of what cannot work.
    """
    files = {entry.path: entry for entry in inputs.context.on_disk() if entry.path.endswith(".py")}
    digest = hashlib.sha256(json.dumps([(path, files[path].sha256) for path in sorted(files)]).encode()).hexdigest()
    checks = {(check := _Check(inputs, plan, settings, files)).key_for(digest): check for plan in inputs.plan.roles}
    for key, check in checks.items():
        path = settings.cache / "checked" / f"{key}.json"
        notes = read_cached(path)
        if notes is None:
            from training_imgtool.context.python_source import remembered_sources

            with remembered_sources(settings.cache, inputs.spec_file.folder, check.python) as sources:
                errors, notes = check.run(sources)
            if errors:
                raise FieldListError(tuple(errors))
            if check.is_complete:
                write_cached(path, notes)
        for note in notes[:_MOST_NOTES]:
            progress(Note(note))
        if len(notes) > _MOST_NOTES:
            progress(Note(f"and {len(notes) - _MOST_NOTES} more of these"))


class _Check:
    """The check of one role's code."""

    def __init__(self, inputs: Inputs, plan: RolePlan, settings: Settings, files: Mapping[str, Entry]) -> None:
        self._plan = plan
        self._spec_file = inputs.spec_file
        of_role = inputs.spec_file.spec.roles[plan.role]
        self._is_entry = of_role.command is None  # else the job starts another program
        self._is_proof = (
            of_role.template is None and inputs.spec_file.spec.template is None
        )  # else RUN may install more
        self._files = files
        self.is_complete = True  # whether every wheel could be read that an import may come from
        entry = plan.entry  # `python FILE` searches the file's folder first, `-m` the folder that it starts in
        first = posixpath.dirname(entry.script) if entry.script else entry.home
        python_path = plan.env.get("PYTHONPATH", "").split(":")
        folders = [f"{folder}/".removeprefix("/app/").strip("/") for folder in python_path if _is_below_app(folder)]
        self._searches_more = any(
            folder and (not _is_below_app(folder) or folder.endswith((".zip", ".egg", ".whl")))
            for folder in python_path
        )
        self._roots = tuple(dict.fromkeys(("" if first == "." else first, *folders)))
        self._inputs, self._settings = inputs, settings
        self.python = plan.locked.variant.python

    def key_for(self, files: str) -> str:
        """The hash of all that the result depends on, with that of the files."""
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
    def _wheels(self) -> ImportNames:
        from training_imgtool.pipeline.run_wheels import open_wheel_store
        from training_imgtool.wheels.import_names import ImportNames

        store = open_wheel_store(self._inputs, self._settings)
        return ImportNames(self._plan.locked.wheels, store, self._settings.cache, self.python)

    @cached_property
    def _modules(self) -> TrainerModules:
        from training_imgtool.pipeline.code.trainer_modules import find_modules

        return find_modules(self._inputs.context.entries, self._roots)

    def run(self, sources: MutableMapping[str, Source]) -> tuple[list[FieldError], list[str]]:
        """Returns errors and notes; reads and adds to what files of these hashes say."""
        from training_imgtool.pipeline.code.import_check import ImportCheck

        errors: list[FieldError] = []
        notes: list[str] = []
        entry = self._entry_file()
        if self._is_entry and entry is None:
            self._check_missing_entry(errors, notes)
        elif self._is_entry and entry is not None and self._plan.entry.function:
            self._check_function(self._files[entry], self._plan.entry.function, errors)
        read = {path: self._read(path, file, sources, errors, notes) for path, file in self._files.items()}
        readable = {path: source for path, source in read.items() if source}
        reached = self._modules.reached(entry, readable) if entry else ()
        others = (readable[path] for path in reached if path in readable and path != entry)
        self._searches_more |= any(source.finds_more for source in others)
        check = ImportCheck(
            modules=self._modules,
            wheels=self._wheels,
            files=self._files,
            entry=entry,
            searches_more=self._searches_more,
        )
        loaded = self._loaded(entry, readable) if entry and self._is_entry and self._is_proof else frozenset()
        for path, source in readable.items():
            runs_main = path == entry and self._plan.entry.function is None
            for problem in check.problems(path, source, runs_main=runs_main):
                self.is_complete &= problem.is_sure
                if path in loaded and problem.is_sure and not problem.is_late:
                    errors.append(problem.error)
                else:
                    notes.append(str(problem.error))
        return errors, notes

    def _loaded(self, entry: str, sources: Mapping[str, Source]) -> frozenset[str]:
        """Returns the files that load whenever the program starts."""
        if entry not in sources or sources[entry].finds_more is not None:
            return frozenset({entry})  # a name may lead to another file than it seems
        if self._plan.entry.function is not None:  # nothing below the main guard runs
            sources = {**sources, entry: replace(sources[entry], main_imports=())}
        return frozenset(self._modules.reached(entry, sources, is_sure=True))

    def _entry_file(self) -> str | None:
        entry = self._plan.entry
        if entry.file is not None or entry.module is None:
            return entry.file if entry.file in self._files else None
        path = self._modules.files.get(entry.module)
        if path is not None and (not path or path.endswith("/__init__.py")):
            path = self._modules.files.get(f"{entry.module}.__main__")
        return path or None

    def _check_missing_entry(self, errors: list[FieldError], notes: list[str]) -> None:
        from training_imgtool.pipeline.code.import_check import HINT

        entry = self._plan.entry
        is_sure = True
        if entry.file is not None:
            message, hint = f"{entry.file} is not in the build context", "remove it from .dockerignore"
        else:
            provided = self._modules.has(entry.name) or self._wheels.provides(entry.name)
            if provided:
                return
            is_sure = (provided is False or self._modules.is_own(entry.name)) and not self._searches_more
            message = f"no module {entry.name} in {entry.folder}/ and no locked wheel with it"
            hint = f"trainer.source must contain it; PYTHONPATH in env adds folders below /app; {HINT}"
        field = "trainer.module" if entry.module else "trainer.script"
        error = FieldError(message, field=field, location=self._spec_file.locate(field), hint=hint)
        self.is_complete &= is_sure
        if is_sure:
            errors.append(error)
        else:
            notes.append(str(error))

    def _check_function(self, file: Entry, function: str, errors: list[FieldError]) -> None:
        from training_imgtool.context.python_source import may_define

        if not may_define(b"".join(blocks(file)), function.partition(".")[0]):
            message, field = f"{file.path} does not define {function}", "trainer.function"
            errors.append(FieldError(message, field=field, location=self._spec_file.locate(field)))

    def _read(
        self,
        path: str,
        file: Entry,
        sources: MutableMapping[str, Source],
        errors: list[FieldError],
        notes: list[str],
    ) -> Source | None:
        from training_imgtool.context.python_source import is_notebook_command, read_source
        from training_imgtool.pipeline.code.import_check import HINT, error_at

        major, minor = (int(part) for part in self.python.split("."))
        digest = file.sha256 or ""
        if major < 3:
            return None
        if digest in sources:
            return sources[digest]
        try:
            sources[digest] = read_source(b"".join(blocks(file)), path, (major, minor))
            return sources[digest]
        except SyntaxError as error:
            message, hint = f"Python {major}.{minor} cannot parse it: {error.msg}", HINT
            if is_notebook_command(error):
                message = f"{(error.text or '').strip()[:60]!r} is a command of a notebook, not Python"
                hint = f"delete the line, and put packages into requirements; {HINT}"
            problem = error_at(path, error.lineno or 1, message, column=error.offset or 1, hint=hint)
            if sys.version_info[:2] < (major, minor):
                notes.append(str(problem))  # it may be syntax that this Python does not know yet
            else:
                errors.append(problem)
        except (ValueError, RecursionError, MemoryError) as error:
            errors.append(error_at(path, 1, f"Python cannot parse it: {error}"))
        return None


def _is_below_app(folder: str) -> bool:
    return f"{folder}/".startswith("/app/")
