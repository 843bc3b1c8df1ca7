"""Warm containers: they continue to run while programs in them start and end.

A supervisor sees each program as a separate container. A warm container's first process (`inside/`) imports the
modules that the first program imported, and forks for each later program.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.progress import Note, Progress, silent
from training_imgtool.base.threads import run_all, start_thread
from training_imgtool.local.answers import MARK, Answer, AnswerReader, Process, cut_last
from training_imgtool.local.owner import REPLICA
from training_imgtool.local.warm_source import Program, read_command
from training_imgtool.make.engines.docker.client import DockerApi
from training_imgtool.make.engines.docker.containers import Change, Container, Containers, Ended, Network, RefusedError
from training_imgtool.make.role_files import Files, choose_files, write_tar

_START, _END = "SIGUSR1", "SIGUSR2"
_SECONDS = 600.0  # to wait for an answer, which comes after the imports


@dataclass(slots=True)
class _Warm:
    """A warm container, and the last program that imgtool started in it."""

    container: Container
    container_id: str
    token: str
    process: Process | None = None
    answers: threading.Condition = field(default_factory=threading.Condition)
    number: int = -1  # of the last program that started; 0 if the container is ready for the first
    is_dead: bool = False

    def die(self, how: Ended | ImgtoolError) -> None:
        with self.answers:
            self.is_dead = True
            self.answers.notify_all()
        if self.process:
            self.process.end(how)

    def take_number(self, number: int) -> None:
        with self.answers:
            self.number = number
            self.answers.notify_all()

    def wait_for_number(self, number: int) -> None:
        """Waits for the start of program `number` or the container's end; raises RefusedError if neither happens."""
        with self.answers:
            if not self.answers.wait_for(lambda: self.number == number or self.is_dead, _SECONDS):
                name = self.container.name
                raise RefusedError(f"the container {name} has not answered for {_SECONDS:.0f} s", status=None)


