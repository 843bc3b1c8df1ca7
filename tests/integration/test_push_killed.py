"""A push that breaks off at each of its requests in turn: the next one ends it, and sends nothing that is there.

The connection is cut before and after the registry acted, and the process is killed before and after.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import yaml

from tests import forked_imgtool
from tests.integration.push_world import Machine, Project, Wheels, check_whole, digests, lines, make_base
from tests.servers.fault_proxy import Action, Exchange, Fault, FaultProxy
from tests.servers.registry_process import run_registry

pytestmark = [pytest.mark.registry, pytest.mark.slow]
CONFIG = "# written by hand\n"
AT_ONCE = 4
SAMPLE = pytest.mark.parametrize(
    "step", [pytest.param(8, id="every eighth"), pytest.param(1, id="each", marks=pytest.mark.long)]
)


class KillingProxy(FaultProxy):
    """A proxy that kills the client, too."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self._at = 0
        self._after = False
        self._victim: Future[int] = Future()

    def plan(self, at: int, *, after: bool) -> None:
        """Kills at the request `at`: before the registry sees it, or once it acted."""
        self._at, self._after, self._victim = at, after, Future()

    def victim(self, pid: int) -> None:
        """Says whom."""
        self._victim.set_result(pid)

    def begin(self, exchange: Exchange, target: str) -> Fault | None:
        fault = super().begin(exchange, target)
        if exchange.number != self._at:
            return fault
        if self._after:
            return Fault(action=Action.CHANGE, change=self._kill)
        self._kill()
        return Fault(action=Action.CUT_BEFORE)

    def _kill(self, status: int = 0, headers: dict[str, str] | None = None, body: bytes = b"") -> Any:
        self._at = 0
        os.kill(self._victim.result(20), signal.SIGKILL)
        return status, headers or {}, body

    def settle(self) -> None:
        """Waits until nothing is under way, so that a dead client's last requests are over."""
        self._at = 0
        for _ in range(500):
            with self.lock:
                if not self._busy:
                    return
            time.sleep(0.01)
        raise AssertionError("the proxy is busy for ever")


@dataclass
class Bench:
    """One project, one registry; every attempt has a repository and a cache of its own."""

    project: Project
    proxy: KillingProxy
    folder: Path
    wheels: Wheels
    attempts: int = 0
    reference: dict[str, str] = field(default_factory=dict)

    def machine(self) -> Machine:
        self.attempts += 1
        made = Machine(
            self.folder / f"m{self.attempts}",
            f"{self.proxy.host}/attempt-{self.folder.name}-{self.attempts}",
            self.proxy.host,
        )
        made.give(self.wheels)
        return made

    def push(self, machine: Machine, *, killed: Callable[[int], None] | None = None) -> dict[str, str] | None:
        """Pushes; None when the process was killed. `killed` is told the process's ID."""
        output = machine.root / "push"
        command = ["build", "--push", "--locked"]
        process = forked_imgtool.start(command, machine.env, self.project.folder, output)
        if killed:
            killed(process.pid or 0)
        code = forked_imgtool.ended(process, 60)
        error = output.with_suffix(".err").read_text() if output.with_suffix(".err").exists() else ""
        assert code in ({0} if killed is None else {0, -signal.SIGKILL}), f"{code} {error}"
        if code:
            return None
        return digests(dict(line.split(" ", 1) for line in output.with_suffix(".out").read_text().splitlines()))

    def check_again(self, machine: Machine, first: list[Exchange]) -> None:
        """Pushes once more without faults: the same digests, and nothing sent that had arrived."""
        self.proxy.clear()
        assert self.push(machine) == self.reference
        there = {_blob(exchange) for exchange in first if _arrived(exchange)}
        again = {_blob(exchange) for exchange in self.proxy.log if exchange.received and exchange.method == "PUT"}
        assert not there & again, "\n".join([*(e.line for e in first), "again:", *lines(self.proxy)])
        assert (self.project.folder / "config.yaml").read_text() == CONFIG


def _blob(exchange: Exchange) -> tuple[str, str]:
    """The repository and the digest of what a PUT carried."""
    repository = exchange.path.partition("/v2/")[2].rpartition("/blobs/")[0]
    return repository, exchange.query.get("digest", [exchange.path])[0]


