"""The first process of a container of `run --watch`: imports modules once, and forks for each start of the program.

imgtool sends signals as orders: SIGUSR1 starts the program, SIGUSR2 ends it. Answers are lines that start with a token.

The first program imports everything by itself, and records each search for a module and the environment at that time.
This process then imports the modules of wheels in the same order, and hides each from the next program until that
program imports it. If this could change the program's result, this process executes itself again and imports nothing
(a cold start).

This file imports only the standard library, and runs on Python 3.7.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import importlib.machinery
import json
import os
import random
import shutil
import signal
import socket
import sys
import time

from training_imgtool.local.inside.learn import (
    OF_PYTHON,
    WHEELS,
    Event,
    Finder,
    find_shadow,
    is_shared,
    is_wheels,
    open_record,
    set_environment,
    silence,
)
from training_imgtool.local.inside.start import run
from training_imgtool.local.inside.workers import COLD, read_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

START, END = signal.SIGUSR1, signal.SIGUSR2
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, START, END}
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/vfio")
_OOM = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_QUIET = 1.0  # seconds without a new import, after which this process imports
_KEEPER = "imgtool-keeper"  # the name of a process that forks the program for a launcher; see workers.py
_TRIES, _PAUSE = 1000, 0.005  # how often to kill, and the seconds between
_MOST_SHOWN = 4000  # characters of paths in an answer, which must be written in one piece


class Cold(Exception):  # noqa: N818 - an answer, not an error
    """The reason why this process cannot fork a program."""


class Tree:
    """The names in the folders to which a program may write: all folders except mounts, wheels and /usr."""

    def __init__(self, root: str) -> None:
        with open("/proc/self/mountinfo") as stream:
            left_out = {line.split()[4] for line in stream} | {"/usr"}
        self._names: dict[str, set[str]] = {}
        for folder, folders, files in os.walk(root):
            self._names[folder] = {*folders, *files}
            folders[:] = [one for one in folders if one not in WHEELS and os.path.join(folder, one) not in left_out]

    def clean(self) -> list[str]:
        """Removes new files and folders, and lists their paths."""
        found = []
        for folder, names in self._names.items():
            with contextlib.suppress(OSError):
                found += [os.path.join(folder, name) for name in sorted(set(os.listdir(folder)) - names)]
        for path in found:
            _remove(path)
        return found


class Zygote:
    """The process that waits for orders and forks programs.

    Args:
        order: the program's `kind`, `name` and `argv`; the `token`; the `root` of the files that the program may
            change; the `number` of the last program; `again`, to start that program now; and `cold`, the reason to
            import nothing.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.environ = dict(os.environ)
        bare = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
        self.path = list(sys.path if bare else sys.path[1:])
        first = os.path.dirname(os.path.realpath(order["name"])) if order["kind"] == "script" else os.getcwd()
        own = [os.path.abspath(one) for one in self.path if not is_shared(one)]
        self.own = own if bare else [first, *own]
        self.shared = [one for one in self.path if is_shared(one)]
        self.wheels: dict[str, bool] = {}
        self.events: list[Event] = []
        self.child, self.number, self.kills = 0, order["number"], 0
        self.record, self.size, self.read = open_record(order["root"]), 0, 0
        self.env: dict[str, str] = {}
        self.tree: Tree | None = None

    def tell(self, state: str, **fields: Any) -> None:
        """Writes an answer."""
        text = json.dumps(dict(fields, state=state, number=self.number))
        for descriptor in (2, 1):  # the end of both streams
            os.write(descriptor, "{} {}\n".format(self.order["token"], text).encode())

    def execute(self) -> None:
        """Executes this file again, with nothing imported, and then starts the program."""
        words = read_words()
        words[len(words) - len(sys.argv) + 1] = json.dumps(dict(self.order, number=self.number, again=True))
        set_environment(self.environ)
        os.execv(sys.executable, words)  # noqa: S606

    def import_recorded(self) -> None:
        """Imports the modules that programs searched for since the last call; raises Cold if this prevents forks."""
        lines = self._read_record()
        if not lines:
            return
        before, sys.path[:] = list(sys.path), self.shared
        with silence():
            for name, env in lines:
                self.env = env or self.env
                if name not in sys.modules and self._is_of_wheel(name):
                    self._import(name)
        sys.path[:] = before
        set_environment(self.environ)
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
            in_wheels = any(is_wheels(os.path.dirname(str(place))) for place in places if place)
            self.wheels[top] = in_wheels and not find_shadow(self.own, {top})
        return self.wheels[top]

    def _import(self, name: str) -> None:
        event, seen = Event(name, dict(self.env) if "." not in name else None), set(sys.modules)
        set_environment(self.env)
        try:
            importlib.import_module(name)
        except ImportError:
            pass  # the program tried this import, too
        except BaseException as error:
            raise Cold(f"the import of {name} fails: {type(error).__name__}") from error
        new = {one: module for one, module in sys.modules.items() if one not in seen}
        event.modules = {one: module for one, module in new.items() if self._is_of_wheel(one)}
        event.after = {one: value for one, value in os.environ.items() if self.env.get(one) != value}
        self.events.append(event)

    def _check(self) -> None:
        """Raises Cold if this process runs other threads or has opened a GPU, because a fork would lose both.

        Some libraries end their threads before a fork, so this function counts threads after a trial fork.
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
        """Starts the program in a child process; returns True in the child."""
        self.end()  # the last program, if an import delayed its end
        for signum in signal.sigpending() & {END, signal.SIGTERM}:
            signal.sigwait({signum})  # this order is for the last program, and the kernel delivers it first
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
        shadow = find_shadow(self.own, {name.partition(".")[0] for name in sys.modules}) if self.events else ""
        if shadow:
            self.order["cold"] = f"your module {shadow} hides another one of that name"

    def end(self) -> None:
        """Ends the program and all processes that it started."""
        if self.child:
            self._kill_all()
            self._report(os.waitpid(self.child, 0)[1])

    def _kill_all(self) -> None:
        """Kills all other processes of the container except keepers; outside one, the child's process group."""
        if self.order["root"] != "/":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
                os.killpg(self.child, signal.SIGKILL)
            return
        for _ in range(_TRIES):
            others = _list_processes() - {1, os.getpid()}
            if not others:
                return
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_PAUSE)

    def reap(self) -> None:
        """Collects the exit statuses of processes that have ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child:
                    self._report(status)

    def _report(self, status: int) -> None:
        self._kill_all()
        with contextlib.suppress(ChildProcessError):
            while os.getpid() == 1 and os.waitpid(-1, os.WNOHANG)[0]:
                pass
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
        """Reads the reason why a program cannot run warm; empty if there is none."""
        size = os.fstat(self.record).st_size
        last = os.pread(self.record, size, max(0, size - 4096)).splitlines()[-1:]
        for line in last:
            with contextlib.suppress(ValueError):
                name, what = json.loads(line)
                return "" if name else str(what)
        return ""

    def wait(self) -> None:
        """Carries out orders; returns only in a child process."""
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
        """Carries out an order; returns True if this process is now the forked child."""
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

    def keep(self) -> None:
        """Starts the program for each launcher that asks; returns only in a child process."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        _change_name(_KEEPER)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.order["place"])
            listener.listen(1)
            listener.settimeout(_QUIET)
            while os.path.exists("/proc/{}".format(self.order["zygote"])):
                with contextlib.suppress(socket.timeout), listener.accept()[0] as link:
                    if self._serve(link):
                        return
        os._exit(0)

    def _serve(self, link: socket.socket) -> bool:
        """Forks the program and waits for its end; returns True in the child."""
        data, found, _, _ = link.recvmsg(1 << 20, socket.CMSG_SPACE(8))
        request, streams = json.loads(data), array.array("i", found[0][2])
        self._try_import()
        if self.order["cold"]:
            self.tell("cold", reason=self.order["cold"])
            link.send(COLD)
            return False
        self.child = os.fork()
        if self.child == 0:
            for number, stream in enumerate(streams, 1):
                os.dup2(stream, number)
            set_environment(request["env"])
            os.chdir(request["cwd"])
            _change_name(os.path.basename(sys.executable))
            try:
                link.send(str(os.getpid()).encode())  # fails if the launcher has died, which nobody else would notice
            except OSError:
                os._exit(0)
        for stream in streams:
            os.close(stream)
        if self.child == 0:
            return True
        status = self._wait_for_child()
        reason = self._read_reason()
        if reason:
            self.order["cold"] = reason
            self.tell("cold", reason=reason)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        with contextlib.suppress(OSError):
            link.send(COLD if reason else str(code).encode())
        return False

    def _wait_for_child(self) -> int:
        while True:
            if signal.sigtimedwait({signal.SIGCHLD}, _QUIET) is None:
                self._import_when_quiet()
            pid, status = os.waitpid(self.child, os.WNOHANG)
            if pid:
                return status

    def become_program(self) -> None:
        """Gives this child process the state of a new Python process."""
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        hidden = [name for event in self.events for name in event.modules]
        for name in hidden or [name for name in sys.modules if name not in OF_PYTHON]:
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