class WarmContainers(Containers):
    """The containers of `run --watch`. Thread-safe, as `Containers`.

    Attributes:
        built: maps an image's name to the files that its last stage adds; no entry if imgtool does not know them.
        wanted: maps an image's name to the files that the image would contain now.
        servers: the replicas whose programs start first. Others connect to these, and gRPC waits a second after a
            refused connection.
        progress: receives notes.
        has_plain: whether a container is not warm, because its command is not Python or its image has a volume.
    """

    def __init__(self, api: DockerApi, mtime: int | None) -> None:
        super().__init__(api)
        self.progress: Progress = silent
        self.built: dict[str, Files] = {}
        self.wanted: dict[str, Files] = {}
        self.servers: frozenset[str] = frozenset()
        self.has_plain = False
        self._mtime = mtime
        self._network: Network | None = None
        self._warm: dict[str, _Warm] = {}  # by the container's name
        self._programs: dict[str, tuple[_Warm, Process]] = {}
        self._plain: list[str] = []
        self._numbers = itertools.count()
        self._turn, self._awaited = threading.Condition(), set[str]()
        self._is_first = True

    def create_network(self, name: str, labels: Mapping[str, str]) -> Network:
        """Creates the network at the first call; returns the same network at later calls."""
        self._network = self._network or super().create_network(name, labels)
        return self._network

    def create(self, container: Container) -> str:
        """Creates the container unless it exists; returns a name for its next program, in place of a container ID."""
        warm = self._warm.get(container.name)
        if warm is not None and warm.is_dead:
            super().remove(warm.container_id)
            warm = None
        if warm is None:
            warm = self._make(container)
        if warm is None:
            self.has_plain = True
            self._plain.append(super().create(container))
            return self._plain[-1]
        self._warm[container.name] = warm
        name = f"{container.name}#{next(self._numbers)}"
        self._programs[name] = (warm, Process())
        with self._turn:
            self._awaited |= self.servers & {container.labels[REPLICA]}
        return name

    def _make(self, container: Container) -> _Warm | None:
        program = self._program(container)
        if program is None:
            return None
        token = f"{MARK.decode()}imgtool {secrets.token_hex(8)}"
        made = super().create(replace(container, entrypoint=program.command(token), command=()))
        if super().volumes(made, container.name):  # files in a volume would stay for the next program
            super().remove(made)
            return None
        return _Warm(container, made, token)

    def _program(self, container: Container) -> Program | None:
        entry, arguments = super().words(container.image)
        if container.entrypoint is not None:
            entry, arguments = container.entrypoint, ()
        words = (*entry, *(arguments if container.command is None else container.command))
        return read_command(words) if container.image in self.built else None

    def start(self, container_id: str, name: str) -> None:
        """Starts the program after the previous one has ended, with the files that a new image would contain."""
        if container_id not in self._programs:
            super().start(container_id, name)
            return
        try:
            self._start(*self._programs[container_id], name)
        finally:
            with self._turn:
                self._awaited.discard(name)
                self._turn.notify_all()

    def _start(self, warm: _Warm, process: Process, name: str) -> None:
        if warm.process is None:
            super().start(warm.container_id, name)
            reader = AnswerReader(warm.token, partial(_print, warm), partial(self._take, warm, name))
            start_thread(f"imgtool-warm-{name}", partial(self._read, warm, name, reader.feed))
            start_thread(f"imgtool-end-{name}", partial(self._await_end, warm, name))
            warm.wait_for_number(0)
        else:
            warm.process.wait(_SECONDS)
            process.number = warm.process.number + 1
        warm.process = process
        built, wanted = self.built[warm.container.image], self.wanted[warm.container.image]
        if process.number > 1 or wanted is not built:
            super().put(warm.container_id, name, write_tar(choose_files(built, wanted).values(), self._mtime))
        with self._turn:
            self._turn.wait_for(lambda: name in self.servers or not self._awaited, _SECONDS)
        self._signal(warm, _START)
        warm.wait_for_number(process.number)

    def _read(self, warm: _Warm, name: str, take: Callable[[bytes], None]) -> None:
        with suppress(ImgtoolError):  # if the engine broke, the thread that waits reports it
            for block in super().output(warm.container_id, name):
                take(block)

    def _await_end(self, warm: _Warm, name: str) -> None:
        try:
            warm.die(super().wait(warm.container_id, name))
        except ImgtoolError as error:
            warm.die(error)

    def _take(self, warm: _Warm, name: str, answer: Answer) -> None:
        process = warm.process
        if answer["state"] == "cold":
            self.progress(Note(f"{name} starts cold: {answer['reason']}"))
        elif answer["state"] == "ready" or process is None:
            warm.take_number(0)
        elif answer["state"] == "started":
            process.is_warm = bool(answer["warm"])
            warm.take_number(process.number)
        elif answer["state"] == "ended" and answer["number"] == process.number:
            process.left = tuple(map(str, answer["left"]))
            code, oom, time = int(answer["code"]), bool(answer["oom"]), float(answer["time"])
            process.end(Ended(exit_code=code, out_of_memory=oom, fault="", finished=time))

    def output(self, container_id: str, name: str) -> Iterator[bytes]:
        """Yields the program's output as it arrives, until the program ends."""
        if container_id not in self._programs:
            return super().output(container_id, name)
        return self._programs[container_id][1].output()

    def wait(self, container_id: str, name: str) -> Ended:
        """Waits until the program ends, and returns how; raises the error that kept imgtool from finding out."""
        if container_id not in self._programs:
            return super().wait(container_id, name)
        ended = self._programs[container_id][1].wait()
        assert ended is not None  # noqa: S101 - without a time it waits for the end
        return ended

    def ended(self, container_id: str, name: str) -> Ended | None:
        """Returns how a program ended, or None while the program runs."""
        if container_id not in self._programs:
            return super().ended(container_id, name)
        return self._programs[container_id][1].wait(0)

    def last_output(self, container_id: str, name: str, lines: int, *, only_errors: bool = False) -> bytes:
        """Returns the last lines that a program printed; with `only_errors`, the last lines of its stderr."""
        if container_id not in self._programs:
            return super().last_output(container_id, name, lines, only_errors=only_errors)
        warm, _ = self._programs[container_id]
        output = super().last_output(warm.container_id, name, lines + 4, only_errors=only_errors)  # 4 for the answers
        return cut_last(output, warm.token)

    def changes(self, container_id: str, name: str) -> dict[str, Change]:
        """Maps each path that an ended program created to the kind of change; omits files that imgtool copied."""
        if container_id not in self._programs:
            return super().changes(container_id, name)
        return dict.fromkeys(self._programs[container_id][1].left, Change.ADDED)

    def volumes(self, container_id: str, name: str) -> tuple[str, ...]:
        """Lists the volumes of the container's image; empty for a warm container, which never has volumes."""
        return () if container_id in self._programs else super().volumes(container_id, name)

    def memory(self, container_id: str, name: str) -> Iterator[int]:
        """Yields the memory, in bytes, that the program's container uses, including the container's first process."""
        if container_id not in self._programs:
            yield from super().memory(container_id, name)
            return
        warm, process = self._programs[container_id]
        for now in super().memory(warm.container_id, name):
            if process.is_over:
                return
            yield now

    def signal(self, container_id: str, name: str) -> None:
        """Sends a signal to the program. SIGKILL also ends all processes that the program started."""
        if container_id not in self._programs:
            super().signal(container_id, name)
            return
        warm, process = self._programs[container_id]
        if process is warm.process and not process.is_over:
            self._signal(warm, _END if name == "SIGKILL" else name)

    def _signal(self, warm: _Warm, name: str) -> None:
        super().signal(warm.container_id, name)

    def remove(self, container_id: str) -> None:
        """Ends a program but not its warm container; removes a container that is not warm."""
        if container_id not in self._programs:
            super().remove(container_id)
        else:
            self.signal(container_id, "SIGKILL")

    def end_round(self) -> None:
        """Ends all programs of this start of the cluster; warm containers continue to run."""
        run_all({name: partial(self.remove, name) for name in (*self._programs, *self._plain)})
        self._programs.clear()
        self._plain.clear()
        self._is_first = False

    def list_cold(self) -> tuple[str, ...]:
        """Lists the replicas whose programs imported their modules again; empty at the first start of the cluster."""
        if self._is_first:
            return ()
        return tuple(warm.container.labels[REPLICA] for warm, process in self._programs.values() if not process.is_warm)

    def close(self) -> None:
        """Kills the warm containers, and ends every wait for them; `remove_all` removes the containers."""
        with suppress(ImgtoolError):  # otherwise Podman waits ten seconds before it removes a container
            run_all({name: partial(self._signal, warm, "SIGKILL") for name, warm in self._warm.items()})
        for warm in self._warm.values():
            warm.die(RefusedError("the run is over", status=None))


def _print(warm: _Warm, block: bytes) -> None:
    if warm.process:
        warm.process.print(block)
