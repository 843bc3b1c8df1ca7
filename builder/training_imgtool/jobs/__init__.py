"""Job files: one module per target, each a pure function from a spec and digests to plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Protocol, cast

from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.core.reference import Digest
from training_imgtool.jobs.fit import leftovers, misfits
from training_imgtool.jobs.model import Format, Images, JobFile, JobOptions, image_of, leader, replicas, spec_hash
from training_imgtool.jobs.text import command_line
from training_imgtool.spec.job import Target
from training_imgtool.spec.model import ImageSpec, Role

__all__ = ["Format", "JobFile", "JobOptions", "TargetView", "check", "job_data", "view_of"]


class JobTarget(Protocol):
    """What the module of a target has."""

    def check(self, spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:
        """Everything that keeps the spec from being a job there."""

    def make(self, spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
        """The job file of a spec that `check` found nothing wrong with."""


_MODULES: Mapping[Target, str] = {
    Target.AI_PLATFORM: "google.ai_platform",
    Target.VERTEX: "google.vertex",
    Target.TFJOB: "kubernetes.tfjob",
    Target.JOBSET: "kubernetes.jobset",
    Target.PODS: "kubernetes.pods",
    Target.ECI: "kubernetes.eci",
    Target.COMPOSE: "compose",
    Target.TF_CONFIG: "tf_config",
    Target.SKYPILOT: "launchers.skypilot",
    Target.SLURM: "launchers.slurm",
}
"""The module of each target below `jobs`; a run loads only those that it needs."""

_WITH_CHIEF = {Target.AI_PLATFORM, Target.VERTEX}


def check(
    spec: ImageSpec, images: Mapping[Role, Digest], target: Target, options: JobOptions | None = None
) -> list[FieldError]:
    """Every violation of the target's rules, each with its field in the spec; raises InputError without an image."""
    if not spec.job.runtime_version:
        for role in replicas(spec):
            image_of(images, role)  # also at run time: a tag never gets into a job file
    if leader(spec) is None:
        return [FieldError("expected a master or workers: one of them is the chief", field="roles")]
    refused = list(misfits(spec, target))
    if refused:
        return refused
    seen = view_of(spec, images, target)
    errors = _target(target).check(seen.spec, seen.images, options or JobOptions())
    fields = {error.field for error in errors}
    return [
        FieldError(error.message, field=named, hint=error.hint)
        for error in errors
        if (named := seen.named(error.field)) == error.field or named not in fields
    ]


def job_data(
    spec: ImageSpec, images: Mapping[Role, Digest], target: Target, options: JobOptions | None = None
) -> JobFile:
    """The job file for `target`; raises FieldListError with every violation of its rules at once."""
    options = options or JobOptions()
    errors = check(spec, images, target, options)
    if errors:
        raise FieldListError(tuple(errors))
    seen = view_of(spec, images, target)
    job = _target(target).make(seen.spec, seen.images, options)
    header = (
        f"Written by imgtool {options.version} for {target}; spec {spec_hash(spec)[:16]}.",
        *(["Submit with:"] if job.command else []),
        *(f"  {line}" for line in command_line(job.command).splitlines()),
        *job.header,
    )
    notes = (*(seen.named(note) for note in job.notes), *seen.notes, *leftovers(spec, target))
    return replace(job, header=header, notes=notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """A spec as one target sees it, with the images of its roles, and notes on where it differs from the user's."""

    spec: ImageSpec
    images: Images
    notes: tuple[str, ...] = ()

    def named(self, text: str) -> str:
        """A message or a field in the words of the user's spec."""
        return text.replace("roles.master", "roles.worker") if self.notes else text


def view_of(spec: ImageSpec, images: Images, target: Target) -> TargetView:
    """Returns the spec as `target` sees it: for Google's services, worker 0 becomes the master that a spec lacks."""
    if leader(spec) is Role.MASTER or target not in _WITH_CHIEF:
        return TargetView(spec=spec, images=images)
    worker = spec.roles[Role.WORKER]
    roles = {**spec.roles, Role.MASTER: replace(worker, count=1), Role.WORKER: replace(worker, count=worker.count - 1)}
    note = (
        f"note: roles.worker: {target} calls worker 0 the chief, so TF_CONFIG has chief 0 and one worker less; "
        "a trainer that takes any task with index 0 for the chief finds two"
    )
    named = {**images, Role.MASTER: images[Role.WORKER]} if Role.WORKER in images else images
    roles = {role: roles[role] for role in Role if role in roles}
    return TargetView(spec=replace(spec, roles=roles), images=named, notes=(note,))


def _target(target: Target) -> JobTarget:
    return cast("JobTarget", import_module(f"{__name__}.{_MODULES[target]}"))
