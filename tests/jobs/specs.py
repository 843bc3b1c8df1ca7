"""The specs of the table test: each with the targets that it is written for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from training_imgtool.base.reference import Digest, parse_repository
from training_imgtool.jobs import JobOptions, job_data
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.jobs.text import dump
from training_imgtool.model.job import Eci, Hyperparameters, JobSpec, Parameter, Scheduling, SecretRef, Slurm, Volume
from training_imgtool.model.spec import Accelerator, Disk, Gpus, ImageSpec, Role, RoleSpec, Toleration, Tpu, Trainer
from training_imgtool.model.targets import Target

M, W, P, E = Role.MASTER, Role.WORKER, Role.PS, Role.EVALUATOR
AI, VX, SK, SL = Target.AI_PLATFORM, Target.VERTEX, Target.SKYPILOT, Target.SLURM
TF, JS, TJ, PO, EC = Target.TFJOB, Target.JOBSET, Target.TRAINJOB, Target.PODS, Target.ECI
CO, TC = Target.COMPOSE, Target.TF_CONFIG
KUBE = (TF, JS, PO)
REPOSITORY = parse_repository("us-central1-docker.pkg.dev/my-project/training/mnist")
V100X2, T4 = Gpus(type="NVIDIA_TESLA_V100", count=2), Gpus(type="NVIDIA_TESLA_T4")


def images(spec: ImageSpec) -> dict[Role, Digest]:
    """A made-up digest per role."""
    if spec.job.runtime_version:
        return {}
    return {role: REPOSITORY.digest("sha256:" + f"{number:x}" * 64) for number, role in enumerate(Role, start=10)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One spec with the targets that take it."""

    name: str
    spec: ImageSpec
    targets: tuple[Target, ...]
    hosts: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def job_options(self) -> JobOptions:
        return JobOptions(version="0.1.0", hosts=parse_hosts(self.hosts), **self.options)


def spec(
    roles: dict[Role, RoleSpec], *, tensorflow: str = "2.15.1", args: tuple[str, ...] = (), **job: Any
) -> ImageSpec:
    job = {"region": "us-central1", **job}
    return ImageSpec(name="mnist", tensorflow=tensorflow, args=args, roles=roles, job=JobSpec(**job))


def cpu(count: int = 1, machine: str | None = "n1-standard-8", **more: Any) -> RoleSpec:
    return RoleSpec(count=count, machine=machine, **more)


