"""Multiplies matrices with TensorFlow on each GPU, or on the CPU."""

from __future__ import annotations

from typing import Any


def compute(tensorflow: Any) -> dict[str, Any]:
    """Returns the GPUs that TensorFlow sees, and the devices that it used; raises ValueError for a wrong product."""
    config = tensorflow.config
    listed = getattr(config, "list_physical_devices", None) or config.experimental.list_physical_devices
    gpus = [device.name for device in listed("GPU")]
    used = []
    for device in [f"/GPU:{number}" for number in range(len(gpus))] or ["/CPU:0"]:
        with tensorflow.device(device):
            product = tensorflow.matmul([[1.0, 2.0], [3.0, 4.0]], [[5.0], [6.0]])
        eager = tensorflow.executing_eagerly()
        values = (product.numpy() if eager else tensorflow.compat.v1.Session().run(product)).tolist()
        if values != [[17.0], [39.0]]:
            raise ValueError(f"{device}: a product of matrices is wrong: {values}")
        used.append(device)
    return {"gpus": gpus, "used": used}
