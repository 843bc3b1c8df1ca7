"""Rehearsals of failures: which replica to kill and when, and what the service would do after a replica's death.

Sources: Google's pages "Understanding the AI Platform Training service" and "Understand the custom training service"
(Vertex AI); kubeflow/training-operator v1.9 and Kubernetes' page on the lifecycle of a Pod. Where these sources are
silent, imgtool makes an assumption, and the verdict's `documented` is False. docs/run.md lists the assumptions.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import StrEnum

from training_imgtool.base.errors import UsageError
from training_imgtool.local.replicas import Service
from training_imgtool.model.job import Scheduling
from training_imgtool.model.spec import Role

RESTARTS = 5  # documented for AI Platform and Vertex AI: restarts of one replica
_SIGNALLED = 128  # plus the signal's number (1 to 64) is a killed program's exit code; others are its own
_SIGNALS = 64
PREEMPTED = _SIGNALLED + signal.SIGTERM  # a service's code for a preempted replica, whatever the program's own
_CRASHES = frozenset(  # signals that the program itself causes
    _SIGNALLED + number for number in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
)
_LONGEST_PAUSE = 300.0  # Kubernetes: seconds between two restarts of a container
_DURATION = r"\d{1,6}(?:\.\d{1,3})?(?:ms|s|m|h)"
_KILL = re.compile(
    rf"(?P<role>[a-z]+)(?::(?P<index>\d{{1,4}}))?@(?P<when>{_DURATION})(?P<options>/grace=(?P<grace>{_DURATION}))?\Z"
)
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORM = "expected ROLE[:INDEX]@DURATION{}, such as worker:1@30s{}, ps@2m or master@500ms"
_GRACE = {  # seconds between SIGTERM and SIGKILL if the job does not set them
    Service.AI_PLATFORM: 30.0,  # Compute Engine's Spot VMs
    Service.VERTEX: 30.0,
    Service.TFJOB: 30.0,  # Kubernetes: terminationGracePeriodSeconds
    Service.LOCAL: 10.0,  # Compose: stop_grace_period
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A replica to kill, `seconds` after all replicas have started.

    Attributes:
        preempted: whether the replica gets SIGTERM first.
        grace: seconds from SIGTERM to SIGKILL; None for the default of the job or service.
    """

    role: Role
    index: int
    seconds: float
    preempted: bool = False
    grace: float | None = None

    @property
    def option(self) -> str:
        """The option that requested this death."""
        return "--preempt" if self.preempted else "--kill"


class Action(StrEnum):
    """What a service does after a replica's death."""

    RESTART = "restart"
    RESTART_JOB = "restart the job"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The service's action, its delay in seconds, its reason, and whether the service documents this action."""

    action: Action
    because: str
    documented: bool
    delay: float = 0.0
    hint: str | None = None  # the hint for the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A replica that ended with an exit code other than 0.

    Attributes:
        restarts: how often this replica was restarted before.
        restarts_in_all: the number of restarts of all replicas.
        unstarted: whether there was no checkpoint yet, and no option asked for restarts.
    """

    exit_code: int
    out_of_memory: bool = False
    restarts: int = 0
    restarts_in_all: int = 0
    unstarted: bool = False

    @property
    def would_repeat(self) -> bool:
        """Whether the program would fail again, because it failed, crashed or ran out of memory by itself."""
        is_signal = _SIGNALLED < self.exit_code <= _SIGNALLED + _SIGNALS
        return self.out_of_memory or not is_signal or self.exit_code in _CRASHES


def parse_kill(text: str, *, preempted: bool = False) -> Kill:
    """Parses `ROLE[:INDEX]@DURATION` (default index 0); `/grace=DURATION` may follow in a preemption.

    Raises UsageError.
    """
    match = _KILL.match(text)
    role = _role(match["role"]) if match else None
    if match is None or role is None or (match["options"] and not preempted):
        option, form = "--kill", _FORM.format("", "")
        if preempted:
            option, form = "--preempt", _FORM.format("[/grace=DURATION]", "/grace=15s")
        raise UsageError(f"{option} {text!r}: {form}")
    return Kill(
        role=role,
        index=int(match["index"] or 0),
        seconds=_seconds(match["when"]),
        preempted=preempted,
        grace=_seconds(match["grace"]) if match["grace"] else None,
    )


def _seconds(duration: str) -> float:
    number = duration.rstrip("msh")
    return float(number) * _UNITS[duration.removeprefix(number)]


def grace_of(service: Service, kill: Kill, period: int | None) -> float:
    """Returns the seconds from SIGTERM to SIGKILL: the option's, or else the job's (`period`), or the service's."""
    fixed = service in {Service.AI_PLATFORM, Service.VERTEX}
    return kill.grace if kill.grace is not None else _GRACE[service] if fixed or period is None else float(period)


