"""`python -m bench [SCENARIO…]`: runs the scenarios, all by default, and then writes bench/RESULTS.md.

`python -m bench nothing line` runs two of them and prints the rows. `--project torch-digits --spec gpu.yaml` builds another
example than images/mnist. `--before REV` races the imgtool of an earlier commit in the same rounds, each with its own
checkout's example: a change makes no row worse.

Where the base image is: IMGTOOL_MIRRORS=docker.io=HOST:PORT, as `scripts/services env` says. Peers: IMGTOOL_PEERS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from bench import report
from bench.bake import Bake
from bench.contenders import OURS, Contender, Imgtool, Track
from bench.crane import Crane
from bench.dockerpy import DockerPy
from bench.installed import install, install_revision
from bench.machine import describe
from bench.peers import Peers, find_peers
from bench.processes import FailedError
from bench.project import Projects
from bench.scenarios import SCENARIOS, Sample, Scenario, measure
from bench.uvdocker import UvDockerfile
from bench.world import Engine, World, copy_base, open_engine, open_registry

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
NEEDED = 64 << 30  # bytes of disk: each of the others keeps an image of 1.6 GB per version, twice
IMAGE = "library/python:3.11-slim-bookworm"


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that services end
    peers = find_peers(os.environ)
    scenarios = [scenario for scenario in SCENARIOS if not options.scenarios or scenario.name in options.scenarios]
    samples: list[Sample] = []
    with contextlib.ExitStack() as stack:
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="imgtool-bench-", dir=options.folder))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        free = shutil.disk_usage(folder).free
        if free < NEEDED and not options.scenarios:
            sys.exit(
                f"{free >> 30} GiB free at {folder.parent}, a whole run needs {NEEDED >> 30}: --folder, or name scenarios"
            )
        world = stack.enter_context(_world(folder, peers, options))
        ours = install(folder / "imgtool")
        machine = describe(peers, world, ours.python)
        print(machine, flush=True)
        projects = Projects(folder / "projects", world.registry.host, ours, options.project, options.spec)
        earlier = _earlier(folder, world, options)
        for counted in (False, True):
            if options.track and (options.track == "counted") != counted:
                continue
            track = Track(world=world, projects=projects, counted=counted)
            tracks = {OURS: track} | {name: replace(track, projects=theirs) for name, theirs in earlier.items()}
            for sample in _all(scenarios, tracks, peers, options):
                samples.append(sample)
                print(report.line(sample), flush=True)
                if options.json:
                    options.json.write_text(json.dumps([asdict(sample) for sample in samples], indent=1))
                if not options.scenarios:
                    # What there is by then, if the run is cut.
                    RESULTS.write_text(report.results(machine, samples, world.left_out))
    if options.scenarios:
        print(report.results(machine, samples, world.left_out))
    return 0


def _earlier(folder: Path, world: World, options: argparse.Namespace) -> dict[str, Projects]:
    """Installs the revisions that race; returns their projects by the contender's name."""
    return {
        f"{OURS} {revision}": Projects(
            home / "projects", world.registry.host, install_revision(home, revision), options.project, options.spec
        )
        for revision in options.before
        for home in (folder / f"imgtool-{revision}",)
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{', '.join(names)}; all by default")
    parser.add_argument(
        "--rounds", type=int, help="how often each contender runs, instead of the scenario's own number"
    )
    parser.add_argument(
        "--delay", type=float, default=20.0, metavar="MS", help="round trip for the delayed rounds (20)"
    )
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave a contender out")
    parser.add_argument("--before", action="append", default=[], metavar="REV", help="race this revision too, by git")
    parser.add_argument("--project", default="mnist", help="which example of images (mnist)")
    parser.add_argument("--spec", default="image.yaml", help="which spec of the example (image.yaml)")
    parser.add_argument("--track", choices=("direct", "counted"), help="only without, or through, the proxy")
    parser.add_argument("--folder", type=Path, help=f"where to work; a whole run needs {NEEDED >> 30} GiB")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(names)
    if unknown:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


@contextlib.contextmanager
def _world(folder: Path, peers: Peers, options: argparse.Namespace) -> Iterator[World]:
    source = dict(part.split("=") for part in os.environ.get("IMGTOOL_MIRRORS", "").split(",") if "=" in part)
    if "docker.io" not in source:
        sys.exit('where is the base image? eval "$(scripts/services env)" sets IMGTOOL_MIRRORS')
    with contextlib.ExitStack() as stack:
        registry, proxy = stack.enter_context(open_registry(folder))
        base = copy_base(source["docker.io"], IMAGE, registry.host)
        engines: dict[str, Engine] = {}
        for name, dockerd, modern in _daemons(peers):
            if f"engine-{name}" in options.without:
                continue
            try:
                engines[name] = stack.enter_context(open_engine(folder / name, peers, dockerd, modern=modern))
            except (FailedError, OSError) as error:
                print(f"no Engine {name}: {error}", flush=True)
        yield World(folder=folder, registry=registry, proxy=proxy, base=base, engines=engines)


def _daemons(peers: Peers) -> Iterator[tuple[str, Path, bool]]:
    """Engines to start: the machine's, and the newer one that IMGTOOL_PEERS may hold."""
    if peers.docker is None or os.geteuid() != 0:
        return
    if peers.dockerd:
        yield "machine", peers.dockerd, False
    if peers.newer_dockerd:
        yield "newer", peers.newer_dockerd, True


def _all(
    scenarios: list[Scenario], tracks: dict[str, Track], peers: Peers, options: argparse.Namespace
) -> Iterator[Sample]:
    """All scenarios: once by the clock alone, once through the proxy with its counts and, where it tells, its delay.

    `tracks` has a track for each revision of imgtool that races; that of this checkout is everybody else's too.
    """
    track = tracks[OURS]
    contenders = {
        contender.name: contender for contender in _contenders(tracks, peers) if contender.name not in options.without
    }
    warm: set[str] = set()
    for scenario in scenarios:
        if track.counted and not scenario.counted:
            continue
        racing = {name: contenders[name] for name in contenders if _takes_part(contenders[name], scenario)}
        for contender in racing.values():
            if isinstance(contender, Bake):
                contender.inline_cache = scenario.elsewhere
        track.world.proxy.delay = 0.0 if scenario.heavy else options.delay / 1000
        rounds = options.rounds or (1 if scenario.heavy and track.counted else scenario.rounds)
        watch = scenario.heavy and not track.counted
        yield from measure(scenario, racing, warm, track.world, rounds=rounds, watch=watch)


def _contenders(tracks: dict[str, Track], peers: Peers) -> Iterator[Contender]:
    for name, its in tracks.items():
        ours = Imgtool(its, name)
        ours.new_machine()
        yield ours
    track = tracks[OURS]
    yield Imgtool(track, f"{OURS}, zstd", "zstd")
    for name, engine in track.world.engines.items():
        if peers.buildx:
            yield Bake(track, engine, f"bake, {engine.version}")
        if peers.buildx and engine.modern:
            yield UvDockerfile(track, engine, f"uv + Dockerfile, {engine.version}")
        if name == "machine":
            yield DockerPy(track, engine, f"docker-py, {engine.version}")
    if peers.crane:
        yield Crane(track, peers.crane, "crane append")
        yield Crane(track, peers.crane, "uv + tar + crane", packages=True)


def _takes_part(contender: Contender, scenario: Scenario) -> bool:
    """Who has something to say to a scenario; docker-py, the slowest, to a few, and zstd where all layers are made."""
    if isinstance(contender, Imgtool) and contender.compression != "gzip":
        return not scenario.warm
    if isinstance(contender, Crane):
        return contender.packages == scenario.packages
    if isinstance(contender, DockerPy):
        return scenario.name in {"nothing", "line", "cold"}
    return True


if __name__ == "__main__":
    sys.exit(main())
