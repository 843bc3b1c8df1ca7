"""The Python interface: what `training_imgtool` shows to programs that submit jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["job"]


def job(
    spec: str | Path,
    *,
    target: str | None = None,
    registry: str | None = None,
    images: Mapping[str, str] | None = None,
    job_id: str | None = None,
    hosts: str | None = None,
    allow_unknown: bool = False,
) -> dict[str, Any]:
    """Returns the data of `imgtool config --format json`: what a program sends to the service's API.

    For vertex that is a CustomJob or a HyperparameterTuningJob, for ai-platform a Job, for the Kubernetes targets an
    object or a List, for compose the file, for tf-config the variables of each node, for skypilot the task, for slurm
    the options, environment and steps.

    Args:
        spec: the image.yaml, or the folder that it lies in.
        target: the job file's format; by default the spec's `job.target`.
        registry: where the images are, if the spec does not say it.
        images: REPOSITORY@sha256:DIGEST by role; by default imgtool finds those of the current inputs.
        job_id: the job's name, instead of the spec's.
        hosts: for tf-config, as `--hosts`: `master=vm-1,worker=vm-2`.
        allow_unknown: accept machines, accelerators and regions that imgtool's tables lack.

    Raises:
        training_imgtool.core.errors.ImgtoolError: what the command would refuse; `exit_code` and the message are the
            command's. A FieldListError has every violation in `errors`.
    """
    from training_imgtool.cli.machine import settings
    from training_imgtool.commands.job_files.config import job_document

    return job_document(
        Path(spec),
        target=target,
        registry=registry,
        images=images,
        job_id=job_id,
        hosts=hosts,
        allow_unknown=allow_unknown,
        settings=settings(),
    )
