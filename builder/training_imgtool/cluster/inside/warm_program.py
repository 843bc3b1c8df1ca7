"""The first process of a warm container: imports what the program imports of wheels, then forks it, as often as asked.

It gets orders by signals, SIGUSR1 to start the program and SIGUSR2 to end it; what an order needs lies in a file that
it deletes. It answers in lines of stdout that begin with a token. So the child, which becomes the program, has what a
container's only process has: descriptors, environment, folder, arguments, signals, no module loaded but Python's own.
Modules of wheels are hidden until the program imports them; what their import printed appears then.

The standard library only; `make_source` keeps of the text what runs on Python 3.6.
"""
# A program may raise anything, and old Pythons lack what newer ones have:
# ruff: noqa: BLE001, PTH100, PTH109, PTH112, PTH114, PTH118, PTH120
# ruff: noqa: PTH108, PTH115, PTH123, PTH208, S108, UP032

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import shutil
import signal
import sys
import time
import warnings
from typing import TYPE_CHECKING

from training_imgtool.cluster.inside.imports import ProgramReader, is_pythons, is_wheels, list_shadows
from training_imgtool.cluster.inside.reveal import (
    Import,
    Reveal,
    captured,
    import_words,
    is_of_wheel,
    note_filters,
    set_environment,
)
from training_imgtool.cluster.inside.start import run
from training_imgtool.cluster.inside.trees import Tree, list_mounts

if TYPE_CHECKING:
    from typing import Any

    from training_imgtool.cluster.inside.imports import Event

START, END = signal.SIGUSR1, signal.SIGUSR2
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/vfio")
_OOM = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_SHARED = ("/dev/shm", "/dev/mqueue")
_MOST_SHOWN = 4000  # characters of paths in an answer, which has to come in one piece


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """The program cannot be forked from here; the reason."""


