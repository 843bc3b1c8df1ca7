"""The targets: all facts about job file formats that the rest of imgtool uses, one row each.

A target is a row here and a module of the same name in `jobs/targets/`. The facts about container runtimes come from
documents of 22 November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The container runtime that pulls the images of a target.

    Attributes:
        name: the runtime's name.
        zstd: whether it reads zstd layers; None if no document tells.
        source: the document that tells.
    """

    name: str
    zstd: bool | None = None
    source: str = "no source says it"

    @property
    def problem(self) -> str | None:
        """Why zstd layers may not work, with the source; None if the runtime reads them."""
        if self.zstd:
            return None
        if self.zstd is None:
            return f"{self.name} is not known to read layers compressed with zstd"
        return f"{self.name} does not read layers compressed with zstd ({self.source})"


class JobDir(Enum):
    """How a target handles `job.job_dir` if the arguments do not contain it."""

    NAMED = "the service has a field for it"
    MOUNTED = "a folder is mounted into the containers"
    UNUSED = "nothing"


CONTAINERD = Runtime(name="containerd 1.5 or newer", zstd=True, source="containerd 1.5 release notes")
_DOCKER = Runtime(name="Docker before 23", zstd=False, source="Docker Engine 23.0 release notes")
ALIBABA = Runtime(
    name="Alibaba Cloud's image acceleration",
    zstd=False,
    source='alibabacloud.com, "Use an accelerated image": tar and tgz only, not zstd',
)

