"""Containers that stay while their programs come and go: for a supervisor, each program is a container of its own.

A warm container's first process has imported what the program imports of wheels, and forks it (`inside/`). Where that
cannot be as in a new container, a container that starts cold takes its place, with the same files.
"""

from __future__ import annotations

import itertools
import json
import secrets
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from training_imgtool.cluster.answers import MARK, Answer, AnswerReader, Process, cut_last
from training_imgtool.cluster.owner import REPLICA
from training_imgtool.cluster.warm_source import Program, read_command
from training_imgtool.core.errors import ImgtoolError
from training_imgtool.core.progress import Note, Progress, silent
from training_imgtool.core.threads import run_all, start_thread
from training_imgtool.engines.docker.client import DockerApi
from training_imgtool.engines.docker.containers import (
    Change,
    Container,
    Containers,
    Ended,
    Found,
    Network,
    RefusedError,
)
from training_imgtool.pipeline.role_files import Files, choose_files, write_tar

_START, _END = "SIGUSR1", "SIGUSR2"
_MOST_REFUSALS = 2  # of one replica, after which it starts cold for good
_END_SECONDS = 2.0
_START_SECONDS, _IMPORT_SECONDS = 60.0, 600.0
_KILLED = 137


class ImagesNeededError(ImgtoolError):
    """A program can only start from an image of its own; `Watch` then makes it."""


