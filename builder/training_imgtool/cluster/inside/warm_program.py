"""The first process of a container of `run --watch`: forks the program, as often as asked, with its imports done.

Orders come by signals: SIGUSR1 starts the program, SIGUSR2 ends it. Answers are lines that begin with a token.

The first program imports everything by itself, and records which modules it looked for, under which variables. This
process then imports those of wheels in the same order, and hides them from the next program until that imports them.
Where this would not be the same, it executes itself anew, and the program starts cold.

It imports the standard library only, and runs on Python 3.7.
"""

from __future__ import annotations

import sys

_OF_PYTHON = frozenset(sys.modules)  # what Python has loaded before a program begins

import contextlib
import fcntl
import gc
import importlib
import importlib.machinery
import json
import os
import random
import runpy
import shutil
import signal
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

START, END = signal.SIGUSR1, signal.SIGUSR2
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, START, END}
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/vfio")
_OOM = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_WHEELS = ("site-packages", "dist-packages")
_QUIET = 1.0  # seconds without a new import, after which this process imports
_HIGH = 200  # a descriptor that no library gets by chance
_MOST_SHOWN = 4000  # characters of paths in an answer, which has to come in one piece


class Cold(Exception):  # noqa: N818 - an answer, not an error
    """No program can be forked from this process; the reason."""


class Event:
    """One import of this process: the variables before it, None for a part of a package, and all that came of it."""

    def __init__(self, name: str, env: dict[str, str] | None) -> None:
        self.name, self.env = name, env
        self.modules: dict[str, Any] = {}
        self.after: dict[str, str] = {}
        self.is_shown = False


class Finder:
    """A program's first finder: gives it the hidden modules as it imports them, and records what it looks for."""

    def __init__(self, events: list[Event], record: int) -> None:
        self._events, self._record = events, record
        self._places = {name: at for at, event in enumerate(events) for name in event.modules}
        self._told: set[str] = set()
        self._env: dict[str, str] = {}
        self._specs: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Finds a hidden module."""
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
        """Shows the module, and what was imported before it."""
        at = self._places[spec.name]
        event = self._events[at]
        if event.env is not None and not event.is_shown and dict(os.environ) != event.env:
            self._give_up(event)
        for earlier in self._events[: at + 1]:
            if not earlier.is_shown:
                earlier.is_shown = True
                sys.modules.update(earlier.modules)
                os.environ.update(earlier.after)
        return event.modules[spec.name]

    def _give_up(self, event: Event) -> None:
        now, then = dict(os.environ), event.env or {}
        names = sorted(name for name in {*now, *then} if now.get(name) != then.get(name))
        self._write("", "it sets {} before it imports {}".format(", ".join(names), event.name))
        sys.stdout.flush()
        os._exit(0)

    def exec_module(self, module: Any) -> None:
        """Runs nothing: it has run."""
        name = module.__spec__.name
        if name in self._specs:
            module.__spec__ = self._specs.pop(name)


class Tree:
    """The names in the folders that a program may fill: all but mounts, wheels and the system's own."""

    def __init__(self, root: str) -> None:
        with open("/proc/self/mountinfo") as stream:
            left_out = {line.split()[4] for line in stream} | {"/usr"}
        self._names: dict[str, set[str]] = {}
        for folder, folders, files in os.walk(root):
            self._names[folder] = {*folders, *files}
            folders[:] = [one for one in folders if one not in _WHEELS and os.path.join(folder, one) not in left_out]

    def clean(self) -> list[str]:
        """Removes what is new, and lists it."""
        found = []
        for folder, names in self._names.items():
            with contextlib.suppress(OSError):
                found += [os.path.join(folder, name) for name in sorted(set(os.listdir(folder)) - names)]
        for path in found:
            _remove(path)
        return found


