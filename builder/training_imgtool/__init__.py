"""imgtool: one spec becomes TensorFlow training images, and the job file that runs them.

Five functions are the Python interface: `plan`, `push`, `job`, `verify` and `run`, with the types of their results and
errors. Every other module is private, whatever its name.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from training_imgtool.base.errors import FieldError, FieldListError, ImgtoolError, VerificationError
from training_imgtool.base.version import __version__

if TYPE_CHECKING:
    from training_imgtool.api import job, plan, push, run, verify
    from training_imgtool.base.results import ByRole, Image, Plan, PlannedImage, Replica, Run, VerifiedImage

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
    """Loads the interface at its first use: the command, which imports this package too, has no use for it.

    It keeps `plan` and `verify` functions: an import of the private modules of these names would replace them.
    """

    def __getattr__(self, name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from training_imgtool import api

        value: object = getattr(api, name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})


sys.modules[__name__].__class__ = _Package
