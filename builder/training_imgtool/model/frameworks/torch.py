"""The facts about PyTorch that imgtool knows without asking a package index."""

from __future__ import annotations

from training_imgtool.base.settings import TORCH_INDEX
from training_imgtool.model.frameworks.framework import Framework

TORCH = Framework(
    key="torch",
    title="PyTorch",
    example="2.13.0",
    packages=("torch",),
    others=r"pytorch|torch-nightly|torch-directml|torch-xla|torch-tpu",
    cuda_extras=(),
    cuda_from="wheels",
    cuda_form=(r"\d{2}\.\d", "MAJOR.MINOR, such as 12.6"),
    trims=False,
    complete=("torch", "triton", "nvidia-", "cuda-"),
    compiled=("flash-attn", "apex", "deepspeed"),
    build_index=TORCH_INDEX,
    roles=("master", "worker", "evaluator"),
    tpu_target="jobset",
    no_role="its processes exchange gradients among themselves",
)
