"""Multiplies matrices with PyTorch on each GPU, or on the CPU."""

from __future__ import annotations

from typing import Any


def compute(torch: Any) -> dict[str, Any]:
    """Returns the GPUs that PyTorch sees, and the devices that it used; raises ValueError for a wrong product."""
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    used = []
    for device in gpus or ["cpu"]:
        product = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device) @ torch.tensor([[5.0], [6.0]], device=device)
        values = product.tolist()
        if values != [[17.0], [39.0]]:
            raise ValueError(f"{device}: a product of matrices is wrong: {values}")
        used.append(device)
    return {"gpus": gpus, "used": used}
