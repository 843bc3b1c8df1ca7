"""Specs that AI Platform or both services refuse: name, target, spec, the wrong key, part of the message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.jobs.specs import ONE, RUNTIME, TPU, cpu, spec
from training_imgtool.spec.job import Hyperparameters, Parameter, Scheduling
from training_imgtool.spec.model import Disk, Gpus, ImageSpec, Role, RoleSpec, Tpu
from training_imgtool.spec.targets import Target

M, W, P = Role.MASTER, Role.WORKER, Role.PS
AI, VX = Target.AI_PLATFORM, Target.VERTEX

V100 = "NVIDIA_TESLA_V100"


def gpu(kind: str = V100, count: int = 1, machine: str = "n1-standard-8", **more: Any) -> RoleSpec:
    return RoleSpec(machine=machine, gpus=Gpus(type=kind, count=count), **more)


def tuned(*params: Parameter, **more: Any) -> dict[str, Any]:
    return {"hyperparameters": Hyperparameters(**{"goal": "MAXIMIZE", "params": params, **more})}


def param(kind: str, **more: Any) -> Parameter:
    return Parameter(name="p", type=kind, **more)


LEGACY_GPU = RoleSpec(machine="standard_gpu", gpus=Gpus(type="NVIDIA_TESLA_K80"))
OTHER_MINOR = {M: cpu(), W: RoleSpec(tpu=Tpu(type="TPU_V3", tf_version="2"))}

GOOGLE: list[tuple[str, Target, ImageSpec, str, str]] = [
    ("no machine", AI, spec({M: RoleSpec()}), "roles.master.machine", "is missing: master needs a machine type"),
    ("no region", AI, spec(ONE, region=None), "job.region", "is missing: every job runs in a region"),
    ("zone", AI, spec(ONE, region="us-central1-a"), "job.region", "'us-central1-a' is not a region"),
    ("region typo", AI, spec(ONE, region="us-centrall1"), "job.region", "'us-centrall1' is not a region with training"),
    ("no master", AI, spec({Role.PS: cpu()}), "roles", "expected a master or workers"),
    ("no replica", VX, spec({W: cpu(0)}), "roles", "expected a master or workers"),
    ("worker machine", VX, spec({W: RoleSpec(count=2)}), "roles.worker.machine", "is missing"),
    ("project", VX, spec(ONE, project="--foo"), "job.project", "'--foo' is not a project"),
    ("ai project", AI, spec(ONE, project="a b"), "job.project", "'a b' is not a project"),
    ("job id", AI, spec(ONE, id="my-job.1"), "job.id", "'my-job.1' is not a job's name"),
    ("job id digit", AI, spec(ONE, id="1job"), "job.id", "'1job' is not a job's name"),
    ("long job id", AI, spec(ONE, id="j" * 129), "job.id", "128 at most"),
    ("label name", AI, spec(ONE, labels={"Team": "x"}), "job.labels.Team", "'Team' is not a label's name"),
    ("label value", AI, spec(ONE, labels={"team": "A B"}), "job.labels.team", "'A B' is not a label's value"),
    ("65 labels", AI, spec(ONE, labels={f"l{i}": "" for i in range(65)}), "job.labels", "has 65: expected 64"),
    (
        "machine",
        AI,
        spec({M: cpu(1, "n1-standard-2")}),
        "roles.master.machine",
        "'n1-standard-2' is not a machine type",
    ),
    ("GPU count", AI, spec({M: gpu(count=3)}), "roles.master.gpus.count", "3 x NVIDIA_TESLA_V100 does not fit"),
    (
        "GPU floor",
        AI,
        spec({M: gpu(count=1, machine="n1-standard-16")}),
        "roles.master.gpus.count",
        "it takes 2, 4 or 8",
    ),
    ("GPU for it", AI, spec({M: gpu("NVIDIA_TESLA_A100")}), "roles.master.gpus.type", "does not fit n1-standard-8"),
    (
        "no L4 there",
        AI,
        spec({M: gpu("NVIDIA_L4")}),
        "roles.master.gpus.type",
        "found 'NVIDIA_L4': expected NVIDIA_TESLA_K80",
    ),
    (
        "GPU region",
        AI,
        spec({M: gpu()}, region="us-east1"),
        "roles.master.gpus.type",
        "us-east1 has no NVIDIA_TESLA_V100",
    ),
    ("legacy + GPU", AI, spec({M: LEGACY_GPU}), "roles.master.gpus", "does not go with the legacy type standard_gpu"),
    (
        "mixed",
        AI,
        spec({M: cpu(), W: cpu(1, "standard")}),
        "roles.worker.machine",
        "standard is a legacy type, but masterType",
    ),
    (
        "mixed 2",
        AI,
        spec({M: cpu(1, "standard"), P: cpu()}),
        "roles.ps.machine",
        "is a Compute Engine type, but masterType",
    ),
    (
        "two TPUs",
        AI,
        spec({M: cpu(), W: replace(TPU[W], count=2)}, tensorflow="2.11.1"),
        "roles.worker.count",
        "expected 1",
    ),
    (
        "TPU count",
        AI,
        spec({M: cpu(), W: RoleSpec(tpu=Tpu(type="TPU_V3", count=4))}),
        "roles.worker.tpu.count",
        "4 x TPU_V3: expected 8",
    ),
    (
        "TPU pod",
        AI,
        spec({M: cpu(), W: RoleSpec(tpu=Tpu(type="TPU_V3_POD"))}),
        "roles.worker.tpu.type",
        "the sizes of TPU_V3_POD are not known",
    ),
    ("TPU region", AI, spec(TPU, region="us-west1"), "roles.worker.tpu.type", "us-west1 has no TPU_V3"),
    ("TPU version", AI, spec(OTHER_MINOR), "roles.worker.tpu.tf_version", "'2': expected TensorFlow's MAJOR.MINOR"),
    (
        "TPU on a VM",
        AI,
        spec({M: cpu(), W: RoleSpec(machine="n1-standard-8", tpu=Tpu(type="TPU_V3"))}),
        "roles.worker.tpu.type",
        "TPU_V3 needs workerType cloud_tpu",
    ),
    (
        "topology",
        AI,
        spec({M: cpu(), W: RoleSpec(tpu=Tpu(type="TPU_V3", topology="2x2"))}),
        "roles.worker.tpu.topology",
        "AI Platform has no TPU topology",
    ),
    (
        "2h",
        AI,
        spec(ONE, scheduling=Scheduling(max_running="2h")),
        "job.scheduling.max_running",
        "'2h' is not a duration",
    ),
    (
        "short wait",
        AI,
        spec(ONE, scheduling=Scheduling(max_wait="60s")),
        "job.scheduling.max_wait",
        "60s is too short: expected 1800s",
    ),
    (
        "priority",
        AI,
        spec(ONE, scheduling=Scheduling(priority=1001)),
        "job.scheduling.priority",
        "1001: expected 0 to 1000",
    ),
    ("bucket", AI, spec(ONE, job_dir="/tmp/x"), "job.job_dir", "'/tmp/x' is not a path in Cloud Storage"),
    ("network", AI, spec(ONE, network="default"), "job.network", "expected projects/NUMBER/global/networks/NAME"),
    ("network name", AI, spec(ONE, network="projects/mine/global/networks/n"), "job.network", "is not a network"),
    ("account", AI, spec(ONE, service_account="trainer"), "job.service_account", "expected its e-mail address"),
    ("key", AI, spec(ONE, encryption_key="mykey"), "job.encryption_key", "is not a Cloud KMS key"),
    ("env", AI, spec(ONE, env={"A": "1"}), "job.env", "AI Platform cannot set environment variables"),
    (
        "disk",
        AI,
        spec({M: cpu(disk=Disk(type="ssd"))}),
        "roles.master.disk.type",
        "'ssd': expected pd-ssd, pd-standard",
    ),
    ("tier", AI, spec({M: RoleSpec()}, scale_tier="HUGE"), "job.scale_tier", "found 'HUGE': expected BASIC"),
    (
        "tier and machine",
        AI,
        spec(ONE, scale_tier="BASIC"),
        "roles.master.machine",
        "goes only with the scale tier CUSTOM",
    ),
    (
        "tier and GPUs",
        AI,
        spec({M: RoleSpec(gpus=Gpus(type=V100))}, scale_tier="BASIC_GPU"),
        "roles.master.gpus",
        "goes only with",
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
        "'2.11' is another TensorFlow than 2.15.1",
    ),
    (
        "runtime python",
        AI,
        spec(ONE, tensorflow="2.11.1", package_uris=("gs://bkt/p.tgz",), **{**RUNTIME, "python_version": "3.9"}),
        "job.python_version",
        "'3.9': expected 3.7",
    ),
    (
        "runtime command",
        AI,
        spec({M: cpu(command=("x",))}, tensorflow="2.11.1", package_uris=("gs://bkt/p.tgz",), **RUNTIME),
        "roles.master.command",
        "goes only with images",
    ),
    (
        "package place",
        AI,
        spec(ONE, tensorflow="2.11.1", package_uris=("p.tgz",), **RUNTIME),
        "job.package_uris[0]",
        "not a path in Cloud Storage",
    ),
    (
        "goal",
        AI,
        spec(ONE, **tuned(param("DOUBLE", min="0", max="1"), goal="BEST")),
        "job.hyperparameters.goal",
        "found 'BEST': expected MAXIMIZE, MINIMIZE",
    ),
    ("no params", AI, spec(ONE, **tuned()), "job.hyperparameters", "'params' is missing"),
    ("param type", AI, spec(ONE, **tuned(param("FLOAT"))), "job.hyperparameters.params[0].type", "found 'FLOAT'"),
    (
        "no max",
        AI,
        spec(ONE, **tuned(param("INTEGER", min="1"))),
        "job.hyperparameters.params[0].max",
        "an INTEGER".replace("an ", "a "),
    ),
    (
        "not a number",
        AI,
        spec(ONE, **tuned(param("DOUBLE", min="low", max="1"))),
        "job.hyperparameters.params[0].min",
        "'low' is not a number",
    ),
    (
        "log of zero",
        AI,
        spec(ONE, **tuned(param("DOUBLE", min="0", max="1", scale="UNIT_LOG_SCALE"))),
        "job.hyperparameters.params[0].min",
        "a logarithmic scale needs more than 0",
    ),
    (
        "grid",
        AI,
        spec(ONE, **tuned(param("DOUBLE", min="0", max="1"), algorithm="GRID_SEARCH")),
        "job.hyperparameters.params[0].type",
        "GRID_SEARCH takes no DOUBLE",
    ),
]
