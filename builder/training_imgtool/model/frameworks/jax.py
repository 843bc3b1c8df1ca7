"""The facts about JAX that imgtool knows without asking a package index."""

from __future__ import annotations

from training_imgtool.model.frameworks.framework import Framework

JAX = Framework(
    key="jax",
    title="JAX",
    example="0.10.2",
    packages=("jax",),
    others=r"jax-nightly|jax-metal|jax-rocm.*",
    cuda_extras=("cuda", "cuda12", "cuda13", "cuda12-local", "cuda13-local"),
    cuda_from="wheels",
    cuda_form=("12|13", "12 or 13"),
    backend="jax",
    roles=("master", "worker"),
    tpu_target="jobset",
    no_role="all of its processes compute",
    one_process="uses all devices of a replica from one process",
)
