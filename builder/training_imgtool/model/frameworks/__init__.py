"""The frameworks of images. Each has a module here, and one of the same name in `resolve.frameworks`.

The modules here have facts that need no index. `verify.frameworks` has each framework's part of the smoke test.
"""

from __future__ import annotations

from training_imgtool.model.frameworks.framework import Framework
from training_imgtool.model.frameworks.jax import JAX
from training_imgtool.model.frameworks.tensorflow import TENSORFLOW

__all__ = ["FRAMEWORKS", "JAX", "TENSORFLOW", "Framework", "framework_of"]

FRAMEWORKS = {framework.key: framework for framework in (TENSORFLOW, JAX)}
"""Each framework by its key in a spec and in a lock."""


def framework_of(value: object) -> Framework:
    """Returns the framework of a spec or a variant, which has a field per framework; raises KeyError if none is set."""
    return FRAMEWORKS[next(key for key in FRAMEWORKS if getattr(value, key) is not None)]
