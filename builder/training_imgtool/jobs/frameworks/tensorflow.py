"""What TensorFlow's replicas are told: TF_CONFIG and CLUSTER_SPEC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.cluster import Flavour, Hosts, describe_tasks, task_name, to_texts
from training_imgtool.jobs.frameworks import JobRules
from training_imgtool.jobs.model import JobOptions, leader, ranks, replicas, reserved_errors
from training_imgtool.jobs.tables import machines
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.model.targets import Target

_INDEX = "TF_TASK_INDEX"
TASKS = "CLUSTER_TASKS"
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


class TensorFlowRules(JobRules):
    """What TensorFlow's replicas are told."""

    CONTAINER = (
        "tensorflow"  # the training operator finds a TFJob's container by this name, and its port by the next one
    )
    PORT_NAME = "tfjob-port"
    READS_VERTEX = True
    ENDS_WITH_CHIEF = True
    CHIEF_NOTE = (
        ", so TF_CONFIG has chief 0 and one worker less; "
        "a trainer that treats every task with index 0 as the chief finds two"
    )
    IMPORTS = "json, os, sys"

    def flavour(self, spec: ImageSpec) -> Flavour:
        """Says `chief` from TensorFlow 2.0 on, and before that `master`."""
        return Flavour.LOCAL if int(spec.release.split(".", maxsplit=1)[0]) >= 2 else Flavour.LOCAL_MASTER

    def check(self, spec: ImageSpec, target: Target, options: JobOptions) -> Iterator[FieldError]:  # noqa: ARG002  one signature
        """Finds variables that only imgtool may set, and a release that is too old for the TPUs of Vertex AI."""
        yield from reserved_errors(spec, _INDEX, TASKS)
        if target is not Target.VERTEX or not any(
            spec.accelerator_of(role) is Accelerator.TPU for role in replicas(spec)
        ):
            return
        first = machines(allow_unknown=False).table["tpu"]["first_tensorflow"]
        if _minor(spec.release) < _minor(first):
            message = f"{spec.release}: a TPU VM needs TensorFlow {first} or newer in the image"
            yield FieldError(message, field="tensorflow")

    def describe(
        self,
        spec: ImageSpec | None,  # noqa: ARG002  one signature
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
        self,
        spec: ImageSpec,  # noqa: ARG002  one signature
        flavour: Flavour,
        hosts: Hosts,
        role: Role,
    ) -> dict[str, str]:
        """Returns TF_CONFIG and CLUSTER_SPEC with the task's index as a variable."""
        texts = to_texts(describe_tasks(flavour, hosts, role, 0))
        return {key: text.replace('"index":0', f'"index":$({_INDEX})') for key, text in texts.items()}

    def index_variable(self, spec: ImageSpec) -> str:  # noqa: ARG002  one signature
        """Returns the variable, which only imgtool sets."""
        return _INDEX

    def start(self, spec: ImageSpec) -> str:  # noqa: ARG002  one signature
        """Returns the lines, which are the same for all specs."""
        return _START

    def takes_job_dir(self, spec: ImageSpec) -> bool:
        """Tells whether TF_CONFIG has `model_dir`, which Estimators read up to TensorFlow 2.15.

        With `job.pass_job_dir` it has none, because an Estimator fails if the program passes a different directory.
        """
        return _minor(spec.release) < (2, 16) and not spec.job.pass_job_dir

    def launcher_input(self, spec: ImageSpec) -> dict[str, str]:
        """Maps TensorFlow's name of each role to its number of replicas, in the order of ranks, as JSON."""
        return {TASKS: json.dumps({task_name(self.flavour(spec), role): count for role, count in ranks(spec).items()})}

    def roles_that_end(self, spec: ImageSpec) -> tuple[Role, ...]:
        """Returns the chief's role, because parameter servers never end by themselves."""
        return (leader(spec) or Role.MASTER,)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


RULES = TensorFlowRules()
