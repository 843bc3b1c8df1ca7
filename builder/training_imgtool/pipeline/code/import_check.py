"""Checks that the imports of a trainer's files work in its image."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from training_imgtool.context.entries import Entry, blocks
from training_imgtool.context.python_source import Import, Source, may_define
from training_imgtool.core.errors import FieldError
from training_imgtool.pipeline.code.trainer_modules import TrainerModules
from training_imgtool.wheels.import_names import ImportNames

HINT = "--no-check skips this check"


@dataclass(frozen=True, slots=True)
class Problem:
    """What does not work.

    Attributes:
        error: with its place.
        is_sure: whether nothing that imgtool cannot see may help.
        is_late: whether the program begins all the same.
    """

    error: FieldError
    is_sure: bool = True
    is_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCheck:
    """The check of one role's code.

    Attributes:
        modules: the trainer's own.
        wheels: what the image has besides.
        files: the trainer's Python files by path.
        entry: the program among them.
        searches_more: whether Python may find modules that imgtool does not see.
    """

    modules: TrainerModules
    wheels: ImportNames
    files: Mapping[str, Entry]
    entry: str | None
    searches_more: bool

    def problems(self, path: str, source: Source, *, runs_main: bool) -> Iterator[Problem]:
        """Yields what does not work when the file loads or, with `runs_main`, when it is the program."""
        if source.notebook:
            line, name = source.notebook
            hint = f"delete the line, or guard it with `try`; packages belong in requirements; {HINT}"
            yield Problem(error_at(path, line, f"{name}() exists in notebooks only", hint=hint))
        less_sure = replace(self, searches_more=True)
        for item in source.imports + (source.main_imports if runs_main else ()):
            check = less_sure if source.finds_more and item.line >= source.finds_more else self
            yield from (replace(problem, is_late=item.is_late) for problem in check.failing(path, item))

    def failing(self, path: str, item: Import) -> Iterator[Problem]:
        """Yields why an import fails, unless one of those in its place may work."""
        problems = list(self._missing(path, item))
        others = [problem for other in item.instead for problem in self.failing(path, other)] if problems else []
        if not item.instead or any(problem.is_sure for problem in others):
            yield from problems

    def _missing(self, path: str, item: Import) -> Iterator[Problem]:
        module = self.modules.absolute(path, item)
        if module is None:
            yield Problem(error_at(path, item.line, "a relative import outside a package"))
        elif not self.modules.is_own(module):
            yield from self._find_missing(path, item, module)
        else:
            missing = [name for name in self._own_names(module, item) if not self.modules.has(name)]
            if not missing:
                yield from self._find_undefined(path, item, module)
            elif not self.wheels.provides(module):
                error = error_at(path, item.line, f"the trainer has no module {missing[0]}")
                yield Problem(error, is_sure=not self.searches_more)

    def _own_names(self, module: str, item: Import) -> Iterator[str]:
        """Yields the modules that an import from the trainer needs: a folder that is no package has nothing else."""
        yield module
        if self.modules.files.get(module) == "" and module not in self.modules.links:
            yield from (f"{module}.{name}" for name in item.names if name != "*")

    def _find_undefined(self, path: str, item: Import, module: str) -> Iterator[Problem]:
        """Yields the names that the program imports from a file of the trainer whose text does not have them at all."""
        file = self.files.get(self.modules.files.get(module) or "")
        names = [name for name in item.names if name != "*" and not self.modules.has(f"{module}.{name}")]
        if file is None or not names or path != self.entry:
            return
        data = b"".join(blocks(file))
        for name in names:
            if not may_define(data, name):
                error = error_at(path, item.line, f"{file.path} does not define {name}")
                yield Problem(error, is_sure=not self.searches_more)

    def _find_missing(self, path: str, item: Import, module: str) -> Iterator[Problem]:
        hint = f"add it to requirements; {HINT}"
        provided, missing = self._find_provider(module, item.names)
        top = module.partition(".")[0]
        if provided:
            return
        folder = self._folder_with(top)
        if folder is not None and not self.searches_more:
            shown = posixpath.normpath(posixpath.join("/app", folder))
            hint = f"it is in {folder or '.'}, where Python does not look: env: {{PYTHONPATH: {shown}}}; {HINT}"
        if self.searches_more:
            if folder is None:
                message = f"no locked wheel provides {top}, unless code or PYTHONPATH adds a folder with it"
                yield Problem(error_at(path, item.line, message, hint=hint), is_sure=False)
        elif provided is None:
            message = f"no wheel that imgtool can read provides {missing}"
            yield Problem(error_at(path, item.line, message, hint=hint), is_sure=False)
        else:
            name = missing if self.wheels.provides(top) else top
            yield Problem(error_at(path, item.line, f"no locked wheel provides {name}", hint=hint))

    def _find_provider(self, module: str, names: tuple[str, ...]) -> tuple[bool | None, str]:
        """Whether wheels have a module and, of a namespace package, all names; with the first that they lack."""
        wanted = [module]
        if self.wheels.is_namespace(module):
            wanted += [f"{module}.{name}" for name in names if name != "*"]
        answers = {name: self.wheels.provides(name) for name in wanted}
        lacking = next((name for name in wanted if answers[name] is False), None)
        unclear = next((name for name in wanted if answers[name] is None), module)
        return (False, lacking) if lacking else (answers[unclear], unclear)

    def _folder_with(self, top: str) -> str | None:
        """Returns a folder of the trainer that has a module or a package of that name, else None."""
        for path in self.files:
            parts = path.removesuffix(".py").split("/")
            if top in parts:
                return "/".join(parts[: parts.index(top)])
        return None


def error_at(path: str, line: int, message: str, *, column: int = 1, hint: str | None = HINT) -> FieldError:
    """Returns an error with its place in a file of the trainer."""
    return FieldError(message, field="", location=f"{path}:{line}:{column}", hint=hint)
