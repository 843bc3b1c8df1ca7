"""Writes a job file as text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from training_imgtool.base.errors import UsageError
from training_imgtool.jobs.model import Document, Format, JobFile
from training_imgtool.jobs.yamlio import to_yaml


def dump(job: JobFile, form: Format = Format.YAML, *, machine: str | None = None) -> str:
    """Formats the job file, or only the part of one machine.

    Raises:
        UsageError: the target does not support this format, or the job has no such machine.
        FieldListError: the format cannot express a value.
    """
    if machine is not None and form not in job.texts:
        raise UsageError("--machine works only with --target tf-config and --format env or docker-run")
    if form is Format.YAML:
        return _yaml(job)
    if form is Format.JSON:
        return json.dumps(as_data(job), indent=2) + "\n"
    if form is Format.GCLOUD and job.flags is not None:
        return _joined(job.stage, job.flags()) + "\n"
    if form in job.texts:
        return job.texts[form](machine)
    having = [Format.YAML, Format.JSON, *([Format.GCLOUD] if job.flags else []), *job.texts]
    raise UsageError(f"{job.target} does not support the format {form}; it supports {', '.join(having)}")


def command_line(argv: Sequence[str]) -> str:
    """Writes a command line for a shell, with one option per line; words after `--` belong to the program."""
    if len(shlex.join(argv)) <= 100:
        return shlex.join(argv)
    lines: list[list[str]] = [[]]
    own = False
    for index, word in enumerate(argv):
        follows_flag = index > 0 and argv[index - 1].startswith("--") and "=" not in argv[index - 1] and not own
        if word.startswith("--") or (own and not follows_flag):
            lines.append([])
        lines[-1].append(word)
        own = own or word == "--"
    return " \\\n    ".join(shlex.join(line) for line in lines)


def submit_lines(job: JobFile) -> str:
    """Writes the shell lines that submit the job: the upload of its package, if it has one, and the command."""
    return _joined(job.stage, job.command)


def _joined(*commands: Sequence[str]) -> str:
    return " &&\n".join(command_line(argv) for argv in commands if argv)


def _yaml(job: JobFile) -> str:
    header = "".join(f"# {line}".rstrip() + "\n" for line in job.header)
    if job.script is not None:
        first, _, rest = job.script.partition("\n")
        return f"{first}\n{header}{rest}"
    return header + "---\n".join(to_yaml(document) for document in job.documents)


def as_data(job: JobFile) -> Document:
    """Returns the body for the service's API, or the only document, or a List of the documents."""
    if job.api is not None:
        return job.api
    if len(job.documents) == 1:
        return job.documents[0]
    return {"apiVersion": "v1", "kind": "List", "items": list(job.documents)}
