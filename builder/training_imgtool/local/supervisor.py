"""Starts the replicas of a run, restarts dead replicas as the service would, and removes all containers at the end."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.progress import Note, Progress, Step
from training_imgtool.base.signals import aborting_leaves
from training_imgtool.base.threads import run_all, start_thread
from training_imgtool.local.checkpoints import latest
from training_imgtool.local.drill import Inspector, Strike, complete, describe_start
from training_imgtool.local.launcher import Launcher, ReplicaRefusedError
from training_imgtool.local.losses import add_point
from training_imgtool.local.monitor import LAST_LINES, Report, Watcher, join_ends, lines_near, lines_of
from training_imgtool.local.owner import remove_all
from training_imgtool.local.rehearsal import PREEMPTED, Action, Death, Kill, grace_of, judge
from training_imgtool.local.replicas import JOB_DIR
from training_imgtool.local.results import choose_lost, list_written, take_snapshot
from training_imgtool.local.steps import StepReader, begins_again
from training_imgtool.local.summary import DeathResult, Failure, ReplicaResult, State, Summary, failure_of
from training_imgtool.make.engines.docker.containers import Ended, RefusedError

if TYPE_CHECKING:
    from training_imgtool.local.ready import Ready
    from training_imgtool.local.replicas import Replica
    from training_imgtool.make.engines.docker.containers import Containers

STOP_SECONDS = 5.0  # between SIGTERM and SIGKILL, at the end of the run
DRAIN_SECONDS = 10.0  # to read the remaining output of all replicas
_DRAIN_RESTART_SECONDS = 2.0  # to read the remaining output of a replica before its restart
_LOOK = 0.2  # seconds between checks of the clock


@dataclass(slots=True)
class _Live:
    """The present state of one replica. `attempt` numbers the replica's containers, also in reports."""

    replica: Replica
    container_id: str = ""
    attempt: int = 0
    running: bool = False
    began: float | None = None
    ended: float | None = None
    last: Ended | None = None
    state: State = State.UNSTARTED
    restarts: int = 0
    peak: int | None = None
    strike: Strike | None = None
    judged: bool = False
    restart_at: float | None = None
    spans: list[tuple[float, float | None]] = field(default_factory=list)  # start and end of each container
    samples: list[tuple[float, float]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.replica.name

    def used(self, memory: int) -> None:
        self.peak = max(memory, self.peak or 0)
        add_point(self.samples, (time.monotonic(), memory))

    def started(self, now: float) -> None:
        self.close(now)
        self.spans.append((now, None))

    def close(self, now: float) -> None:
        if self.spans and self.spans[-1][1] is None:
            self.spans[-1] = (self.spans[-1][0], now)

    def stopped(self, now: float, how: Ended | None, state: State) -> None:
        self.running, self.ended, self.last, self.state = False, now, how, state
        self.close(now)


class Supervisor:
    """Manages one run, from creating the network to the summary. The thread that calls `run` makes all decisions."""

    def __init__(self, ready: Ready, containers: Containers, progress: Progress) -> None:
        self._ready = ready
        self._containers = containers
        self._progress = progress
        self._launcher = Launcher(ready, containers)
        self._steps = StepReader(progress)
        self._watcher = Watcher(containers, self._steps)
        self._inspector = Inspector(containers, self._launcher)
        self._live = {replica.name: _Live(replica) for replica in ready.cluster.replicas}
        self._missed = sorted(ready.kills, key=lambda kill: kill.seconds)
        self._over = threading.Event()
        self._deaths: list[DeathResult] = []
        self._fatal: list[tuple[float, DeathResult, _Live]] = []  # deaths that end the run, by the engine's clock
        self._held: list[_Live] = []  # replicas that failed, perhaps because of a rehearsed death that is under way
        self._failure: Failure | None = None
        self._began = time.monotonic()
        self._before = take_snapshot(ready.job_dir)
        self._lost: dict[str, tuple[str, ...]] = {}
        self._lag = float("inf")  # between this machine's clock and the engine's, estimated from reports

    def run(self) -> Summary:
        """Runs the cluster until it ends; always removes all containers and the network.

        Raises EngineUnavailableError if the engine fails or cannot create a network. If a replica fails, `run` raises
        nothing, and the summary describes the failure.
        """
        with aborting_leaves(f"{self._launcher.name}: the next imgtool run removes its containers and network"):
            try:
                try:
                    self._start_all()
                    self._watch()
                except ReplicaRefusedError as error:
                    self._failure = Failure(name=error.name, message=str(error), last_lines=())
                self._over.set()
                self._stop_all()
                ended = time.monotonic()
                self._conclude()
                self._complete_deaths()
            finally:
                self._over.set()
                self._remove_all()
        return self._summary(ended)

    def _start_all(self) -> None:
        self._launcher.make_network()
        everyone = self._live.values()
        container_ids = run_all({live.name: partial(self._launcher.create, live.replica) for live in everyone})
        for name, container_id in container_ids.items():
            self._live[name].container_id = container_id
        run_all({live.name: partial(self._start, live) for live in everyone})
        self._began = time.monotonic()
        count = "1 replica" if len(self._live) == 1 else f"{len(self._live)} replicas"
        self._progress(Step("run", f"{count} in the network {self._launcher.name}"))
        if self._missed:
            start_thread("imgtool-rehearsal", self._rehearse)

    def _start(self, live: _Live) -> None:
        self._launcher.start(live.container_id, live.name)
        live.running, live.judged, live.state = True, False, State.EXITED
        live.began = live.began or time.monotonic()
        live.attempt += 1
        live.started(time.monotonic())
        self._watcher.follow(live.name, live.attempt, live.container_id, live.used)

    def _watch(self) -> None:
        """Waits until the chief has ended for good, or the run has failed."""
        chief = self._live[self._ready.cluster.chief.name]
        while not self._fatal and (self._held or chief.ended is None or chief.restart_at is not None):
            self._do_what_is_due()
            report = self._next_report()
            live = self._about(report)
            if report is None or live is None:
                continue
            if isinstance(report.ended, RefusedError):
                raise ReplicaRefusedError(live.name, report.ended)
            if isinstance(report.ended, ImgtoolError):
                raise report.ended
            live.stopped(time.monotonic(), report.ended, State.EXITED)
            self._lag = min(self._lag, time.monotonic() - report.ended.finished)
            if report.ended.exit_code != 0 and not live.strike and self._is_any_struck():
                self._held.append(live)
                continue
            if report.ended.exit_code != 0 or (live.strike and live.strike.kill.preempted):
                self._judge(live, report.ended)
            live.strike = None
            self._judge_held()

    def _next_report(self) -> Report | None:
        """Waits briefly for a report about the end of a replica."""
        return self._watcher.next(_LOOK)

    def _about(self, report: Report | None) -> _Live | None:
        """Returns the replica that a report is about; None if the report is about an earlier container."""
        live = self._live[report.name] if report else None
        return live if report and live and live.running and report.attempt == live.attempt else None

    def _is_any_struck(self) -> bool:
        return any(live.strike and live.running for live in self._live.values())

    def _judge_held(self) -> None:
        """Judges the replicas that failed during a rehearsed death, unless they restart because of it."""
        if self._is_any_struck() or self._fatal:
            return
        held, self._held = self._held, []
        for live in held:
            if live.last is not None and live.restart_at is None:
                self._judge(live, live.last)

    def _judge(self, live: _Live, ended: Ended) -> None:
        """Records the death of a replica, and what the service would do."""
        now, checkpoint = time.monotonic(), latest(self._ready.job_dir)
        live.judged, strike = True, live.strike
        at = min(now, ended.finished + self._lag)
        preemption = strike.describe(at, ended.exit_code, checkpoint) if strike else None
        death = Death(
            exit_code=PREEMPTED if preemption else ended.exit_code,
            out_of_memory=ended.out_of_memory and not strike,
            restarts=live.restarts,
            restarts_in_all=sum(other.restarts for other in self._live.values()),
            unstarted=not self._ready.restart and checkpoint == self._ready.checkpoint,
        )
        verdict = judge(self._ready.cluster.service, death, self._ready.spec.job.scheduling)
        result = DeathResult(
            name=live.name,
            at=at - self._began,
            exit_code=ended.exit_code,
            rehearsed=strike is not None,
            verdict=verdict,
            back_after=None,
            checkpoint=checkpoint,
            preemption=preemption,
        )
        if preemption and checkpoint:
            self._inspector.begin_look(len(self._deaths), live.replica, checkpoint)
        self._deaths.append(result)
        if verdict.action is Action.FAIL:
            began = ended.finished - (at - strike.at if strike else 0.0)  # other failures may come of it
            self._fatal.append((began, result, live))
            return
        self._progress(Note(f"{live.name} exited {ended.exit_code}: {verdict.because}"))
        live.restart_at = now + verdict.delay
        if verdict.action is Action.RESTART_JOB:
            for other in self._live.values():
                other.running, other.restart_at = False, live.restart_at

    def _conclude(self) -> None:
        """Finds, by the engine's clock, the replica that failed first, because reports can arrive out of order."""
        chief = self._live[self._ready.cluster.chief.name]
        over = min((finished for finished, _, _ in self._fatal), default=chief.last.finished if chief.last else 0.0)
        for live in self._live.values():
            if live.last is not None and 0 < live.last.finished < over:
                live.state = State.EXITED
                if live.last.exit_code and not live.judged and live.restart_at is None:
                    self._judge(live, live.last)
        self._watcher.drain(self._live, DRAIN_SECONDS)
        for live in self._live.values():
            self._note_lost(live)
        if self._fatal and self._failure is None:
            _, death, live = min(self._fatal, key=lambda fatal: fatal[0])
            share = self._ready.shares[live.name]
            self._failure = failure_of(death, live.last, share, self._last_lines(live))

    def _note_lost(self, live: _Live) -> None:
        """Records the files that are lost when imgtool removes a replica's container."""
        try:
            changed = self._containers.changed(live.container_id, live.name)
            volumes = self._containers.volumes(live.container_id, live.name)
        except ImgtoolError as error:  # the engine lacks this request, or the container
            self._progress(Note(f"imgtool cannot list the files that {live.name} wrote outside {JOB_DIR}: {error}"))
            return
        if volumes:
            places = ", ".join(volumes)
            self._progress(Note(f"the files of {live.name} in volumes of its image ({places}) are lost and not listed"))
        lost = choose_lost(changed, (*self._ready.cluster.mounts, *volumes))
        self._lost[live.name] = tuple(sorted({*self._lost.get(live.name, ()), *lost}))

    def _last_lines(self, live: _Live) -> tuple[str, ...]:
        """Returns the last lines that a replica printed, even lines that imgtool has not shown yet."""
        with suppress(ImgtoolError):
            output = self._containers.last_output(live.container_id, live.name, LAST_LINES)
            errors = self._containers.last_output(live.container_id, live.name, lines_near(output), only_errors=True)
            return join_ends(tuple(lines_of([output])), tuple(lines_of([errors])))
        return ()

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        for live in self._live.values():
            if live.restart_at is not None and now >= live.restart_at:
                self._restart(live)

    def _rehearse(self) -> None:
        """Kills and preempts replicas on time; runs in a separate thread, so that nothing else delays it."""
        for kill in tuple(self._missed):
            if self._over.wait(max(0.0, self._began + kill.seconds - time.monotonic())):
                return
            with suppress(ImgtoolError):  # the engine is gone; the supervisor's thread reports it
                self._strike(kill)

    def _strike(self, kill: Kill) -> None:
        target = (kill.role, kill.index)
        live = next(live for live in self._live.values() if (live.replica.role, live.replica.index) == target)
        if not live.running or live.strike:
            return
        grace = grace_of(self._ready.cluster.service, kill, self._ready.spec.job.grace_period)
        known = self._inspector.ask_disposition(live.container_id, live.replica) if kill.preempted else None
        live.strike = strike = Strike(kill, grace, known, alone=self._is_alone(live))
        self._missed.remove(kill)
        self._progress(Note(f"{live.name} {describe_start(strike)}"))
        if kill.preempted:
            self._containers.signal(live.container_id, "SIGTERM")
            attempt = live.attempt
            start_thread(f"imgtool-grace-{live.name}", lambda: self._end_grace(live, strike, attempt))
        else:
            self._containers.signal(live.container_id, "SIGKILL")

    def _is_alone(self, live: _Live) -> bool:
        return not any(other.running for other in self._live.values() if other is not live)

    def _end_grace(self, live: _Live, strike: Strike, attempt: int) -> None:
        if not self._over.wait(strike.grace) and live.running and live.attempt == attempt:
            strike.killed = True
            with suppress(ImgtoolError):
                self._containers.signal(live.container_id, "SIGKILL")

    def _complete_deaths(self) -> None:
        """Records whether training began again, and how much a preempted program trained twice, by their output."""
        chief = self._ready.cluster.chief.name
        for number, death in enumerate(self._deaths):
            counts = self._steps.counts_of(death.name) or self._steps.counts_of(chief)
            ended = self._began + death.at
            back = float("inf") if death.back_after is None else ended + death.back_after
            self._deaths[number] = replace(death, began_again=begins_again(counts, back))
            if death.preemption:
                times = (ended - death.preemption.ended_after, back)
                whole = complete(death.preemption, counts, times, self._inspector.step_of(number))
                self._deaths[number] = replace(self._deaths[number], preemption=whole)
        self._deaths.sort(key=lambda death: death.at)

    def _restart(self, live: _Live) -> None:
        """Replaces a replica's container with a new container that has the same name and address, but no old files."""
        live.restart_at = None
        if live.last is not None:
            self._watcher.drain([live.name], _DRAIN_RESTART_SECONDS)
        self._note_lost(live)
        self._containers.remove(live.container_id)
        live.container_id = self._launcher.create(live.replica)
        live.restarts += 1
        live.ended = live.last = None
        self._start(live)
        passed = time.monotonic() - self._began
        for number, death in enumerate(self._deaths):
            if death.name == live.name and death.back_after is None:
                self._deaths[number] = replace(death, back_after=passed - death.at)
        self._progress(Note(f"{live.name} is restarted"))

    def _stop_all(self) -> None:
        """Stops all running replicas as the services do: with SIGTERM, and later SIGKILL."""
        for signal in ("SIGTERM", "SIGKILL"):
            running = [live for live in self._live.values() if live.running]
            for live in running:
                self._note_end(live)
            run_all({live.name: partial(self._containers.signal, live.container_id, signal) for live in running})
            deadline = time.monotonic() + STOP_SECONDS
            while any(live.running for live in running) and time.monotonic() < deadline:
                report = self._next_report()
                reported = self._about(report)
                if report and reported:
                    how = None if isinstance(report.ended, ImgtoolError) else report.ended
                    reported.stopped(time.monotonic(), how, State.STOPPED)

    def _note_end(self, live: _Live) -> None:
        """Records that a replica has ended by itself, in case no report about its end has arrived."""
        with suppress(ImgtoolError):
            ended = self._containers.ended(live.container_id, live.name)
            if ended is not None:
                live.stopped(time.monotonic(), ended, State.EXITED)

    def _remove_all(self) -> None:
        try:
            remove_all(self._containers, self._ready.run)
        except ImgtoolError as error:
            self._progress(Note(f"imgtool could not remove all containers; the next run tries again: {error}"))

    def _summary(self, ended: float) -> Summary:
        ready = self._ready
        return Summary(
            run=ready.run,
            name=ready.spec.name,
            service=ready.cluster.service,
            seconds=ended - self._began,
            job_dir=ready.job_dir,
            replicas=tuple(self._result(live, ended) for live in self._live.values()),
            deaths=tuple(self._deaths),
            missed=tuple(self._missed),
            failure=self._failure,
            checkpoint=latest(ready.job_dir),
            written=list_written(self._before, take_snapshot(ready.job_dir)),
            lost={name: paths for name, paths in self._lost.items() if paths},
            notes=ready.notes,
        )

    def _result(self, live: _Live, ended: float) -> ReplicaResult:
        ready = self._ready
        return ReplicaResult(
            replica=live.replica,
            image=ready.images[live.replica.role],
            share=ready.shares[live.name],
            state=live.state,
            exit_code=live.last.exit_code if live.last else None,
            out_of_memory=bool(live.last and live.last.out_of_memory),
            seconds=0.0 if live.began is None else (live.ended or ended) - live.began,
            peak_memory=live.peak,
            restarts=live.restarts,
            spans=tuple((start - self._began, (end or ended) - self._began) for start, end in live.spans),
            memory=tuple((at - self._began, int(size)) for at, size in live.samples),
        )
