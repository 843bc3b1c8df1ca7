"""Specs that Vertex AI alone would refuse; the columns of `refused_google`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.jobs.refused_google import gpu
from tests.jobs.specs import ONE, cpu, spec
from training_imgtool.model.job import Hyperparameters, Parameter, Scheduling, Volume
from training_imgtool.model.spec import Disk, ImageSpec, Role, RoleSpec, Tpu
from training_imgtool.model.targets import Target


def tuned(**of: Any) -> dict[str, Any]:
    """A tuning job with one parameter that is a whole number."""
    params = (Parameter(name="p", type="INTEGER", **of),)
    return {"hyperparameters": Hyperparameters(goal="MAXIMIZE", params=params)}


M, W, P = Role.MASTER, Role.WORKER, Role.PS
VX = Target.VERTEX
FLEX = Scheduling(strategy="FLEX_START", max_wait="3600s")

VERTEX: list[tuple[str, Target, ImageSpec, str, str]] = [
    (
        "vertex legacy",
        VX,
        spec({M: cpu(1, "complex_model_m")}),
        "roles.master.machine",
        "is a legacy type of AI Platform",
    ),
    (
        "vertex machine",
        VX,
        spec({M: cpu(1, "n1-standard-7")}),
        "roles.master.machine",
        "is not a machine type of Vertex AI",
    ),
    ("vertex K80", VX, spec({M: gpu("NVIDIA_TESLA_K80")}), "roles.master.gpus.type", "NVIDIA_TESLA_K80 does not fit"),
    ("vertex L4 count", VX, spec({M: gpu("NVIDIA_L4", 2, "g2-standard-32")}), "roles.master.gpus.count", "it takes 1"),
    (
        "vertex GPU on e2",
        VX,
        spec({M: gpu(machine="e2-standard-4")}),
        "roles.master.gpus.type",
        "e2-standard-4, which takes no GPU",
    ),
    (
        "tensorboard",
        VX,
        spec(ONE, tensorboard="x"),
        "job.tensorboard",
        "'x' is not a Tensorboard: expected projects/P/locations/R/tensorboards/ID",
    ),
    (
        "resource",
        VX,
        spec(ONE, persistent_resource="Bad Name"),
        "job.persistent_resource",
        "'Bad Name' is not an ID",
    ),
    ("attachment", VX, spec(ONE, network_attachment="a/b"), "job.network_attachment", "is not a network attachment"),
    (
        "flex GPU",
        VX,
        spec({M: gpu("NVIDIA_TESLA_T4")}, scheduling=FLEX),
        "roles.master.gpus.type",
        "NVIDIA_TESLA_T4: FLEX_START supports NVIDIA_L4, ",
    ),
    ("flex CPU", VX, spec(ONE, scheduling=FLEX), "roles.master.gpus.type", "is missing: FLEX_START supports"),
    (
        "flex pools",
        VX,
        spec({M: gpu("NVIDIA_L4", 1, "g2-standard-4"), W: gpu("NVIDIA_L4", 1, "g2-standard-8")}, scheduling=FLEX),
        "roles.worker",
        "differs from the first pool's",
    ),
    (
        "flex days",
        VX,
        spec({M: gpu("NVIDIA_L4", 1, "g2-standard-4")}, scheduling=replace(FLEX, max_running="604800.5s")),
        "job.scheduling.max_running",
        "at most seven days",
    ),
    ("reservation", VX, spec({M: cpu(reservation="mine")}), "roles.master.reservation", "'mine' is not a reservation"),
    (
        "reservation elsewhere",
        VX,
        spec({M: cpu(reservation="projects/p/zones/europe-west4-a/reservations/r")}),
        "roles.master.reservation",
        "is in europe-west4, the job runs in us-central1",
    ),
    (
        "topology",
        VX,
        spec({M: cpu(1, "ct5lp-hightpu-4t", tpu=Tpu(type="v5e", topology="banana"))}, tensorflow="2.19.1"),
        "roles.master.tpu.topology",
        "'banana' is not a topology",
    ),
    (
        "topology size",
        VX,
        spec({M: cpu(1, "ct5lp-hightpu-8t", tpu=Tpu(type="v5e", topology="4x4"))}, tensorflow="2.19.1"),
        "roles.master.tpu.topology",
        "4x4 does not fit ct5lp-hightpu-8t: expected 2x4",
    ),
    *(
        (
            f"three dimensions, {topology}",
            VX,
            spec({M: cpu(1, "tpu7x-standard-4t", tpu=Tpu(type="tpu7x", topology=topology))}, tensorflow="2.19.1"),
            "roles.master.tpu.topology",
            f"{topology} does not fit tpu7x-standard-4t: expected 2x2x1, 2x2x2",
        )
        for topology in ("2x2", "1x2x3")
    ),
    (
        "slice",
        VX,
        spec({M: RoleSpec(tpu=Tpu(type="TPU_V3", count=33))}),
        "roles.master.tpu.count",
        "33 x TPU_V3: a slice has 8, 32, 64",
    ),
    (
        "max as python",
        VX,
        spec(ONE, **tuned(min="1", max="1_0")),
        "job.hyperparameters.params[0].max",
        "'1_0' is not a number",
    ),
    (
        "vertex machine of trials",
        VX,
        spec({M: cpu(1, "n1-standard-7")}, **tuned(min="1", max="10")),
        "roles.master.machine",
        "is not a machine type of Vertex AI",
    ),
    ("vertex region", VX, spec(ONE, region="mars-north1"), "job.region", "'mars-north1' is not a region with training"),
    ("vertex no name", VX, spec(ONE, display_name="--"), "job.display_name", "gcloud does not accept '--' as a name"),
    ("vertex no region", VX, spec(ONE, region=None), "job.region", "is missing"),
    ("vertex no machine", VX, spec({M: RoleSpec()}), "roles.master.machine", "is missing: master needs"),
    (
        "vertex TPU pair",
        VX,
        spec({M: cpu(), W: RoleSpec(tpu=Tpu(type="TPU_V3"))}),
        "roles.worker",
        "exactly one pool of one replica",
    ),
    (
        "vertex old TF",
        VX,
        spec({M: RoleSpec(tpu=Tpu(type="TPU_V2"))}, tensorflow="2.10.1"),
        "tensorflow",
        "a TPU VM needs TensorFlow 2.11",
    ),
    (
        "vertex tf_version",
        VX,
        spec({M: RoleSpec(tpu=Tpu(type="TPU_V2", tf_version="2.15"))}),
        "roles.master.tpu.tf_version",
        "only the target ai-platform supports this key",
    ),
    (
        "vertex cloud_tpu",
        VX,
        spec({M: RoleSpec(machine="cloud_tpu", tpu=Tpu(type="TPU_V2"))}),
        "roles.master.machine",
        "'cloud_tpu' is not a machine type",
    ),
    (
        "vertex disk",
        VX,
        spec({M: cpu(disk=Disk(size_gb=50))}),
        "roles.master.disk.size_gb",
        "50: expected 100 to 64000",
    ),
    (
        "vertex strategy",
        VX,
        spec(ONE, scheduling=Scheduling(strategy="CHEAP")),
        "job.scheduling.strategy",
        "found 'CHEAP'",
    ),
    ("vertex tier", VX, spec({M: RoleSpec()}, scale_tier="BASIC"), "job.scale_tier", "vertex has none"),
    ("vertex env name", VX, spec(ONE, env={"A B": "1"}), "job.env[0].name", "'A B' is not a variable's name"),
    ("vertex 101 env", VX, spec(ONE, env={f"A{i}": "" for i in range(101)}), "job.env", "has 101: expected 100"),
    ("vertex name", VX, spec(ONE, display_name="x" * 129), "job.display_name", "129 characters: expected 128"),
    ("vertex label", VX, spec(ONE, labels={"a": "B"}), "job.labels.a", "'B' is not a label's value"),
    ("vertex key", VX, spec(ONE, encryption_key="k"), "job.encryption_key", "is not a Cloud KMS key"),
    ("vertex bucket", VX, spec(ONE, job_dir="s3://bucket"), "job.job_dir", "is not a path in Cloud Storage"),
    (
        "vertex claim",
        VX,
        spec(ONE, volumes=(Volume(mount="/mnt/nfs/x", claim="c"),)),
        "job.volumes[0]",
        "vertex cannot mount claim",
    ),
    (
        "vertex bucket's mount",
        VX,
        spec(ONE, volumes=(Volume(mount="/data", bucket="gs://bkt/x"),)),
        "job.volumes[0].mount",
        "expected /gcs/bkt/x",
    ),
    (
        "vertex mount",
        VX,
        spec(ONE, volumes=(Volume(mount="/data", nfs_server="s", nfs_path="/p"),)),
        "job.volumes[0].mount",
        "below /mnt/nfs/",
    ),
]
