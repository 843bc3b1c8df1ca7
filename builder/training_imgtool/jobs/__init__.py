"""Job files: one module per target, each a pure function from a spec and digests to plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Protocol, cast

from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.core.reference import Digest
from training_imgtool.jobs import compose, tf_config
from training_imgtool.jobs.fit import leftovers, misfits
from training_imgtool.jobs.google import ai_platform, vertex
from training_imgtool.jobs.kubernetes import eci, jobset, pods, tfjob
from training_imgtool.jobs.model import Format, Images, JobFile, JobOptions, image_of, replicas, spec_hash
from training_imgtool.jobs.text import command_line
from training_imgtool.spec.model import ImageSpec, Role, Target

__all__ = ["Format", "JobFile", "JobOptions", "check", "job_data"]


class JobTarget(Protocol):
    """What the module of a target has."""

    def check(self, spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:
        """Everything that keeps the spec from being a job there."""

    def make(self, spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
        """The job file of a spec that `check` found nothing wrong with."""


_MODULES: Mapping[Target, ModuleType] = {
    Target.AI_PLATFORM: ai_platform,
    Target.VERTEX: vertex,
    Target.TFJOB: tfjob,
    Target.JOBSET: jobset,
    Target.PODS: pods,
    Target.ECI: eci,
    Target.COMPOSE: compose,
    Target.TF_CONFIG: tf_config,
}


def check(
    spec: ImageSpec, images: Mapping[Role, Digest], target: Target, options: JobOptions | None = None
) -> list[FieldError]:
    """Every violation of the target's rules, each with its field in the spec; raises InputError without an image."""
    if not spec.job.runtime_version:
        for role in replicas(spec):
            image_of(images, role)  # also at run time: a tag never gets into a job file
    refused = list(misfits(spec, target))
    return refused or _target(target).check(spec, images, options or JobOptions())


def job_data(
    spec: ImageSpec, images: Mapping[Role, Digest], target: Target, options: JobOptions | None = None
) -> JobFile:
    """The job file for `target`; raises FieldListError with every violation of its rules at once."""
    options = options or JobOptions()
    errors = check(spec, images, target, options)
    if errors:
        raise FieldListError(tuple(errors))
    job = _target(target).make(spec, images, options)
    header = (
        f"Written by imgtool {options.version} for {target}; spec {spec_hash(spec)[:16]}.",
        *(["Submit with:"] if job.command else []),
        *(f"  {line}" for line in command_line(job.command).splitlines()),
        *job.header,
    )
    return replace(job, header=header, notes=(*job.notes, *leftovers(spec, target)))


def _target(target: Target) -> JobTarget:
    return cast("JobTarget", _MODULES[target])
