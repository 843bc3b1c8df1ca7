"""What of a spec one target has no place for: refused where it would change the result, else a note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from training_imgtool.core.errors import FieldError
from training_imgtool.jobs.model import model_dir, replicas
from training_imgtool.jobs.tables import has_gpus
from training_imgtool.spec.job import JobSpec, Scheduling, Target
from training_imgtool.spec.layer_formats import READERS
from training_imgtool.spec.model import Accelerator, Gpus, ImageSpec, RoleSpec

_EVERY = {"target", "id", "job_dir", "pass_job_dir"}
_GOOGLE = {
    "project", "region", "scheduling", "service_account", "network", "labels", "encryption_key", "web_access",
    "chief_in_tf_config",
}  # fmt: skip
_KUBERNETES = {"labels", "env", "volume", "namespace", "service_account", "image_pull_secrets", "scheduling", "queue"}
_JOB: Mapping[Target, frozenset[str]] = {
    target: frozenset(_EVERY | used)
    for target, used in {
        Target.AI_PLATFORM: _GOOGLE
        | {"env", "scale_tier", "hyperparameters", "runtime_version", "python_version", "package_uris", "staging"},
        Target.VERTEX: _GOOGLE
        | {"env", "volume", "display_name", "tensorboard", "dashboard_access", "persistent_resource"}
        | {"reserved_ip_ranges", "network_attachment", "hyperparameters"},
        Target.TFJOB: _KUBERNETES,
        Target.JOBSET: _KUBERNETES | {"exclusive_topology"},
        Target.PODS: _KUBERNETES,
        Target.ECI: _KUBERNETES | {"eci"},
        Target.COMPOSE: {"env", "volume", "labels"},
        Target.TF_CONFIG: {"env"},
        Target.SKYPILOT: {"env", "labels", "infra", "scheduling"},
        Target.SLURM: {"env", "slurm", "scheduling"},
    }.items()
}
_CLUSTER = {Target.TFJOB, Target.JOBSET, Target.PODS, Target.ECI}
_KUBE_ROLE = {"node_selector", "tolerations", "cpus", "memory"}
_ROLE: Mapping[Target, frozenset[str]] = {
    Target.AI_PLATFORM: frozenset({"machine", "disk", "gpus", "tpu"}),
    Target.VERTEX: frozenset({"machine", "disk", "gpus", "tpu"}),
    Target.TFJOB: frozenset({*_KUBE_ROLE, "gpus"}),
    Target.JOBSET: frozenset({*_KUBE_ROLE, "gpus"}),
    Target.PODS: frozenset({*_KUBE_ROLE, "gpus"}),
    Target.ECI: frozenset({*_KUBE_ROLE, "gpus", "machine"}),
    Target.COMPOSE: frozenset({"cpus", "memory", "gpus"}),
    Target.TF_CONFIG: frozenset({"cpus", "memory", "gpus"}),
    Target.SKYPILOT: frozenset({"cpus", "memory", "gpus", "machine", "disk"}),
    Target.SLURM: frozenset({"cpus", "memory", "gpus"}),
}
_EVERY_ROLE = {"count", "accelerator", "base", "template", "args", "command", "env"}
_SCHEDULING: Mapping[Target, frozenset[str]] = {
    Target.AI_PLATFORM: frozenset({"max_wait", "max_running", "priority"}),
    Target.VERTEX: frozenset({"max_wait", "max_running", "strategy", "restart_on_worker_restart", "disable_retries"}),
    Target.TFJOB: frozenset({"max_wait", "max_running", "restarts", "keep_finished"}),
    Target.JOBSET: frozenset({"max_running", "restarts", "keep_finished"}),
    Target.PODS: frozenset({"max_running"}),
    Target.ECI: frozenset({"max_running"}),
    Target.SKYPILOT: frozenset({"strategy"}),
    Target.SLURM: frozenset({"max_running"}),
}
_REFUSED: Mapping[str, tuple[frozenset[Target], str]] = {  # who has it, and what to do elsewhere
    "scale_tier": (frozenset({Target.AI_PLATFORM}), "give every role a machine and a count"),
    "hyperparameters": (frozenset({Target.AI_PLATFORM, Target.VERTEX}), "tune with --target vertex"),
    "runtime_version": (frozenset({Target.AI_PLATFORM}), "every other target runs images"),
}
_PACKAGE_KEYS = ("python_version", "package_uris", "staging")


def misfits(spec: ImageSpec, target: Target) -> Iterator[FieldError]:
    """What the target cannot do and the job would be another one without."""
    for key, (targets, hint) in _REFUSED.items():
        if getattr(spec.job, key) and target not in targets:
            yield FieldError(f"{target} has none", field=f"job.{key}", hint=hint)
    for role in replicas(spec):
        if target in _ROLE and "tpu" not in _ROLE[target] and spec.accelerator_of(role) is Accelerator.TPU:
            yield FieldError(
                f"{target} has no TPU roles", field=f"roles.{role}", hint="TPUs: --target ai-platform or vertex"
            )


def leftovers(spec: ImageSpec, target: Target) -> Iterator[str]:
    """One note with everything that is set in the spec and has no counterpart in the target; warnings about GPUs."""
    left = [f"job.{name}" for name in _list_given(JobSpec, spec.job) if name not in _JOB[target]]
    times = spec.job.scheduling
    if times and "job.scheduling" not in left:
        left += [f"job.scheduling.{n}" for n in _list_given(Scheduling, times) if n not in _SCHEDULING.get(target, ())]
    for role in replicas(spec):
        of_role = spec.roles[role]
        left += [f"roles.{role}.{n}" for n in _list_given(RoleSpec, of_role) if n not in _ROLE[target] | _EVERY_ROLE]
        if isinstance(of_role.gpus, Gpus) and target in _CLUSTER and not of_role.node_selector and not of_role.machine:
            left.append(f"roles.{role}.gpus.type (choose the nodes with roles.{role}.node_selector)")
    left += _without_effect(spec, target)
    if left:
        yield f"note: {target} has no place for {', '.join(left)}"
    yield from _gpu_warnings(spec, target)
    if spec.compression == "zstd" and not spec.job.runtime_version and (problem := READERS[target].problem):
        yield f"warning: compression: {problem}"


def _without_effect(spec: ImageSpec, target: Target) -> Iterator[str]:
    job = spec.job
    if target is Target.AI_PLATFORM and not job.runtime_version:
        given = [f"job.{key}" for key in _PACKAGE_KEYS if getattr(job, key)]
        yield from (f"{key} (it goes with job.runtime_version)" for key in given)
    if target is Target.ECI and job.eci and job.eci.driver and not any(spec.roles[r].gpus for r in replicas(spec)):
        yield "job.eci.driver (no role has gpus)"
    mounted = target in {Target.COMPOSE, Target.TF_CONFIG, Target.SLURM} and "://" not in (job.job_dir or "")
    named = target in {Target.AI_PLATFORM, Target.VERTEX} or (
        target is Target.TF_CONFIG and model_dir(spec, job.job_dir)
    )
    if job.job_dir and not job.pass_job_dir and not mounted and not named:
        yield "job.job_dir (with job.pass_job_dir: true it becomes the argument --job-dir)"


def _gpu_warnings(spec: ImageSpec, target: Target) -> Iterator[str]:
    """Roles whose image has CUDA and whose machine has no GPU, as far as the spec says."""
    preset = target is Target.AI_PLATFORM and spec.job.scale_tier not in {None, "CUSTOM"}
    for role in replicas(spec):
        of_role = spec.roles[role]
        if spec.accelerator_of(role) is Accelerator.GPU and not of_role.gpus and not preset:
            if has_gpus(of_role.machine):
                continue
            yield f"warning: roles.{role}: accelerator gpu makes an image with CUDA, and the role has no gpus"


def _list_given(kind: Any, value: Any) -> Iterator[str]:
    """The fields of a dataclass that differ from their default."""
    for item in fields(kind):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if getattr(value, item.name) != default:
            yield item.name
