"""The types of `image.yaml`; `model.load` reads the file.

The reader, the error messages, the JSON schema and docs/spec.md all follow from these dataclasses. A field is a
key, the field's annotation is the key's type, a default makes the key optional, and `doc` is the key's description.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from training_imgtool.model.frameworks import Framework, framework_of
from training_imgtool.model.job import JobSpec
from training_imgtool.model.keys import key

APP = "/app"  # the folder of the code in an image
INIT = ("/opt/venv/bin/dumb-init", "--single-child")
"""The init process that starts every program. Without it, the program would be the container's first process, to which
Linux passes no SIGTERM without a handler, and would run until its grace period ends. The init forwards signals only to
the program, not to the program's child processes.
"""


class Role(StrEnum):
    """A task of a cluster. Only the package `jobs` uses the names that services have for these tasks."""

    MASTER = "master"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


class Accelerator(StrEnum):
    """The kind of processor on which a role computes."""

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """The training code: a folder, a Python file or a mapping with these keys."""

    SHORTHAND = "source"  # `trainer: train.py` is `trainer: {source: train.py}`

    source: str = key(
        "The folder with the code, or the Python file to run, relative to the spec; `.` means the spec's folder.",
        default="trainer",
        rule="code",
    )
    module: str | None = key(
        "The module that `python -m` runs. Without `module` and `script`, SOURCE's task.py runs, or its only program.",
        default=None,
        pattern=r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*",
        expected="a module's dotted name, such as trainer.task",
        hint="to call a function of the module, write {module: MODULE, function: NAME}; to run a file, {script: FILE}",
    )
    script: str | None = key("The Python file to run, relative to SOURCE.", default=None)
    function: str | None = key("The function in `module` to call, as a console script does.", default=None)
    include: tuple[str, ...] = key(
        "Further folders and files to copy into the image, such as ../common.", default=(), rule="shared"
    )
    workdir: str | None = key(
        "The folder in which the program starts, relative to the spec; by default the spec's folder.",
        default=None,
        rule="shared",
    )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of Python that start the program. A spec that imgtool has loaded always names the program."""
        if self.function is not None:
            first = self.function.partition(".")[0]
            return ("-c", f"import sys; from {self.module} import {first}; sys.exit({self.function}())")
        return (
            ("-m", self.module or "trainer.task")
            if self.script is None
            else (posixpath.normpath(posixpath.join(APP, self.source, self.script)),)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs of one replica."""

    type: str = key("The service's name for the GPU, such as NVIDIA_TESLA_V100 or NVIDIA_L4.")
    count: int = key("The number of GPUs per replica.", default=1, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tpu:
    """The TPU of one replica."""

    type: str = key("The service's name for the TPU, such as TPU_V3.")
    count: int = key("The number of TPU cores.", default=8, minimum=1)
    topology: str | None = key("The layout of the chips, such as 2x2, which some TPU types need.", default=None)
    tf_version: str | None = key("AI Platform's tpuTfVersion; by default TensorFlow's minor version.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The boot disk of one replica."""

    type: str | None = key("The disk's type, such as pd-ssd.", default=None)
    size_gb: int | None = key("The disk's size in GB.", default=None, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A taint that a role's Pods tolerate, with the keys that Kubernetes uses."""

    operator: str | None = key("Exists or Equal; by default Equal.", default=None, choices=("Exists", "Equal"))
    value: str | None = key("With Equal: the taint's value.", default=None)
    effect: str | None = key(
        "The effect of the taint; by default every effect.",
        default=None,
        choices=("NoSchedule", "PreferNoSchedule", "NoExecute"),
    )
    key: str | None = key("The taint's key.", default=None)  # last, because in this class the name hides the function


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """One role: its machines, and how its image differs from the images of other roles."""

    count: int = key("The number of replicas; there is always one master.", default=1, minimum=0)
    processes: int | None = key(
        "PyTorch: the processes of each replica, which torchrun starts; by default one for each of its GPUs.",
        default=None,
        minimum=1,
    )
    machine: str | None = key("The machine type, as the service names it.", default=None)
    accelerator: Accelerator | None = key(
        "What the role computes on; by default what gpus or tpu says, else what the top of the spec says.", default=None
    )
    gpus: Gpus | None = key("GPUs per replica.", default=None)
    tpu: Tpu | None = key("The TPU per replica.", default=None)
    disk: Disk | None = key("The boot disk.", default=None)
    reservation: str | None = key(
        "The Compute Engine reservation to use: projects/P/zones/Z/reservations/NAME. Vertex also accepts any or none,"
        " and GKE also a name alone.",
        default=None,
    )
    cpus: str | None = key("CPUs per replica, such as 4 or 500m, if the target accepts a number.", default=None)
    memory: str | None = key("Memory per replica, such as 16Gi, if the target accepts a size.", default=None)
    base: str | None = key("Base image instead of the spec's.", default=None, rule="reference")
    template: str | None = key("Dockerfile template instead of the spec's.", default=None, rule="file")
    args: tuple[str, ...] | None = key("Arguments instead of the spec's.", default=None, rule="arguments")
    command: tuple[str, ...] | None = key(
        "The command that the job starts, instead of the image's entry point.", default=None, rule="arguments"
    )
    env: Mapping[str, str] = key("Environment variables to add to the spec's.", default={}, rule="env")
    node_selector: Mapping[str, str] = key("Kubernetes: labels of the nodes that may run the role.", default={})
    tolerations: tuple[Toleration, ...] = key("Kubernetes: taints that the Pods accept.", default=())

    @property
    def entrypoint(self) -> tuple[str, ...]:
        """The job's entry point (INIT and `command`), which replaces the image's; empty without a `command`."""
        return (*INIT, *self.command) if self.command else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Where a secret is stored. The secret's value is never in the spec, in an image or in an image's key."""

    env: str | None = key(
        "The environment variable that contains the secret.",
        default=None,
        pattern=r"[A-Za-z_][A-Za-z0-9_]*",
        expected="a variable's name, such as HF_TOKEN",
    )
    src: str | None = key("The file that contains the secret, relative to the spec.", default=None)
    index: str | None = key(
        "The secret is a login (USER:PASSWORD, or a token) to the package index that has this name in UV_INDEX.",
        default=None,
        pattern=r"[A-Za-z0-9][A-Za-z0-9_-]*",
        expected="an index's name, such as team",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """One `image.yaml`."""

    name: str = key(
        "The images' name in the registry.",
        pattern=r"[a-z0-9]+(?:[._-][a-z0-9]+)*",
        expected="lower-case letters and digits, joined by single '.', '_' or '-'",
    )
    registry: str | None = key(
        "The registry and path for the images, such as us-central1-docker.pkg.dev/project/repository.",
        default=None,
        rule="registry",
    )
    tensorflow: str | None = key(
        'The TensorFlow release, such as "2.15.1". A spec contains either this key, `jax` or `torch`.',
        default=None,
        pattern=r"\d{1,4}\.\d{1,4}\.\d{1,4}(?:\.post\d{1,4}|rc\d{1,4})?",
        expected='a full release, such as "2.15.1"',
    )
    jax: str | None = key(
        'The JAX release, such as "0.10.2".',
        default=None,
        pattern=r"\d{1,4}(?:\.\d{1,4}){2,3}(?:\.post\d{1,4}|rc\d{1,4})?",
        expected='a full release, such as "0.10.2"',
    )
    torch: str | None = key(
        'The PyTorch release, such as "2.13.0"; each role gets the build that it needs.',
        default=None,
        pattern=r"\d{1,4}\.\d{1,4}\.\d{1,4}(?:\.post\d{1,4}|rc\d{1,4})?",
        expected='a full release without the name of a build, such as "2.13.0"',
    )
    python: str | None = key(
        "Python's minor version, such as 3.11; by default the newest that the framework and all base images support.",
        default=None,
        pattern=r"[23]\.\d{1,2}",
        expected="MAJOR.MINOR, such as 3.11",
    )
    accelerator: Accelerator = key("What the roles compute on; each role can override it.", default=Accelerator.CPU)
    base: str | None = key("A base image instead of the one that imgtool chooses.", default=None, rule="reference")
    sdists: str = key(
        "What to do with a release that has a source archive but no wheel: build it (pure Python only), or refuse it.",
        default="build",
        choices=("build", "refuse"),
    )
    cuda_from: str = key(
        "gpu: the source of CUDA: `base` (an nvidia/cuda image) or `wheels` (NVIDIA's wheels)."
        " JAX and PyTorch always use wheels.",
        default="base",
        choices=("base", "wheels"),
    )
    cuda: str | None = key(
        "gpu with JAX: the major version of CUDA, by default 12. gpu with PyTorch: the CUDA of the build, such as 12.6;"
        " by default that of the build on PyPI.",
        default=None,
        pattern=r"\d{2}(?:\.\d)?",
        expected='a version of CUDA, such as "12" with JAX or "12.6" with PyTorch',
    )
    system_packages: tuple[str, ...] = key(
        "Debian packages to install.",
        default=(),
        pattern=r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9-]+)?(?:=[A-Za-z0-9.+:~-]+)?",
        expected="a Debian package's name, with =VERSION or without, such as libgomp1",
    )
    requirements: str | None = key(
        "A requirements file, pyproject.toml, pylock.toml, setup.py, or a program with a PEP 723 block.",
        default=None,
        rule="file",
    )
    python_packages: tuple[str, ...] = key(
        "Requirements in addition to the file's, such as pandas>=2.",
        default=(),
        pattern=r"[A-Za-z0-9.][^\x00-\x1f\x7f]*",
        expected="a requirement, such as pandas>=2 or ./libs/mylib",
    )
    extras: tuple[str, ...] = key("Extras of the pyproject.toml or setup.py that `requirements` names.", default=())
    groups: tuple[str, ...] = key("Dependency groups of the pyproject.toml that `requirements` names.", default=())
    trainer: Trainer = key("The training code: a folder, a Python file, or a mapping.", default=Trainer())
    args: tuple[str, ...] = key("Arguments of the training program.", default=(), rule="arguments")
    env: Mapping[str, str] = key("Environment variables in the images.", default={}, rule="env")
    files: Mapping[str, str] = key(
        "Files and folders below the spec's folder to copy into the images, each with its path in the images.",
        default={},
        pattern=r"(?:/(?!\.{1,2}(?:/|$))[\w.@+-]+)+/?",
        expected="an absolute path in the image, such as /etc/app.yaml",
        hint="the file comes first, then its path in the image: {conf/app.yaml: /etc/app.yaml}",
        rule="target",
    )
    run: tuple[str, ...] = key(
        "Lines for /bin/sh, which buildx runs as root once the Debian packages are installed.",
        default=(),
        rule="lines",
    )
    run_after_packages: tuple[str, ...] = key(
        "Lines for /bin/sh, which buildx runs as root once the Python packages are installed.",
        default=(),
        rule="lines",
    )
    user: str | None = key(
        "The user as which the images run; by default root, which the training services need.",
        default=None,
        pattern=r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?::[A-Za-z0-9_][A-Za-z0-9_.-]*)?",
        expected="a user's name or number, with :GROUP or without",
        rule="user",
    )
    template: str | None = key(
        "A Dockerfile template, relative to the spec, that extends imgtool's. buildx then builds the whole image.",
        default=None,
        rule="file",
    )
    platform: str = key(
        "The platform of the images. With a list of platforms, each role's image is an index with one image for each.",
        default="linux/amd64", choices=("linux/amd64", "linux/arm64"), several=True,
    )  # fmt: skip
    exclude: tuple[str, ...] = key(
        "Folders in site-packages to leave out of the images, such as pandas/tests.",
        default=(),
        pattern=r"[\w+-][\w.+-]*(?:/[\w+-][\w.+-]*)*",
        expected="a path below site-packages, such as pandas/tests",
    )
    trim: bool | None = key("Leave out files that nothing in the image can open; by default true.", default=None)
    compression: str = key(
        "How imgtool compresses layers. Machines that pull zstd layers need Docker 23 or containerd 1.5, or newer.",
        default="gzip",
        choices=("gzip", "zstd"),
    )
    attestations: bool = key("Whether push attaches a bill of materials and the provenance to images.", default=True)
    allow_secrets: tuple[str, ...] = key(
        "Files, or keys such as env.PAD_TOKEN, that look like secrets but are not.", default=()
    )
    secrets: Mapping[str, Secret] = key("Secrets that lines of `run` and a template's RUN mount, by id.", default={})
    roles: Mapping[Role, RoleSpec] = key("The roles: master, worker, ps, evaluator.")
    job: JobSpec = key("The job that runs the images.", default=JobSpec())

    @property
    def framework(self) -> Framework:
        """The framework of the images."""
        return framework_of(self)

    @property
    def release(self) -> str:
        """The framework's release."""
        return str(getattr(self, self.framework.key))

    def accelerator_of(self, role: Role) -> Accelerator:
        """Returns what `role` computes on: by `accelerator`, else gpus or tpu, else cpu for a ps, else the spec."""
        of_role = self.roles[role]
        if of_role.accelerator is not None:
            return of_role.accelerator
        if of_role.gpus is not None:
            return Accelerator.GPU
        if of_role.tpu is not None:
            return Accelerator.TPU
        if role is Role.PS:
            return Accelerator.CPU
        return self.accelerator
