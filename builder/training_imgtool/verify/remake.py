"""Makes an image from the current inputs again, without storing the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_imgtool.base.progress import Step
from training_imgtool.make.direct_builder import DirectBuilder, python_release
from training_imgtool.make.parents import BaseParents
from training_imgtool.make.request import BuildOptions, BuildRun
from training_imgtool.oci.image.image import DirectImage
from training_imgtool.plan.inputs import Inputs, RoleImage
from training_imgtool.resolve.wheels.interpreters import find_interpreter

if TYPE_CHECKING:
    from training_imgtool.oci.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Remade:
    """An image made again, and whether this machine has exactly the release of Python for the image's bytecode."""

    image: DirectImage
    compiles_alike: Callable[[], bool]


@contextmanager
def remake(inputs: Inputs, image: RoleImage, machine: Machine) -> Iterator[Remade]:
    """Makes a role's image on its base image. The code in the block can read the image's layers.

    This function uses nothing from the image's repository. Layers come from this machine's cache, or imgtool makes them
    from the locked wheels, the base (by digest) and the code.

    Raises NeedsEngineError if only an engine can make the image, NoInterpreterError if this machine lacks the image's
    minor version of Python, WheelGoneError if no index has a wheel any more, and what fetching wheels and the base
    raises.
    """
    machine.progress(Step(str(image.role), "making the image again"))
    run = BuildRun(inputs=inputs, options=BuildOptions(), machine=machine)
    builder = DirectBuilder(run)
    appending = BaseParents(run, builder).of(image)
    python = image.locked.variant.python
    release = python_release(appending.parent.stored.config, python)

    def compiles_alike() -> bool:
        found = find_interpreter(python, machine.settings.environ, release) if release else None
        return found is not None and found.version == release

    with builder.append(appending, str(image.role)) as made:
        yield Remade(image=made, compiles_alike=compiles_alike)