class Zygote:
    """The process that waits.

    Args:
        order: the program's `kind`, `name` and `argv`; `token`; `root` of the files that it may change; the `number` of
            the last program, which is to start `again`; and `cold`, which says why nothing is imported.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.environ = dict(os.environ)
        bare = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
        self.path = list(sys.path if bare else sys.path[1:])
        first = os.path.dirname(os.path.realpath(order["name"])) if order["kind"] == "script" else os.getcwd()
        own = [os.path.abspath(one) for one in self.path if not _is_shared(one)]
        self.own = own if bare else [first, *own]
        self.shared = [one for one in self.path if _is_shared(one)]
        self.wheels: dict[str, bool] = {}
        self.events: list[Event] = []
        self.child, self.number, self.kills = 0, order["number"], 0
        self.record, self.size, self.read = _open_record(order["root"]), 0, 0
        self.env: dict[str, str] = {}
        self.tree: Tree | None = None

    def tell(self, state: str, **fields: Any) -> None:
        """Writes an answer."""
        text = json.dumps(dict(fields, state=state, number=self.number))
        for descriptor in (2, 1):  # the end of both streams
            os.write(descriptor, "{} {}\n".format(self.order["token"], text).encode())

    def execute(self) -> None:
        """Becomes this program anew, with nothing imported, and starts the program."""
        with open("/proc/self/cmdline", "rb") as stream:
            words = [word.decode(errors="surrogateescape") for word in stream.read().split(b"\0")[:-1]]
        words[len(words) - len(sys.argv) + 1] = json.dumps(dict(self.order, number=self.number, again=True))
        _set_environment(self.environ)
        os.execv(sys.executable, words)  # noqa: S606

    def import_recorded(self) -> None:
        """Imports what programs looked for since; raises Cold if none can be forked then."""
        lines = self._read_record()
        if not lines:
            return
        before, sys.path[:] = list(sys.path), self.shared
        with _silence():
            for name, env in lines:
                self.env = env or self.env
                if name not in sys.modules and self._is_of_wheel(name):
                    self._import(name)
        sys.path[:] = before
        _set_environment(self.environ)
        gc.collect()
        self._check()

    def _read_record(self) -> list[Any]:
        data = os.pread(self.record, os.fstat(self.record).st_size, self.read)
        end = data.rfind(b"\n") + 1
        self.read += end
        return [json.loads(line) for line in data[:end].splitlines()]

    def _is_of_wheel(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top not in self.wheels:
            spec = importlib.machinery.PathFinder.find_spec(top, self.shared)
            places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
            in_wheels = any(_is_wheels(os.path.dirname(str(place))) for place in places if place)
            self.wheels[top] = in_wheels and not _find_shadow(self.own, {top})
        return self.wheels[top]

    def _import(self, name: str) -> None:
        event, seen = Event(name, dict(self.env) if "." not in name else None), set(sys.modules)
        _set_environment(self.env)
        try:
            importlib.import_module(name)
        except ImportError:
            pass  # the program tried it, too
        except BaseException as error:
            raise Cold(f"the import of {name} fails: {type(error).__name__}") from error
        new = {one: module for one, module in sys.modules.items() if one not in seen}
        event.modules = {one: module for one, module in new.items() if self._is_of_wheel(one)}
        event.after = {one: value for one, value in os.environ.items() if self.env.get(one) != value}
        self.events.append(event)

    def _check(self) -> None:
        """Raises Cold if a fork would lose something: it takes one thread along, and no GPU.

        Libraries that know that end their threads before a fork, so a first one shows the others.
        """
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        if len(os.listdir("/proc/self/task")) > 1:
            raise Cold("its imports start threads that a fork would lose")
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink("/proc/self/fd/" + descriptor)
                if target.startswith(_GPUS):
                    raise Cold(f"its imports open {target}")

    def start(self) -> bool:
        """Starts the program; returns True in the child."""
        self.end()  # the last one, if an import kept this process from it
        for signum in signal.sigpending() & {END, signal.SIGTERM}:
            signal.sigwait({signum})  # for the last program; the kernel hands this order over first
        self._try_import()
        if self.order["cold"] and self.read:
            self.execute()
        self.tree = Tree(self.order["root"])
        self.tell("started", warm=bool(self.events))
        self.kills = _count_kills()
        self.child = os.fork()
        return self.child == 0

    def _try_import(self) -> None:
        if self.order["cold"]:
            return
        try:
            self.import_recorded()
        except Cold as cold:
            self.order["cold"] = str(cold)
        shadow = _find_shadow(self.own, {name.partition(".")[0] for name in sys.modules}) if self.events else ""
        if shadow:
            self.order["cold"] = f"{shadow} of yours stands before a module of that name"

    def end(self) -> None:
        """Ends the program and all that it started."""
        if self.child:
            _kill_all(self.child)
            self._report(os.waitpid(self.child, 0)[1])

    def reap(self) -> None:
        """Collects processes that have ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child:
                    self._report(status)

    def _report(self, status: int) -> None:
        _kill_all(self.child)
        with contextlib.suppress(ChildProcessError):
            while os.getpid() == 1:
                os.waitpid(-1, 0)
        self.child = 0
        oom = _count_kills() > self.kills
        left = self.tree.clean() if self.tree else []
        if self.order["root"] == "/":
            for name in os.listdir("/dev/shm"):
                _remove(os.path.join("/dev/shm", name))
        reason = self._read_reason()
        if reason:
            self.tell("cold", reason=reason)
            self.execute()
        while len(json.dumps(left)) > _MOST_SHOWN:
            left = left[: len(left) // 2]
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.tell("ended", code=code, oom=oom, time=time.time(), left=left)

    def _read_reason(self) -> str:
        """Reads why a program has given up; empty if it has not."""
        size = os.fstat(self.record).st_size
        last = os.pread(self.record, size, max(0, size - 4096)).splitlines()[-1:]
        for line in last:
            with contextlib.suppress(ValueError):
                name, what = json.loads(line)
                return "" if name else str(what)
        return ""

    def wait(self) -> None:
        """Carries out orders; returns in the child alone."""
        if self.order["cold"]:
            self.tell("cold", reason=self.order["cold"])
        if not self.order["again"]:
            self.tell("ready")
        is_child = self.order["again"] and self.start()
        while not is_child:
            found = signal.sigtimedwait(_WATCHED, _QUIET)
            if found is None:
                self._import_when_quiet()
            else:
                is_child = self._obey(found.si_signo)

    def _obey(self, signum: int) -> bool:
        """Carries out an order; returns True in the child."""
        if signum == START:
            self.number += 1
            return self.start()
        if signum == END:
            self.end()
        elif signum == signal.SIGCHLD:
            self.reap()
        elif self.child and _handles(self.child, signum):
            os.kill(self.child, signum)
        return False

    def _import_when_quiet(self) -> None:
        size = os.fstat(self.record).st_size
        if size == self.size and size > self.read:
            self._try_import()
        self.size = size

    def become_program(self) -> None:
        """Makes this child what Python makes of a new process."""
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        hidden = [name for event in self.events for name in event.modules]
        for name in hidden or [name for name in sys.modules if name not in _OF_PYTHON]:
            sys.modules.pop(name, None)
        if not self.order["cold"]:
            sys.meta_path.insert(0, Finder(self.events, self.record))
        random.seed()
        for event in self.events:
            if "numpy.random" in event.modules:
                event.modules["numpy.random"].seed()
        sys.path[:] = self.path
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = self.order["argv"]


def _is_wheels(folder: str) -> bool:
    return any(f"/{name}/" in folder + "/" for name in _WHEELS)


def _is_shared(folder: str) -> bool:
    """Tells whether an entry of sys.path has wheels, or the standard library."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    return _is_wheels(folder) or folder.endswith(".zip") or (os.path.realpath(folder) + "/").startswith(library + "/")


def _find_shadow(folders: list[str], names: set[str]) -> str:
    """Finds a module of the user's that has one of these names: Python finds it first."""
    names = names - set(sys.builtin_module_names) - {"__main__"}
    for folder in folders:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            name = entry.partition(".")[0]
            is_package = os.path.isfile(os.path.join(folder, name, "__init__.py"))
            if name in names and (is_package or entry.endswith((".py", ".so"))):
                return name
    return ""


def _open_record(root: str) -> int:
    path = "{}/.imgtool-record-{}".format("/tmp" if os.path.isdir("/tmp") else root, os.getpid())
    found = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.unlink(path)
    high = fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(found)
    return high


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drops what imports print: the first program has printed it."""
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


def _set_environment(wanted: dict[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    os.environ.update(wanted)


def _kill_all(child: int) -> None:
    """Kills all other processes of the container; elsewhere those of the child's group."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpid() == 1:
            os.kill(-1, signal.SIGKILL)
        else:
            os.kill(child, signal.SIGKILL)
            os.killpg(child, signal.SIGKILL)


def _handles(pid: int, signum: int) -> bool:
    """Tells whether a process handles a signal: the first process of a container gets no other one."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as stream:
        caught = [line.split()[1] for line in stream if line.startswith("SigCgt:")]
        return bool(int(caught[0], 16) >> (signum - 1) & 1)
    return False


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _count_kills() -> int:
    """Counts the processes that the kernel killed here for want of memory."""
    for path in _OOM:
        with contextlib.suppress(OSError, ValueError, IndexError), open(path) as stream:
            words = stream.read().split()
            return int(words[words.index("oom_kill") + 1])
    return 0


def run(order: dict[str, Any], arguments: list[str]) -> None:
    """Runs the program as `python` does; an exception ends this process as Python ends for it."""
    kind, name = order["kind"], order["name"]
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        folder = os.path.dirname(os.path.realpath(name)) if kind == "script" else os.getcwd()
        sys.path.insert(0, "" if kind == "code" else folder)
    sys.argv[:] = [{"module": "-m", "script": name, "code": "-c"}[kind], *arguments]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    main.__loader__ = importlib.machinery.BuiltinImporter
    sys.modules["__main__"] = main
    code = None
    try:
        if kind == "module":
            runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # noqa: SLF001
        elif kind == "script":
            _run_script(name, main)
        else:
            exec(compile(name, "<string>", "exec"), main.__dict__)  # noqa: S102
    except SystemExit:
        raise
    except BaseException as error:
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals is globals():
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    if code is not None:
        sys.exit(code)


def _run_script(path: str, main: types.ModuleType) -> None:
    shown = os.path.abspath(path) if sys.version_info >= (3, 9) else path
    main.__dict__.update(__file__=shown, __cached__=None)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", shown)
    with open(path, "rb") as stream:
        text = stream.read()
    exec(compile(text, shown, "exec"), main.__dict__)  # noqa: S102


def wait_for_orders() -> None:
    """Waits for orders; in the child that is to be the program, runs that."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    zygote = Zygote(json.loads(sys.argv[1]))
    zygote.wait()
    zygote.become_program()
    run(zygote.order, sys.argv[2:])


if __name__ == "__main__":
    wait_for_orders()
