"""`imgtool config --from`: converts an AI Platform job to a spec, and the spec to a Vertex AI job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training_imgtool.app.config import (
    Request,
    Written,
    job_options,
    make_text,
    write_job_file,
    write_output,
)
from training_imgtool.base.atomic_files import check_writable, write_atomic
from training_imgtool.base.errors import FieldError, FieldListError, InputError, LocalFileError, UsageError
from training_imgtool.base.progress import Note
from training_imgtool.base.reference import Digest, Tag
from training_imgtool.base.version import __version__
from training_imgtool.base.yamlfile.reader import read_bytes
from training_imgtool.jobs import check_job, job_data
from training_imgtool.jobs.conversion.job import flag_value, read_job
from training_imgtool.jobs.conversion.spec import images_of, make_spec, spec_text
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.project_files import SpecChoice, open_spec
from training_imgtool.resolve.versions.matrix import load_matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class OldJob:
    """A job file of AI Platform Training, a service that has closed.

    Attributes:
        file: AI Platform's config.yaml, or the output of `gcloud ai-platform jobs describe`.
        flags: the flags of the gcloud command that submitted the job, or the whole command.
        region: the region; the same as `--region` in the flags.
        spec: the image.yaml to write for a job with a package; by default beside the package.
    """

    file: Path
    flags: str = ""
    region: str | None = None
    spec: Path | None = None


def convert_file(old: OldJob, choice: SpecChoice, request: Request, machine: Machine) -> Written:
    """Converts an AI Platform job to a Vertex AI job file.

    In a job with images, imgtool replaces each tag by the image's current digest. For a job with a Python package
    instead, imgtool writes `old.spec`; with `request.push`, it also pushes the images and writes the job file.

    Raises:
        InputError: the file is not an AI Platform job.
        FieldListError: imgtool cannot convert a part of the job; the error lists every reason with its field.
        UsageError: two options exclude each other.
        LocalFileError: imgtool cannot write a file, or `old.spec` exists with other content.
        ImgtoolError: an error of the registry or the build.
    """
    if request.target not in {None, Target.VERTEX}:
        raise UsageError(f"--from converts only to vertex, not to {request.target}")
    text = read_bytes(old.file).decode("utf-8", errors="replace")
    job = read_job(text, str(old.file), flags=old.flags, region=old.region, allow_unknown=request.allow_unknown)
    job |= {"jobId": request.job_id} if request.job_id else {}
    package = flag_value(old.flags, "--package-path")
    path = old.spec or Path(package or ".").parent / "image.yaml"
    folder = path.resolve().parent.name.lower()
    name = re.sub(r"[^a-z0-9]+", "-", folder).strip("-") or "trainer"
    spec, notes = make_spec(job, name, {minor.name: minor.recommended for minor in load_matrix().minors.values()})
    if images := images_of(job):
        _refuse_options(old, request)
        written = _of_images(spec, notes, _pin(images, machine), request)
        write_output(written, request, machine.progress)
        return written
    if request.output is not None and not request.push:
        raise UsageError(
            "--output: the job file needs the digests of the images, which are not pushed yet", hint="add --push"
        )
    spec, missing = _with_files(spec, path.parent, package)
    notes = (*notes, *missing, *([f"note: wrote {path}"] if _write_checked(path, spec_text(spec)) else []))
    if not request.push:
        command = f"imgtool config {shlex.quote(str(path))} --push -o vertex.yaml"
        return Written(text="", command=command, notes=(*notes, f"next: {command}"), images={})
    for note in notes:
        machine.progress(Note(note.removeprefix("note: ")))
    return write_job_file(replace(choice, path=path), request, machine)


def _refuse_options(old: OldJob, request: Request) -> None:
    if request.push or old.spec is not None:
        option = "--push" if request.push else "--spec"
        message = f"{option}: {old.file} runs images of its own, which Vertex AI runs too"
        raise UsageError(message, hint=f"leave {option} out")


def _pin(images: Mapping[Role, Digest | Tag], machine: Machine) -> dict[Role, Digest]:
    """Returns the images by digest; asks the registry about tags, and raises FieldListError for missing tags."""
    tags = {image for image in images.values() if isinstance(image, Tag)}
    found: dict[Any, Digest] = {image: image for image in images.values() if isinstance(image, Digest)}
    for tag in sorted(tags, key=str):
        if digest := machine.registries.at(tag.repository).head(tag):
            found[tag] = tag.repository.digest(digest)
    missing = [str(tag) for tag in sorted(tags - found.keys(), key=str)]
    if missing:
        message = "is a tag: the registry named no digest for it"
        raise FieldListError(tuple(FieldError(message, field=tag) for tag in missing))
    return {role: found[image] for role, image in images.items()}


def _of_images(spec: ImageSpec, notes: tuple[str, ...], images: Mapping[Role, Digest], request: Request) -> Written:
    options = job_options(request, None)
    job = job_data(spec, images, Target.VERTEX, options)
    header = (f"Written by imgtool {__version__} for vertex, from an AI Platform Job.", "Submit with:", *job.header[2:])
    return make_text(replace(job, header=header, notes=(*notes, *job.notes)), request, images)


def _with_files(spec: ImageSpec, folder: Path, package: str | None) -> tuple[ImageSpec, tuple[str, ...]]:
    """Adds the code and the requirements file in the folder to the spec; returns a note if that file is missing."""
    source = Path(package) if package else folder / spec.trainer.source
    if not source.is_dir():
        raise InputError(
            f"{source}: expected the folder of the package that has the job's module, {spec.trainer.module}",
            hint="name the folder with --flags '--package-path FOLDER --module-name FOLDER.MODULE'",
        )
    if not source.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"the package {source} is not below {folder}, the folder for image.yaml", hint="--spec FILE")
    listed = next((name for name in ("requirements.txt", "setup.py") if (folder / name).is_file()), None)
    missing = () if listed else ("note: list the program's packages beside the framework in a requirements file",)
    trainer = replace(spec.trainer, source=str(source.resolve().relative_to(folder.resolve())))
    return replace(spec, trainer=trainer, requirements=listed), missing


def _write_checked(path: Path, text: str) -> bool:
    """Writes an image.yaml and checks that `config` accepts it; returns whether the file is new.

    Raises LocalFileError if the file exists with other content. Deletes a refused file, and raises InputError.
    """
    check_writable(path)
    if path.exists():
        if path.read_bytes() == text.encode():
            return False
        raise LocalFileError(
            f"{path} already exists with other content",
            hint=f"remove the file, or use it as it is: imgtool config {shlex.quote(str(path))} --push",
        )
    write_atomic(path, text.encode())
    try:
        check_job(open_spec(path))
    except InputError as error:
        path.unlink()
        message = f"imgtool cannot make an image.yaml from the job: {error}"
        raise InputError(message, hint="correct the job, or give its gcloud flags with --flags") from error
    return True
