"""A user's program that submits jobs, checked by mypy: `training_imgtool.job` is typed."""

from __future__ import annotations

from typing import Any

import training_imgtool


def submit(jobs: Any, spec: str, parent: str) -> str:
    """Submits the job of a spec whose images are pushed; returns its resource name."""
    try:
        body = training_imgtool.job(spec, target="vertex")
    except training_imgtool.FieldListError as errors:  # what Vertex AI would refuse: each with its place in the spec
        raise SystemExit("\n".join(str(error) for error in errors.errors)) from errors
    except training_imgtool.ImgtoolError as error:
        raise SystemExit(f"{error} (exit code {error.exit_code})") from error
    answer: dict[str, Any] = jobs.create(parent=parent, body=body).execute()
    return str(answer["name"])
