"""Multiplies matrices with JAX on each GPU, or on the CPU."""

from __future__ import annotations

from typing import Any


def compute(jax: Any) -> dict[str, Any]:
    """Returns the GPUs that JAX sees, and the devices that it used; raises ValueError for a wrong product."""
    numpy, used = jax.numpy, []
    devices = jax.local_devices()
    for device in devices:
        with jax.default_device(device):
            values = numpy.dot(numpy.array([[1.0, 2.0], [3.0, 4.0]]), numpy.array([[5.0], [6.0]])).tolist()
        if values != [[17.0], [39.0]]:
            raise ValueError(f"{device}: a product of matrices is wrong: {values}")
        used.append(str(device))
    return {"gpus": [str(device) for device in devices if device.platform in {"gpu", "cuda"}], "used": used}
