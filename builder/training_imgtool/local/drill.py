"""Describes rehearsed deaths of replicas, and finds out how a preempted program handled SIGTERM."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.threads import start_thread
from training_imgtool.local.preemption import (
    STATUS_PROGRAM,
    Disposition,
    Preemption,
    make_step_program,
    read_disposition,
    read_step,
)
from training_imgtool.local.replicas import JOB_DIR
from training_imgtool.local.steps import Count, split_counts, widest_gap
from training_imgtool.local.warm_source import read_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training_imgtool.local.checkpoints import Checkpoint
    from training_imgtool.local.launcher import Launcher
    from training_imgtool.local.rehearsal import Kill
    from training_imgtool.local.replicas import Replica
    from training_imgtool.make.engines.docker.containers import Containers

_SHELL = ("/bin/sh", "-c", "cat /proc/[0-9]*/status")
_LAG = 0.05  # seconds by which a file's time may be earlier than the clock
_KILLED = 128 + signal.SIGKILL
_LONGEST_LOOK = 120.0  # seconds to read a checkpoint's step, most of them for importing TensorFlow


@dataclass(slots=True)
class Strike:
    """A rehearsed death that has begun: its time on two clocks, and whether imgtool has sent SIGKILL."""

    kill: Kill
    grace: float
    disposition: Disposition | None
    alone: bool = True  # no other replica runs
    at: float = field(default_factory=time.monotonic)
    wall: float = field(default_factory=time.time)
    killed: bool = False

    def describe(self, ended: float, exit_code: int, checkpoint: Checkpoint | None) -> Preemption | None:
        """Describes a preemption; None for a plain kill. `ended` is the container's end on the monotonic clock."""
        if not self.kill.preempted:
            return None
        new = checkpoint is not None and checkpoint.written >= self.wall - _LAG
        return Preemption(
            grace=self.grace,
            disposition=self.disposition,
            ended_after=max(0.0, ended - self.at),
            killed=self.killed and exit_code == _KILLED,  # else the program ended just before SIGKILL
            alone=self.alone,
            saved=checkpoint if new and self.disposition is not Disposition.DEFAULT else None,  # SIGTERM ended it
        )


class Inspector:
    """Inspects programs in a run's containers, and reads checkpoints with the libraries of a run's images."""

    def __init__(self, containers: Containers, launcher: Launcher) -> None:
        self._containers, self._launcher = containers, launcher
        self._looks: dict[int, threading.Thread] = {}
        self._steps: dict[int, int | None] = {}

    def ask_disposition(self, container_id: str, replica: Replica) -> Disposition | None:
        """Returns how a replica's program reacts to SIGTERM; None if no tool in the container can find out."""
        with suppress(ImgtoolError):
            python = self._python_of(replica)
            words = (python, *STATUS_PROGRAM) if python else _SHELL
            statuses = self._containers.execute(container_id, replica.name, words)
            return read_disposition(statuses.decode(errors="replace"), below=replica.processes > 0)
        return None

    def begin_look(self, number: int, replica: Replica, checkpoint: Checkpoint) -> None:
        """Starts a container from the replica's image, in which Python reads a checkpoint's step."""
        self._looks[number] = start_thread(f"imgtool-step-{number}", lambda: self._look(number, replica, checkpoint))

    def step_of(self, number: int) -> int | None:
        """Returns the step that the container of `begin_look` with this number found, or None."""
        if number in self._looks:
            self._looks[number].join(_LONGEST_LOOK)
        return self._steps.get(number)

    def _look(self, number: int, replica: Replica, checkpoint: Checkpoint) -> None:
        with suppress(ImgtoolError, ValueError):
            python = self._python_of(replica) or "python3"
            program = make_step_program(f"{JOB_DIR}/{checkpoint.path}")
            container_id = self._launcher.create_look(replica, number, (python,), program)
            self._containers.start(container_id, replica.name)
            self._containers.wait(container_id, replica.name)
            self._steps[number] = read_step(self._containers.last_output(container_id, replica.name, 1000))

    def _python_of(self, replica: Replica) -> str | None:
        entry, arguments = self._containers.words(replica.image)
        program = read_command((*(replica.command or entry), *(replica.args or arguments)))
        return program.python[0] if program else None


def complete(
    preemption: Preemption, counts: Sequence[Count], times: tuple[float, float], step: int | None
) -> Preemption:
    """Adds the last step before the restart, and the first step after it, to `preemption`.

    Args:
        preemption: the preemption as known at the container's end.
        counts: the steps and epochs that the replica printed, or that the chief printed if the replica printed none.
        times: the times of SIGTERM and of the new container's start, by the monotonic clock.
        step: the step in the checkpoint.
    """
    signalled, back = times
    before, after = split_counts(counts, back)
    return replace(
        preemption,
        checkpoint_step=step,
        unit=next((count.unit for count in (*before, *after)), ""),
        signalled=next((count.number for count in reversed(before) if count.at <= signalled), None),
        last=before[-1].number if before else None,
        next=after[0].number if after else None,
        every=widest_gap(before, after),
        next_after=after[0].at - signalled if after else None,
    )


def describe_start(strike: Strike) -> str:
    """Describes what happens to the replica, for a message that begins with the replica's name."""
    if strike.kill.preempted:
        return f"is preempted now: it gets SIGTERM, and SIGKILL after {strike.grace:g} s, as --preempt asked"
    return f"is killed now, {strike.kill.seconds:g} s into the run, as --kill asked"
