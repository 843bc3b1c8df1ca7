"""Samples as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.contenders import OURS
from bench.scenarios import SCENARIOS, Sample, Scenario
from bench.statistics import middle, ratios, spread

_HEAD = (
    "| | wall s | quartiles | imgtool ÷ this | CPU s | of it in daemons | memory | disk | requests | sent | received"
    " | load |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
)

_COUNTS = ("one role", "two roles", "three roles", "four roles")
_NOTES = """How to read it. Each contender runs once per round, one after the other, on a machine that does nothing else; a
ratio is taken within its round, and its median is in bold: below 1, imgtool took less time. `make bench` makes this file.

- *bake* is `docker buildx bake --push` of the Dockerfiles that `imgtool render -o` writes; on the newer Engine with what
  its BuildKit allows (`COPY --link`, one shared target, mounted wheels, WORKDIR before the code), no provenance. Engine 28
  unpacks what it pushes although it is told not to (moby/moby#51493, mended in 29): about a quarter of its cold time.
- *uv + Dockerfile*: the same, with one RUN that installs the mounted wheels with uv and compiles them.
- *docker-py*: the roles built and pushed one after the other by the Engine's classic builder, as launchers do.
- *crane append* appends the code to images that were made beforehand, and cannot tell whether they are still right;
  *uv + tar + crane* makes those too, in each run.
- *memory* is the largest sum of resident sets of the command's processes, *disk* what they gave the disk to write; what
  daemons use is in neither. CPU seconds have the daemons' in them.
- On a machine without state, bake has its last push's cache inline in the images; 20.10.24 finds it in some rounds, and
  takes a minute in the others.
- Through the proxy, requests and bytes are counted, and for small changes each request takes 20 ms more.
- The base image is a stand-in of 53 MB made of Debian packages, the wheels are real.
"""

GROWTH = """## How the cost of a push grows

![CPU seconds of three pushes with more images, packages, files and variants](growth.svg)

`python -m bench.growth` measures one push of each kind and draws this picture, in CPU seconds of imgtool. "From nothing" makes all layers of TensorFlow's
wheels and of the code; the other two pushes follow it. *roles* are different images with the same wheels, *packages* small wheels beside TensorFlow,
*files* small files of code, and *variants* roles with a base of their own each. imgtool makes the layers of wheels once for all roles and bases.
"""


def line(sample: Sample) -> str:
    """One sample, while it goes on."""
    text = f"{sample.scenario:18} {sample.track:10} {sample.contender:26} {sample.wall:7.3f} s"
    text += f"  cpu {sample.cpu + sample.service_cpu:7.2f}  load {sample.load:4.1f}"
    if sample.requests:
        text += f"  {sum(sample.requests.values())} requests, {size(sample.up)} up, {size(sample.down)} down"
    if sample.memory:
        text += f"  memory {size(sample.memory)}, largest {size(sample.largest)}, written {size(sample.written)}"
    return text


def results(machine: str, samples: Sequence[Sample], left_out: Sequence[str]) -> str:
    """All tables, and before them who was faster than imgtool and who failed."""
    parts = ["# Measured\n", machine, _NOTES, "".join(f"- {note}\n" for note in (*_faster(samples), *left_out))]
    parts += [f"## {scenario.title}: {_track(track)}\n\n{table(chosen)}" for scenario, track, chosen in _races(samples)]
    return "\n".join([*parts, GROWTH])


def _faster(samples: Sequence[Sample]) -> Iterator[str]:
    """Where imgtool took more time than another, a line each."""
    for scenario, track, chosen in _races(samples):
        rounds = 1 + max(sample.number for sample in chosen)
        ours = _walls(chosen, OURS, rounds)
        for name in dict.fromkeys(sample.contender for sample in chosen if sample.contender != OURS):
            ratio = middle(ratios(ours, _walls(chosen, name, rounds)))
            if ratio is not None and ratio >= 1.005:
                yield f"*{name}* is faster, {scenario.title}, {_track(track)}: imgtool takes {ratio:.2f} times as long"


def _races(samples: Sequence[Sample]) -> Iterator[tuple[Scenario, str, list[Sample]]]:
    """What was measured side by side: a scenario, its track, and the samples."""
    for scenario in SCENARIOS:
        for track in dict.fromkeys(sample.track for sample in samples if sample.scenario == scenario.name):
            yield (
                scenario,
                track,
                [sample for sample in samples if sample.scenario == scenario.name and sample.track == track],
            )


def _track(track: str) -> str:
    kind, roles = track.split("-")
    how = "the registry on loopback" if kind == "direct" else "through the counting proxy"
    return f"{_COUNTS[int(roles) - 1]}, {how}"


def table(samples: Sequence[Sample]) -> str:
    """One scenario on one track: a row per contender."""
    rounds = 1 + max(sample.number for sample in samples)
    names = dict.fromkeys(sample.contender for sample in samples)
    ours = _walls(samples, OURS, rounds)
    return _HEAD + "".join(_row(samples, name, rounds, ours) for name in names)


def _walls(samples: Sequence[Sample], name: str, rounds: int) -> tuple[float, ...]:
    walls = {sample.number: sample.wall for sample in samples if sample.contender == name}
    return tuple(walls.get(number, float("nan")) for number in range(rounds))


def _row(samples: Sequence[Sample], name: str, rounds: int, ours: tuple[float, ...]) -> str:
    mine = [sample for sample in samples if sample.contender == name]
    walls = _walls(samples, name, rounds)
    quartiles = spread(walls)
    ratio = middle(ratios(ours, walls)) if name != OURS else None
    counted = any(sample.requests for sample in mine)
    watched = any(sample.memory for sample in mine)
    cells = [
        name,
        _number(middle(walls)),
        f"{quartiles[0]:.2f}–{quartiles[1]:.2f}" if quartiles else "",  # noqa: RUF001 a dash between numbers
        f"**{ratio:.2f}**" if ratio is not None else "",
        _number(middle([sample.cpu + sample.service_cpu for sample in mine])),
        _number(middle([sample.service_cpu for sample in mine])),
        size(max(sample.memory for sample in mine)) if watched else "",
        size(max(sample.written for sample in mine)) if watched else "",
        _requests(mine) if counted else "",
        size(middle([sample.up for sample in mine]) or 0) if counted else "",
        size(middle([sample.down for sample in mine]) or 0) if counted else "",
        _number(middle([sample.load for sample in mine])),
    ]
    return f"| {' | '.join(cells)} |\n"


def _requests(samples: Sequence[Sample]) -> str:
    """The median number of requests, and that round's methods."""
    ranked = sorted(samples, key=lambda sample: sum(sample.requests.values()))
    typical = ranked[len(ranked) // 2].requests
    return f"{sum(typical.values())} ({', '.join(f'{count} {name}' for name, count in sorted(typical.items()))})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def size(count: float) -> str:
    """Bytes for people: `0 B`, `1.2 kB`, `319 MB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