ONE = {M: cpu()}
TRIO = {M: cpu(), W: cpu(2), P: cpu(1, "n1-highmem-8")}
GPU_TRIO = {
    M: cpu(1, "n1-standard-16", gpus=V100X2),
    W: cpu(3, "n1-standard-16", gpus=V100X2),
    P: cpu(2, "n1-highmem-8"),
}
BARE_TRIO = {
    M: RoleSpec(cpus="2", memory="4Gi"),
    W: RoleSpec(count=2, cpus="500m", memory="512Mi", gpus=Gpus(type="any", count=1)),
    P: RoleSpec(),
}
FOUR = {**TRIO, E: cpu()}
EVERYTHING: dict[str, Any] = {
    "id": "mnist_full",
    "project": "my-project",
    "job_dir": "gs://my-bucket/mnist",
    "pass_job_dir": True,
    "scheduling": Scheduling(max_wait="3600s", max_running="7200s", priority=10),
    "service_account": "trainer@my-project.iam.gserviceaccount.com",
    "network": "projects/123456789/global/networks/training",
    "labels": {"team": "vision", "on": "y", "cost": "1e3"},
    "encryption_key": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
    "web_access": True,
}
STRANGE = (
    "y",
    "1e3",
    "0755",
    "2.10",
    "on",
    "null",
    "",
    " a b ",
    "é",
    "$(HOME)",
    "${X}",
    "#x",
    "a: b",
    "'\"",
    "\ttab\n",
    "12:30",
)
TUNING = Hyperparameters(
    goal="MAXIMIZE",
    params=(
        Parameter(name="rate", type="DOUBLE", min="1e-4", max="0.1", scale="UNIT_LOG_SCALE"),
        Parameter(name="layers", type="INTEGER", min="1", max="5", scale="UNIT_LINEAR_SCALE"),
        Parameter(name="optimizer", type="CATEGORICAL", values=("adam", "on")),
        Parameter(name="batch", type="DISCRETE", values=("16", "32", "64.5")),
    ),
    metric="accuracy", max_trials=10, max_parallel_trials=2, max_failed_trials=1, early_stopping=True,
    algorithm="RANDOM_SEARCH",
)  # fmt: skip
LEGACY = {M: cpu(1, "complex_model_m"), W: cpu(9, "complex_model_m"), P: cpu(3, "large_model")}
TPU = {
    M: cpu(1, "n1-highcpu-16"),
    W: RoleSpec(accelerator=Accelerator.TPU, tpu=Tpu(type="TPU_V3", count=8)),
}
RUNTIME: dict[str, Any] = {
    "runtime_version": "2.11",
    "python_version": "3.7",
    "job_dir": "gs://my-mnist-model-bucket/trained_model",
}
NFS = Volume(mount="/mnt/nfs/results", nfs_server="nas.example.com", nfs_path="/share")
KEPT: dict[str, Any] = {
    "region": None,
    "secrets": {"HF_TOKEN": SecretRef(name="hf", key="token"), "WANDB_API_KEY": SecretRef(name="wandb")},
    "grace_period": 90,
}
CLAIM = Volume(mount="/results", claim="training-results")
KUBE_JOB: dict[str, Any] = {
    "region": None, "namespace": "training", "service_account": "trainer", "image_pull_secrets": ("registry",),
    "labels": {"team": "vision"}, "env": {"TF_CPP_MIN_LOG_LEVEL": "1", "ODD": "$(X) ${Y} $$"}, "volumes": (CLAIM,),
    "scheduling": Scheduling(max_wait="600s", max_running="7200.5s", restarts=3, keep_finished="86400s"),
}  # fmt: skip
PLACED = {
    M: RoleSpec(cpus="2", memory="4Gi", node_selector={"pool": "cpu"}),
    W: RoleSpec(
        count=3,
        gpus=Gpus(type="any", count=4),
        node_selector={"cloud.google.com/gke-accelerator": "nvidia-l4"},
        tolerations=(
            Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),
            Toleration(key="team", operator="Equal", value="on"),
        ),
    ),
    P: RoleSpec(count=2, memory="16Gi"),
    E: RoleSpec(),
}
ECI_GPU = {M: RoleSpec(machine="ecs.gn6i-c4g1.xlarge", gpus=Gpus(type="T4"), cpus="4", memory="15Gi")}
ECI_TRIO = {
    M: RoleSpec(cpus="2", memory="4Gi"),
    W: RoleSpec(count=2, machine="ecs.gn6i-c4g1.xlarge,ecs.gn7i-c8g1.2xlarge", gpus=Gpus(type="T4")),
    P: RoleSpec(machine="ecs.c6.large"),
}
HOSTS = "master=vm-1,worker=vm-2,worker=vm-3:2223,ps=10.0.0.4"
BARE = {M: RoleSpec(), W: RoleSpec(count=2), P: RoleSpec()}

