"""What the replicas of a job are told, by framework. Each framework has a module with the members of `JobRules`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from training_imgtool.base.errors import FieldError
    from training_imgtool.jobs.cluster import Flavour, Hosts
    from training_imgtool.jobs.model import JobOptions
    from training_imgtool.model.frameworks import Framework
    from training_imgtool.model.spec import ImageSpec, Role
    from training_imgtool.model.targets import Target


class JobRules(Protocol):
    """The members that the module of each framework has.

    Attributes:
        CONTAINER: the name of the container and of the Services' port in Kubernetes.
        PORT_NAME: the name of the container's port.
        INDEX: the variable with a replica's number, for services that know the number only when they start the replica.
        RANKED: whether that number counts the replicas of all roles; if not, those of the replica's own role.
        READS_SLURM: whether the framework finds its processes by Slurm's variables, which are those of one step.
        READS_VERTEX: whether the framework reads the variables that Vertex AI sets.
        SPANS_SLICES: whether a job may have several TPU slices, whose processes find one another without variables.
        ENDS_WITH_CHIEF: whether the job ends with its chief, even if other replicas of the chief's role still run.
        CHIEF_NOTE: the rest of the note on a service that calls worker 0 the chief.
        IMPORTS, START: the launcher's imports, and its lines that set the variables and start `program`. They find
            `hosts`, the address of each machine, `rank`, this machine's number, and os.environ with `launcher_input`.
    """

    CONTAINER: str
    PORT_NAME: str
    INDEX: str
    RANKED: bool
    READS_SLURM: bool
    READS_VERTEX: bool
    SPANS_SLICES: bool
    ENDS_WITH_CHIEF: bool
    CHIEF_NOTE: str
    IMPORTS: str
    START: str

    def flavour(self, spec: ImageSpec) -> Flavour:
        """Chooses the names of tasks for services where imgtool describes the cluster."""

    def check(self, spec: ImageSpec, target: Target, options: JobOptions) -> Iterator[FieldError]:
        """Finds roles and variables with which the processes would not find one another on `target`."""

    def describe(
        self, flavour: Flavour, hosts: Hosts, role: Role, index: int, *, job_dir: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """Returns the variables of one replica as plain data: a value that is no text is for JSON.

        `job_dir` is the job directory if `takes_job_dir` says yes; `more` are arguments of `cluster.tf_config`.
        """

    def describe_by_index(self, flavour: Flavour, hosts: Hosts, role: Role) -> dict[str, str]:
        """Returns the variables of each replica of a role, with `$(INDEX)`, which Kubernetes expands, as its number."""

    def takes_job_dir(self, spec: ImageSpec) -> bool:
        """Tells whether the variables of `describe` have a place for the job directory."""

    def launcher_input(self, spec: ImageSpec) -> dict[str, str]:
        """Returns the variables that `START` reads."""

    def slurm_variables(self, spec: ImageSpec) -> dict[str, str]:
        """Returns what the framework needs to know beside Slurm's own variables, such as the devices of a process."""

    def roles_that_end(self, spec: ImageSpec) -> tuple[Role, ...]:
        """Returns the roles whose end is the job's, because other replicas never end by themselves; () for all."""


def rules_of(framework: Framework) -> JobRules:
    """Imports the module of a framework, so that a run loads only the module that it needs."""
    return cast("JobRules", import_module(f"{__name__}.{framework.key}"))


def local_flavour(spec: ImageSpec) -> Flavour:
    """Chooses the form of TF_CONFIG, and the names of tasks, for services where imgtool describes the cluster."""
    return rules_of(spec.framework).flavour(spec)


def says_chief(spec: ImageSpec) -> bool:
    """Tells whether the framework calls the master `chief`."""
    return local_flavour(spec).first == "chief"
