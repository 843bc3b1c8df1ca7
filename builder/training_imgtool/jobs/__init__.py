"""Writes job files: each target has one module, whose pure functions turn a spec and digests into plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from training_imgtool.base.errors import FieldError, FieldListError, UsageError
from training_imgtool.base.reference import Digest, parse_repository
from training_imgtool.jobs.frameworks import rules_of
from training_imgtool.jobs.model import (
    NOWHERE,
    SHM,
    Finding,
    Format,
    Images,
    JobFile,
    JobOptions,
    image_of,
    is_default,
    job_key,
    keeps_nothing,
    leader,
    quantity,
    replicas,
    spec_hash,
)
from training_imgtool.jobs.rules.google import LOOPBACK
from training_imgtool.jobs.service import KEY
from training_imgtool.jobs.tables import gpu_label, has_gpus
from training_imgtool.jobs.text import submit_lines
from training_imgtool.model.frameworks import FRAMEWORKS
from training_imgtool.model.job import JobSpec, Scheduling
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import JobDir, Runtime, Target, find_streaming

if TYPE_CHECKING:
    from training_imgtool.model.load import SpecFile

__all__ = ["Format", "JobFile", "JobOptions", "TargetView", "check", "check_job", "job_data", "module_of", "view_of"]

_EVERY_JOB = {"target", "id", "job_dir", "pass_job_dir", "launcher"}
_EVERY_ROLE = {"count", "processes", "accelerator", "base", "template", "args", "command", "env"}
_REFUSED: Mapping[str, str] = {  # keys that no target may ignore, and what to use instead
    "scale_tier": "give every role a machine and a count",
    "hyperparameters": f"tune with --target {Target.VERTEX}",
    "runtime_version": "every other target runs images",
    "secrets": "let the program ask a secret manager, as the job's service account",
}
_VOLUMES = {
    "claim": "claim",
    "nfs": "nfs_server with nfs_path",
    "bucket": "bucket",
    "host_path": "host_path",
    "memory": "memory",
}
_ARGUMENT = 131072  # characters: Linux refuses a variable or an argument of this length or more
_PACKAGE_KEYS = ("python_version", "package_uris", "staging")


class JobTarget(Protocol):
    """The functions that each target's module in `jobs.targets` has."""

    def check(self, spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:
        """Returns every reason why the spec cannot be a job of this target."""

    def make(self, spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
        """Makes the job file of a spec in which `check` found no error."""

    def judge(self, document: Any, *, allow_unknown: bool, region: str | None) -> Iterable[Finding]:
        """Finds faults in a document for `lint`; for Kubernetes, only faults that shapes do not find. Optional."""


def module_of(target: Target) -> JobTarget:
    """Imports the target's module; a run imports only the modules that it needs."""
    return cast("JobTarget", import_module(f"{__name__}.targets.{target.replace('-', '_')}"))


def check(
    spec: ImageSpec, images: Mapping[Role, Digest], target: Target | None, options: JobOptions | None = None
) -> list[FieldError]:
    """Returns every violation of the target's rules, each with its field in the spec.

    Raises:
        InputError: a role has no image.
        UsageError: neither the spec nor the caller names a target.
    """
    target = chosen(target)
    if not spec.job.runtime_version:
        for role in replicas(spec):
            image_of(images, role)  # checked at run time too, so that no tag gets into a job file
    if leader(spec) is None:
        return [FieldError("expected a master or workers, because every job needs a chief", field="roles")]
    refused = list(_misfits(spec, target))
    if KEY in spec.job.labels:
        refused.append(FieldError("imgtool sets this label itself: remove it", field=f"job.labels.{KEY}"))
    refused += _volume_errors(spec.job, target)
    refused += rules_of(spec.framework).check(spec, target, options or JobOptions())
    refused += (
        FieldError("is also in job.env: expected it in only one of the two", field=f"job.secrets.{name}")
        for name in spec.job.secrets.keys() & spec.job.env.keys()
    )
    if spec.job.secrets and not spec.job.secrets_file and "secrets_file" in target.row.job:
        hint = "the path of a file with a NAME=VALUE line per secret, which you put on the machines"
        refused.append(FieldError(f"is missing: {target} does not store secrets", field="job.secrets_file", hint=hint))
    if refused:
        return refused
    seen = view_of(spec, images, target)
    errors = module_of(target).check(seen.spec, seen.images, options or JobOptions())
    named_fields = {error.field for error in errors}
    return [
        FieldError(error.message, field=named, hint=error.hint)
        for error in errors
        if (named := seen.named(error.field)) == error.field or named not in named_fields
    ]


def chosen(target: Target | None) -> Target:
    """Returns the target; raises UsageError, which lists the targets, if the user chose none."""
    if target is None:
        raise UsageError(
            "the spec names no job.target, and there is no default",
            hint=f"choose one with --target, or with job.target in the spec: {', '.join(Target)}",
        )
    return target


def job_data(
    spec: ImageSpec, images: Mapping[Role, Digest], target: Target | None, options: JobOptions | None = None
) -> JobFile:
    """Makes the job file for `target`; raises FieldListError with all violations of the target's rules."""
    options, target = options or JobOptions(), chosen(target)
    errors = check(spec, images, target, options)
    if errors:
        raise FieldListError(tuple(errors))
    seen = view_of(spec, images, target)
    job = module_of(target).make(_with_key(seen, target, options), seen.images, options)
    header = (
        f"Written by imgtool {options.version} for {target}; spec {spec_hash(spec)[:16]}.",
        *(["Submit with imgtool submit, or:"] if job.command else []),
        *(f"  {line}" for line in submit_lines(job).splitlines()),
        *job.header,
    )
    if _longest(job.documents) >= _ARGUMENT:
        message = (
            f"{sum(replicas(spec).values())} replicas: the variable that lists them has {_ARGUMENT} characters or more"
        )
        raise FieldListError(
            (FieldError(message, field="roles", hint="Linux cannot pass such a variable; use fewer replicas"),)
        )
    notes = (*(seen.named(note) for note in job.notes), *seen.notes, *_leftovers(spec, target))
    return replace(job, header=header, notes=notes)


def _longest(data: Any) -> int:
    """Counts the characters of the longest text in plain data."""
    if isinstance(data, str):
        return len(data)
    items = data.values() if isinstance(data, dict) else data if isinstance(data, list | tuple) else ()
    return max(map(_longest, items), default=0)


def _with_key(seen: TargetView, target: Target, options: JobOptions) -> ImageSpec:
    """Adds the job's key to its labels, so that `submit` recognizes the job."""
    if "labels" not in target.row.job:
        return seen.spec
    labels = {**seen.spec.job.labels, KEY: job_key(seen.images, seen.spec, options.package_uri)}
    return replace(seen.spec, job=replace(seen.spec.job, labels=labels))


def check_job(spec_file: SpecFile) -> None:
    """Checks the spec's `job` section before images are pushed, so that nobody pushes images for a refused job.

    Accepts a spec without a target, because `config --target` may name one. Accepts the target tf-config, because only
    `config` receives its hosts. Raises FieldListError, which gives each error's line and column in the spec.
    """
    if errors := check_spec(spec_file.spec):
        raise FieldListError(tuple(_with_no_check(spec_file.located(error)) for error in errors))


def check_spec(spec: ImageSpec) -> list[FieldError]:
    """Runs `check` for the target in the spec before the images exist, with a made-up digest for each image."""
    if spec.job.target in {None, Target.TF_CONFIG}:
        return []
    made_up = parse_repository("docker.io/library/image").digest("sha256:" + "0" * 64)
    options = JobOptions(package_uri="gs://bucket/package.tar.gz" if spec.job.staging else None)
    return check(spec, dict.fromkeys(spec.roles, made_up), spec.job.target, options)


def _with_no_check(error: FieldError) -> FieldError:
    """Replaces a hint that names `--allow-unknown`, which only `config` has, with a hint that names `--no-check`."""
    if error.hint and error.hint.startswith("--allow-unknown"):
        error.hint = "--no-check skips this check; later, config takes --allow-unknown"
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """The user's spec adapted to one target, the images of its roles, and notes on what changed."""

    spec: ImageSpec
    images: Images
    notes: tuple[str, ...] = ()

    def named(self, text: str) -> str:
        """Replaces `roles.master` in a message or a field with `roles.worker` if the user's spec has no master."""
        return text.replace("roles.master", "roles.worker") if self.notes else text


def view_of(spec: ImageSpec, images: Images, target: Target) -> TargetView:
    """Adapts the spec to `target`: for Google's services, worker 0 becomes the master if the spec has no master."""
    if leader(spec) is Role.MASTER or not target.row.always_chief:
        return TargetView(spec=spec, images=images)
    worker = spec.roles[Role.WORKER]
    roles = {**spec.roles, Role.MASTER: replace(worker, count=1), Role.WORKER: replace(worker, count=worker.count - 1)}
    note = f"note: roles.worker: {target} calls worker 0 the chief{rules_of(spec.framework).CHIEF_NOTE}"
    named = {**images, Role.MASTER: images[Role.WORKER]} if Role.WORKER in images else images
    roles = {role: roles[role] for role in Role if role in roles}
    return TargetView(spec=replace(spec, roles=roles), images=named, notes=(note,))


def _misfits(spec: ImageSpec, target: Target) -> Iterator[FieldError]:
    """Finds keys that the target does not support and that imgtool must not drop, because they change what runs."""
    for key, hint in _REFUSED.items():
        if getattr(spec.job, key) and key not in target.row.job:
            yield FieldError(f"{target} has none", field=f"job.{key}", hint=hint)
    runtime = target.row.runtime
    if spec.compression == "zstd" and runtime.zstd is False and not runtime.is_old:
        hint = "write `compression: gzip`, which every runtime reads, and push again"
        yield FieldError(str(runtime.problem), field="compression", hint=hint)
    own, kinds = target.row.framework, {spec.accelerator_of(role) for role in replicas(spec)}
    if own not in {"", spec.framework.key} and Accelerator.TPU in kinds:
        message = f"{target} prepares TPUs for {FRAMEWORKS[own].title} alone"
        yield FieldError(message, field="roles", hint=f"targets for {spec.framework.title} on TPUs: jobset, trainjob")
    elif own not in {"", spec.framework.key} and sum(replicas(spec).values()) > 1:
        others = ", ".join(other for other in Target if not other.row.framework)
        message = (
            f"{target} describes a cluster only for {FRAMEWORKS[own].title}, so processes of "
            f"{spec.framework.title} cannot find each other"
        )
        yield FieldError(message, field="roles", hint=f"use one of {others}")
    with_tpus = ", ".join(other for other in Target if "tpu" in other.row.role)
    for role in replicas(spec):
        if "tpu" not in target.row.role and spec.accelerator_of(role) is Accelerator.TPU:
            message = f"{target} has no TPU roles"
            yield FieldError(message, field=f"roles.{role}", hint=f"targets with TPUs: {with_tpus}")


def _volume_errors(job: JobSpec, target: Target) -> Iterator[FieldError]:
    """Finds volumes with no source or several, volumes that the target cannot mount, and mount paths used twice."""
    takes = target.row.volumes
    hint = f"it mounts {', '.join(_VOLUMES[kind] for kind in _VOLUMES if kind in takes)}" if takes else None
    for index, volume in enumerate(job.volumes):
        field = f"job.volumes[{index}]"
        if len(volume.kinds) != 1 or bool(volume.nfs_server) is not bool(volume.nfs_path):
            yield FieldError(f"expected one of {', '.join(_VOLUMES.values())}", field=field)
        elif volume.kinds[0] not in takes:
            yield FieldError(f"{target} cannot mount {_VOLUMES[volume.kinds[0]]}", field=field, hint=hint)
        elif volume.nfs_path and not volume.nfs_path.startswith("/"):
            yield FieldError(f"{volume.nfs_path!r}: expected an absolute path", field=f"{field}.nfs_path")
        if volume.mount in {other.mount for other in job.volumes[:index]}:
            yield FieldError(f"{volume.mount}: another volume uses this path", field=f"{field}.mount")


def note_loss(spec: ImageSpec, target: Target | None) -> tuple[str, ...]:
    """Warns if the job's results would be lost when its containers end."""
    return (NOWHERE,) if target and keeps_nothing(spec) else ()


def _leftovers(spec: ImageSpec, target: Target) -> Iterator[str]:
    """Yields a note on keys that imgtool leaves out for the target, and warnings, for example about GPUs."""
    row = target.row
    left = [f"job.{name}" for name in _list_given(JobSpec, spec.job) if name not in row.job | _EVERY_JOB]
    times = spec.job.scheduling
    if times and "job.scheduling" not in left:
        left += [f"job.scheduling.{name}" for name in _list_given(Scheduling, times) if name not in row.scheduling]
    for role in replicas(spec):
        of_role = spec.roles[role]
        left += [f"roles.{role}.{n}" for n in _list_given(RoleSpec, of_role) if n not in row.role | _EVERY_ROLE]
        if of_role.tpu and "tpu" in row.role:
            left = [key for key in left if key != f"roles.{role}.machine"]  # it decides a host's chips
        gpu = of_role.gpus.type if of_role.gpus and "reservation" in row.role else "any"
        if row.kinds and gpu != "any" and not (of_role.node_selector or gpu_label(gpu)):
            left.append(f"roles.{role}.gpus.type (choose the nodes with roles.{role}.node_selector)")
    left += _without_effect(spec, target)
    if row.grace:
        left = [f"{key} ({row.grace})" if key == "job.grace_period" else key for key in left]
    if left:
        yield f"note: {target} has no place for {', '.join(left)}"
    yield from (f"note: {note}" for note in (*note_loss(spec, target), *rules_of(spec.framework).notes(spec)))
    if leader(spec) is Role.WORKER and Role.PS in replicas(spec) and not row.always_chief:
        yield "warning: roles.ps: parameter servers wait for a chief, and there is no master: add `master: {}`"
    if row.away and LOOPBACK.match((spec.registry or "").partition("/")[0]):
        yield f"warning: registry: {spec.registry} is this machine, which the machines of {target} cannot reach"
    yield from _gpu_warnings(spec, target)
    yield from _shared_memory_warnings(spec)
    if spec.compression == "zstd" and not spec.job.runtime_version and (problem := _runtime(spec, target).problem):
        yield f"warning: compression: {problem}"


def _runtime(spec: ImageSpec, target: Target) -> Runtime:
    """Finds the program that pulls the images. On some clouds, nodes stream images from the cloud's registry."""
    host = (spec.registry or "").partition("/")[0].partition(":")[0]
    runtime = target.row.runtime
    return (find_streaming(host) or runtime) if runtime.zstd else runtime


def _without_effect(spec: ImageSpec, target: Target) -> Iterator[str]:
    job, job_dir = spec.job, spec.job.job_dir
    if "runtime_version" in target.row.job and not job.runtime_version:
        given = [f"job.{key}" for key in _PACKAGE_KEYS if getattr(job, key)]
        yield from (f"{key} (only for job.runtime_version)" for key in given)
    if "eci" in target.row.job and job.eci and job.eci.driver and not any(spec.roles[r].gpus for r in replicas(spec)):
        yield "job.eci.driver (no role has gpus)"
    mounted = target.row.job_dir is JobDir.MOUNTED and "://" not in (job_dir or "")
    named = target.row.job_dir is JobDir.NAMED or (
        target is Target.TF_CONFIG and rules_of(spec.framework).takes_job_dir(spec)
    )
    if job_dir and not job.pass_job_dir and not mounted and not named:
        yield "job.job_dir (with job.pass_job_dir: true it becomes the argument --job-dir)"


def _shared_memory_warnings(spec: ImageSpec) -> Iterator[str]:
    """Warns if a volume for shared memory is larger than the memory of a container, which contains it."""
    for index, volume in enumerate(spec.job.volumes):
        for role in replicas(spec) if volume.mount == SHM and volume.memory else ():
            memory = spec.roles[role].memory
            if memory and (quantity(memory) or 0) < (quantity(volume.memory) or 0):
                size = f"{volume.memory} at {volume.mount}"
                yield f"warning: job.volumes[{index}]: {size} is over roles.{role}.memory, {memory}, which contains it"


def _gpu_warnings(spec: ImageSpec, target: Target) -> Iterator[str]:
    """Warns of roles whose image contains CUDA although the spec requests no GPU for them."""
    preset = "scale_tier" in target.row.job and spec.job.scale_tier not in {None, "CUSTOM"}
    for role in replicas(spec):
        of_role = spec.roles[role]
        if spec.accelerator_of(role) is Accelerator.GPU and not of_role.gpus and not preset:
            if has_gpus(of_role.machine):
                continue
            yield f"warning: roles.{role}: accelerator gpu makes an image with CUDA, and the role has no gpus"


def _list_given(kind: Any, value: Any) -> Iterator[str]:
    """Lists the fields of a dataclass that differ from their default."""
    return (item.name for item in fields(kind) if not is_default(item, value))