def _list_processes() -> set[int]:
    """Lists the running processes of the container, except keepers, and programs that somebody executes in it."""
    parents, keepers = {}, set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as stream:
            called, _, rest = stream.read().rpartition(") ")
            state, parent = rest.split()[:2]
            if state not in "ZX":
                parents[int(name)] = int(parent)
            if called.endswith(_KEEPER):
                keepers.add(int(name))

    def find_first(pid: int) -> int:
        return find_first(parents[pid]) if parents.get(pid) else pid

    return {pid for pid in parents if find_first(pid) == 1} - keepers


def _change_name(name: str) -> None:
    with open("/proc/self/comm", "w") as stream:
        stream.write(name)


def _handles(pid: int, signum: int) -> bool:
    """Tells whether a process handles a signal. The first process of a container gets only signals that it handles."""
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
    """Counts the processes of this container that the kernel killed because memory ran out."""
    for path in _OOM:
        with contextlib.suppress(OSError, ValueError, IndexError), open(path) as stream:
            words = stream.read().split()
            return int(words[words.index("oom_kill") + 1])
    return 0


def wait_for_orders() -> None:
    """Waits for orders; runs the program in each child process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    zygote = Zygote(json.loads(sys.argv[1]))
    (zygote.keep if "place" in zygote.order else zygote.wait)()
    zygote.become_program()
    run(zygote.order, sys.argv[2:])


if __name__ == "__main__":
    wait_for_orders()
