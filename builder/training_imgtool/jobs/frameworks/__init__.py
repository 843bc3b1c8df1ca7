"""What the replicas of a job are told, by framework. Each framework has a module with its `JobRules`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from training_imgtool.jobs.cluster import Flavour

if TYPE_CHECKING:
    from training_imgtool.base.errors import FieldError
    from training_imgtool.jobs.cluster import Hosts
    from training_imgtool.jobs.model import JobOptions
    from training_imgtool.model.frameworks import Framework
    from training_imgtool.model.spec import ImageSpec, Role
    from training_imgtool.model.targets import Target


class JobRules(Protocol):
    """What differs between frameworks, each of whose modules has a subclass and its instance RULES.

    Attributes:
        CONTAINER: the name of the container and of the Services' port in Kubernetes.
        PORT_NAME: the name of the container's port.
        RANKED: whether that number counts the replicas of all roles; if not, those of the replica's own role.
        READS_SLURM: whether the framework finds its processes by Slurm's variables, which are those of one step.
        READS_VERTEX: whether the framework reads the variables that Vertex AI sets.
        SPANS_SLICES: whether a job may have several TPU slices, whose processes find one another without variables.
        ENDS_WITH_CHIEF: whether the job ends with its chief, even if other replicas of the chief's role still run.
        CHIEF_NOTE: the rest of the note on a service that calls worker 0 the chief.
        SHARES_MEMORY: whether its data loaders pass batches in /dev/shm, of which a container has 64 MB by default.
        ML_POLICY: the policy with which Kubeflow Trainer describes the cluster to `processes`; empty for none.
        IMPORTS: the imports of `start`.
    """

    CONTAINER: str
    PORT_NAME: str
    RANKED: bool = False
    READS_SLURM: bool = False
    READS_VERTEX: bool = False
    SPANS_SLICES: bool = False
    ENDS_WITH_CHIEF: bool = False
    CHIEF_NOTE: str = ""
    SHARES_MEMORY: bool = False
    ML_POLICY: str = ""
    IMPORTS: str

    def flavour(self, spec: ImageSpec) -> Flavour:  # noqa: ARG002  one signature
        """Chooses the names of tasks for services where imgtool describes the cluster."""
        return Flavour.LOCAL_MASTER

    def check(self, spec: ImageSpec, target: Target, options: JobOptions) -> Iterator[FieldError]:
        """Finds roles and variables with which the processes would not find one another on `target`."""

    def entrypoint(self, spec: ImageSpec, role: Role) -> tuple[str, ...]:
        """Returns the program, below the init, that a job starts instead of the image's entry point; empty for none."""
        return spec.roles[role].entrypoint

    def processes(self, spec: ImageSpec, role: Role) -> int:  # noqa: ARG002  one signature
        """Counts the processes that `entrypoint` starts below itself in a replica; 0 if it is the program itself."""
        return 0

    def describe(
        self, spec: ImageSpec | None, flavour: Flavour, hosts: Hosts, role: Role, index: int, **more: Any
    ) -> dict[str, Any]:
        """Returns the variables of one replica as plain data: a value that is no text is for JSON.

        Without a spec, the replica is one process. `more` are `job_dir`, the job directory, if `takes_job_dir` says
        yes, and arguments of `cluster.tf_config`.
        """

    def describe_by_index(self, spec: ImageSpec, flavour: Flavour, hosts: Hosts, role: Role) -> dict[str, str]:
        """Returns the variables of each replica of a role, with `$(NAME)`, which Kubernetes expands, as its number.

        NAME is the variable of `index_variable`; the result does not contain it, and is empty if it is not needed.
        """

    def index_variable(self, spec: ImageSpec) -> str:
        """Names a replica's number, for services that know the number only when they start the replica."""

    def start(self, spec: ImageSpec) -> str:
        """Returns the launcher's lines that set the variables and start `program`.

        They find `hosts`, the address of each machine, `rank`, this machine's number, and `launcher_input`.
        """

    def takes_job_dir(self, spec: ImageSpec) -> bool:  # noqa: ARG002  one signature
        """Tells whether the variables of `describe` have a place for the job directory."""
        return False

    def launcher_input(self, spec: ImageSpec) -> dict[str, str]:  # noqa: ARG002  one signature
        """Returns the variables that the lines of `start` read."""
        return {}

    def slurm_variables(self, spec: ImageSpec) -> dict[str, str]:  # noqa: ARG002  one signature
        """Returns what the framework needs to know beside Slurm's own variables, such as the devices of a process."""
        return {}

    def notes(self, spec: ImageSpec) -> Iterator[str]:  # noqa: ARG002  one signature
        """Yields notes on settings that the framework follows only in part."""
        return iter(())

    def roles_that_end(self, spec: ImageSpec) -> tuple[Role, ...]:  # noqa: ARG002  one signature
        """Returns the roles whose end is the job's, because other replicas never end by themselves; () for all."""
        return ()


def rules_of(framework: Framework) -> JobRules:
    """Imports the module of a framework, so that a run loads only the module that it needs."""
    return cast("JobRules", import_module(f"{__name__}.{framework.key}").RULES)


def local_flavour(spec: ImageSpec) -> Flavour:
    """Chooses the form of TF_CONFIG, and the names of tasks, for services where imgtool describes the cluster."""
    return rules_of(spec.framework).flavour(spec)


def says_chief(spec: ImageSpec) -> bool:
    """Tells whether the framework calls the master `chief`."""
    return local_flavour(spec).first == "chief"
