"""The targets: everything that the rest of imgtool knows of a job file's format, one row each.

A target is a row here and a module of the same name in `jobs/targets/`. What a row says about container runtimes is
as documents said on 22 November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What pulls the images of a target.

    Attributes:
        name: its name.
        zstd: whether it reads zstd layers; None if no document says so.
        source: where that is written.
    """

    name: str
    zstd: bool | None = None
    source: str = "no source says it"

    @property
    def problem(self) -> str | None:
        """What speaks against zstd layers, with its source; None where the runtime reads them."""
        if self.zstd:
            return None
        if self.zstd is None:
            return f"{self.name} is not known to read layers compressed with zstd"
        return f"{self.name} does not read layers compressed with zstd ({self.source})"


class JobDir(Enum):
    """What a target does with `job.job_dir` unless the arguments carry it."""

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
        job: the keys of `job` that it takes, beside those that all take.
        role: the keys of a role that it takes, beside those that all take.
        scheduling: the keys of `job.scheduling` that it takes.
        runtime: what pulls its images.
        job_dir: what it does with `job.job_dir`.
        volumes: the kinds of `job.volumes` that it mounts.
        grace: where it takes no `job.grace_period`, how long a replica has from SIGTERM to SIGKILL.
        kinds: the kinds of Kubernetes objects that are its files, each with its apiVersion.
        signs: keys at the top of a document that tell that it is the target's.
        rules: where the rules of its files stand, for `lint`.
        checked_by: what checks its files where its module has no `judge`.
        framework: the only one whose clusters it describes, by its key; empty where it describes all.
        away: whether its machines are never this one.
        always_chief: whether its clusters have a chief of its own, so that worker 0 becomes one where no master is.
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
        """Makes a member that is its name, as text, and has the row beside it; a look-up by name passes no row."""
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
