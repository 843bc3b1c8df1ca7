"""What PyTorch's processes are told: the address and port of rank 0, their number and their rank.

A replica that is one process starts the program itself, with the variables that `torch.distributed` reads. If replicas
have several processes, each starts torchrun, which numbers its processes together with the torchruns of the others; its
options have variables, too (PET_…). An evaluator has no rank: it starts alone, without these variables. Source: torch
2.13.0, torch/distributed/rendezvous.py, run.py and elastic/multiprocessing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.cluster import Flavour, Hosts, addresses_of, rank_of
from training_imgtool.jobs.frameworks import JobRules
from training_imgtool.jobs.launcher import PYTHON
from training_imgtool.jobs.model import JobOptions, replicas, reserved_errors
from training_imgtool.model.spec import INIT, ImageSpec, Role
from training_imgtool.model.targets import Target

_KILLS_AFTER = 30  # seconds that torchrun gives its processes after SIGTERM, without its option --shutdown-timeout
_FIRST_WITH_TIMEOUT = (2, 13)  # the option is in this release; earlier ones ignore its variable
_RESERVED = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "PET_")
_TORCHRUN = """\
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main
code = 0
try:
    main()
except ChildFailedError as error:
    code = error.get_first_failure()[1].exitcode
except SignalException as error:
    code = -error.sigval
