"""imgtool: one spec becomes TensorFlow training images, and the job file that runs them.

Five functions are the Python interface: `plan`, `push`, `job`, `verify` and `run`, with the types of their results and
errors. Every other module is private, whatever its name.
"""

# ruff: noqa: E402 - the first lines read no file: a Ctrl-C before them ends in Python's own words
import _signal  # type: ignore[import-not-found]  # `signal` wraps it in enumerations, which take long to import
import gc
import os
import sys


def _end(signum: int, frame: object) -> None:
    """Ends the command at a Ctrl-C that comes while Python still imports it, with 130 and without a traceback.

    A program that uses the Python interface keeps its own handlers. From `core.signals.handle_signals` on, the first
    Ctrl-C ends a run in order.
    """
    del frame
    os._exit(128 + signum)


def _is_command() -> bool:
    """Tells whether Python runs the command, not a program that uses the interface."""
    name = sys.argv[0].rpartition("/")[2]
    if name == "-m":  # Python is still looking for the module, whose name stands before the arguments
        name = sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0]
    return name in {"imgtool", "training-imgtool", __name__}


_NEW_OBJECTS = 100_000  # between searches for garbage: with Python's 700 they take a fifth of a build of many files
if _is_command():
    gc.set_threshold(_NEW_OBJECTS)  # here, since the imports that follow make objects enough for 3 % of a short run
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)

from types import ModuleType
from typing import TYPE_CHECKING

from training_imgtool.core.errors import FieldError, FieldListError, ImgtoolError, VerificationError
from training_imgtool.core.version import __version__

if TYPE_CHECKING:
    from training_imgtool.api import job, plan, push, run, verify
    from training_imgtool.core.results import ByRole, Image, Plan, PlannedImage, Replica, Run, VerifiedImage

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