def _arrived(exchange: Exchange) -> bool:
    return exchange.method == "PUT" and "/blobs/" in exchange.path and exchange.upstream_status == 201


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Bench]]:
    """Several that work side by side: one project and registry, a proxy each."""
    folder = tmp_path_factory.mktemp("killed")
    with run_registry(folder / "registry") as running, ExitStack() as stack:
        base = make_base()
        base.put(running.host)
        wheels = Wheels(folder / "wheels")
        project = Project(folder / "project", wheels, base)
        project.write("config.yaml", CONFIG)
        proxies = [stack.enter_context(KillingProxy(running.host)) for _ in range(AT_ONCE)]
        made = [Bench(project, proxy, folder / str(number), wheels) for number, proxy in enumerate(proxies)]
        reference = made[0].push(made[0].machine())
        assert reference is not None
        for bench in made:
            bench.reference = reference
        yield made


@pytest.fixture(scope="module")
def requests(benches: list[Bench]) -> int:
    """How many requests a push takes that nothing disturbs."""
    bench = benches[0]
    bench.proxy.clear()
    assert bench.push(bench.machine()) == bench.reference
    assert 25 < len(bench.proxy.log) < 80, lines(bench.proxy)
    return len(bench.proxy.log)


def _count(benches: list[Bench], numbers: range, case: Callable[[Bench, int], bool]) -> int:
    """Calls `case` with each number, on whichever bench is free; returns how often it was true."""
    free: Queue[Bench] = Queue()
    for bench in benches:
        free.put(bench)

    def run(number: int) -> bool:
        bench = free.get()
        try:
            return case(bench, number)
        finally:
            free.put(bench)

    with ThreadPoolExecutor(len(benches)) as pool:
        return sum(pool.map(run, numbers))


@SAMPLE
@pytest.mark.parametrize("action", [Action.CUT_BEFORE, pytest.param(Action.CUT_AFTER, marks=pytest.mark.long)])
def test_a_connection_cut_at_a_request(benches: list[Bench], requests: int, action: Action, step: int) -> None:
    def case(bench: Bench, number: int) -> bool:
        machine = bench.machine()
        bench.proxy.clear()
        bench.proxy.add(Fault(action=action, at=number))
        images = bench.push(machine)
        assert images == bench.reference
        arrived = Counter(_blob(exchange) for exchange in bench.proxy.log if _arrived(exchange))
        assert {*arrived.values()} == {1}, f"request {number}: {arrived}"
        place = f"{machine.env['IMGTOOL_REGISTRY']}/demo"
        check_whole(bench.proxy.upstream, [f"{place}@{digest}" for digest in images.values()])
        return len(bench.proxy.log) >= number

    numbers = range(1, requests + 1, step)
    assert _count(benches, numbers, case) >= len(numbers) - (7 if step == 1 else 1)


@pytest.mark.long
@SAMPLE
@pytest.mark.parametrize("after", [False, True], ids=["before the registry acts", "after the registry acted"])
def test_the_process_killed_at_a_request(benches: list[Bench], requests: int, after: bool, step: int) -> None:
    def case(bench: Bench, number: int) -> bool:
        machine = bench.machine()
        bench.proxy.clear()
        bench.proxy.plan(number, after=after)
        killed = bench.push(machine, killed=bench.proxy.victim) is None
        bench.proxy.settle()
        bench.check_again(machine, list(bench.proxy.log))
        return killed

    # A run may have one or two requests fewer than the one that was counted.
    numbers = range(1, requests + 1, step)
    assert _count(benches, numbers, case) >= len(numbers) - (7 if step == 1 else 1)


def test_the_job_file_after_all_that(benches: list[Bench]) -> None:
    bench = benches[0]
    machine = bench.machine()
    images = bench.push(machine)
    machine.run("config", "--locked", "-o", "config.yaml", cwd=bench.project.folder)
    text = (bench.project.folder / "config.yaml").read_text()
    named = yaml.safe_load(text)["trainingInput"]
    assert images is not None
    assert named["masterConfig"]["imageUri"].endswith(images["master"])
    bench.project.write("config.yaml", CONFIG)
    check_whole(bench.proxy.host, [named["masterConfig"]["imageUri"]])
