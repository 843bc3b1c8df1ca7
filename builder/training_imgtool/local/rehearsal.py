"""Fault rehearsal: which replica is killed when, and what the service would do with a replica that died.

Sources: Google's pages "Understanding the AI Platform Training service" and "Understand the custom training service"
(Vertex AI); kubeflow/training-operator v1.9 and Kubernetes' page on the lifecycle of a Pod. What they leave open is
assumed here, said with every verdict (`documented` is False), and listed in docs/run.md.
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
_SIGNALLED = 128  # exit codes above are a signal's, up to its number 64; those above 192 are the program's own again
_SIGNALS = 64
_CRASHES = frozenset(  # signals that a program brings upon itself
    _SIGNALLED + number for number in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
)
_LONGEST_PAUSE = 300.0  # Kubernetes: seconds between two restarts of a container
_KILL = re.compile(r"(?P<role>[a-z]+)(?::(?P<index>\d{1,4}))?@(?P<number>\d{1,6}(?:\.\d{1,3})?)(?P<unit>ms|s|m|h)\Z")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORM = "expected ROLE[:INDEX]@DURATION, such as worker:1@30s, ps@2m or master@500ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A replica to kill, `seconds` after all have started."""

    role: Role
    index: int
    seconds: float


class Action(StrEnum):
    """What a service does when a replica has died."""

    RESTART = "restart"
    RESTART_JOB = "restart the job"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What happens next, after how many seconds, why, and whether the service's documentation says so."""

    action: Action
    because: str
    documented: bool
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A replica that ended with something else than 0.

    Attributes:
        restarts: how often this replica was restarted before.
        restarts_in_all: how often any was.
        unstarted: whether training had not begun, as no checkpoint shows, and nobody asked for restarts.
    """

    exit_code: int
    out_of_memory: bool = False
    restarts: int = 0
    restarts_in_all: int = 0
    unstarted: bool = False

    @property
    def would_repeat(self) -> bool:
        """Whether the program would end so again: it failed, crashed or needs more memory, and nobody stopped it."""
        is_signal = _SIGNALLED < self.exit_code <= _SIGNALLED + _SIGNALS
        return self.out_of_memory or not is_signal or self.exit_code in _CRASHES


def parse_kill(text: str) -> Kill:
    """Parses `ROLE[:INDEX]@DURATION`; the index is 0 when left out. Raises UsageError."""
    match = _KILL.match(text)
    role = _role(match["role"]) if match else None
    if match is None or role is None:
        raise UsageError(f"--kill {text!r}: {_FORM}")
    return Kill(role=role, index=int(match["index"] or 0), seconds=float(match["number"]) * _UNITS[match["unit"]])


def _role(word: str) -> Role | None:
    return {"chief": Role.MASTER, **{role.value: role for role in Role}}.get(word)


def judge(service: Service, death: Death, scheduling: Scheduling | None = None) -> Verdict:
    """Decides what the service does with a replica that died.

    A program that fails by itself before the first checkpoint would do so again: the run ends at once.
    """
    verdict = _verdict(service, death, scheduling)
    if verdict.action is Action.FAIL or not (death.unstarted and death.would_repeat):
        return verdict
    because = f"exit code {death.exit_code} before the first checkpoint; --restart restarts it, as {service} does"
    return Verdict(action=Action.FAIL, because=because, documented=True)


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
    return Verdict(action=Action.FAIL, because="nothing restarts a container here: its policy is `no`", documented=True)


def _google(death: Death, *, restart_job: bool) -> Verdict:
    if death.out_of_memory:
        return _assumed_permanent("out of memory is a permanent error")
    if death.exit_code < _SIGNALLED:
        return _assumed_permanent(f"exit code {death.exit_code} is the program's own, a permanent error")
    if death.restarts >= RESTARTS:
        because = f"a replica is restarted {RESTARTS} times at most; the service would then try the whole job again"
        return Verdict(action=Action.FAIL, because=because, documented=True)
    if restart_job:
        because = "restart_on_worker_restart: the whole job starts again with a replica"
        return Verdict(action=Action.RESTART_JOB, because=because, documented=True)
    because = "a replica that exits with another code than 0 is restarted at once, under the same host name"
    return Verdict(action=Action.RESTART, because=because, documented=True)


def _assumed_permanent(because: str) -> Verdict:
    return Verdict(action=Action.FAIL, because=because, documented=False)


def _tfjob(death: Death, limit: int | None) -> Verdict:
    if limit is not None and death.restarts_in_all >= limit:
        because = f"backoffLimit {limit}: its replicas have been restarted {death.restarts_in_all} times"
        return Verdict(action=Action.FAIL, because=because, documented=True)
    if limit is None and death.restarts >= RESTARTS:
        because = f"the service would go on with growing pauses; here it ends after {RESTARTS} restarts of a replica"
        return Verdict(action=Action.FAIL, because=because, documented=False)
    delay = min(_LONGEST_PAUSE, 10.0 * 2 ** (death.restarts - 1)) if death.restarts else 0.0
    because = "restartPolicy OnFailure: the container is started again in its Pod"
    return Verdict(action=Action.RESTART, because=because, documented=True, delay=delay)