_SPOT = "a Spot VM has 30 seconds at most, and nothing changes that"
_GOOGLE = frozenset({
    "project", "region", "scheduling", "service_account", "network", "labels", "encryption_key", "web_access",
    "chief_in_tf_config", "env",
})  # fmt: skip
_KUBERNETES = frozenset({
    "labels", "env", "secrets", "volumes", "grace_period", "namespace", "service_account", "image_pull_secrets",
    "scheduling", "queue", "queue_priority", "priority_class",
})  # fmt: skip
_MACHINE = frozenset({"machine", "disk", "gpus", "tpu"})
_LIMITS = frozenset({"cpus", "memory", "gpus"})
_DOCKER_VOLUMES = frozenset({"nfs", "claim", "host_path", "memory"})
_KUBERNETES_VOLUMES = _DOCKER_VOLUMES | {"bucket"}
_PLACE = _LIMITS | {"node_selector", "tolerations"}
_NODES = _PLACE | {"reservation"}
_TOPOLOGY = frozenset({"required_topology", "preferred_topology"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One target.

    Attributes:
        job: the keys of `job` that it accepts, besides those that all targets accept.
        role: the keys of a role that it accepts, besides those that all targets accept.
        scheduling: the keys of `job.scheduling` that it accepts.
        runtime: the container runtime that pulls its images.
        job_dir: how it handles `job.job_dir`.
        volumes: the kinds of `job.volumes` that it mounts.
        grace: the time from SIGTERM to SIGKILL, if it does not accept `job.grace_period`.
        kinds: the kinds of Kubernetes objects in its files, each with its apiVersion.
        signs: keys at the top of a document by which imgtool recognises the target.
        rules: the source of the rules for its files, for `lint`.
        checked_by: what checks its files if its module has no `judge`.
        framework: the key of the only framework that it supports; empty if it supports all.
        away: whether its jobs never run on this machine.
        always_chief: whether its clusters have a separate chief, so that without a master, worker 0 becomes the chief.
    """

    job: frozenset[str]
    role: frozenset[str]
    runtime: Runtime
    scheduling: frozenset[str] = frozenset()
    job_dir: JobDir = JobDir.UNUSED
    volumes: frozenset[str] = frozenset()
    grace: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    signs: tuple[str, ...] = ()
    rules: str = ""
    checked_by: str = ""
    framework: str = ""
    away: bool = False
    always_chief: bool = False


class Target(StrEnum):
    """A job file's format."""

    row: Row

    def __new__(cls, name: str, row: Row | None = None) -> Self:
        """Makes a member whose value is its name, with the row as an attribute; a look-up by name passes no row."""
        member = str.__new__(cls, name)
        member._value_ = name
        if row is not None:
            member.row = row
        return member

    AI_PLATFORM = (
        "ai-platform",
        Row(
            job=_GOOGLE | {"scale_tier", "runtime_version", "python_version", "package_uris", "staging"},
            role=_MACHINE,
            scheduling=frozenset({"max_wait", "max_running", "priority"}),
            runtime=Runtime(name="AI Platform Training"),
            job_dir=JobDir.NAMED,
            signs=("trainingInput",),
            framework="tensorflow",
            always_chief=True,
            grace=_SPOT,
            checked_by="AI Platform Training closed on 2025-01-31",
        ),
    )
    VERTEX = (
        "vertex",
        Row(
            job=_GOOGLE
            | {"hyperparameters", "volumes", "display_name", "tensorboard", "dashboard_access", "persistent_resource"}
            | {"reserved_ip_ranges", "network_attachment"},
            role=_MACHINE | {"reservation"},
            scheduling=frozenset(
                {"max_wait", "max_running", "strategy", "restart_on_worker_restart", "disable_retries"}
            ),
            runtime=Runtime(name="Vertex AI"),
            job_dir=JobDir.NAMED,
            volumes=frozenset({"nfs", "bucket"}),
            grace=_SPOT,
            signs=("workerPoolSpecs", "jobSpec", "studySpec", "trialJobSpec"),
            always_chief=True,
        ),
    )
    TFJOB = (
        "tfjob",
        Row(
            job=_KUBERNETES | _TOPOLOGY,
            role=_NODES,
            scheduling=frozenset({"max_wait", "max_running", "restarts", "keep_finished", "strategy"}),
            runtime=CONTAINERD,
            volumes=_KUBERNETES_VOLUMES,
            kinds={"TFJob": "kubeflow.org/v1"},
            framework="tensorflow",
            rules="TFJob v1.9 CRD and webhook",
        ),
    )
    JOBSET = (
        "jobset",
        Row(
            job=_KUBERNETES | _TOPOLOGY | {"exclusive_topology"},
            role=_NODES | {"tpu"},
            scheduling=frozenset({"max_running", "restarts", "keep_finished", "strategy"}),
            runtime=CONTAINERD,
            volumes=_KUBERNETES_VOLUMES,
            kinds={"JobSet": "jobset.x-k8s.io/v1alpha2"},
            rules="JobSet v0.12 CRD and webhook",
        ),
    )
    TRAINJOB = (
        "trainjob",
        Row(
            job=_KUBERNETES | _TOPOLOGY | {"exclusive_topology"},
            role=_NODES | {"tpu"},
            scheduling=frozenset({"max_running", "restarts", "keep_finished", "strategy"}),
            runtime=CONTAINERD,
            volumes=_KUBERNETES_VOLUMES,
            kinds=dict.fromkeys(
                ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"), "trainer.kubeflow.org/v1alpha1"
            ),
            rules="Kubeflow Trainer v2.3 CRDs and webhooks",
        ),
    )
    PODS = (
        "pods",
        Row(
            job=_KUBERNETES | _TOPOLOGY,
            role=_NODES,
            scheduling=frozenset({"max_running", "strategy"}),
            runtime=CONTAINERD,
            volumes=_KUBERNETES_VOLUMES,
            kinds={"Pod": "v1", "Service": "v1"},
            rules="Kubernetes API",
        ),
    )
    ECI = (
        "eci",
        Row(
            job=_KUBERNETES | {"eci"},
            role=_PLACE | {"machine"},
            scheduling=frozenset({"max_running"}),
            runtime=ALIBABA,
            away=True,
            volumes=frozenset({"nfs", "claim", "memory"}),
            kinds={"ImageCache": "eci.alibabacloud.com/v1"},
            rules="Alibaba Cloud ECI user guide",
        ),
    )
    COMPOSE = (
        "compose",
        Row(
            job=frozenset({"env", "secrets", "volumes", "grace_period", "labels", "scheduling"}),
            role=_LIMITS,
            scheduling=frozenset({"restarts"}),
            runtime=_DOCKER,
            volumes=_DOCKER_VOLUMES,
            job_dir=JobDir.MOUNTED,
            signs=("services",),
        ),
    )
    TF_CONFIG = (
        "tf-config",
        Row(
            job=frozenset({"env", "secrets", "secrets_file", "volumes", "grace_period"}),
            role=_LIMITS,
            runtime=_DOCKER,
            volumes=_DOCKER_VOLUMES,
            job_dir=JobDir.MOUNTED,
            signs=("cluster", "task"),
            checked_by="the program does it as it starts",
        ),
    )
    SKYPILOT = (
        "skypilot",
        Row(
            job=frozenset({"env", "secrets", "volumes", "labels", "infra", "scheduling"}),
            role=_LIMITS | {"machine", "disk"},
            scheduling=frozenset({"strategy"}),
            runtime=Runtime(name="the Docker of SkyPilot's machine images"),
            volumes=frozenset({"bucket", "claim"}),
            grace="the cloud decides it",
            away=True,
            signs=("run", "resources", "num_nodes", "setup", "envs", "file_mounts"),
        ),
    )
    SLURM = (
        "slurm",
        Row(
            job=frozenset({"env", "secrets", "secrets_file", "volumes", "grace_period", "slurm", "scheduling"}),
            role=_LIMITS,
            volumes=frozenset({"host_path"}),
            scheduling=frozenset({"max_running"}),
            runtime=Runtime(name="enroot"),
            job_dir=JobDir.MOUNTED,
        ),
    )