class Warm:
    """The process that waits."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.environ, self.filters = dict(os.environ), list(warnings.filters)
        self.path = sys.path if sys.flags.isolated or getattr(sys.flags, "safe_path", False) else sys.path[1:]
        self.path = list(self.path)
        self.own = [*self._first_folder(), *(os.path.abspath(one) for one in self.path if not _is_shared(one))]
        self.others = [one for one in self.path if _is_shared(one)]
        self.imports: list[Import] = []
        self.reason = ""
        self.child = self.number = 0
        self.kills = 0
        self.mounts = list_mounts()
        self.tree = Tree(os.path.join(self.order["root"], "nothing"), ())

    def _first_folder(self) -> list[str]:
        """Lists what Python puts before sys.path for the program."""
        if len(self.path) == len(sys.path):
            return []
        if self.order["kind"] == "script":
            return [os.path.dirname(os.path.realpath(self.order["name"]))]
        return [os.getcwd()]

    def tell(self, state: str, **fields: Any) -> None:
        """Writes an answer."""
        text = json.dumps(dict(fields, state=state, number=self.number))
        line = "{} {}\n".format(self.order["token"], text).encode()
        for descriptor in (2, 1):  # the end of both streams; whoever reads takes it from stdout
            os.write(descriptor, line)

    def read_events(self) -> list[Event]:
        """Reads what the program imports now."""
        reader = ProgramReader(self.own, self.others)
        kind, name = self.order["kind"], self.order["name"]
        try:
            return {"module": reader.read_module, "script": reader.read_script, "code": reader.read_code}[kind](name)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []

    def import_all(self) -> None:
        """Imports what the program imports and this process has not imported yet."""
        known = {one.event for one in self.imports}
        events = [(kind, name, tuple(words)) for kind, name, words in self.order["set"]]
        events += [event for event in self.read_events() if event[0] != "import" or event not in known]
        if not any(event[0] == "import" and event[1] not in self.order["without"] for event in events):
            return
        before, sys.path[:] = list(sys.path), self.others
        for one in self.imports:
            set_environment(dict(os.environ, **one.after))
        for kind, name, words in events:
            if kind == "set" or (kind == "default" and name not in os.environ):
                os.environ[name] = words[0]
            elif kind == "import" and name not in self.order["without"]:
                self._import((kind, name, words))  # type: ignore[arg-type]
        self.path += [one for one in sys.path if one not in self.others]
        sys.path[:] = before
        set_environment(self.environ)

    def _import(self, event: Event) -> None:
        done, seen, filters = Import(event), set(sys.modules), list(warnings.filters)
        state = random.getstate()
        try:
            with captured(done.printed):
                import_words(event[1], event[2])
        except BaseException:
            self._start_again(event[1])
        if random.getstate() != state:
            self.reason = self.reason or "the import of {} takes random numbers".format(event[1])
        new = {name: module for name, module in sys.modules.items() if name not in seen}
        tops = {name.partition(".")[0] for name in new}
        hidden = {top for top in tops if is_of_wheel(sys.modules.get(top))}
        done.modules = {name: module for name, module in new.items() if name.partition(".")[0] in hidden}
        done.after = {name: value for name, value in os.environ.items() if done.before.get(name) != value}
        done.filters = [one for one in warnings.filters if one not in filters]
        self.imports.append(done)

    def _start_again(self, name: str) -> None:
        """Becomes this program anew, which leaves that import to the program: half a module may be loaded."""
        with open("/proc/self/cmdline", "rb") as stream:
            words = [word.decode(errors="surrogateescape") for word in stream.read().split(b"\0")[:-1]]
        at = len(words) - len(sys.argv) + 1
        set_environment(self.environ)
        words[at] = json.dumps(dict(self.order, without=[*self.order["without"], name]))
        _unblock()
        os.execv(sys.executable, words)  # noqa: S606

    def find_obstacle(self) -> str:
        """Finds out why no program can be forked from this process; empty when nothing speaks against it.

        A fork takes one thread along. Libraries that know that end theirs before it, so a first fork shows the others.
        """
        if self.reason:
            return self.reason
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            return "its imports start {} that a fork would lose".format("a thread" if threads == 2 else "threads")
        if _has_children():
            return "its imports start a process"
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink("/proc/self/fd/" + descriptor)
                if target.startswith(_DEVICES):
                    return "its imports open {}".format(target)
        users = sorted(name for name, module in list(sys.modules.items()) if self._is_users(name, module))
        return "Python loads {}, a file of yours, as it starts".format(users[0]) if users else ""

    def _is_users(self, name: str, module: Any) -> bool:
        place = getattr(module, "__dict__", {}).get("__file__")
        if name == "__main__" or not isinstance(place, str):
            return False
        folder = os.path.dirname(os.path.abspath(place))
        return any((folder + "/").startswith(own.rstrip("/") + "/") for own in self.own) and not _is_shared(folder)

    def start(self) -> bool:
        """Carries out an order to start; returns True in the child."""
        for signum in signal.sigpending() & {END, *_PASSED_ON}:
            signal.sigwait(
                {signum}
            )  # for the last program, which ended meanwhile; the kernel hands this order over first
        self.number += 1
        try:
            self._prepare()
        except Refused as refused:
            self.tell("refused", reason=str(refused))
            return False
        kills = _count_kills()
        self.child = os.fork()
        if self.child == 0:
            return True
        self.kills = kills
        return False

    def _prepare(self) -> None:
        try:
            with open(self.order["file"]) as stream:
                order = json.load(stream)
            os.unlink(self.order["file"])
        except OSError as error:
            raise Refused("what the engine puts into it does not arrive: {}".format(error.strerror)) from error
        self._undo(order["put"], order["remove"])
        known = len(self.imports)
        self.import_all()
        loaded = {name for one in self.imports for name in one.modules} | set(sys.modules)
        shadows = list_shadows(self.own, loaded)
        if shadows:
            raise Refused("{} of yours stands before a module of that name".format(shadows[0]))
        obstacle = self.find_obstacle() if len(self.imports) > known else ""
        if obstacle:
            raise Refused(obstacle)
        self.tell("started")

    def _undo(self, put: list[str], remove: list[str]) -> None:
        """Makes the files those of a new container: `put` are as they should be, and `remove` should not be there."""
        tree = self.tree
        changed = sorted({*tree.changed, *tree.removed} - {*put, *remove, self.order["file"]})
        if changed:
            raise Refused("the program changed {}, a file of the image".format(changed[0]))
        left = [path for path in tree.added if path not in put or os.path.isdir(path)]
        if not set(put).isdisjoint(left):
            raise Refused("the program made a folder that the image has now, too")
        for path in left + remove:
            _remove(path)
        tree.renew([*put, *remove, *left, self.order["file"]])
        for folder in _SHARED:
            for name in os.listdir(folder) if folder in self.mounts else ():
                _remove(os.path.join(folder, name))

    def end(self) -> None:
        """Ends the program and all that it started."""
        if self.child:
            _kill_all(self.child)
            _, status = os.waitpid(self.child, 0)
            self._end_others(self.child)
            self._report(status)

    @staticmethod
    def _end_others(child: int) -> None:
        _kill_all(child)
        with contextlib.suppress(ChildProcessError):
            while os.getpid() == 1:
                os.waitpid(-1, 0)

    def reap(self) -> None:
        """Collects processes that have ended; when the program has, ends what it left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child:
                    self._end_others(pid)
                    self._report(status)

    def _report(self, status: int) -> None:
        self.child = 0
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.tell("ended", code=code, oom=_count_kills() > self.kills, time=time.time())
        self.tree.look()  # whoever gives the next order needs some time, too
        paths, shown = [*self.tree.added, *self.tree.changed], 0
        while shown < len(paths) and len(json.dumps(paths[: shown + 1])) < _MOST_SHOWN:
            shown += 1
        self.tell("left", paths=paths[:shown])

    def wait(self) -> None:
        """Carries out orders; returns in the child alone."""
        blocked = {signal.SIGCHLD, START, END, *_PASSED_ON}
        while True:
            signum = signal.sigwait(blocked)
            if signum == START and not self.child:
                if self.start():
                    return
            elif signum == END:
                self.end()
            elif signum == signal.SIGCHLD:
                self.reap()
            elif self.child and _catches(self.child, signum):
                os.kill(self.child, signum)

    def become_program(self) -> None:
        """Makes this child what Python makes of a new process."""
        os.setsid()
        _unblock()
        for one in self.imports:
            for name in one.modules:
                sys.modules.pop(name, None)
        if self.imports:
            sys.meta_path.insert(0, Reveal(self.imports, self.differs))
        warnings.filters[:] = self.filters  # type: ignore[index]
        note_filters()
        _seed(self.imports)
        sys.path[:] = self.path
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = self.order["argv"]

    def differs(self, one: Import) -> None:
        """Gives up in the child: it imports under other variables than this process did."""
        now, then = dict(os.environ), one.before
        names = sorted(name for name in {*now, *then} if now.get(name) != then.get(name))
        sys.stdout.flush()
        self.tell("differs", name=one.event[1], set=[["set", name, [now[name]]] for name in names if name in now])
        time.sleep(3600)