sys.exit(code if code >= 0 else 128 - code)
"""
"""Starts torchrun, and ends with the exit code of the process that failed first; torchrun itself would end with 1."""


class PyTorchRules(JobRules):
    """What PyTorch's replicas are told."""

    CONTAINER = "pytorch"
    PORT_NAME = "pytorchjob-port"
    RANKED = True
    SHARES_MEMORY = True
    ML_POLICY = "torch"
    IMPORTS = "os, sys"

    def check(self, spec: ImageSpec, target: Target, options: JobOptions) -> Iterator[FieldError]:  # noqa: ARG002  one signature
        """Finds variables that only imgtool may set, and processes that nothing would start or that NCCL refuses."""
        if sum(_ranks(spec).values()) > 1:
            yield from reserved_errors(spec, *_RESERVED)
        for role in replicas(spec):
            count, gpus, field = spec.roles[role].processes or 1, spec.roles[role].gpus, f"roles.{role}.processes"
            if count > 1 and spec.job.launcher == "python":
                message = f"{count}: with job.launcher python, each replica is one process"
                yield FieldError(message, field=field, hint="leave job.launcher out: torchrun starts the processes")
            elif gpus and count > gpus.count:
                yield FieldError(
                    f"{count}: NCCL needs a GPU for each process, and gpus.count is {gpus.count}", field=field
                )

    def entrypoint(self, spec: ImageSpec, role: Role) -> tuple[str, ...]:
        """Returns torchrun's command if torchrun starts the role's processes, else the role's own command."""
        own = spec.roles[role].command or ()
        if not _uses_torchrun(spec, role) or _is_torchrun(own):
            return spec.roles[role].entrypoint
        alone = role is Role.EVALUATOR or sum(_ranks(spec).values()) == 1
        options = ("--standalone", f"--nproc-per-node={_processes(spec, role)}") if alone else ()
        program = own or spec.trainer.arguments
        other = ("--no-python",) if own else ("--no-python", PYTHON) if program[0] == "-c" else ()
        grace = spec.job.grace_period or 0
        wait = f'os.environ["PET_SHUTDOWN_TIMEOUT"] = "{grace}"\n' if grace > _KILLS_AFTER else ""
        return (*INIT, PYTHON, "-c", f"import os, sys\n{wait}{_TORCHRUN}", *options, *other, *program)

    def processes(self, spec: ImageSpec, role: Role) -> int:
        """Counts the processes that torchrun starts in a replica."""
        return _processes(spec, role) if _uses_torchrun(spec, role) else 0

    def describe(
        self,
        spec: ImageSpec | None,
        flavour: Flavour,  # noqa: ARG002  one signature
        hosts: Hosts,
        role: Role,
        index: int,
        **more: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Returns the variables of one replica; none for an evaluator, and for a replica that is alone."""
        ranks: Hosts = {row: hosts[row] for row in hosts if row is not Role.EVALUATOR}
        addresses = addresses_of(ranks)
        if len(addresses) < 2 or role is Role.EVALUATOR:
            return {}
        host, _, port = addresses[0].rpartition(":")
        count = self.processes(spec, role) if spec else 0
        return _variables(
            host.strip("[]"), port, str(len(addresses)), str(rank_of(ranks, role, index)), str(count or "")
        )

    def describe_by_index(self, spec: ImageSpec, flavour: Flavour, hosts: Hosts, role: Role) -> dict[str, str]:
        """Returns the variables of all replicas of a role, except the rank, which the service sets."""
        told, index = self.describe(spec, flavour, hosts, role, 0), self.index_variable(spec)
        return {name: f"$({index})" if name == "NODE_RANK" else value for name, value in told.items() if name != index}

    def index_variable(self, spec: ImageSpec) -> str:
        """Returns the variable with the number of a node for torchrun, or of a process."""
        return "PET_NODE_RANK" if _uses_torchrun(spec, next(iter(_ranks(spec)))) else "RANK"

    def start(self, spec: ImageSpec) -> str:
        """Returns lines that set the variables of ranks; hosts with a higher number are evaluators."""
        ranks = _ranks(spec)
        size, first = sum(ranks.values()), next(iter(ranks))
        counts = " + ".join(f"[{_processes(spec, role)}] * {count}" for role, count in ranks.items())
        count = "counts[rank]" if self.processes(spec, first) else ""
        told = _variables('address.strip("[]")', "port", str(size), "rank", count)
        values = ", ".join(f"{name}={value}" for name, value in told.items())
        settings = (
            'address, _, port = hosts[0].rpartition(":")',
            f"counts = {counts}" if count else "",
            f"told = dict({values})",
        )
        inside = "".join(f"    {line}\n" for line in settings if line)
        inside += "    os.environ.update((name, str(value)) for name, value in told.items())\n"
        return (f"if rank < {size}:\n{inside}" if size > 1 else "") + "os.execvp(program[0], program)\n"

    def notes(self, spec: ImageSpec) -> Iterator[str]:
        """Notes that torchrun ends its processes before a longer grace period ends."""
        grace, release = spec.job.grace_period or 0, tuple(map(int, spec.release.split(".")[:2]))
        by_torchrun = any(self.processes(spec, role) for role in replicas(spec))
        if by_torchrun and grace > _KILLS_AFTER and release < _FIRST_WITH_TIMEOUT:
            yield f"job.grace_period: torchrun {spec.release} may kill its processes {_KILLS_AFTER} s after SIGTERM"

    def roles_that_end(self, spec: ImageSpec) -> tuple[Role, ...]:
        """Returns the ranks' roles if an evaluator, which may wait for further checkpoints, runs beside them."""
        return tuple(_ranks(spec)) if Role.EVALUATOR in replicas(spec) else ()


def _processes(spec: ImageSpec, role: Role) -> int:
    of_role = spec.roles[role]
    by_default = of_role.gpus.count if of_role.gpus and spec.job.launcher != "python" else 1
    return of_role.processes or by_default


def _uses_torchrun(spec: ImageSpec, role: Role) -> bool:
    """Tells whether torchrun starts the role's processes. The ranks of a job all start in the same way."""
    if spec.job.launcher:
        return spec.job.launcher == "torchrun"
    group = [role] if role is Role.EVALUATOR else _ranks(spec)
    return any(_processes(spec, each) > 1 or _is_torchrun(spec.roles[each].command or ()) for each in group)


def _is_torchrun(command: tuple[str, ...]) -> bool:
    return posixpath.basename(next(iter(command), "")) == "torchrun" or "torch.distributed.run" in command[:3]


def _ranks(spec: ImageSpec) -> dict[Role, int]:
    """Counts the replicas of each role in which ranks run."""
    return {role: count for role, count in replicas(spec).items() if role is not Role.EVALUATOR}


def _variables(address: str, port: str, size: str, rank: str, count: str) -> dict[str, str]:
    """Returns torchrun's variables if it starts `count` processes, else those of one process."""
    if count:
        told = {"PET_NNODES": size, "PET_NPROC_PER_NODE": count, "PET_NODE_RANK": rank}
        return {**told, "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port}
    told = {"MASTER_ADDR": address, "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": "0"}
    return {**told, "NODE_RANK": rank}  # Lightning 2.6 reads this and not RANK, unless torchrun started it


RULES = PyTorchRules()