CASES = (
    Case(name="one-cpu", spec=spec(ONE), targets=(AI, VX, *KUBE, TJ, CO)),
    Case(
        name="trio",
        spec=spec(TRIO, args=("--epochs=10",), job_dir="gs://my-bucket/mnist", pass_job_dir=True),
        targets=(AI, VX, *KUBE, CO),
    ),
    Case(name="gpu-trio", spec=spec(GPU_TRIO, args=("--epochs", "10")), targets=(AI, VX, *KUBE, CO)),
    Case(name="with-evaluator", spec=spec(FOUR), targets=(AI, VX, *KUBE, TJ, CO)),
    Case(name="strange-args", spec=spec(TRIO, args=STRANGE), targets=(AI, VX, *KUBE, TJ, CO)),
    Case(name="everything", spec=spec(GPU_TRIO, args=("--epochs=10",), **EVERYTHING), targets=(AI, VX)),
    Case(name="master-and-ps", spec=spec({M: cpu(), P: cpu(2)}), targets=(AI, VX, *KUBE)),
    Case(
        name="own-args",
        spec=spec(
            {M: cpu(args=("--role=chief",)), W: cpu(2, command=("python", "-m", "trainer.other"), args=()), P: cpu()},
            args=("--epochs=1",),
        ),
        targets=(AI, VX, *KUBE, CO),
    ),
    Case(
        name="disks",
        spec=spec({M: cpu(disk=Disk(type="pd-ssd", size_gb=200)), W: cpu(2, disk=Disk(size_gb=500))}),
        targets=(AI, VX),
    ),
    Case(name="legacy", spec=spec(LEGACY, args=("--model-dir=gs://bkt/m", "--epochs=10"), id="my_job"), targets=(AI,)),
    Case(name="tpu-worker", spec=spec(TPU, tensorflow="2.11.1"), targets=(AI,)),
    Case(
        name="tpu-version",
        spec=spec({M: cpu(), W: RoleSpec(tpu=Tpu(type="TPU_V2", tf_version="2.1"))}, tensorflow="2.2.0"),
        targets=(AI,),
    ),
    Case(
        name="basic-gpu", spec=spec({M: RoleSpec(accelerator=Accelerator.GPU)}, scale_tier="BASIC_GPU"), targets=(AI,)
    ),
    Case(
        name="basic-tpu",
        spec=spec(
            {M: RoleSpec(), W: RoleSpec(accelerator=Accelerator.TPU)}, tensorflow="2.11.1", scale_tier="BASIC_TPU"
        ),
        targets=(AI,),
    ),
    Case(name="chief-said", spec=spec(TRIO, chief_in_tf_config=False), targets=(AI,)),
    Case(
        name="runtime",
        spec=spec(
            {M: RoleSpec()}, tensorflow="2.11.1", scale_tier="PREMIUM_1", package_uris=("gs://bkt/t.tar.gz",), **RUNTIME
        ),
        targets=(AI,),
    ),
    Case(
        name="runtime-custom",
        spec=spec(LEGACY, tensorflow="2.11.1", args=("--x", "y"), staging="gs://my-staging-bucket", **RUNTIME),
        targets=(AI,),
        options={"package_uri": "gs://my-staging-bucket/0123/mnist-0.1.tar.gz"},
    ),
    Case(name="l4", spec=spec({M: cpu(1, "g2-standard-24", gpus=Gpus(type="NVIDIA_L4", count=2))}), targets=(VX,)),
    Case(
        name="h100-spot",
        spec=spec(
            {M: cpu(1, "a3-highgpu-8g", gpus=Gpus(type="NVIDIA_H100_80GB", count=8))},
            tensorflow="2.17.1",
            scheduling=Scheduling(strategy="SPOT", restart_on_worker_restart=True, disable_retries=False),
        ),
        targets=(VX,),
    ),
    Case(
        name="flex-start",
        spec=spec(
            dict.fromkeys((M, W), cpu(1, "a3-highgpu-8g", gpus=Gpus(type="NVIDIA_H100_80GB", count=8))),
            tensorflow="2.17.1",
            scheduling=Scheduling(strategy="FLEX_START", max_wait="86400s", max_running="604800s"),
        ),
        targets=(VX,),
    ),
    Case(
        name="reserved",
        spec=spec(
            {
                M: cpu(reservation="none"),
                W: cpu(
                    1,
                    "a3-highgpu-8g",
                    gpus=Gpus(type="NVIDIA_H100_80GB", count=8),
                    reservation="projects/p/zones/us-central1-a/reservations/r",
                ),
                P: cpu(reservation="any"),
            },
            tensorflow="2.17.1",
        ),
        targets=(VX,),
    ),
    Case(
        name="vertex-only",
        spec=spec(
            TRIO,
            display_name="MNIST, third try",
            env={"A": "1", "B": "on"},
            volumes=(NFS,),
            dashboard_access=True,
            tensorboard="projects/p/locations/us-central1/tensorboards/1",
            reserved_ip_ranges=("range",),
            network="projects/123456789/global/networks/training",
            persistent_resource="pool-1",
        ),
        targets=(VX,),
    ),
    Case(
        name="tpu-vm",
        spec=spec({M: RoleSpec(accelerator=Accelerator.TPU, tpu=Tpu(type="TPU_V3"))}, env={"X": "1"}),
        targets=(VX,),
    ),
    Case(
        name="tpu-topology",
        spec=spec({M: cpu(1, "ct5lp-hightpu-4t", tpu=Tpu(type="TPU_V5_LITEPOD", count=4, topology="2x2"))}),
        targets=(VX,),
    ),
    Case(name="limits", spec=spec(BARE_TRIO, region=None), targets=(*KUBE, TJ, CO)),
    Case(name="placed", spec=spec(PLACED, **KUBE_JOB), targets=(*KUBE, TJ)),
    Case(
        name="kept",
        spec=spec(BARE, volumes=(CLAIM, Volume(mount="/dev/shm", memory="16Gi")), **KEPT),
        targets=(*KUBE, TJ, EC, CO),
    ),
    Case(
        name="fuse",
        spec=spec(
            BARE,
            region=None,
            volumes=(Volume(mount="/data", bucket="gs://bkt/a/b/"), Volume(mount="/scratch", host_path="/mnt/ssd")),
        ),
        targets=(*KUBE, TJ),
    ),
    Case(name="nfs", spec=spec(BARE, region=None, volumes=(NFS,)), targets=(*KUBE, CO)),
    Case(name="eci-one", spec=spec(ECI_GPU, region=None, volumes=(NFS,)), targets=(EC,), options={"cuda": {M: "12.2"}}),
    Case(
        name="eci-trio",
        spec=spec(
            ECI_TRIO,
            region=None,
            namespace="training",
            image_pull_secrets=("registry",),
            eci=Eci(cache_size_gb=60, retention_days=30, driver="550", virtual_node="toleration"),
        ),
        targets=(EC,),
    ),
    Case(
        name="eci-named-cache",
        spec=spec(ECI_GPU, region=None, eci=Eci(image_cache="imc-2zebxkiifuyzzlhl", virtual_node="none")),
        targets=(EC,),
    ),
    Case(name="eci-auto", spec=spec(BARE, region=None, eci=Eci(image_cache="auto"), volumes=(CLAIM,)), targets=(EC,)),
    Case(
        name="own-folder",
        spec=spec(BARE, region=None, job_dir="out", pass_job_dir=True, env={"PRICE": "$5"}),
        targets=(CO,),
    ),
    Case(name="workers", spec=spec({W: cpu(3), E: cpu()}, region="us-central1"), targets=(AI, VX, *KUBE, TJ, CO, SL)),
    Case(name="lone-worker", spec=spec({W: cpu()}), targets=(AI, VX, JS, CO, SK, SL)),
    Case(
        name="alike",
        spec=spec(
            {W: RoleSpec(count=3, gpus=V100X2, cpus="8", memory="32Gi")},
            args=STRANGE,
            **KEPT,
            secrets_file="/home/ml/train.env",
            infra="gcp/us-central1",
            scheduling=Scheduling(strategy="SPOT", max_running="7261s"),
            env={"PRICE": "$5 'x'"},
            job_dir="gs://my-bucket/mnist",
            pass_job_dir=True,
            slurm=Slurm(partition="gpu", account="team"),
        ),
        targets=(SK, SL),
    ),
    Case(
        name="batch",
        spec=spec(
            {**BARE_TRIO, E: RoleSpec()},
            region=None,
            job_dir="/shared/mnist",
            volumes=(Volume(mount="/data", host_path="/mnt/data"),),
        ),
        targets=(SL,),
    ),
    Case(name="queued", spec=spec(BARE, region=None, queue="team-a", exclusive_topology="pool"), targets=(*KUBE, TJ)),
    Case(
        name="tpu-slice",
        spec=spec(
            {
                W: RoleSpec(machine="ct5lp-hightpu-4t", tpu=Tpu(type="TPU_V5_LITEPOD", topology="4x4")),
                P: RoleSpec(cpus="4"),
            },
            region=None,
            queue="multislice-queue",
            priority_class="medium",
            scheduling=Scheduling(restarts=0, keep_finished="43200s"),
        ),
        targets=(JS, TJ),
    ),
    Case(
        name="gpu-spot",
        spec=spec(
            {
                M: RoleSpec(cpus="4"),
                W: RoleSpec(
                    count=2, gpus=Gpus(type="NVIDIA_H100_80GB", count=8), reservation="projects/p/reservations/r"
                ),
            },
            region=None,
            queue="team-a",
            queue_priority="high",
            priority_class="medium",
            preferred_topology="cloud.google.com/gce-topology-block",
            scheduling=Scheduling(strategy="SPOT"),
        ),
        targets=(TF, JS, TJ, PO),
    ),
    Case(
        name="tuning",
        spec=spec(TRIO, hyperparameters=TUNING, encryption_key=EVERYTHING["encryption_key"]),
        targets=(VX,),
    ),
    Case(
        name="private",
        spec=spec(
            ONE,
            network_attachment="projects/p/regions/us-central1/networkAttachments/training",
            env={"A": "$(AIP_MODEL_DIR)", "B": "$$(X) $5 $$"},
            volumes=(Volume(mount="/mnt/nfs/results", nfs_server="10.0.0.2", nfs_path="/share"),),
        ),
        targets=(VX,),
    ),
    Case(name="vms", spec=spec(BARE, region=None, args=("--epochs=1",)), targets=(TC,), hosts=HOSTS),
    Case(
        name="mounts",
        spec=spec(
            {W: RoleSpec(count=2)},
            region=None,
            volumes=(Volume(mount="/data", bucket="gs://bkt"), Volume(mount="/out", claim="results")),
        ),
        targets=(SK,),
    ),
    Case(
        name="vms-evaluator",
        spec=spec({M: RoleSpec(), E: RoleSpec()}, region=None),
        targets=(TC,),
        hosts="chief=[fd00::1],evaluator=[fd00::2]:4000",
    ),
)


