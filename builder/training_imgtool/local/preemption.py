"""The result of a preemption: whether the program handled SIGTERM and saved in time, and how much it trained twice."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files

from training_imgtool.local.checkpoints import Checkpoint

_FIELD = re.compile(r"^(?P<name>Name|Pid|PPid|SigBlk|SigIgn|SigCgt):\s*(?P<value>\S*)$", re.MULTILINE)
_TERM = 1 << (signal.SIGTERM - 1)
STATUS_PROGRAM = ("-c", "import glob\nfor path in glob.glob('/proc/[0-9]*/status'): print(open(path).read())")


class Disposition(StrEnum):
    """How a process reacts to SIGTERM, as the kernel shows in /proc/PID/status; see proc_pid_status(5)."""

    CAUGHT = "caught"
    IGNORED = "ignored"
    DEFAULT = "default"


class Handling(StrEnum):
    """How a program handled its preemption."""

    SAVES = "saves"
    MAY_SAVE = "a replica saves"
    UNSAVED = "handles SIGTERM without a checkpoint"
    TOO_SLOW = "too slow"
    IGNORES = "ignores SIGTERM"
    NO_HANDLER = "no handler"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """The preemption of one replica: SIGTERM, and the events after it.

    Attributes:
        grace: seconds between SIGTERM and SIGKILL.
        disposition: what the program does with SIGTERM; None if no tool in the container could find out.
        ended_after: seconds from SIGTERM to the container's end.
        killed: whether the program was still running at the end of the grace period.
        saved: the checkpoint that is newer than SIGTERM.
        alone: whether no other replica ran at SIGTERM, which could have written `saved`.
        checkpoint_step: the step in the newest checkpoint at the container's end; None if it has none.
        unit: the unit of `last` and `next`, `step` or `epoch`; empty if the output has neither.
        signalled: the last number that was printed before SIGTERM.
        last: the last number that was printed before the new container started.
        next: the first number that was printed after `last`.
        every: the most steps or epochs from one printed number to the next.
        next_after: seconds from SIGTERM to the output of `next`.
    """

    grace: float
    disposition: Disposition | None
    ended_after: float
    killed: bool
    saved: Checkpoint | None
    alone: bool = True
    checkpoint_step: int | None = None
    unit: str = ""
    signalled: int | None = None
    last: int | None = None
    next: int | None = None
    every: int | None = None
    next_after: float | None = None

    @property
    def handling(self) -> Handling:
        """How the program handled the preemption, according to the events."""
        if self.disposition is Disposition.DEFAULT:
            return Handling.NO_HANDLER
        if self.disposition is Disposition.IGNORED:
            return Handling.IGNORES
        if self.killed:
            return Handling.TOO_SLOW
        if self.saved is not None:
            return Handling.SAVES if self.alone else Handling.MAY_SAVE
        return Handling.UNKNOWN if self.disposition is None else Handling.UNSAVED

    @property
    def lost(self) -> int | None:
        """How many steps or epochs (see `unit`) were trained twice; None if unknown."""
        if self.last is None:
            return None
        if self.continued and self.checkpoint_step is not None:
            return max(0, self.last - self.checkpoint_step)
        if self.next is None:
            return None
        every = self.every or 1
        further = self.unit == "step" and self.last <= (self.checkpoint_step or 0) < self.last + every
        last = self.checkpoint_step if further and self.checkpoint_step else self.last
        return max(0, last - max(self.next - every, min(self.next, 1) - 1))

    @property
    def continued(self) -> bool:
        """Whether the steps after the restart, as far as they are known, follow the step in the checkpoint."""
        if self.unit != "step" or self.checkpoint_step is None:
            return False
        first = self.checkpoint_step if self.next is None else self.next
        return first - (self.every or first) <= self.checkpoint_step <= first


def read_disposition(statuses: str, *, below: bool = False) -> Disposition | None:
    """Finds out how a container's program reacts to SIGTERM, from the contents of all its /proc/PID/status files.

    With `below`, the command of the container is not the program, but starts the program's processes, of which the one
    that handles SIGTERM counts.
    """
    processes = [dict[str, str](_FIELD.findall(status)) for status in re.split(r"(?m)^(?=Name:)", statuses)]
    found = {process["Pid"]: process for process in processes if len(process) == 6}
    first = found.get("1")
    if first is not None and first["Name"] == "dumb-init":  # the init forwards signals only to its child
        first = next((process for process in found.values() if process["PPid"] == "1"), None)
    if first is not None and below and not int(first["SigBlk"], 16) & _TERM:  # not that of a warm container
        started = [process for process in found.values() if process["PPid"] == first["Pid"]]
        first = max(started, key=lambda process: int(process["SigCgt"], 16) & _TERM, default=None)
    if first is None:
        return None
    if int(first["SigCgt"], 16) & _TERM:
        return Disposition.CAUGHT
    if int(first["SigBlk"], 16) & _TERM:  # only the first thread: another one may handle it
        return None
    return Disposition.IGNORED if int(first["SigIgn"], 16) & _TERM else Disposition.DEFAULT


def make_step_program(path: str) -> tuple[str, ...]:
    """Returns arguments with which Python prints the step of the checkpoint at `path`; `read_step` reads the output."""
    return ("-c", (files("training_imgtool.local.inside") / "checkpoint_step.py").read_text(), path)


def read_step(output: bytes) -> int | None:
    """Reads the step that the program of `make_step_program` printed."""
    lines = output.decode(errors="replace").splitlines()
    for line in reversed(lines):
        if line.startswith("{"):
            step = json.loads(line).get("step")
            return step if isinstance(step, int) else None
    return None


def describe(preemption: Preemption, exit_code: int) -> str:
    """Describes how the program handled the preemption; the text continues a sentence of the summary."""
    new = f"{preemption.saved.path if preemption.saved else 'no checkpoint'} is newer than SIGTERM"
    if preemption.saved and not preemption.alone:
        new += " (which replica wrote it, imgtool cannot tell)"
    ended = f"it ended {preemption.ended_after:.1f} s after SIGTERM with exit code {exit_code}"
    if preemption.killed:
        ended = f"SIGKILL ended it after the {preemption.grace:g} s of grace"
    texts = {
        Handling.SAVES: f"saves: {new}, and {ended}",
        Handling.MAY_SAVE: f"handles SIGTERM: {new}, and {ended}",
        Handling.UNSAVED: f"handles SIGTERM, but {new}: {ended}",
        Handling.TOO_SLOW: f"too slow: {new}, {'but' if preemption.saved else 'and'} {ended}",
        Handling.IGNORES: f"ignores SIGTERM: {ended}",
        Handling.NO_HANDLER: f"no handler: {ended}, and it saved nothing",
        Handling.UNKNOWN: f"{ended}; imgtool does not know whether it has a handler",
    }
    return texts[preemption.handling]


def describe_loss(preemption: Preemption) -> str:
    """Describes how much the program trained twice, and when it continued to train."""
    if preemption.lost is None:
        why = "the output and the checkpoint have no steps or epochs to compare"
        if preemption.last is None and preemption.next is not None:
            why = f"the program printed no {preemption.unit} before SIGTERM: give --preempt a later time"
        lost = f"steps lost: unknown, because {why}"
    else:
        step = preemption.checkpoint_step if preemption.unit == "step" else None
        then = None if preemption.signalled == preemption.last else preemption.signalled
        numbers = {"at SIGTERM": then, "last printed": preemption.last, "checkpoint": step}
        numbers["first after the restart"] = preemption.next
        known = ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
        lost = f"{preemption.unit}s lost: {preemption.lost} ({known})"
    if preemption.next_after is None:
        return f"{lost}; no step was printed after the restart"
    return f"{lost}; the next {preemption.unit} came {preemption.next_after:.1f} s after SIGTERM"
