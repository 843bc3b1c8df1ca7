"""Hides from a forked program the modules that its parent has imported, until it imports them.

A part of `warm_program`, as `imports`.
"""
# ruff: noqa: PTH108, PTH112, PTH120, S108

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.machinery
import os
import sys
import warnings
from typing import TYPE_CHECKING

from training_imgtool.cluster.inside.imports import is_wheels, places_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from training_imgtool.cluster.inside.imports import Event

_HIGH = 200  # a descriptor that no library gets by chance
_MEMORY = "/dev/shm"


class Import:
    """One import as it went, with all that it changed."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.modules: dict[str, Any] = {}
        self.printed = {1: b"", 2: b""}
        self.before = dict(os.environ)
        self.after: dict[str, str] = {}
        self.filters: list[Any] = []
        self.revealed = False


class Reveal:
    """Hands a program the modules of wheels that its parent has imported, as it imports them: a finder and a loader."""

    def __init__(self, imports: list[Import], differs: Callable[[Import], None]) -> None:
        self._imports, self._differs = imports, differs
        self._places = {name: at for at, one in enumerate(imports) for name in one.modules}
        self._specs: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Finds a hidden module."""
        del path, target
        if name not in self._places:
            return None
        module = self._imports[self._places[name]].modules[name]
        own = getattr(module, "__spec__", None)
        spec = importlib.machinery.ModuleSpec(name, self, origin=getattr(own, "origin", None))  # type: ignore[arg-type]
        spec.submodule_search_locations = getattr(own, "submodule_search_locations", None)
        self._specs[name] = own
        return spec

    def create_module(self, spec: Any) -> Any:
        """Shows all that came with the module."""
        at = self._places[spec.name]
        one = self._imports[at]
        if dict(os.environ) != one.before:
            self._differs(one)
        for earlier in self._imports[: at + 1]:
            if not earlier.revealed:
                self._show(earlier)
        if all(one.revealed for one in self._imports):
            sys.meta_path.remove(self)
        return one.modules[spec.name]

    def _show(self, one: Import) -> None:
        sys.modules.update(one.modules)
        one.revealed = True
        set_environment(dict(os.environ, **one.after))
        warnings.filters[:0] = one.filters  # type: ignore[index]
        note_filters()
        for name in one.modules:
            self._places.pop(name, None)
        sys.stdout.flush()
        for descriptor, printed in one.printed.items():
            sent = 0
            while sent < len(printed):
                sent += os.write(descriptor, printed[sent:])

    def exec_module(self, module: Any) -> None:
        """Runs nothing: it has run."""
        name = module.__spec__.name
        if name in self._specs:
            module.__spec__ = self._specs.pop(name)


def set_environment(wanted: dict[str, str]) -> None:
    """Makes the variables of this process these."""
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def import_words(name: str, words: tuple[str, ...]) -> None:
    """Imports as `from NAME import WORDS` does."""
    module = importlib.import_module(name)
    for word in words:
        if not hasattr(module, word):
            with contextlib.suppress(ImportError):
                importlib.import_module(name + "." + word)


def is_of_wheel(module: Any) -> bool:
    """Tells whether a module comes from a wheel."""
    spec = getattr(module, "__spec__", None)
    return spec is not None and any(is_wheels(os.path.dirname(place)) for place in places_of(spec))


def note_filters() -> None:
    """Has Python notice that its filters of warnings are other ones."""
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        if hasattr(warnings, name):
            with contextlib.suppress(RuntimeError):
                getattr(warnings, name)()
                return


@contextlib.contextmanager
def captured(printed: dict[int, bytes]) -> Iterator[None]:
    """Keeps what is written to stdout and stderr."""
    kept = {}
    for descriptor in (1, 2):
        path = "{}/imgtool-{}-{}".format(_MEMORY if os.path.isdir(_MEMORY) else "/tmp", os.getpid(), descriptor)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.unlink(path)
        kept[descriptor] = (fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH), fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH))
        os.close(file)
        os.dup2(kept[descriptor][1], descriptor)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, (before, file) in kept.items():
            os.dup2(before, descriptor)
            os.close(before)
            os.lseek(file, 0, os.SEEK_SET)
            with os.fdopen(file, "rb") as stream:
                printed[descriptor] = stream.read()