def pairs() -> Iterator[tuple[str, Case, Target]]:
    """Every spec with every target of its own, and the name of its golden file."""
    for case in CASES:
        for target in case.targets:
            yield f"{case.name}.{target}", case, target


@cache
def text_of(pair: str) -> str:
    """The job file of a pair, such as `trio.vertex`."""
    case, target = next((case, target) for name, case, target in pairs() if name == pair)
    return dump(job_data(case.spec, images(case.spec), target, case.job_options()))


def golden_name(pair: str) -> str:
    """The file name of a pair's golden file; Slurm's is a script."""
    return f"{pair}.sh" if pair.endswith(".slurm") else f"{pair}.yaml"


# The pairs with a golden file: of each target the usual job, and those that show something of their own.
GOLDENS = tuple(
    f"{name}.{target}"
    for target, names in {
        AI: "everything legacy runtime runtime-custom tpu-worker workers own-args",
        VX: "everything trio workers flex-start reserved vertex-only tpu-topology tuning private",
        TF: "nfs with-evaluator",
        JS: "trio placed tpu-slice gpu-spot kept",
        PO: "trio fuse",
        TJ: "one-cpu placed tpu-slice",
        CO: "trio limits nfs kept",
        EC: "eci-trio eci-one",
        SK: "alike lone-worker mounts",
        SL: "batch alike",
        TC: "vms vms-evaluator",
    }.items()
    for name in names.split()
)


def with_module(of: ImageSpec, module: str) -> ImageSpec:
    return replace(of, trainer=Trainer(module=module))