class _ReplaceError(Exception):
    """A warm container does not start the program; whether a new one may."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.again = again


@dataclass(slots=True)
class _Warm:
    """A warm container: its process that waits, the program that runs, and the paths that imgtool put into it."""

    container: Container
    container_id: str
    order: str  # the path of the file with what an order needs
    token: str
    answers: threading.Condition = field(default_factory=threading.Condition)
    last: Answer | None = None
    ready: Answer | None = None
    process: Process | None = None
    programs: dict[int, Process] = field(default_factory=dict)  # by the numbers that answers name
    put: set[str] = field(default_factory=set)
    dead: Ended | ImgtoolError | None = None
    is_started: bool = False

    def take(self, answer: Answer) -> None:
        with self.answers:
            self.last = answer
            if answer["state"] == "ready":
                self.ready = answer
            self.answers.notify_all()

    def die(self, how: Ended | ImgtoolError) -> None:
        with self.answers:
            self.dead = how
            self.answers.notify_all()
        if self.process:
            self.process.end(how)

    def wait_for(self, found: Callable[[], bool], seconds: float) -> None:
        """Waits for an answer; raises _ReplaceError when the container has ended instead, or nothing comes in time."""
        with self.answers:
            if not self.answers.wait_for(lambda: found() or self.dead is not None, seconds):
                raise _ReplaceError(f"it has not answered for {seconds:.0f} s", again=True)
        if self.dead is not None:
            raise _ReplaceError("its interpreter ends before the program starts", again=False)


class WarmContainers(Containers):
    """The containers of a run that watches. Thread-safe, as `Containers`.

    Attributes:
        built: the files that each image has from its role's own stage, by the image's name; none where that is unknown.
        wanted: those that it would have now.
        servers: the replicas whose programs start before the others', which connect to them: gRPC tries again only a
            second after it was refused.
        progress: takes notes.
    """

    def __init__(self, api: DockerApi, mtime: int | None) -> None:
        super().__init__(api)
        self.progress: Progress = silent
        self.built: dict[str, Files] = {}
        self.wanted: dict[str, Files] = {}
        self.servers: frozenset[str] = frozenset()
        self.closed = False
        self._mtime = mtime
        self._network: Network | None = None
        self._warm: dict[str, _Warm] = {}
        self._containers: dict[str, Container] = {}
        self._processes: dict[str, Process] = {}
        self._refusals: dict[str, int] = {}
        self._learned: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._making, self._under_way = threading.Condition(), 0
        self._turn, self._awaited = threading.Condition(), set[str]()

    def create_network(self, name: str, labels: Mapping[str, str]) -> Network:
        """Creates the network; a later round gets the same."""
        self._network = self._network or super().create_network(name, labels)
        return self._network

    def containers_with(self, label: str) -> tuple[Found, ...]:
        """Finds none that a round has to remove."""
        del label
        return ()

    def networks_with(self, label: str) -> tuple[Found, ...]:
        """Finds none that a round has to remove."""
        del label
        return ()

    def create(self, container: Container) -> str:
        """Returns the name of the next program in the container of that name; `start` makes that one where needed."""
        with self._lock:
            process = Process(len(self._processes) + 1)
            name = f"{container.name}#{process.number}"
            self._processes[name], self._containers[name] = process, container
        with self._turn:
            self._awaited |= self.servers & {container.labels.get(REPLICA, "")}
        if container.name not in self._warm and self._refusals.get(container.name, 0) < _MOST_REFUSALS:
            self._make_warm(container)
        return name

    def _make_warm(self, container: Container) -> None:
        program = self._program(container)
        if program is None:
            self._refusals[container.name] = _MOST_REFUSALS
            return
        ident = secrets.token_hex(8)
        token, order = f"{MARK.decode()}imgtool {ident}", f"/tmp/.imgtool-{ident}"  # noqa: S108
        learned = self._learned.get(container.name, [])
        words = program.command({"token": token, "file": order, "set": learned})
        made = self._make(replace(container, entrypoint=words, command=()))
        if super().volumes(made, container.name):  # what a program writes there stays with the container
            super().remove(made)
            self._refusals[container.name] = _MOST_REFUSALS
            return
        self._warm[container.name] = _Warm(container, made, order, token)

    def _make(self, container: Container) -> str:
        """Makes a container, unless the run is over; `close` waits for it."""
        with self._making:
            self._check_open()
            self._under_way += 1
        try:
            return super().create(container)
        finally:
            with self._making:
                self._under_way -= 1
                self._making.notify_all()

    def _program(self, container: Container) -> Program | None:
        entry, arguments = super().words(container.image)
        if container.entrypoint is not None:
            entry, arguments = container.entrypoint, ()
        words = (*entry, *(arguments if container.command is None else container.command))
        return read_command(words) if container.image in self.built else None

    def start(self, container_id: str, name: str) -> None:
        """Starts the program; in a container that starts cold where a warm one cannot."""
        process, container = self._processes[container_id], self._containers[container_id]
        try:
            self._start_somehow(process, container, name)
        finally:
            self._let_follow(frozenset({name}))

    def _let_follow(self, servers: frozenset[str]) -> None:
        """Lets the other replicas start once the servers have."""
        with self._turn:
            self._awaited -= servers
            self._turn.notify_all()

    def _start_somehow(self, process: Process, container: Container, name: str) -> None:
        try:
            self._start_warm(process, container, name)
        except _ReplaceError as error:
            self._check_open()
            self._drop(container.name)
            if error.again:
                self._make_warm(container)
                with suppress(_ReplaceError):
                    self._start_warm(process, container, name)
                    return
                self._drop(container.name)
            self._refusals[container.name] = self._refusals.get(container.name, 0) + 1
            self.progress(Note(f"{name} starts cold: {error}"))
            self._start_cold(process, container, name)

    def _check_open(self) -> None:
        if self.closed:
            raise RefusedError("the run is over", status=None)

    def _start_warm(self, process: Process, container: Container, name: str) -> None:
        warm = self._warm.get(container.name)
        if warm is None:
            self._start_cold(process, container, name)
            return
        if warm.dead is not None:
            raise _ReplaceError("its container has ended", again=True)
        if not warm.is_started:
            self._wake(warm, name)
        ready = warm.ready or {}
        if ready.get("reason"):
            raise _ReplaceError(str(ready["reason"]), again=False)
        self._await_last(warm)
        self._send_order(warm, container, name)
        if name not in self.servers:
            with self._turn:
                self._turn.wait_for(lambda: not self._awaited)
        number = len(warm.programs) + 1
        warm.process = warm.programs[number] = process
        process.container_id, process.is_warm = warm.container_id, True
        self.signal_container(warm.container_id, _START)
        warm.wait_for(lambda: warm.last is not None and warm.last["number"] == number, _START_SECONDS)
        if warm.last and warm.last["state"] == "refused":
            raise _ReplaceError(str(warm.last["reason"]), again=number > 1)

    def _wake(self, warm: _Warm, name: str) -> None:
        """Starts a warm container and waits for its imports."""
        warm.is_started = True
        super().start(warm.container_id, name)
        reader = AnswerReader(warm.token, partial(_print, warm), partial(self._take, warm, name))
        start_thread(f"imgtool-warm-{name}", partial(self._read, warm.container_id, name, reader.feed))
        start_thread(f"imgtool-end-{name}", partial(self._await_end, warm.container_id, name, warm.die))
        warm.wait_for(lambda: warm.ready is not None, _IMPORT_SECONDS)

    @staticmethod
    def _await_last(warm: _Warm) -> None:
        """Waits until the last program, which `end_round` ends, no longer runs: it may write over its files."""
        with suppress(ImgtoolError):
            if warm.process is not None and warm.process.wait(_END_SECONDS) is None:
                raise _ReplaceError("its last program does not end", again=True)

    def _send_order(self, warm: _Warm, container: Container, name: str) -> None:
        """Puts the files of the new image into the container, and says what else the next program needs undone."""
        built, wanted = self.built[container.image], self.wanted[container.image]
        put = choose_files(built, wanted)
        remove = sorted({*built, *warm.put} - wanted.keys())
        warm.put |= put.keys()
        text = json.dumps({"put": sorted(put), "remove": remove}).encode()
        owner = warm.ready or {}
        order = _make_member(warm.order, text, int(owner["uid"]), int(owner["gid"]))
        super().put(warm.container_id, name, itertools.chain((order,), write_tar(put.values(), self._mtime)))

    def _start_cold(self, process: Process, container: Container, name: str) -> None:
        """Starts the program as the only process of a new container, with the files of the new image."""
        built, wanted = self.built.get(container.image, {}), self.wanted.get(container.image, {})
        if built.keys() - wanted.keys():
            raise ImagesNeededError(f"{name} starts cold, from an image with files that are no longer there")
        made = self._make(container)
        process.container_id, process.is_warm = made, False
        if put := choose_files(built, wanted) if built is not wanted else {}:
            super().put(made, name, write_tar(put.values(), self._mtime))
        super().start(made, name)
        start_thread(f"imgtool-cold-{name}", partial(self._follow_cold, process, made, name))

    def _follow_cold(self, process: Process, container_id: str, name: str) -> None:
        end: list[Ended | ImgtoolError] = []
        waiter = start_thread(f"imgtool-end-{name}", partial(self._await_end, container_id, name, end.append))
        self._read(container_id, name, process.print)
        waiter.join()
        process.end(end[0])

    def _read(self, container_id: str, name: str, take: Callable[[bytes], None]) -> None:
        with suppress(ImgtoolError):  # if the engine broke, the thread that waits reports it
            for block in super().output(container_id, name):
                take(block)

    def _await_end(self, container_id: str, name: str, take: Callable[[Ended | ImgtoolError], None]) -> None:
        try:
            take(super().wait(container_id, name))
        except ImgtoolError as error:
            take(error)

    def _take(self, warm: _Warm, name: str, answer: Answer) -> None:
        process = warm.programs.get(int(answer["number"]))
        if answer["state"] == "ended" and process:
            process.end(
                Ended(
                    exit_code=int(answer["code"]),
                    out_of_memory=bool(answer["oom"]),
                    fault="",
                    finished=float(answer["time"]),
                )
            )
        if answer["state"] == "left" and process:
            process.leave(tuple(map(str, answer["paths"])))
        if answer["state"] == "differs" and process and process is warm.process:
            start_thread(f"imgtool-again-{name}", partial(self._start_again, warm, process, name, answer))
        warm.take(answer)

    def _start_again(self, warm: _Warm, process: Process, name: str, answer: Answer) -> None:
        """Starts a program cold that sets variables before it imports; the next warm container sets them, too."""
        warm.process = None
        self._learned[warm.container.name] = answer["set"]
        self._refusals[warm.container.name] = self._refusals.get(warm.container.name, 0) + 1
        names = ", ".join(sorted(one[1] for one in answer["set"])) or "its variables"
        self.progress(Note(f"{name} starts again, cold: it sets {names} before it imports {answer['name']}"))
        try:
            self._drop(warm.container.name)
            self._start_cold(process, warm.container, name)
        except ImgtoolError as error:
            process.end(error)

    def _drop(self, name: str) -> None:
        warm = self._warm.pop(name, None)
        if warm is not None:
            warm.process = None
            super().remove(warm.container_id)

    def output(self, container_id: str, name: str) -> Iterator[bytes]:
        """Yields what the program prints, as it comes, until it ends."""
        del name
        return self._processes[container_id].output()

    def wait(self, container_id: str, name: str) -> Ended:
        """Returns when the program has ended; raises what kept imgtool from knowing it."""
        del name
        ended = self._processes[container_id].wait()
        assert ended is not None  # noqa: S101 - without a time it waits for the end
        return ended

    def ended(self, container_id: str, name: str) -> Ended | None:
        """Returns how a program ended, or None while it runs."""
        del name
        return self._processes[container_id].wait(0)

    def last_output(self, container_id: str, name: str, lines: int, *, only_errors: bool = False) -> bytes:
        """Returns the last lines that a program has printed, or their part on stderr."""
        process = self._processes[container_id]
        more = lines + 4 if process.is_warm else lines  # the answers
        output = super().last_output(process.container_id, name, more, only_errors=only_errors)
        return cut_last(output, f"{MARK.decode()}imgtool ") if process.is_warm else output

    def changes(self, container_id: str, name: str) -> dict[str, Change]:
        """Maps the paths that a program changed to how, as far as they are known; what imgtool put is none of them."""
        process = self._processes[container_id]
        if process.is_warm:
            return dict.fromkeys(process.wait_for_left(_END_SECONDS), Change.MODIFIED)
        rows = super().changes(process.container_id, name)
        wanted = self.wanted.get(self._containers[container_id].image, {})
        return {path: kind for path, kind in rows.items() if path not in wanted}

    def volumes(self, container_id: str, name: str) -> tuple[str, ...]:
        """Lists where the image declares volumes."""
        return super().volumes(self._processes[container_id].container_id, name)

    def memory(self, container_id: str, name: str) -> Iterator[int]:
        """Yields the bytes that the program's container uses, with the process that waits in it."""
        process = self._processes[container_id]
        for now in super().memory(process.container_id, name):
            if process.is_over:
                return
            yield now

    def signal(self, container_id: str, name: str) -> None:
        """Sends a signal to the program; SIGKILL ends all that it started, too, as the end of a container does."""
        process = self._processes[container_id]
        if not process.is_over and process.container_id:
            self.signal_container(process.container_id, _END if process.is_warm and name == "SIGKILL" else name)

    def signal_container(self, container_id: str, name: str) -> None:
        """Sends a signal to a container's first process."""
        super().signal(container_id, name)

    def remove(self, container_id: str) -> None:
        """Ends a program for good, and removes its container unless that stays warm."""
        process = self._processes.get(container_id)
        if process is None or not process.container_id:
            return
        if not process.is_warm:
            super().remove(process.container_id)
            process.end(Ended(exit_code=_KILLED, out_of_memory=False, fault="", finished=time.time()))
            return
        if not process.is_over:
            self.signal(container_id, "SIGKILL")

    def end_round(self) -> None:
        """Ends every program that still runs, and forgets those of the round. The next ones wait until it has ended."""
        run_all({name: partial(self.remove, name) for name in self._processes})
        self._let_follow(self.servers)
        self._processes.clear()
        self._containers.clear()

    def forgive(self) -> None:
        """Lets replicas that start cold try again to be warm, as after a change they may."""
        self._refusals = {name: count for name, count in self._refusals.items() if count >= _MOST_REFUSALS}

    def list_cold(self) -> tuple[str, ...]:
        """Lists the containers whose programs started without a warm process."""
        return tuple(self._containers[one].name for one, process in self._processes.items() if not process.is_warm)

    def close(self) -> None:
        """Kills the warm containers, and lets nobody wait any more for them; they are left for `remove_run`."""
        with self._making:
            self.closed = True
            self._let_follow(self.servers)
            self._making.wait_for(lambda: not self._under_way, _END_SECONDS)
        warm = tuple(self._warm.values())
        for one in warm:
            one.die(RefusedError("the run is over", status=None))
        with suppress(ImgtoolError):  # Podman gives a container that it removes ten seconds to end
            run_all({one.container_id: partial(self.signal_container, one.container_id, "SIGKILL") for one in warm})


def _make_member(path: str, text: bytes, uid: int, gid: int) -> bytes:
    """Makes a member of an archive: a file of that user."""
    member = tarfile.TarInfo(path.lstrip("/"))
    member.size, member.mode, member.uid, member.gid = len(text), 0o600, uid, gid
    return member.tobuf() + text + bytes(-len(text) % tarfile.BLOCKSIZE)


def _print(warm: _Warm, block: bytes) -> None:
    if warm.process:
        warm.process.print(block)
