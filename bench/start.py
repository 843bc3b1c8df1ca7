"""How long the command takes to start, and `import tensorflow` in a container of imgtool's image and of Docker's own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.bake import Bake
from bench.contenders import OURS, Contender, Imgtool
from bench.scenarios import START, Sample

_PROGRAM = "import time; t = time.perf_counter(); import tensorflow; print(time.perf_counter() - t)"
_ROLE = "worker"


def helps(command: Path, rounds: int) -> Iterator[Sample]:
    """Times `imgtool --help`; the first run, which reads the files from the disk, does not count."""
    for number in range(-1, rounds):
        load = float(Path("/proc/loadavg").read_text().split()[0])
        before, cpu = time.perf_counter(), os.times()
        subprocess.run([command, "--help"], stdout=subprocess.DEVNULL, check=True)
        wall, after = time.perf_counter() - before, os.times()
        used = after.children_user + after.children_system - cpu.children_user - cpu.children_system
        if number >= 0:
            yield Sample(
                scenario="help",
                track="direct-3",
                contender=OURS,
                number=number,
                wall=wall,
                cpu=used,
                service_cpu=0.0,
                registry_cpu=0.0,
                load=load,
            )


def starts(contenders: dict[str, Contender], rounds: int) -> Iterator[Sample]:
    """Runs both images in turn on the machine's Engine; nothing where it is missing, or when one was not pushed."""
    ours = next((contender for contender in contenders.values() if isinstance(contender, Imgtool)), None)
    theirs = next(
        (contender for contender in contenders.values() if type(contender) is Bake and not contender.engine.modern),
        None,
    )
    if ours is None or theirs is None or _ROLE not in ours.images:
        return
    images = {ours.name: ours.images[_ROLE], theirs.name: theirs.image(_ROLE)}
    for image in images.values():
        theirs.engine.do("pull", "--quiet", image)
    for number in range(rounds):
        for name, image in images.items():
            load = float(Path("/proc/loadavg").read_text().split()[0])
            before = theirs.engine.seconds()
            run = ("run", "--rm", "--network=none", "--entrypoint=/opt/venv/bin/python", image, "-c", _PROGRAM)
            seconds = float(theirs.engine.do(*run).split()[-1])
            yield Sample(
                scenario=START.name,
                track="direct-1",
                contender=name,
                number=number,
                wall=seconds,
                cpu=0.0,
                service_cpu=theirs.engine.seconds() - before,
                registry_cpu=0.0,
                load=load,
            )
