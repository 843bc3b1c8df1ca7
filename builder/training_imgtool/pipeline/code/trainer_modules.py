"""Which modules the trainer's own files are, by the names that the image's Python finds them by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from training_imgtool.context.entries import Entry, Kind
from training_imgtool.context.python_source import Import, Source

_EXTENSION = ".so"


@dataclass(frozen=True, kw_only=True)
class TrainerModules:
    """The modules of a role's code.

    Attributes:
        files: modules and packages by dotted name; the value is the file, empty for a plain folder.
        links: the dotted names of symbolic links, whose targets have modules too.
    """

    files: Mapping[str, str]
    links: frozenset[str]

    def is_own(self, module: str) -> bool:
        """Whether the first part of a dotted name is the trainer's."""
        return module.partition(".")[0] in self.files

    def has(self, module: str) -> bool:
        """Whether the trainer has a module, or a link that it may lie behind."""
        return module in self.files or any(f"{module}.".startswith(f"{link}.") for link in self.links)

    @cached_property
    def _names(self) -> dict[str, str]:
        return {path: name for name, path in reversed(tuple(self.files.items())) if path}

    def absolute(self, path: str, item: Import) -> str | None:
        """Returns the dotted name that an import in the file `path` means; None for dots that lead out of packages."""
        if not item.level:
            return item.module
        own = self._names.get(path, "")
        parts = own.split(".") if path.endswith("/__init__.py") else own.split(".")[:-1]
        if item.level > len(parts):
            return None
        return ".".join([*parts[: len(parts) - item.level + 1], *filter(None, [item.module])])

    def reached(self, entry: str, sources: Mapping[str, Source], *, is_sure: bool = False) -> Iterator[str]:
        """Yields the files that the program in `entry` imports as it starts, itself first; `sources` are by path.

        With `is_sure` it leaves out what may not load: a substitute after a failed import, and a name that may be no
        module.
        """
        packages = _prefixes(self._names.get(entry, "").rpartition(".")[0])  # `-m` runs their __init__.py first
        waiting = [entry, *filter(None, map(self.files.get, packages))]
        seen = set(waiting)
        while waiting:
            path = waiting.pop()
            yield path
            source = sources.get(path)
            items = source.imports + (source.main_imports if path == entry else ()) if source else ()
            if is_sure:
                items = tuple(replace(item, names=()) for item in items if not item.instead and not item.is_late)
            modules = [(module, item.names) for item in items if (module := self.absolute(path, item)) is not None]
            inner = (name for module, names in modules for name in (module, *(f"{module}.{name}" for name in names)))
            files = {file for name in inner for above in _prefixes(name) if (file := self.files.get(above))} - seen
            seen |= files
            waiting += sorted(files)


def find_modules(entries: Iterable[Entry], roots: Iterable[str]) -> TrainerModules:
    """Finds the modules in the folders that Python searches, the first of `roots` first; an empty root is the top."""
    files: dict[str, str] = {}
    links: set[str] = set()
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
            if kind is Kind.SYMLINK:
                links.add(module)
    return TrainerModules(files=files, links=frozenset(links))


def _may_be_module(entry: Entry) -> bool:
    return entry.kind is Kind.SYMLINK or (entry.kind is Kind.FILE and entry.path.endswith((".py", _EXTENSION)))


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))
