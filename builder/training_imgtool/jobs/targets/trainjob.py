"""Kubeflow Trainer's TrainJob (`trainer.kubeflow.org/v1alpha1`), with its own TrainingRuntime.

The runtime's template is the JobSet that the target jobset writes. The controller creates this JobSet under the
TrainJob's name, so the Pods have the same names. No container is called `node` and no Job has the trainer's label, so
the controller fills in nothing and changes no role.

If all replicas are alike and start several processes, they are the trainer's nodes, and a policy of the runtime has the
controller tell them of each other: PyTorch's plug-in sets torchrun's variables (PET_…), which no TrainJob may set.

Source: kubeflow/trainer v2.3, pkg/webhooks and pkg/runtime.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.frameworks import rules_of
from training_imgtool.jobs.kubernetes import (
    chief_selector,
    is_cluster,
    job_file,
    job_name,
    labels,
    metadata,
    queue_label,
)
from training_imgtool.jobs.model import (
    Document,
    Finding,
    Images,
    JobFile,
    JobOptions,
    Path,
    Severity,
    get,
    replicas,
    without_none,
)
from training_imgtool.jobs.rules.kubernetes import host_findings, slice_findings
from training_imgtool.jobs.rules.ranks import RESERVED, TORCHRUN, UNKNOWN, Place, rank_findings, read_container
from training_imgtool.jobs.targets import jobset
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
_CONTAINERS = {  # the names of the containers that the controller fills in
    "trainer": "node",
    "model-initializer": "model-initializer",
    "dataset-initializer": "dataset-initializer",
}
_JAX = frozenset({"JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"})
_MANAGERS = ("", "trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:
    """Returns every reason why the spec cannot be a TrainJob; these are the same as for a JobSet."""
    return jobset.check(spec, images, options)


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the TrainingRuntime and the TrainJob, in the order in which the cluster needs them."""
    name, nodes, rules = job_name(spec, images), _count_nodes(spec, images), rules_of(spec.framework)
    policy: Document = {}
    trainer: Document = {}
    if nodes:
        spec, images = _as_workers(spec, images, nodes)
        policy = {"mlPolicy": {"numNodes": nodes, rules.ML_POLICY: {}}}
        trainer = {"trainer": {"numNodes": nodes, "numProcPerNode": rules.processes(spec, Role.WORKER)}}
    (template,) = jobset.make(spec, images, options).documents
    annotations = template["metadata"].get("annotations")
    runtime: Document = {
        "apiVersion": Target.TRAINJOB.row.kinds["TrainingRuntime"],
        "kind": "TrainingRuntime",
        "metadata": metadata(spec, name, labels(spec, name)),
        "spec": {
            **policy,
            "template": {
                "metadata": without_none({"labels": labels(spec, name), "annotations": annotations}),
                "spec": _with_node(template["spec"], {*spec.job.env, *spec.job.secrets}) if nodes else template["spec"],
            },
        },
    }
    job: Document = {
        "apiVersion": Target.TRAINJOB.row.kinds["TrainJob"],
        "kind": "TrainJob",
        "metadata": metadata(spec, name, {**labels(spec, name), **queue_label(spec)}),
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": name},
            **trainer,
        },
    }
    chief = chief_selector(spec, name, jobset.POD_INDEX)
    return job_file(Target.TRAINJOB, (runtime, job), spec, images, options, chief=chief)


def _count_nodes(spec: ImageSpec, images: Images) -> int:
    """Counts the replicas if they are alike and the runtime's policy describes them to their processes; else 0."""
    counts, rules = replicas(spec), rules_of(spec.framework)
    first, *others = ((replace(spec.roles[role], count=1), images[role]) for role in counts)
    alike = is_cluster(spec) and Role.EVALUATOR not in counts and all(other == first for other in others)
    return sum(counts.values()) if alike and rules.ML_POLICY and rules.processes(spec, next(iter(counts))) else 0


def _as_workers(spec: ImageSpec, images: Images, count: int) -> tuple[ImageSpec, Images]:
    role = next(iter(replicas(spec)))
    return replace(spec, roles={Role.WORKER: replace(spec.roles[role], count=count)}), {Role.WORKER: images[role]}


def _with_node(jobset_spec: Document, own: Collection[str]) -> Document:
    """Names the only Job and its container as the controller finds them, and keeps only the variables in `own`."""
    (job,) = jobset_spec["replicatedJobs"]
    inner = job["template"]["spec"]
    pod = inner["template"]["spec"]
    (running,) = pod["containers"]
    told = [item for item in running.get("env", ()) if item["name"] in own]
    node = without_none({**running, "name": "node", "env": told})
    template = {**inner["template"], "spec": {**pod, "containers": [node]}}
    labelled = {
        **job["template"],
        "metadata": {"labels": {_ANCESTOR: "trainer"}},
        "spec": {**inner, "template": template},
    }
    return {**jobset_spec, "replicatedJobs": [{**job, "name": "node", "template": labelled}]}


