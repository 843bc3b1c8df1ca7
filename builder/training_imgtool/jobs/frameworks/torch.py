"""What PyTorch's processes are told: the address and port of rank 0, their number and their rank.

One process per replica reads these variables in `torch.distributed.init_process_group()`. An evaluator is no rank: it
starts alone, without them. Source: torch 2.13.0, torch/distributed/rendezvous.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.cluster import Flavour, Hosts, addresses_of, rank_of
from training_imgtool.jobs.model import JobOptions, replicas, reserved_errors
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

CONTAINER = "pytorch"
PORT_NAME = "pytorchjob-port"
INDEX = "RANK"
RANKED = True
READS_SLURM = False
READS_VERTEX = False
SPANS_SLICES = False
ENDS_WITH_CHIEF = False
CHIEF_NOTE = ""
RANKS = "RANKS"
IMPORTS = "os, sys"
START = f"""\
size = int(os.environ["{RANKS}"])
if 1 < size and rank < size:
    address, _, port = hosts[0].rpartition(":")
    told = dict(MASTER_ADDR=address.strip("[]"), MASTER_PORT=port, RANK=rank, WORLD_SIZE=size, LOCAL_RANK=0)
    os.environ.update((name, str(value)) for name, value in told.items())
os.execvp(program[0], program)
"""
_RESERVED = ("MASTER_ADDR", "MASTER_PORT", INDEX, "WORLD_SIZE", "LOCAL_RANK", RANKS)


def flavour(spec: ImageSpec) -> Flavour:  # noqa: ARG001  one signature
    """Calls the master `master`."""
    return Flavour.LOCAL_MASTER


def check(spec: ImageSpec, target: Target, options: JobOptions) -> Iterator[FieldError]:  # noqa: ARG001  one signature
    """Finds variables that only imgtool may set."""
    if _count_ranks(spec) > 1:
        yield from reserved_errors(spec, *_RESERVED)


def describe(
    flavour: Flavour,  # noqa: ARG001  one signature
    hosts: Hosts,
    role: Role,
    index: int,
    *,
    job_dir: str | None = None,  # noqa: ARG001
    **_: Any,
) -> dict[str, Any]:
    """Returns the variables of one process; none for an evaluator, and for a process that is alone."""
    return _variables(hosts, role, lambda ranks: str(rank_of(ranks, role, index)))


def describe_by_index(flavour: Flavour, hosts: Hosts, role: Role) -> dict[str, str]:  # noqa: ARG001  one signature
    """Returns the variables of all processes of a role, except the rank, which the service sets."""
    told = _variables(hosts, role, lambda _: "")
    told.pop(INDEX, None)
    return told


def _variables(hosts: Hosts, role: Role, rank: Any) -> dict[str, str]:
    ranks: Hosts = {row: hosts[row] for row in hosts if row is not Role.EVALUATOR}
    addresses = addresses_of(ranks)
    if len(addresses) < 2 or role is Role.EVALUATOR:
        return {}
    host, _, port = addresses[0].rpartition(":")
    told = {"MASTER_ADDR": host.strip("[]"), "MASTER_PORT": port, INDEX: rank(ranks)}
    return {**told, "WORLD_SIZE": str(len(addresses)), "LOCAL_RANK": "0"}


def _count_ranks(spec: ImageSpec) -> int:
    return sum(count for role, count in replicas(spec).items() if role is not Role.EVALUATOR)


def takes_job_dir(spec: ImageSpec) -> bool:  # noqa: ARG001  one signature
    """Says no: PyTorch has no variable for a directory."""
    return False


def launcher_input(spec: ImageSpec) -> dict[str, str]:
    """Returns the number of ranks, because hosts with a higher number are evaluators."""
    return {RANKS: str(_count_ranks(spec))}


def slurm_variables(spec: ImageSpec) -> dict[str, str]:  # noqa: ARG001  one signature
    """Returns none: the launcher sets the variables."""
    return {}


def roles_that_end(spec: ImageSpec) -> tuple[Role, ...]:
    """Returns the ranks' roles if an evaluator, which may wait for further checkpoints, runs beside them."""
    roles = replicas(spec)
    return tuple(role for role in roles if role is not Role.EVALUATOR) if Role.EVALUATOR in roles else ()
