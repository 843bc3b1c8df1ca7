"""What JAX's processes are told: the coordinator, their number and their rank, for JAX and for Keras 3.

`jax.distributed.initialize()` reads the coordinator's address alone from the variables. Programs for Kubeflow's JAX
runtime pass the number of processes and the rank to this function. Keras 3 reads three variables of its own. Source:
jax 0.10.2, jax/_src/distributed.py and jax/_src/clusters; Keras 3.15, keras/src/distribution/distribution_lib.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.cluster import Flavour, Hosts, addresses_of, rank_of
from training_imgtool.jobs.frameworks import JobRules
from training_imgtool.jobs.model import JobOptions, replicas, reserved_errors
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.model.targets import Target

_INDEX = "JAX_PROCESS_ID"
_START = """\
told = dict(KERAS_DISTRIBUTION_JOB_ADDRESSES=",".join(hosts), JAX_COORDINATOR_ADDRESS=hosts[0])
for name, value in (("NUM_PROCESSES", len(hosts)), ("PROCESS_ID", rank)):
    told["KERAS_DISTRIBUTION_" + name] = told["JAX_" + name] = str(value)
os.environ.update(told)
os.execvp(program[0], program)
"""
_RESERVED = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", _INDEX, "KERAS_DISTRIBUTION_")
_DEVICES = "JAX_LOCAL_DEVICE_IDS"


class JAXRules(JobRules):
    """What JAX's replicas are told."""

    CONTAINER = "jax"
    PORT_NAME = "coordinator"
    RANKED = True
    READS_SLURM = True
    SPANS_SLICES = True  # libtpu knows its own slice, and GKE describes the others
    IMPORTS = "os, sys"

    def check(self, spec: ImageSpec, target: Target, options: JobOptions) -> Iterator[FieldError]:
        """Finds variables that only imgtool may set, and roles whose processes JAX cannot number."""
        if sum(replicas(spec).values()) > 1:
            yield from reserved_errors(spec, *_RESERVED)
        roles = list(replicas(spec))
        if len(roles) == 1:
            return
        for role in roles:
            if spec.accelerator_of(role) is Accelerator.TPU:
                message = "JAX computes the number of processes from the slices of one role: expected only this role"
                yield FieldError(message, field=f"roles.{role}", hint="use only workers, and count for further slices")
        if target.row.kinds and any("kubernetes" in options.packages.get(role, ()) for role in roles):
            message = (
                "with the package kubernetes (jax[k8s]), JAX takes number and rank of processes from the Job of one "
                "role, so each replica would train alone"
            )
            yield FieldError(message, field="roles", hint="use only workers, or leave out jax[k8s]")

    def describe(
        self,
        spec: ImageSpec | None,  # noqa: ARG002  one signature
        flavour: Flavour,  # noqa: ARG002  one signature
        hosts: Hosts,
        role: Role,
        index: int,
        *,
        job_dir: str | None = None,  # noqa: ARG002
        **_: Any,
    ) -> dict[str, Any]:
        """Returns the variables of one process. The first process, in the order of roles, is the coordinator."""
        return _variables(addresses_of(hosts), str(rank_of(hosts, role, index)))

    def describe_by_index(
        self,
        spec: ImageSpec,  # noqa: ARG002  one signature
        flavour: Flavour,  # noqa: ARG002
        hosts: Hosts,
        role: Role,  # noqa: ARG002
    ) -> dict[str, str]:
        """Returns the variables of all processes, with the rank as a variable."""
        told = _variables(addresses_of(hosts), f"$({_INDEX})")
        told.pop(_INDEX, None)
        return told

    def index_variable(self, spec: ImageSpec) -> str:  # noqa: ARG002  one signature
        """Returns the variable, which only imgtool sets."""
        return _INDEX

    def start(self, spec: ImageSpec) -> str:  # noqa: ARG002  one signature
        """Returns the lines, which are the same for all specs."""
        return _START

    def slurm_variables(self, spec: ImageSpec) -> dict[str, str]:
        """Gives a process all GPUs of its node, of which JAX would take only the one with the number SLURM_LOCALID.

        Source: jax/_src/clusters/slurm_cluster.py, get_local_process_id, and distributed.py, local_device_ids.
        """
        count = max(of_role.gpus.count if (of_role := spec.roles[role]).gpus else 0 for role in replicas(spec))
        given = _DEVICES in spec.job.env or _DEVICES in spec.env
        return {} if count < 2 or given else {_DEVICES: ",".join(map(str, range(count)))}


def _variables(addresses: Sequence[str], rank: str) -> dict[str, str]:
    if len(addresses) == 1:
        return {}
    return {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join(addresses),
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(len(addresses)),
        "KERAS_DISTRIBUTION_PROCESS_ID": rank,
        "JAX_COORDINATOR_ADDRESS": addresses[0],
        "JAX_NUM_PROCESSES": str(len(addresses)),
        _INDEX: rank,
    }


RULES = JAXRules()