def judge(document: Any, *, allow_unknown: bool, region: str | None) -> Iterator[Finding]:
    """Finds what the webhooks refuse in a TrainJob or a TrainingRuntime, except wrong keys and kinds of values."""
    if document.get("kind") == "TrainJob":
        yield from _train_job(document.get("spec") or {}, get(document, "metadata", "name"))
        return
    template: Path = ("spec", "template")
    inside = get(document, *map(str, template))
    if not isinstance(inside, dict):
        return
    for finding in jobset.judge(inside, allow_unknown=allow_unknown, region=region):
        yield replace(finding, path=(*template, *finding.path))
    jobs = get(inside, "spec", "replicatedJobs")
    for index, job in enumerate(jobs if isinstance(jobs, list) else []):
        if isinstance(job, dict):
            yield from _filled_in(job, (*template, "spec", "replicatedJobs", index))


def _train_job(spec: Mapping[str, Any], name: Any) -> Iterator[Finding]:
    manager = spec.get("managedBy")
    if manager is not None and manager not in _MANAGERS:
        message = f"{manager!r}: expected {_MANAGERS[1]} or {_MANAGERS[2]}"
        yield Finding(path=("spec", "managedBy"), message=message)
    trainer, overrides = spec.get("trainer") or {}, spec.get("podTemplateOverrides")
    containers = [{"resources": trainer.get("resourcesPerNode") or {}}]
    yield from _rank_findings(str(get(spec, "runtimeRef", "name")).partition("-")[0], trainer, str(name))
    for index, override in enumerate(overrides if isinstance(overrides, list) else []):
        nodes = get(override, "spec", "nodeSelector") if isinstance(override, dict) else None
        pod, count = {"nodeSelector": nodes or {}, "containers": containers}, trainer.get("numNodes")
        yield from slice_findings(pod, ("spec", "podTemplateOverrides", index, "spec"))
        for finding in host_findings({"template": {"spec": pod}, "parallelism": count}, ()) if count else ():
            yield replace(finding, path=("spec", "trainer", "numNodes"))


def _rank_findings(framework: str, trainer: Mapping[str, Any], name: str) -> Iterator[Finding]:
    """Finds variables of Trainer's plug-ins for torch and JAX, and numbers that do not fit the TrainJob's nodes."""
    path: Path = ("spec", "trainer")
    ours = RESERVED if framework.startswith("torch") else _JAX if framework == "jax" else frozenset[str]()
    for index, item in enumerate(trainer.get("env") or []):
        if get(item or {}, "name") in ours:
            message = f"{item['name']}: the controller sets this variable: remove it"
            severity = Severity.ERROR if ours is RESERVED else Severity.WARNING
            yield Finding(path=(*path, "env", index, "name"), message=message, severity=severity)
    processes, nodes, where = trainer.get("numProcPerNode"), trainer.get("numNodes", 0), (*path, "numProcPerNode")
    if isinstance(processes, str) and processes not in {"auto", "cpu", "gpu"}:
        yield Finding(path=where, message=f"{processes!r}: expected a number, auto, cpu or gpu")
    given: dict[str, Place] = dict.fromkeys(ours, (UNKNOWN, ()))
    if ours is RESERVED:
        given |= {"PET_NPROC_PER_NODE": (str(processes or "auto"), where), "PET_NNODES": (str(nodes or UNKNOWN), path)}
    elif ours and processes is not None:
        message = "JAX starts one process on each node, whatever this number"
        yield Finding(path=where, message=message, severity=Severity.WARNING)
    each = read_container({**trainer, "resources": trainer.get("resourcesPerNode")}, path)
    program = " ".join(text for text, _ in each.commands)
    is_bare = re.match(r"\s*python[\d.]*\s(?!-c\s)", program) and not TORCHRUN.search(program)
    if ours is RESERVED and is_bare and nodes > 1:
        message = "without torchrun, the program gets no rank: the controller sets only PET_ variables"
        yield Finding(path=(*path, "command"), message=message, severity=Severity.WARNING)
    hosts = [f"{name}-node-0-{index}.{name}" for index in range(min(nodes, 1000))]
    each = replace(each, variables={**each.variables, **given}, count=nodes, hosts=hosts)
    yield from rank_findings([each], {nodes} if nodes else (), hosts)


def _filled_in(job: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Finds faults in a Job whose label makes it one of the controller's steps."""
    step = (get(job, "template", "metadata", "labels") or {}).get(_ANCESTOR)
    if step not in _CONTAINERS:
        return
    if job.get("replicas", 1) != 1:
        yield Finding(path=(*path, "replicas"), message=f"{job['replicas']}: expected 1 for the step {step}")
    containers = get(job, "template", "spec", "template", "spec", "containers")
    names = [get(item, "name") for item in containers or [] if isinstance(item, dict)]
    if _CONTAINERS[step] not in names:
        where = (*path, "template", "spec", "template", "spec", "containers")
        yield Finding(path=where, message=f"the step {step} needs a container called {_CONTAINERS[step]}")
