"""GPU images, with CUDA from wheels: built, pushed, pulled and started, against bake's image of the same content.

They move gigabytes, so they have a part of their own: one role, few rounds. Every build is measured as zstd and as gzip,
and both are pulled.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.bake import Bake
from bench.containerd import Containerd, image_size, open_containerd
from bench.contenders import OURS, Contender, Imgtool, Track, before_packages
from bench.download import Download
from bench.index import serve_wheels
from bench.peers import Peers
from bench.project import Projects, Variation
from bench.report import size, table
from bench.scenarios import Sample, Scenario, run_once
from bench.statistics import middle, ratios
from bench.world import World, open_engine

NAME = "gpu"
HEADING = "# GPU images"
NEEDED = 22 << 30  # bytes of disk
PULLS = 5
_COLD_ROUNDS = 2
_ROLE = "worker"
_SUFFIX = ", gzip"
_GZIP = f"{OURS}{_SUFFIX}"
_PROGRAM = ("/opt/venv/bin/python", "-c", "import tensorflow")
_TARGET = "compression: zstd\n"
GZIP = Variation(name="gpu-gzip", spec="gpu-wheels.yaml")
GPU = replace(GZIP, name="gpu", keys=_TARGET)
PATCH = replace(GPU, name="gpu-patch", tensorflow="2.15.0.post1")
DEBIAN = replace(GPU, name="gpu-debian", keys=f"{_TARGET}system_packages: [libgomp1]\n")


def _nothing(contender: Contender, number: int) -> None:
    del contender, number


def _row(name: str, title: str) -> Scenario:
    return Scenario(name=name, title=title, prepare=_nothing, rounds=1, heavy=True, packages=True)


COLD = _row("gpu-cold", "cold: an empty repository, nothing made yet; wheels and base at hand")
INDEX = _row("gpu-index", "cold, and the wheels come from an index of {rate:.0f} MB/s")
CHANGE = _row("gpu-patch", "TensorFlow 2.15.1 to 2.15.0.post1, its wheel at hand")
ONE_PACKAGE = _row("gpu-debian", "one Debian package added")
PULL = _row("gpu-pull", "pull, unpack and `import tensorflow` by containerd")
_SCENARIOS = (COLD, INDEX, CHANGE, ONE_PACKAGE, PULL)


@dataclass(kw_only=True)
class GpuImages:
    """The measurements of one run, in their order; `samples` and `sizes` are what `results` shows."""

    world: World
    projects: Projects
    earlier: dict[str, Projects]  # of other revisions, which take part in the first build
    peers: Peers
    rate: float  # of the slow index, in MB/s
    pulls: int = PULLS
    samples: list[Sample] = field(default_factory=list)
    sizes: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self) -> Iterator[Sample]:
        """Measures everything, and yields each sample."""
        for sample in self._all():
            self.samples.append(sample)
            yield sample

    def _all(self) -> Iterator[Sample]:
        track = Track(world=self.world, projects=self.projects, counted=False)
        racing = [
            (Imgtool(replace(track, projects=projects), name=f"{name}{suffix}"), variation)
            for suffix, variation in (("", GPU), (_SUFFIX, GZIP))
            for name, projects in ({OURS: self.projects} | self.earlier).items()
        ]
        for number in range(_COLD_ROUNDS):
            for contender, variation in racing[:: -1 if number % 2 else 1]:
                contender.new_machine()
                contender.new_repository()
                yield self._build(COLD, contender, variation, number)
                self.sizes[contender.name] = image_size(track.host, contender.images[_ROLE])
        ours, zipped = (next(one for one, _ in racing if one.name == name) for name in (OURS, _GZIP))
        images = {contender.name: contender.images[_ROLE] for contender in (ours, zipped)}
        yield self._build(CHANGE, ours, PATCH)
        yield self._build(ONE_PACKAGE, ours, DEBIAN)
        yield from self._from_index(track)
        yield from self._against_bake(track, images)

    def _build(self, scenario: Scenario, contender: Imgtool, variation: Variation, number: int = 0) -> Sample:
        contender.take(variation)
        contender.have_wheels(variation)
        return self._measured(scenario, contender, number)

    def _measured(self, scenario: Scenario, contender: Contender, number: int = 0) -> Sample:
        return run_once(scenario, contender, self.world, roles=(_ROLE,), number=number, watch=True)

    def _from_index(self, track: Track) -> Iterator[Sample]:
        wheels = self.projects.wheels(GPU, "gpu")
        with serve_wheels(wheels, self.rate * 1e6) as index:
            ours, zipped = (Imgtool(track, index=index.url, name=name) for name in (OURS, _GZIP))
            racing: list[tuple[Contender, Variation]] = [(ours, GPU), (zipped, GZIP)]
            if shutil.which("curl"):
                racing.append((Download(track, index), GPU))
            for contender, variation in racing:
                contender.new_repository()
                contender.new_machine()
                contender.take(variation)
                yield self._measured(INDEX, contender)
                contender.new_machine()  # the disk is small

    def _against_bake(self, track: Track, ours: dict[str, str]) -> Iterator[Sample]:
        """Bake's build, once; then the pulls. The Engine goes before those, since it has the image three times."""
        if not (self.peers.docker and self.peers.buildx and self.peers.dockerd):
            self.notes.append("No docker, dockerd or buildx here: bake's rows are missing.")
            return
        with open_engine(self.world.folder / "engine", self.peers, self.peers.dockerd, modern=False) as engine:
            bake = Bake(track, engine, f"bake, {engine.version}")
            bake.take(GPU)
            text = (self.projects.rendered(GPU) / f"{_ROLE}.Dockerfile").read_text()
            bake.send(before_packages(text.replace(self.world.registry.host, track.host)))
            yield self._measured(COLD, bake)
        self.sizes[bake.name] = image_size(track.host, bake.image(_ROLE))
        program = self.peers.newer_containerd or shutil.which("containerd")
        if program is None or not shutil.which("ctr"):
            self.notes.append("No containerd or ctr here: the pulls are missing.")
            return
        with open_containerd(self.world.folder / "containerd", Path(program)) as containerd:
            self.notes.append(f"containerd {containerd.version}, snapshotter {containerd.snapshotter}.")
            for number in range(self.pulls):
                for name, image in (ours | {bake.name: bake.image(_ROLE)}).items():
                    yield _pulled(containerd, name, image, number)

    def results(self, machine: str) -> str:
        """The section as Markdown."""
        parts = [f"{HEADING}\n", machine, _NOTES.format(role=_ROLE), "".join(f"- {note}\n" for note in self.notes)]
        parts.append("## Sizes\n\n| | layers | in the registry | largest layer |\n|---|--:|--:|--:|")
        rows = (
            f"| {name} | {count} | {size(total)} | {size(most)} |" for name, (count, total, most) in self.sizes.items()
        )
        parts[-1] += "".join(f"\n{row}" for row in rows) + "\n"
        for scenario in _SCENARIOS:
            chosen = [sample for sample in self.samples if sample.scenario == scenario.name]
            if chosen:
                parts.append(f"## {scenario.title.format(rate=self.rate)}\n\n{table(chosen)}{_cpu_ratio(chosen)}")
        return "\n".join(parts)


