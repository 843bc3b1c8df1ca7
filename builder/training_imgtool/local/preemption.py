"""The result of a preemption: whether the program handled SIGTERM and saved in time, and how much it repeated."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files

from training_imgtool.local.checkpoints import Checkpoint

_LAG = 0.05  # seconds by which a file's time may be earlier than the clock
_FIELD = re.compile(r"^(?P<name>Name|Pid|PPid|SigBlk|SigIgn|SigCgt):\s*(?P<value>\S*)$", re.MULTILINE)
_TERM = 1 << (signal.SIGTERM - 1)
STATUS_PROGRAM = ("-c", "import glob\nfor path in glob.glob('/proc/[0-9]*/status'): print(open(path).read())")


class Disposition(StrEnum):
    """What a process does with SIGTERM, according to the kernel: proc_pid_status(5)."""

    CAUGHT = "caught"
    IGNORED = "ignored"
    DEFAULT = "default"


class Handling(StrEnum):
    """How a program handled its preemption."""

    SAVES = "saves"
    UNSAVED = "handles SIGTERM without a checkpoint"
    TOO_SLOW = "too slow"
    IGNORES = "ignores SIGTERM"
    NO_HANDLER = "no handler"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """One replica's SIGTERM, and the events after it.

    Attributes:
        grace: seconds between SIGTERM and SIGKILL.
        disposition: what the program does with SIGTERM; None if no tool in the container could find out.
        ended_after: seconds from SIGTERM to the container's end.
        killed: whether the program was still running at the end of the grace period.
        saved: the checkpoint that is newer than SIGTERM.
        checkpoint_step: the step in the newest checkpoint at the container's end; None if it has none.
        unit: the unit of `last` and `next`, `step` or `epoch`; empty if the output has neither.
        last: the last number that was printed before the new container started.
        next: the first number that was printed after that.
        next_after: seconds from SIGTERM to the output of `next`.
    """

    grace: float
    disposition: Disposition | None
    ended_after: float
    killed: bool
    saved: Checkpoint | None
    checkpoint_step: int | None = None
    unit: str = ""
    last: int | None = None
    next: int | None = None
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
            return Handling.SAVES
        return Handling.UNKNOWN if self.disposition is None else Handling.UNSAVED

    @property
    def lost(self) -> int | None:
        """How many steps or epochs (see `unit`) were trained twice; None if unknown."""
        if self.last is None:
            return None
        if self.unit == "step" and self.checkpoint_step is not None:
            return max(0, self.last - self.checkpoint_step)
        return None if self.next is None else max(0, self.last - self.next + 1)


def read_disposition(statuses: str) -> Disposition | None:
    """Reads what the container's program does with SIGTERM from the joined texts of /proc/PID/status."""
    processes: list[dict[str, str]] = []
    for match in _FIELD.finditer(statuses):
        if match["name"] == "Name":
            processes.append({})
        if processes:
            processes[-1][match["name"]] = match["value"]
    found = {process["Pid"]: process for process in processes if len(process) == 6}
    first = found.get("1")
    if first is not None and first["Name"] == "dumb-init":  # the init forwards signals only to its child
        first = next((process for process in found.values() if process["PPid"] == "1"), None)
    if first is None:
        return None
    if int(first["SigCgt"], 16) & _TERM:
        return Disposition.CAUGHT
    if int(first["SigBlk"], 16) & _TERM:  # only the first thread: another one may handle it
        return None
    return Disposition.IGNORED if int(first["SigIgn"], 16) & _TERM else Disposition.DEFAULT


def is_newer(checkpoint: Checkpoint | None, signalled: float) -> bool:
    """Tells whether a checkpoint was written after a time in seconds since 1970."""
    return checkpoint is not None and checkpoint.written >= signalled - _LAG


def make_step_program(path: str) -> tuple[str, ...]:
    """Returns Python's arguments that print the step of the checkpoint at `path`; `read_step` reads the answer."""
    return ("-c", (files("training_imgtool.local.inside") / "checkpoint_step.py").read_text(), path)


def read_step(output: bytes) -> int | None:
    """Reads the last line that the step program printed."""
    lines = output.decode(errors="replace").splitlines()
    for line in reversed(lines):
        if line.startswith("{"):
            step = json.loads(line).get("step")
            return step if isinstance(step, int) else None
    return None


def describe(preemption: Preemption, exit_code: int) -> str:
    """Describes how the program handled the preemption, for the end of a sentence."""
    after = f"{preemption.ended_after:.1f} s"
    match preemption.handling:
        case Handling.SAVES if preemption.saved is not None:
            return f"saves: it wrote {preemption.saved.path} and ended {after} after SIGTERM with exit code {exit_code}"
        case Handling.UNSAVED:
            return f"handles SIGTERM, but wrote no checkpoint: it ended {after} later with exit code {exit_code}"
        case Handling.TOO_SLOW:
            return f"too slow: it was still running after the {preemption.grace:g} s of grace, and SIGKILL ended it"
        case Handling.IGNORES:
            how = (
                f"SIGKILL ended it after {preemption.grace:g} s"
                if preemption.killed
                else f"it ended by itself {after} later"
            )
            return f"ignores SIGTERM: {how}"
        case Handling.NO_HANDLER:
            return f"no handler: it ended {after} after SIGTERM with exit code {exit_code} and saved nothing"
    return f"ended {after} after SIGTERM with exit code {exit_code}; imgtool does not know whether it has a handler"


def describe_loss(preemption: Preemption) -> str:
    """Describes how much was trained twice, and when training continued."""
    if preemption.lost is None:
        lost = "steps lost: unknown, because the output and the checkpoint have no steps or epochs to compare"
    elif preemption.unit == "step" and preemption.checkpoint_step is not None:
        lost = (
            f"steps lost: {preemption.lost} (last printed {preemption.last}, checkpoint {preemption.checkpoint_step})"
        )
    else:
        printed = f"last printed {preemption.last}, first after the restart {preemption.next}"
        lost = f"{preemption.unit}s lost: {preemption.lost} ({printed})"
    if preemption.next_after is None:
        return f"{lost}; no step was printed after the restart"
    return f"{lost}; the next {preemption.unit} came {preemption.next_after:.1f} s after SIGTERM"
