"""Records what a program imports, and gives these modules to the next program, which need not import them again.

This first part of the source of `warm_program` imports only the standard library, and runs on Python 3.7.
"""

from __future__ import annotations

import sys

OF_PYTHON = frozenset(sys.modules)  # modules that Python loads before a program begins

import contextlib
import fcntl
import importlib.machinery
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

WHEELS = ("site-packages", "dist-packages")
_HIGH = 200  # a descriptor with a number that no library gets by chance
_NEW = ("MASTER_PORT", "TORCHELASTIC_")  # variables to which launchers give a value at each start; no import reads them


class Event:
    """One import in this process: the environment before the import (None for a submodule), and what it changed."""

    def __init__(self, name: str, env: dict[str, str] | None) -> None:
        self.name, self.env = name, env
        self.modules: dict[str, Any] = {}
        self.after: dict[str, str] = {}
        self.is_shown = False


class Finder:
    """The first import finder in a program: finds hidden modules, and records each search for another module."""

    def __init__(self, events: list[Event], record: int) -> None:
        self._events, self._record = events, record
        self._places = {name: at for at, event in enumerate(events) for name in event.modules}
        self._told: set[str] = set()
        self._env: dict[str, str] = {}
        self._specs: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Returns the import spec of a hidden module; None for another module."""
        del path, target
        if name not in self._places:
            self._note(name)
            return None
        own = getattr(self._events[self._places[name]].modules[name], "__spec__", None)
        spec = importlib.machinery.ModuleSpec(name, self, origin=getattr(own, "origin", None))  # type: ignore[arg-type]
        spec.submodule_search_locations = getattr(own, "submodule_search_locations", None)
        self._specs[name] = own
        return spec

    def _note(self, name: str) -> None:
        if name not in self._told:
            self._told.add(name)
            env = dict(os.environ) if "." not in name else self._env
            self._write(name, None if env == self._env else env)
            self._env = env

    def _write(self, name: str, what: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(self._record, (json.dumps([name, what]) + "\n").encode())

    def create_module(self, spec: Any) -> Any:
        """Shows the program this hidden module and all modules that this process imported before it."""
        at = self._places[spec.name]
        event = self._events[at]
        if event.env is not None and not event.is_shown and _lasting(os.environ) != _lasting(event.env):
            self._give_up(event)
        for earlier in self._events[: at + 1]:
            if not earlier.is_shown:
                earlier.is_shown = True
                sys.modules.update(earlier.modules)
                os.environ.update(earlier.after)
        return event.modules[spec.name]

    def _give_up(self, event: Event) -> None:
        now, then = _lasting(os.environ), _lasting(event.env or {})
        names = sorted(name for name in {*now, *then} if now.get(name) != then.get(name))
        self._write("", "the program sets {} before it imports {}".format(", ".join(names), event.name))
        sys.stdout.flush()
        os._exit(0)

    def exec_module(self, module: Any) -> None:
        """Does nothing, because the module has already run."""
        name = module.__spec__.name
        if name in self._specs:
            module.__spec__ = self._specs.pop(name)


def _lasting(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith(_NEW)}


def is_wheels(folder: str) -> bool:
    """Tells whether an entry of sys.path contains installed wheels."""
    return any(f"/{name}/" in folder + "/" for name in WHEELS)


def is_shared(folder: str) -> bool:
    """Tells whether an entry of sys.path contains wheels or the standard library."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    return is_wheels(folder) or folder.endswith(".zip") or (os.path.realpath(folder) + "/").startswith(library + "/")


def find_shadow(folders: list[str], names: set[str]) -> str:
    """Returns one of `names` if the user has a module of that name, which Python imports first; else an empty text."""
    names = names - set(sys.builtin_module_names) - {"__main__"}
    for folder in folders:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            name = entry.partition(".")[0]
            is_package = os.path.isfile(os.path.join(folder, name, "__init__.py"))
            if name in names and (is_package or entry.endswith((".py", ".so"))):
                return name
    return ""


def open_record(root: str) -> int:
    """Opens an unnamed file, in which programs record their searches for modules."""
    path = "{}/.imgtool-record-{}".format("/tmp" if os.path.isdir("/tmp") else root, os.getpid())
    found = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.unlink(path)
    high = fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(found)
    return high


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Discards the output of imports, because the first program has printed it already."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    kept = {descriptor: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH) for descriptor in (1, 2)}
    for descriptor in kept:
        os.dup2(nothing, descriptor)
    os.close(nothing)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, before in kept.items():
            os.dup2(before, descriptor)
            os.close(before)


def set_environment(wanted: dict[str, str]) -> None:
    """Replaces the environment variables of this process."""
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    os.environ.update(wanted)