def _role(word: str) -> Role | None:
    return {"chief": Role.MASTER, **{role.value: role for role in Role}}.get(word)


def judge(service: Service, death: Death, scheduling: Scheduling | None = None) -> Verdict:
    """Decides what the service does with a replica that died.

    If a program fails by itself before the first checkpoint, the run fails, because the program would fail again.
    """
    verdict = _verdict(service, death, scheduling)
    if verdict.action is Action.FAIL or not (death.unstarted and death.would_repeat):
        return verdict
    because = f"exit code {death.exit_code} before the first checkpoint"
    hint = f"imgtool run --restart restarts the replica, as {service} does"
    return Verdict(action=Action.FAIL, because=because, documented=True, hint=hint)


def _verdict(service: Service, death: Death, scheduling: Scheduling | None) -> Verdict:
    match service:
        case Service.AI_PLATFORM:
            return _google(death, restart_job=False)
        case Service.VERTEX:
            whole = scheduling is not None and scheduling.restart_on_worker_restart is True
            retries = scheduling is None or scheduling.disable_retries is not True
            return _google(death, restart_job=whole and retries)
        case Service.TFJOB:
            return _tfjob(death, scheduling.restarts if scheduling else None)
    return Verdict(action=Action.FAIL, because="the restart policy `no` restarts no replica", documented=True)


def _google(death: Death, *, restart_job: bool) -> Verdict:
    if death.out_of_memory:
        return _assumed_permanent("out of memory is a permanent error")
    if death.exit_code < _SIGNALLED:
        return _assumed_permanent(f"exit code {death.exit_code} is the program's own, a permanent error")
    if death.restarts >= RESTARTS:
        because = f"the service restarts a replica at most {RESTARTS} times, and then tries the whole job again"
        return Verdict(action=Action.FAIL, because=because, documented=True)
    if restart_job:
        because = "restart_on_worker_restart: the whole job restarts when a replica restarts"
        return Verdict(action=Action.RESTART_JOB, because=because, documented=True)
    because = "the service restarts a replica at once, under the same host name, unless it exits with 0"
    return Verdict(action=Action.RESTART, because=because, documented=True)


def _assumed_permanent(because: str) -> Verdict:
    return Verdict(action=Action.FAIL, because=because, documented=False)


def _tfjob(death: Death, limit: int | None) -> Verdict:
    if limit is not None and death.restarts_in_all >= limit:
        because = f"backoffLimit {limit}: the job's replicas have been restarted {death.restarts_in_all} times"
        return Verdict(action=Action.FAIL, because=because, documented=True)
    if limit is None and death.restarts >= RESTARTS:
        because = f"the service would continue with growing pauses; imgtool run stops after {RESTARTS} restarts"
        return Verdict(action=Action.FAIL, because=because, documented=False)
    delay = min(_LONGEST_PAUSE, 10.0 * 2 ** (death.restarts - 1)) if death.restarts else 0.0
    because = "restartPolicy OnFailure: Kubernetes restarts the container in its Pod"
    return Verdict(action=Action.RESTART, because=because, documented=True, delay=delay)
