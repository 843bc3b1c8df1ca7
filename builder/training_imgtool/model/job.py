"""The types of the section `job` in `image.yaml`. This section describes the job for all targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.model.keys import key
from training_imgtool.model.targets import Target

_SECONDS: dict[str, Any] = {"pattern": r"[0-9]+(?:\.[0-9]{1,9})?s", "expected": "seconds with an s, such as 3600s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How long a job may wait and run."""

    max_wait: str | None = key("The longest time in the queue, such as 3600s.", default=None, **_SECONDS)
    max_running: str | None = key("The longest running time, such as 7200s.", default=None, **_SECONDS)
    priority: int | None = key("AI Platform: the job's priority, 0 to 1000.", default=None, minimum=0, maximum=1000)
    strategy: str | None = key(
        "Vertex, GKE, SkyPilot: the kind of machines. ON_DEMAND and LOW_COST are old names of STANDARD and SPOT.",
        default=None,
        choices=("STANDARD", "SPOT", "FLEX_START", "ON_DEMAND", "LOW_COST"),
    )
    restart_on_worker_restart: bool | None = key("Vertex: restart the whole job when a worker restarts.", default=None)
    disable_retries: bool | None = key("Vertex: do not retry after an internal error.", default=None)
    restarts: int | None = key(
        "Kubernetes: how often a failed job restarts; Compose: how often each replica restarts.",
        default=None,
        minimum=0,
    )
    keep_finished: str | None = key(
        "Kubernetes: how long a finished job is kept, such as 86400s.", default=None, **_SECONDS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One hyperparameter of a tuning job. Numbers are kept as the text that the user wrote."""

    name: str = key("The name of the program's argument, without dashes.")
    type: str = key("The parameter's type.", choices=("DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE"))
    min: str | None = key("For DOUBLE and INTEGER: the smallest value.", default=None)
    max: str | None = key("For DOUBLE and INTEGER: the largest value.", default=None)
    values: tuple[str, ...] = key("For CATEGORICAL and DISCRETE: all possible values.", default=())
    scale: str | None = key(
        "The scale on which the service chooses values; by default it does not scale them.",
        default=None,
        choices=("NONE", "UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """A hyperparameter tuning job of Vertex AI."""

    goal: str = key("Whether to maximise or minimise the metric.", choices=("MAXIMIZE", "MINIMIZE"))
    params: tuple[Parameter, ...] = key("The hyperparameters.")
    metric: str | None = key("The tag of the metric to optimise; by default training/hptuning/metric.", default=None)
    max_trials: int | None = key("The number of trials.", default=None, minimum=1)
    max_parallel_trials: int | None = key("The number of trials that run at the same time.", default=None, minimum=1)
    max_failed_trials: int | None = key("The number of failed trials that ends the job.", default=None, minimum=0)
    algorithm: str | None = key(
        "The search algorithm; by default Bayesian.", default=None, choices=("GRID_SEARCH", "RANDOM_SEARCH")
    )
    early_stopping: bool | None = key("Stop trials that are unlikely to succeed.", default=None)


_FOLDER: dict[str, Any] = {"pattern": r"/[^\s:,]*", "expected": "an absolute path, such as /mnt/results"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A folder outside the containers that every replica mounts. The keys beside `mount` say where the folder is."""

    mount: str = key("The folder's path in the containers.", rule="mount", **_FOLDER)
    nfs_server: str | None = key(
        "The NFS server's host name.",
        default=None,
        pattern=r"[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]*",
        expected="a host's name or address",
    )
    nfs_path: str | None = key("The path that the NFS server exports.", default=None, **_FOLDER)
    claim: str | None = key(
        "The name of a PersistentVolumeClaim, or of a volume of Docker or SkyPilot.",
        default=None,
        pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]*",
        expected="letters, digits, '_', '.' and '-'",
    )
    bucket: str | None = key(
        "A folder in Cloud Storage, such as gs://my-bucket/data.",
        default=None,
        pattern=r"gs://[a-z0-9][a-z0-9._-]+[a-z0-9](?:/[^\s,:]+)?",
        expected="gs://BUCKET or gs://BUCKET/FOLDER",
    )
    host_path: str | None = key("A folder on the machine on which the replica runs.", default=None, **_FOLDER)
    memory: str | None = key(
        "The size of a folder in memory, such as 16Gi. Mounted at /dev/shm, this folder is the shared memory.",
        default=None,
        pattern=r"[1-9][0-9]*(?:Mi|Gi)",
        expected="a size such as 16Gi or 512Mi",
    )

    @property
    def kinds(self) -> list[str]:
        """The kinds of storage that the keys describe, in the words of `Row.volumes`. A valid volume has one kind."""
        nfs = ["nfs"] if self.nfs_server or self.nfs_path else []
        return nfs + [kind for kind in ("claim", "bucket", "host_path", "memory") if getattr(self, kind)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """Where the service stores the value of a secret variable. The spec never contains the value."""

    name: str | None = key("Kubernetes: the Secret's name.", default=None)
    key: str | None = key("Kubernetes: the key in the Secret; by default the variable's name.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eci:
    """Settings of Alibaba Cloud's Elastic Container Instances."""

    image_cache: str = key(
        "The image cache: create (a new ImageCache beside the Pods), auto, none, or a cache's ID (imc-…).",
        default="create",
        pattern=r"create|auto|none|imc-[A-Za-z0-9-]+",
        expected="create, auto, none or a cache's ID, imc-…",
    )
    cache_size_gb: int | None = key(
        "The ImageCache's size in GiB, 20 to 32768.", default=None, minimum=20, maximum=32768
    )
    retention_days: int | None = key(
        "The number of days until Alibaba Cloud deletes the ImageCache.", default=None, minimum=1, maximum=65536
    )
    driver: str | None = key("The NVIDIA driver's major version, such as 535.", default=None)
    virtual_node: str = key(
        "What places Pods on the virtual node.", default="label", choices=("label", "toleration", "none")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """Options of sbatch."""

    partition: str | None = key("The partition in which the job runs.", default=None)
    account: str | None = key("The account to charge.", default=None)
    qos: str | None = key("The quality of service (QOS).", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The job that runs the images."""

    target: Target | None = key("The job file's format. `imgtool config` needs this key, or --target.", default=None)
    id: str | None = key(
        "The job's name; by default the spec's name and a hash of the images and the spec.", default=None
    )
    project: str | None = key("The cloud project, for the submit command.", default=None)
    region: str | None = key("The region in which the job runs.", default=None)
    job_dir: str | None = key("The folder for checkpoints and models, such as gs://bucket/path.", default=None)
    pass_job_dir: bool = key(
        "Append `--job-dir=DIR` to the arguments; DIR is job_dir or the first volume's mount. AI Platform always does.",
        default=False,
    )
    launcher: str | None = key(
        "PyTorch: what starts the program: torchrun, or python, one process per replica; by default torchrun if a"
        " replica has several processes.",
        default=None,
        choices=("torchrun", "python"),
    )
    scheduling: Scheduling | None = key("Time limits, capacity and restarts.", default=None)
    service_account: str | None = key("The service account as which the job runs.", default=None)
    network: str | None = key("The VPC network.", default=None)
    labels: Mapping[str, str] = key("Labels of the job.", default={})
    encryption_key: str | None = key("The Cloud KMS key's full name.", default=None)
    web_access: bool | None = key("Allow interactive shells in the replicas.", default=None)
    env: Mapping[str, str] = key(
        "Environment variables that only the job sets, not the images, if the target can set variables.",
        default={},
        rule="job_env",
    )
    secrets: Mapping[str, SecretRef] = key(
        "Environment variables with secret values, which the service or whoever submits the job provides.",
        default={},
        rule="job_env",
    )
    secrets_file: str | None = key(
        "Slurm, own machines: the file with a NAME=VALUE line per secret, on the machines that run the job.",
        default=None,
        **_FOLDER,
    )
    volumes: tuple[Volume, ...] = key("Folders outside the containers that every replica mounts.", default=())
    grace_period: int | None = key(
        "Seconds from SIGTERM to SIGKILL, for a last checkpoint. Slurm sends SIGTERM this long before the time limit.",
        default=None,
        minimum=1,
        maximum=65535,
    )
    chief_in_tf_config: bool | None = key(
        "AI Platform: whether TF_CONFIG names the master `chief`; by default true for TensorFlow 2.", default=None
    )
    scale_tier: str | None = key("AI Platform: a predefined cluster instead of CUSTOM.", default=None)
    hyperparameters: Hyperparameters | None = key("Vertex AI: hyperparameter tuning.", default=None)
    runtime_version: str | None = key("AI Platform: a runtime version instead of images, such as 2.11.", default=None)
    python_version: str | None = key("AI Platform: the runtime's Python, such as 3.7.", default=None)
    package_uris: tuple[str, ...] = key("AI Platform: with runtime_version, packages in Cloud Storage.", default=())
    staging: str | None = key(
        "AI Platform: where the submit command puts the trainer's package, such as gs://bucket/path.", default=None
    )
    display_name: str | None = key("Vertex: the name that the console shows; by default the job's id.", default=None)
    tensorboard: str | None = key("Vertex: the Tensorboard resource's full name.", default=None)
    dashboard_access: bool | None = key("Vertex: turn on the training dashboard.", default=None)
    persistent_resource: str | None = key("Vertex: the persistent resource that runs the job.", default=None)
    reserved_ip_ranges: tuple[str, ...] = key("Vertex: address ranges in the network to use.", default=())
    network_attachment: str | None = key(
        "Vertex: the network attachment of a Private Service Connect interface, instead of network.", default=None
    )
    namespace: str | None = key("Kubernetes: the namespace.", default=None)
    queue: str | None = key("Kubernetes: the Kueue LocalQueue that admits the job.", default=None)
    queue_priority: str | None = key("Kubernetes: with queue, Kueue's WorkloadPriorityClass.", default=None)
    required_topology: str | None = key(
        "Kubernetes: with queue, the node label whose value all Pods of a role must share, such as"
        " cloud.google.com/gce-topology-block.",
        default=None,
    )
    preferred_topology: str | None = key(
        "Kubernetes: with queue, the node label whose value the Pods of a role share if possible.", default=None
    )
    priority_class: str | None = key("Kubernetes: the Pods' PriorityClass.", default=None)
    exclusive_topology: str | None = key(
        "JobSet: a node label, such as cloud.google.com/gke-nodepool. Each role gets nodes with a value of its own.",
        default=None,
    )
    image_pull_secrets: tuple[str, ...] = key("Kubernetes: Secrets with the registry's logins.", default=())
    infra: str | None = key(
        "SkyPilot: where the job runs, such as gcp/us-central1.",
        default=None,
        pattern=r"[A-Za-z0-9*][A-Za-z0-9_.:@/*-]*",
        expected="a cloud, its region and its zone, such as gcp/us-central1",
    )
    slurm: Slurm | None = key("Slurm: options of sbatch.", default=None)
    eci: Eci | None = key("Alibaba Cloud ECI: image cache and driver.", default=None)

    @property
    def variables(self) -> frozenset[str]:
        """The names of all variables that the job sets, with a value in the spec or as a secret."""
        return frozenset({*self.env, *self.secrets})
