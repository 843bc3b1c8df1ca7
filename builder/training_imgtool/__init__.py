"""imgtool: one spec becomes TensorFlow training images, one per role, and the job file that runs them.

Five functions are the Python interface: `plan`, `push`, `job`, `verify` and `run`, with the types of their results and
errors. Every other module is private, whatever its name.
"""

import training_imgtool.cli.interrupts  # noqa: F401 - the first of all, see there

# isort: split
import sys
from types import ModuleType

from training_imgtool.api import job, plan, push, run, verify
from training_imgtool.core.errors import FieldError, FieldListError, ImgtoolError, VerificationError
from training_imgtool.core.results import ByRole, Image, Plan, PlannedImage, Replica, Run, VerifiedImage
from training_imgtool.core.version import __version__

__all__ = [
    "ByRole",
    "FieldError",
    "FieldListError",
    "Image",
    "ImgtoolError",
    "Plan",
    "PlannedImage",
    "Replica",
    "Run",
    "VerificationError",
    "VerifiedImage",
    "__version__",
    "job",
    "plan",
    "push",
    "run",
    "verify",
]


class _Package(ModuleType):
    """Keeps `plan` and `verify` functions: an import of the private modules of these names would replace them."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
