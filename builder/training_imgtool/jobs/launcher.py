"""Describes the cluster to a starting trainer, for services that name the machines only when they start the job.

The launcher is a Python program of a few lines in an environment variable of the job. It reads the machines' names and
this machine's rank, sets the variables of the framework, and then replaces itself with the trainer.
"""

from __future__ import annotations

from collections.abc import Sequence

from training_imgtool.jobs.cluster import PORT
from training_imgtool.jobs.frameworks import rules_of
from training_imgtool.jobs.model import replicas
from training_imgtool.model.spec import INIT, ImageSpec, Role

VARIABLE = "CLUSTER_LAUNCHER"
PYTHON = "/opt/venv/bin/python"  # its path in every image of imgtool
_READ_NODES = f"""\
nodes, rank, first, *program = sys.argv[1:]
port = os.environ.get("CLUSTER_PORT", "{PORT}")
hosts = [host + ":" + port for host in os.environ[nodes].split()]
rank = int(os.environ[rank]) + int(first)
"""
_POOLS = """\
import json, os, sys
program = sys.argv[1:]
spec = json.loads(os.environ["CLUSTER_SPEC"])
cluster, task = spec["cluster"], spec["task"]
hosts = [host for pool in sorted(cluster) for host in cluster[pool]]
rank = sum(len(cluster[pool]) for pool in cluster if pool < task["type"]) + int(task["index"])
"""
SECRETS = "/run/secrets"
SECRETS_SOURCE = """\
import os, sys
place, names, *program = sys.argv[1:]
lines = [] if os.path.isdir(place) else open(place).read().splitlines()
given = dict(line.split("=", 1) for line in lines if "=" in line)
for name in names.split(","):
    path = os.path.join(place, name)
    if name not in given and not os.path.isfile(path):
        sys.exit("the secret " + name + " is not in " + place)
    os.environ[name] = given[name] if name in given else open(path).read().rstrip("\\n")
os.execvp(program[0], program)
"""
"""Starts a program with variables from a file of NAME=VALUE lines, or from a folder with a file per variable.

Neither a job file nor `docker inspect` shows the values of these variables.
"""


def with_secrets(spec: ImageSpec, role: Role, place: str) -> tuple[str, ...]:
    """Returns the command that reads the job's secrets from the file or folder `place` and starts the trainer."""
    return (PYTHON, "-c", SECRETS_SOURCE, place, ",".join(spec.job.secrets), *trainer_command(spec, role))


def variables(spec: ImageSpec) -> dict[str, str]:
    """Returns the variables that contain the launcher and its input."""
    rules = rules_of(spec.framework)
    return {**rules.launcher_input(spec), VARIABLE: f"import {rules.IMPORTS}\n{_READ_NODES}{rules.start(spec)}"}


def vertex_command(spec: ImageSpec, role: Role) -> tuple[str, ...]:
    """Returns a container's command on Vertex AI; an empty command means the image's entry point.

    If the framework does not read the variables of Vertex AI, a launcher reads them.
    """
    rules = rules_of(spec.framework)
    if rules.READS_VERTEX or sum(replicas(spec).values()) == 1:
        return rules.entrypoint(spec, role)
    return (PYTHON, "-c", _POOLS + rules.start(spec), *trainer_command(spec, role))


def entrypoint(spec: ImageSpec, role: Role) -> tuple[str, ...]:
    """Returns the entry point of a role's containers in place of the image's; empty for the image's own."""
    return rules_of(spec.framework).entrypoint(spec, role)


def trainer_command(spec: ImageSpec, role: Role) -> tuple[str, ...]:
    """Returns the whole command that starts the trainer, for services that ignore the image's entry point."""
    return entrypoint(spec, role) or (*INIT, PYTHON, *spec.trainer.arguments)


def format_launch(program: Sequence[str], nodes: str, rank: str, first: int = 0) -> str:
    """Writes the shell words that start `program` through the launcher.

    Args:
        program: the trainer and its arguments, quoted for a shell.
        nodes: the variable with the machines' names, separated by white space.
        rank: the variable with this machine's number.
        first: the count of machines of earlier roles, which the launcher adds to the number.
    """
    return " ".join([PYTHON, "-c", f'"${VARIABLE}"', nodes, rank, str(first), *program])