_NOTES = """`python -m bench gpu` makes this part: the role `{role}` of images/mnist/gpu-wheels.yaml, TensorFlow 2.15.1 with CUDA 12.2 and
cuDNN 8.9 from wheels, trimmed, with layers in zstd (*gzip* says where not); bake builds the Dockerfile that `imgtool render`
writes of it, which leaves out the same files. Base, index and registry are on loopback; the index has the wheels of the role.
"""


def _pulled(containerd: Containerd, name: str, image: str, number: int) -> Sample:
    """One pull into an empty store, and one start."""
    load = float(Path("/proc/loadavg").read_text().split()[0])
    before, started = containerd.seconds(), time.monotonic()
    containerd.pull(image)
    containerd.run(image, *_PROGRAM)
    wall, cpu = time.monotonic() - started, containerd.seconds() - before
    containerd.forget(image)
    return Sample(
        scenario=PULL.name, track="direct-1", contender=name, number=number, wall=wall, cpu=0.0, service_cpu=cpu,
        registry_cpu=0.0, load=load,
    )  # fmt: skip


def _cpu_ratio(samples: list[Sample]) -> str:
    """The median of the rounds' ratios of CPU seconds, for scenarios with several rounds."""
    names = dict.fromkeys(sample.contender for sample in samples if sample.contender != OURS)
    seconds = {
        name: [sample.cpu + sample.service_cpu for sample in samples if sample.contender == name]
        for name in (OURS, *names)
    }
    rounds = min(map(len, seconds.values()))  # the last may have begun
    pairs = ((name, middle(ratios(seconds[OURS][:rounds], seconds[name][:rounds]))) for name in names if rounds > 1)
    return "".join(f"\nCPU seconds, imgtool ÷ {name}: **{ratio:.2f}**\n" for name, ratio in pairs if ratio)


def replaced(document: str, section: str) -> str:
    """The results with another section about GPU images at their end."""
    return f"{document.partition(HEADING)[0].rstrip()}\n\n{section}"


def kept(document: str) -> str:
    """The section about GPU images of the results, empty when there is none."""
    _, heading, rest = document.partition(HEADING)
    return f"\n{heading}{rest}" if heading else ""
