"""What TensorFlow's replicas are told: TF_CONFIG and CLUSTER_SPEC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.cluster import Flavour, Hosts, describe_tasks, task_name, to_texts
from training_imgtool.jobs.model import JobOptions, leader, ranks, replicas, reserved_errors
from training_imgtool.jobs.tables import machines
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.model.targets import Target

CONTAINER = "tensorflow"  # the training operator finds a TFJob's container by this name, and its port by the next one
PORT_NAME = "tfjob-port"
_INDEX = "TF_TASK_INDEX"
RANKED = False
READS_SLURM = False
READS_VERTEX = True
SPANS_SLICES = False
ENDS_WITH_CHIEF = True
CHIEF_NOTE = (
    ", so TF_CONFIG has chief 0 and one worker less; "
    "a trainer that treats every task with index 0 as the chief finds two"
)
TASKS = "CLUSTER_TASKS"
SHARES_MEMORY = False
ML_POLICY = ""
IMPORTS = "json, os, sys"
_START = f"""\
cluster, start, task = {{}}, 0, None
for kind, count in json.loads(os.environ["{TASKS}"]).items():
    cluster[kind] = hosts[start : start + count]
    if start <= rank < start + count:
        task = {{"type": kind, "index": rank - start}}
    start += count
spec = {{"cluster": cluster, "task": task, "environment": "cloud"}}
config = {{**spec, "cluster": {{kind: cluster[kind] for kind in cluster if kind != "evaluator"}}}}
os.environ.update(CLUSTER_SPEC=json.dumps(spec), TF_CONFIG=json.dumps(config))
os.execvp(program[0], program)
"""


def flavour(spec: ImageSpec) -> Flavour:
    """Says `chief` from TensorFlow 2.0 on, and before that `master`."""
    return Flavour.LOCAL if int(spec.release.split(".", maxsplit=1)[0]) >= 2 else Flavour.LOCAL_MASTER


def check(spec: ImageSpec, target: Target, options: JobOptions) -> Iterator[FieldError]:  # noqa: ARG001  one signature
    """Finds variables that only imgtool may set, and a release that is too old for the TPUs of Vertex AI."""
    yield from reserved_errors(spec, _INDEX, TASKS)
    if target is not Target.VERTEX or not any(spec.accelerator_of(role) is Accelerator.TPU for role in replicas(spec)):
        return
    first = machines(allow_unknown=False).table["tpu"]["first_tensorflow"]
    if _minor(spec.release) < _minor(first):
        message = f"{spec.release}: a TPU VM needs TensorFlow {first} or newer in the image"
        yield FieldError(message, field="tensorflow")


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def describe(
    spec: ImageSpec | None,  # noqa: ARG001  one signature
    flavour: Flavour,
    hosts: Hosts,
    role: Role,
    index: int,
    *,
    job_dir: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Returns TF_CONFIG, with `job_dir` as its `model_dir`, and CLUSTER_SPEC."""
    told = describe_tasks(flavour, hosts, role, index, **more)
    return {**told, "TF_CONFIG": {**told["TF_CONFIG"], "model_dir": job_dir}} if job_dir else told


def describe_by_index(
    spec: ImageSpec,  # noqa: ARG001  one signature
    flavour: Flavour,
    hosts: Hosts,
    role: Role,
) -> dict[str, str]:
    """Returns TF_CONFIG and CLUSTER_SPEC with the task's index as a variable."""
    texts = to_texts(describe_tasks(flavour, hosts, role, 0))
    return {key: text.replace('"index":0', f'"index":$({_INDEX})') for key, text in texts.items()}


def entrypoint(spec: ImageSpec, role: Role) -> tuple[str, ...]:
    """Returns the role's own command."""
    return spec.roles[role].entrypoint


def processes(spec: ImageSpec, role: Role) -> int:  # noqa: ARG001  one signature
    """Returns 0: one process uses all devices of a replica."""
    return 0


def index_variable(spec: ImageSpec) -> str:  # noqa: ARG001  one signature
    """Returns the variable, which only imgtool sets."""
    return _INDEX


def start(spec: ImageSpec) -> str:  # noqa: ARG001  one signature
    """Returns the lines, which are the same for all specs."""
    return _START


def notes(spec: ImageSpec) -> Iterator[str]:  # noqa: ARG001  one signature
    """Yields none."""
    return iter(())


def takes_job_dir(spec: ImageSpec) -> bool:
    """Tells whether TF_CONFIG has `model_dir`, which Estimators read up to TensorFlow 2.15.

    With `job.pass_job_dir` it has none, because an Estimator fails if the program passes a different directory.
    """
    return _minor(spec.release) < (2, 16) and not spec.job.pass_job_dir


def launcher_input(spec: ImageSpec) -> dict[str, str]:
    """Maps TensorFlow's name of each role to its number of replicas, in the order of ranks, as JSON."""
    return {TASKS: json.dumps({task_name(flavour(spec), role): count for role, count in ranks(spec).items()})}


def slurm_variables(spec: ImageSpec) -> dict[str, str]:  # noqa: ARG001  one signature
    """Returns none: the launcher writes TF_CONFIG."""
    return {}


def roles_that_end(spec: ImageSpec) -> tuple[Role, ...]:
    """Returns the chief's role, because parameter servers never end by themselves."""
    return (leader(spec) or Role.MASTER,)
