"""Specs that AI Platform or both services refuse: name, target, spec, the wrong key, part of the message."""

from __future__ import annotations

from typing import Any

from tests.jobs.specs import ONE, RUNTIME, cpu, spec
from training_imgtool.model.spec import Gpus, ImageSpec, Role, RoleSpec, Tpu
from training_imgtool.model.targets import Target

M, W, P = Role.MASTER, Role.WORKER, Role.PS
AI, VX = Target.AI_PLATFORM, Target.VERTEX

V100 = "NVIDIA_TESLA_V100"


def gpu(kind: str = V100, count: int = 1, machine: str = "n1-standard-8", **more: Any) -> RoleSpec:
    return RoleSpec(machine=machine, gpus=Gpus(type=kind, count=count), **more)


GOOGLE: list[tuple[str, Target, ImageSpec, str, str]] = [
    ("no machine", AI, spec({M: RoleSpec()}), "roles.master.machine", "is missing: master needs a machine type"),
    ("no region", AI, spec(ONE, region=None), "job.region", "is missing: every job runs in a region"),
    ("no master", AI, spec({Role.PS: cpu()}), "roles", "expected a master or workers"),
    ("no replica", VX, spec({W: cpu(0)}), "roles", "expected a master or workers"),
    ("worker machine", VX, spec({W: RoleSpec(count=2)}), "roles.worker.machine", "is missing"),
    ("project", VX, spec(ONE, project="--foo"), "job.project", "'--foo' is not a project"),
    ("ai project", AI, spec(ONE, project="a b"), "job.project", "'a b' is not a project"),
    (
        "topology",
        AI,
        spec({M: cpu(), W: RoleSpec(tpu=Tpu(type="TPU_V3", topology="2x2"))}),
        "roles.worker.tpu.topology",
        "AI Platform does not support TPU topologies",
    ),
    ("env", AI, spec(ONE, env={"A": "1"}), "job.env", "AI Platform cannot set environment variables"),
    (
        "tier and machine",
        AI,
        spec(ONE, scale_tier="BASIC"),
        "roles.master.machine",
        "works only with the scale tier CUSTOM",
    ),
    (
        "tier and GPUs",
        AI,
        spec({M: RoleSpec(gpus=Gpus(type=V100))}, scale_tier="BASIC_GPU"),
        "roles.master.gpus",
        "works only with",
    ),
    ("tier and roles", AI, spec({M: RoleSpec(), P: RoleSpec()}, scale_tier="BASIC"), "roles.ps", "BASIC has no ps"),
    (
        "tier and count",
        AI,
        spec({M: RoleSpec(), W: RoleSpec(count=3)}, scale_tier="PREMIUM_1"),
        "roles.worker.count",
        "3: the scale tier PREMIUM_1 decides",
    ),
    (
        "no package",
        AI,
        spec(ONE, **{**RUNTIME, "runtime_version": "2.15"}),
        "job.staging",
        "needs its package in Cloud Storage",
    ),
    (
        "runtime",
        AI,
        spec(ONE, package_uris=("gs://bkt/p.tgz",), **RUNTIME),
        "job.runtime_version",
        "'2.11' differs from the TensorFlow version 2.15.1",
    ),
    (
        "runtime command",
        AI,
        spec({M: cpu(command=("x",))}, tensorflow="2.11.1", package_uris=("gs://bkt/p.tgz",), **RUNTIME),
        "roles.master.command",
        "works only with images",
    ),
]