def _is_shared(folder: str) -> bool:
    return is_wheels(folder) or is_pythons(folder)


def _seed(imports: list[Import]) -> None:
    """Gives the generators of random numbers a new start, as each process has one."""
    random.seed()
    for one in imports:
        numpy = one.modules.get("numpy.random")
        if numpy is not None:
            numpy.seed()


def _kill_all(child: int) -> None:
    """Kills all other processes of the container; elsewhere those of the child's group."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpid() == 1:
            os.kill(-1, signal.SIGKILL)
        else:
            os.killpg(child, signal.SIGKILL)


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
    except OSError as error:
        raise Refused("what the program left at {} cannot be removed: {}".format(path, error.strerror)) from error


def _count_kills() -> int:
    """Counts the processes that the kernel killed here for want of memory."""
    for path in _OOM:
        with contextlib.suppress(OSError, ValueError, IndexError), open(path) as stream:
            words = stream.read().split()
            return int(words[words.index("oom_kill") + 1])
    return 0


def _catches(pid: int, signum: int) -> bool:
    """Tells whether a process handles a signal: the first process of a container gets no other one."""
    with contextlib.suppress(OSError, ValueError), open("/proc/{}/status".format(pid)) as stream:
        caught = [line.split()[1] for line in stream if line.startswith("SigCgt:")]
        return bool(int(caught[0], 16) >> (signum - 1) & 1)
    return False


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, START, END, *_PASSED_ON})


def wait_for_orders() -> None:
    """Imports, says so, and waits; returns in the child that is to be the program."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, START, END, *_PASSED_ON})
    began = time.time()
    warm = Warm(json.loads(sys.argv[1]))
    warm.import_all()
    gc.collect()
    reason = warm.find_obstacle()
    warm.tree = Tree(warm.order["root"], warm.mounts)
    warm.tell("ready", reason=reason, seconds=time.time() - began, uid=os.geteuid(), gid=os.getegid())
    warm.wait()
    warm.become_program()
    run(warm.order, sys.argv[2:])
