"""Checks the `job` of a spec for verbs that write no job file, so that nothing is pushed for a job that is refused."""

from __future__ import annotations

from dataclasses import replace

from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.core.reference import parse_repository
from training_imgtool.jobs import JobOptions, check
from training_imgtool.spec.job import JobSpec, Target
from training_imgtool.spec.load import SpecFile
from training_imgtool.spec.model import ImageSpec


def check_job(spec_file: SpecFile) -> tuple[str, ...]:
    """Checks `job` for verbs that need no job file; returns notes on what `config` would refuse for the default target.

    Raises FieldListError, with places in the spec, for a job that the target it names refuses; for a job that names no
    target, if every target refuses it, since `config --target` may choose any.
    """
    spec = spec_file.spec
    errors = check_spec(spec)
    if not errors:
        return ()
    others = (replace(spec, job=replace(spec.job, target=target)) for target in Target if target != Target.TF_CONFIG)
    if "job.target" in spec_file.positions or "job.target" in spec_file.values or all(map(check_spec, others)):
        raise FieldListError(tuple(_with_no_check(spec_file.located(error)) for error in errors))
    return tuple(f"config would refuse job for {spec.job.target}: {error}" for error in errors)


def _with_no_check(error: FieldError) -> FieldError:
    """The error with the option that its verb has: only `config` takes `--allow-unknown`."""
    if error.hint and error.hint.startswith("--allow-unknown"):
        error.hint = "--no-check skips this check; later, config takes --allow-unknown"
    return error


def check_spec(spec: ImageSpec) -> list[FieldError]:
    """As `check`, without images, for the spec's own target; nothing for a spec without `job`.

    The target tf-config needs hosts from the command line, so only `config` can check it.
    """
    if spec.job == JobSpec() or spec.job.target is Target.TF_CONFIG:
        return []
    made_up = parse_repository("docker.io/library/image").digest("sha256:" + "0" * 64)
    options = JobOptions(package_uri="gs://bucket/package.tar.gz" if spec.job.staging else None)
    return check(spec, dict.fromkeys(spec.roles, made_up), spec.job.target, options)
