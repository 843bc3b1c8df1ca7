"""Rehearses deaths: sends signals at the given times, and finds out how a preempted program handled them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.threads import start_thread
from training_imgtool.local.preemption import (
    STATUS_PROGRAM,
    Disposition,
    Preemption,
    is_newer,
    make_step_program,
    read_disposition,
    read_step,
)
from training_imgtool.local.replicas import JOB_DIR
from training_imgtool.local.steps import Count, split_counts
from training_imgtool.local.warm_source import read_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training_imgtool.local.checkpoints import Checkpoint
    from training_imgtool.local.launcher import Launcher
    from training_imgtool.local.rehearsal import Kill
    from training_imgtool.local.replicas import Replica
    from training_imgtool.make.engines.docker.containers import Containers

_SHELL = ("/bin/sh", "-c", "cat /proc/[0-9]*/status")
_LONGEST_LOOK = 120.0  # seconds to read a checkpoint's step, most of them for importing TensorFlow


@dataclass(slots=True)
class Strike:
    """A rehearsed death that has begun: its time by two clocks, and whether imgtool has sent SIGKILL."""

    kill: Kill
    grace: float
    at: float
    wall: float
    disposition: Disposition | None = None
    killed: bool = False

    def describe(self, ended: float, checkpoint: Checkpoint | None) -> Preemption | None:
        """Describes a preemption; None for a plain kill. `ended` is the end by the monotonic clock."""
        if not self.kill.preempted:
            return None
        return Preemption(
            grace=self.grace,
            disposition=self.disposition,
            ended_after=max(0.0, ended - self.at),
            killed=self.killed,
            saved=checkpoint if is_newer(checkpoint, self.wall) else None,
        )


class Inspector:
    """Inspects the programs in containers and images of a run."""

    def __init__(self, containers: Containers, launcher: Launcher) -> None:
        self._containers, self._launcher = containers, launcher
        self._looks: dict[int, tuple[threading.Thread, list[int]]] = {}

    def ask_disposition(self, container_id: str, replica: Replica) -> Disposition | None:
        """Returns what a replica's program does with SIGTERM; None if the container has no tool to find out."""
        with suppress(ImgtoolError):
            python = self._python_of(replica)
            words = (python, *STATUS_PROGRAM) if python else _SHELL
            return read_disposition(
                self._containers.execute(container_id, replica.name, words).decode(errors="replace")
            )
        return None

    def begin_look(self, number: int, replica: Replica, checkpoint: Checkpoint) -> None:
        """Starts a container of the replica's image that reads a checkpoint's step."""
        found: list[int] = []
        thread = start_thread(f"imgtool-step-{number}", lambda: self._look(number, replica, checkpoint, found))
        self._looks[number] = (thread, found)

    def step_of(self, number: int) -> int | None:
        """Returns the step that `begin_look` with this number found."""
        if number not in self._looks:
            return None
        thread, found = self._looks[number]
        thread.join(_LONGEST_LOOK)
        return found[0] if found else None

    def _look(self, number: int, replica: Replica, checkpoint: Checkpoint, found: list[int]) -> None:
        with suppress(ImgtoolError, ValueError):
            python = self._python_of(replica)
            if python is None:
                return
            program = make_step_program(f"{JOB_DIR}/{checkpoint.path}")
            container_id = self._launcher.create_look(replica, number, (python,), program)
            self._containers.start(container_id, replica.name)
            self._containers.wait(container_id, replica.name)
            step = read_step(self._containers.last_output(container_id, replica.name, 1000))
            if step is not None:
                found.append(step)

    def _python_of(self, replica: Replica) -> str | None:
        entry, arguments = self._containers.words(replica.image)
        program = read_command((*(replica.command or entry), *(replica.args or arguments)))
        return program.python[0] if program else None


def complete(
    preemption: Preemption, counts: Sequence[Count], times: tuple[float, float], step: int | None
) -> Preemption:
    """Adds the last step before the restart and the first after it.

    Args:
        preemption: the preemption as known at the container's end.
        counts: the counts that the replica printed, or those of the chief if the replica printed none.
        times: the times of SIGTERM and of the new container's start, by the monotonic clock.
        step: the step in the checkpoint.
    """
    signalled, back = times
    last, first = split_counts(counts, back)
    either = last or first
    return replace(
        preemption,
        checkpoint_step=step,
        unit=either.unit if either else "",
        last=last.number if last else None,
        next=first.number if first else None,
        next_after=first.at - signalled if first else None,
    )


def describe_start(strike: Strike) -> str:
    """Describes what happens to the replica, for a message that begins with its name."""
    if strike.kill.preempted:
        return f"is preempted now: it gets SIGTERM, and SIGKILL after {strike.grace:g} s, as --preempt asked"
    return f"is killed now, {strike.kill.seconds:g} s into the run, as --kill asked"


def now_strike(kill: Kill, grace: float, disposition: Disposition | None) -> Strike:
    """Describes a rehearsed death that begins now."""
    return Strike(kill, grace, time.monotonic(), time.time(), disposition)
