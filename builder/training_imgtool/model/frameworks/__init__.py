"""The frameworks of images. Each framework has a module here and a module of the same name in `resolve.frameworks`.

The modules here need no package index. `verify.frameworks` contains each framework's part of the smoke test.
"""

from __future__ import annotations

from training_imgtool.model.frameworks.framework import Framework
from training_imgtool.model.frameworks.jax import JAX
from training_imgtool.model.frameworks.tensorflow import TENSORFLOW
from training_imgtool.model.frameworks.torch import TORCH

__all__ = ["FRAMEWORKS", "JAX", "TENSORFLOW", "TORCH", "Framework", "framework_of"]

FRAMEWORKS = {framework.key: framework for framework in (TENSORFLOW, JAX, TORCH)}
"""Each framework by its key in a spec and in a lock."""


def framework_of(value: object) -> Framework:
    """Returns the framework of a spec or a variant; raises KeyError if none of the frameworks' fields is set."""
    return FRAMEWORKS[next(key for key in FRAMEWORKS if getattr(value, key) is not None)]
