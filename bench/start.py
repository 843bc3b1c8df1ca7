"""How long `import tensorflow` takes in a container: of the image that imgtool made, and of Docker's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.bake import Bake
from bench.contenders import Contender, Imgtool
from bench.scenarios import START, Sample

_PROGRAM = "import time; t = time.perf_counter(); import tensorflow; print(time.perf_counter() - t)"
_ROLE = "worker"


def starts(contenders: dict[str, Contender], rounds: int) -> Iterator[Sample]:
    """Runs both images in turn on the machine's Engine; nothing where it is missing, or when one was not pushed."""
    ours = next((one for one in contenders.values() if isinstance(one, Imgtool)), None)
    theirs = next((one for one in contenders.values() if type(one) is Bake and not one.engine.modern), None)
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
