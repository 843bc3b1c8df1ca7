"""What is measured: a change, on this machine or on one without state, and how often."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.contenders import Contender, ready
from bench.processes import FailedError
from bench.project import BASE, SMALL_PACKAGES, Variation
from bench.world import World

Prepare = Callable[[Contender, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of the tables.

    Attributes:
        name: for the command line.
        title: for people.
        prepare: brings a contender, untimed, to the state before round N.
        rounds: how often each contender runs.
        heavy: moves or makes hundreds of megabytes.
        warm: begins with everything built and pushed.
        elsewhere: on a machine without state.
        packages: the packages change, not the code alone.
        counted: measured through the proxy too.
    """

    name: str
    title: str
    prepare: Prepare
    rounds: int
    heavy: bool = False
    warm: bool = True
    elsewhere: bool = False
    packages: bool = False
    counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run of one contender."""

    scenario: str
    track: str
    contender: str
    number: int  # of the round
    wall: float
    cpu: float
    service_cpu: float
    registry_cpu: float
    load: float  # of the machine's last minute, before the run
    memory: int = 0
    largest: int = 0
    written: int = 0
    requests: dict[str, int] = field(default_factory=dict)  # by method; only through the proxy
    up: int = 0  # bytes of request bodies
    down: int = 0  # bytes of answer bodies


def _nothing(contender: Contender, _: int) -> None:
    """Leaves all as it is."""


def _line(contender: Contender, number: int) -> None:
    contender.edit(f"{number} {time.monotonic_ns()}")


def _elsewhere(contender: Contender, _: int) -> None:
    contender.new_machine()


def _line_elsewhere(contender: Contender, number: int) -> None:
    contender.new_machine()
    _line(contender, number)


def _package(contender: Contender, number: int) -> None:
    _take_with(contender, SMALL_PACKAGES[number % len(SMALL_PACKAGES)])


def _take_with(contender: Contender, name: str) -> None:
    contender.take(Variation(name=f"with-{name}", package=name))


def _cold(contender: Contender, number: int) -> None:
    contender.new_machine()  # each round's image has 1.6 GB, twice where the Engine unpacks it
    contender.new_repository()
    contender.take(BASE)
    contender.new_packages(f"{number} {time.monotonic_ns()}")


def _package_elsewhere(contender: Contender, number: int) -> None:
    contender.new_machine()
    _take_with(contender, SMALL_PACKAGES[-1 - number % len(SMALL_PACKAGES)])  # not one that `package` added


SCENARIOS = (
    Scenario(name="nothing", title="nothing changed", prepare=_nothing, rounds=9),
    Scenario(name="line", title="one line of code changed", prepare=_line, rounds=9),
    Scenario(name="nothing-elsewhere", title="nothing changed, on a machine without state", prepare=_elsewhere,
             rounds=2, elsewhere=True),
    Scenario(name="line-elsewhere", title="one line changed, on a machine without state", prepare=_line_elsewhere,
             rounds=2, elsewhere=True),
    Scenario(name="package", title="one small package added", prepare=_package, rounds=1, heavy=True, packages=True,
             counted=False),
    Scenario(name="package-elsewhere", title="one small package added, on a machine without state",
             prepare=_package_elsewhere, rounds=1, heavy=True, packages=True, elsewhere=True, counted=False),
    Scenario(name="cold", title="cold: an empty repository, nothing made yet; wheels and base at hand", prepare=_cold,
             rounds=2, heavy=True, packages=True, warm=False, counted=False),
)  # fmt: skip


def measure(
    scenario: Scenario, contenders: dict[str, Contender], warm: set[str], world: World, *, rounds: int, watch: bool
) -> Iterator[Sample]:
    """Runs all contenders once per round, in turn, with three roles and with one, and yields what each took.

    Each round begins with another contender: what one writes, the machine puts to disk while the next runs.
    `warm` holds the names of those that pushed before. A contender that fails is left out of the rest, and said.
    """
    for name, contender in tuple(contenders.items()) if scenario.warm else ():
        try:
            ready(contender, first=name not in warm)
            warm.add(name)
        except FailedError as error:
            _leave_out(scenario, contender, error, contenders, world)
    everything = next(iter(contenders.values())).track.roles if contenders else ()
    for roles in (everything,) if scenario.heavy or scenario.elsewhere else (everything, everything[1:2]):
        for number in range(rounds):
            for contender in _rotate(tuple(contenders.values()), number):
                try:
                    scenario.prepare(contender, number)
                    yield run_once(scenario, contender, world, roles=roles, number=number, watch=watch)
                except FailedError as error:
                    _leave_out(scenario, contender, error, contenders, world)


def _rotate(contenders: tuple[Contender, ...], number: int) -> tuple[Contender, ...]:
    first = number % len(contenders) if contenders else 0
    return contenders[first:] + contenders[:first]


def _leave_out(
    scenario: Scenario, contender: Contender, error: FailedError, racing: dict[str, Contender], world: World
) -> None:
    """Says that a row is missing, now and in the results."""
    print(f"{scenario.name}: {contender.name} failed and is left out: {error}", flush=True)
    said = " ".join(str(error).split())
    world.left_out.append(f"*{contender.name}* failed, {scenario.title}: “…{said[-200:]}”")
    racing.pop(next(name for name, one in racing.items() if one is contender))


def run_once(
    scenario: Scenario, contender: Contender, world: World, *, roles: tuple[str, ...], number: int, watch: bool
) -> Sample:
    """Builds once, and says what that took."""
    load = float(Path("/proc/loadavg").read_text().split()[0])
    world.proxy.clear()
    services, registry = contender.service_seconds(), world.registry_seconds()
    usage = contender.build(roles, watch=watch)
    requests: dict[str, int] = {}
    for method in world.proxy.methods():
        requests[method] = requests.get(method, 0) + 1
    return Sample(
        scenario=scenario.name,
        track=f"{contender.track.name}-{len(roles)}",
        contender=contender.name,
        number=number,
        wall=usage.wall,
        cpu=usage.cpu,
        service_cpu=contender.service_seconds() - services,
        registry_cpu=world.registry_seconds() - registry,
        load=load,
        memory=usage.memory,
        largest=usage.largest,
        written=usage.written,
        requests=requests,
        up=world.proxy.bytes_up(),
        down=world.proxy.bytes_down(),
    )
