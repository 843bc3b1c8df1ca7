"""Starts the replicas of a run, does to a dead one what the service would do, and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.cluster.checkpoints import latest
from training_imgtool.cluster.logs import Tail
from training_imgtool.cluster.monitor import Report, Watcher
from training_imgtool.cluster.owner import REPLICA, remove_run
from training_imgtool.cluster.rehearsal import Action, Death, Kill, judge
from training_imgtool.cluster.replicas import Replica
from training_imgtool.cluster.summary import DeathResult, Failure, ReplicaResult, State, Summary, failure_of
from training_imgtool.core.errors import ImgtoolError
from training_imgtool.core.progress import Note, Progress, Step
from training_imgtool.core.threads import run_all
from training_imgtool.engines.containers import Container, Ended, Network
from training_imgtool.engines.docker.containers import RefusedError

if TYPE_CHECKING:
    from training_imgtool.cluster.run import Ready
    from training_imgtool.engines.docker.containers import Containers

STOP_SECONDS = 5.0  # between SIGTERM and SIGKILL, when the run is over
_LOOK = 0.2  # seconds between looks at the clock
_REMOVE_TRIES = 10


@dataclass(slots=True)
class _Live:
    """One replica as it is now. `attempt` counts its containers: what an earlier one reports is old news."""

    replica: Replica
    tail: Tail = field(default_factory=Tail)
    container_id: str = ""
    attempt: int = 0
    running: bool = False
    began: float | None = None
    ended: float | None = None
    last: Ended | None = None
    state: State = State.UNSTARTED
    restarts: int = 0
    peak: int | None = None
    killed: bool = False
    restart_at: float | None = None

    @property
    def name(self) -> str:
        return self.replica.name

    def used(self, memory: int) -> None:
        """It uses so many bytes now."""
        self.peak = max(memory, self.peak or 0)

    def stopped(self, now: float, how: Ended | None, state: State) -> None:
        """Its container has ended."""
        self.running, self.ended, self.last, self.state = False, now, how, state


class Supervisor:
    """One run, from its network to its summary. All decisions are made in the thread that calls `run`."""

    def __init__(
        self, ready: Ready, containers: Containers, progress: Progress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ready = ready
        self._containers = containers
        self._progress = progress
        self._clock = clock
        self._watcher = Watcher(containers, progress)
        self._live = {replica.name: _Live(replica) for replica in ready.cluster.replicas}
        self._kills = sorted(ready.kills, key=lambda kill: kill.seconds)
        self._missed: list[Kill] = []
        self._deaths: list[DeathResult] = []
        self._failure: Failure | None = None
        self._network: Network | None = None
        self._began = clock()

    def run(self) -> Summary:
        """Runs to the end; removes all containers and the network, however it ends.

        Raises EngineUnavailableError when the engine breaks; what a replica does is told in the summary.
        """
        try:
            try:
                self._start_all()
                self._watch()
            except RefusedError as error:
                self._failure = Failure(name="", message=str(error), last_lines=())
            self._stop_all()
            ended = self._clock()
        finally:
            self._remove_all()
        return self._summary(ended)

    def _start_all(self) -> None:
        ready = self._ready
        labels = ready.owner.labels(ready.run)
        self._network = network = self._containers.create_network(f"imgtool-{ready.spec.name}-{ready.run}", labels)
        everyone = self._live.values()
        made = run_all(
            {live.name: partial(self._containers.create, self._container(live, network)) for live in everyone}
        )
        for name, container_id in made.items():
            self._live[name].container_id = container_id
        run_all({live.name: partial(self._start, live) for live in everyone})
        self._began = self._clock()
        self._progress(Step("run", f"{len(self._live)} replicas in the network {network.name}"))

    def _container(self, live: _Live, network: Network) -> Container:
        ready, replica = self._ready, live.replica
        share = ready.shares[replica.name]
        return Container(
            name=f"imgtool-{ready.spec.name}-{ready.run}-{replica.name}",
            image=replica.image,
            hostname=replica.hostname,
            network=network,
            labels={**ready.owner.labels(ready.run), REPLICA: replica.name},
            env=replica.env,
            aliases=tuple(dict.fromkeys((replica.host, replica.hostname))),
            address=network.address(list(self._live).index(replica.name)),
            command=replica.args,
            entrypoint=replica.command,
            mounts=dict.fromkeys(ready.cluster.mounts, str(ready.job_dir)),
            cpus=share.cpus,
            memory=share.memory,
            gpus=share.gpus,
        )

    def _start(self, live: _Live) -> None:
        self._containers.start(live.container_id, live.name)
        live.running, live.state = True, State.EXITED
        live.began = live.began or self._clock()
        live.attempt += 1
        self._watcher.follow(live.name, live.attempt, live.container_id, live.tail, live.used)

    def _watch(self) -> None:
        """Returns when the master has ended for good, or the run has failed."""
        chief = self._live[self._ready.cluster.chief.name]
        while self._failure is None and not (chief.ended is not None and chief.restart_at is None):
            self._do_what_is_due()
            report = self._watcher.next(_LOOK)
            live = self._about(report)
            if report is None or live is None:
                continue
            if isinstance(report.ended, ImgtoolError):
                raise report.ended
            live.stopped(self._clock(), report.ended, State.EXITED)
            if report.ended.exit_code != 0:
                self._died(live, report.ended)
            live.killed = False

    def _about(self, report: Report | None) -> _Live | None:
        """The replica that a report is about; None when it is about an earlier container of it."""
        live = self._live[report.name] if report else None
        return live if report and live and live.running and report.attempt == live.attempt else None

    def _died(self, live: _Live, ended: Ended) -> None:
        now = self._clock()
        death = Death(
            exit_code=ended.exit_code,
            out_of_memory=ended.out_of_memory and not live.killed,
            restarts=live.restarts,
            restarts_in_all=sum(other.restarts for other in self._live.values()),
        )
        verdict = judge(self._ready.cluster.service, death, self._ready.spec.job.scheduling)
        result = DeathResult(
            name=live.name,
            at=now - self._began,
            exit_code=ended.exit_code,
            rehearsed=live.killed,
            verdict=verdict,
            back_after=None,
            checkpoint=latest(self._ready.job_dir),
        )
        self._deaths.append(result)
        if verdict.action is Action.FAIL:
            share = self._ready.shares[live.name]
            self._failure = failure_of(result, ended, share, live.tail.lines())
            return
        self._progress(Note(f"{live.name} exited {ended.exit_code}: {verdict.because}"))
        live.restart_at = now + verdict.delay
        if verdict.action is Action.RESTART_JOB:
            for other in self._live.values():
                other.running, other.restart_at = False, live.restart_at

    def _do_what_is_due(self) -> None:
        now = self._clock()
        while self._kills and now - self._began >= self._kills[0].seconds:
            self._kill(self._kills.pop(0))
        for live in self._live.values():
            if live.restart_at is not None and now >= live.restart_at:
                self._restart(live)

    def _kill(self, kill: Kill) -> None:
        live = next(
            one for one in self._live.values() if (one.replica.role, one.replica.index) == (kill.role, kill.index)
        )
        if not live.running:
            self._missed.append(kill)
            return
        live.killed = True
        self._progress(Note(f"{live.name} is killed now, {kill.seconds:g} s into the run, as --kill asked"))
        self._containers.signal(live.container_id, "SIGKILL")

    def _restart(self, live: _Live) -> None:
        """A new container in place of the old one: same name, host name and address, nothing of its files."""
        network = self._network
        if network is None:
            return
        live.restart_at = None
        self._containers.remove(live.container_id)
        live.container_id = self._containers.create(self._container(live, network))
        live.restarts += 1
        live.ended = live.last = None
        self._start(live)
        passed = self._clock() - self._began
        self._deaths = [
            replace(one, back_after=passed - one.at) if one.name == live.name and one.back_after is None else one
            for one in self._deaths
        ]
        self._progress(Note(f"{live.name} is restarted"))

    def _stop_all(self) -> None:
        """Stops what still runs, as the services do: SIGTERM, and SIGKILL for what has not ended then."""
        for signal in ("SIGTERM", "SIGKILL"):
            running = [live for live in self._live.values() if live.running]
            run_all({live.name: partial(self._containers.signal, live.container_id, signal) for live in running})
            deadline = self._clock() + STOP_SECONDS
            while any(live.running for live in running) and self._clock() < deadline:
                report = self._watcher.next(_LOOK)
                live = self._about(report)
                if report and live:
                    how = None if isinstance(report.ended, ImgtoolError) else report.ended
                    live.stopped(self._clock(), how, State.STOPPED)

    def _remove_all(self) -> None:
        """Removes until nothing is found twice: a request that was under way may still make something."""
        empty = 0
        for _ in range(_REMOVE_TRIES):
            try:
                empty = 0 if remove_run(self._containers, self._ready.run) else empty + 1
            except ImgtoolError as error:
                self._progress(Note(f"not everything could be removed, the next run will try: {error}"))
                return
            if empty == 2:
                return
            time.sleep(_LOOK)

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
            missed=(*self._missed, *self._kills),
            failure=self._failure,
            checkpoint=latest(ready.job_dir),
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
        )
