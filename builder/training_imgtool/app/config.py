"""`imgtool config`: makes a job file from a spec, and prints or writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.base.atomic_files import check_writable, hold_lock, write_atomic
from training_imgtool.base.errors import FieldListError, UsageError
from training_imgtool.base.progress import Note, Progress
from training_imgtool.base.reference import Digest, parse_reference
from training_imgtool.base.version import __version__
from training_imgtool.jobs import Format, JobFile, JobOptions, check, chosen, job_data
from training_imgtool.jobs.text import as_data, dump, submit_lines
from training_imgtool.make.find import require_images
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import Inputs, prepare
from training_imgtool.plan.project_files import SpecChoice

if TYPE_CHECKING:
    from training_imgtool.model.load import SpecFile


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The options of `imgtool config`.

    Attributes:
        push: push the images that the registry lacks before the file is written.
        output: the file to write; None prints the job file.
        dry_run: write nothing.
        machine: the machine whose variables or command line to print, such as worker-0.
    """

    target: Target | None = None
    job_id: str | None = None
    form: Format = Format.YAML
    hosts: str | None = None
    allow_unknown: bool = False
    push: bool = False
    output: Path | None = None
    dry_run: bool = False
    machine: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobText:
    """A finished job file: its text, the command that submits it, and notes for the user."""

    text: str
    command: str
    notes: tuple[str, ...]
    images: Mapping[Role, Digest]
    job: JobFile


def write_job_file(choice: SpecChoice, request: JobRequest, machine: Machine) -> JobText:
    """Makes the job file of a spec, and writes the file to `request.output` if that is set.

    The registry must have the images, unless `request.push` is set.

    Raises:
        FieldListError: the service would refuse the job; the error lists every reason with its place in the spec.
        InputError: an image of the current inputs is not in the registry.
        LocalFileError: imgtool cannot write the file; an older file stays unchanged.
        ImgtoolError: with `request.push`, the errors of `make.build.build`.
    """
    if request.output is not None and not request.dry_run:
        check_writable(request.output)
    spec_file = choice.open()
    spec = with_job_id(spec_file.spec, request.job_id)
    target = chosen(request.target or spec.job.target)
    try:
        if spec.job.runtime_version:
            written = _write_package(spec, spec_file, target, request)
        else:
            job_options(request, None)  # report a wrong option before a missing registry
            inputs = prepare(spec_file, machine, choice, write=request.push, push=True)  # without push, only asks
            written = _of_images(spec, inputs, target, request=request, machine=machine)
    except FieldListError as errors:
        raise FieldListError(tuple(spec_file.located(error) for error in errors.errors)) from errors
    _write_output(written, request, machine.progress)
    return written


def _of_images(spec: ImageSpec, inputs: Inputs, target: Target, *, request: JobRequest, machine: Machine) -> JobText:
    options = job_options(request, inputs)
    placeholders = {image.role: inputs.repository.digest("sha256:" + image.key) for image in inputs.images}
    errors = check(spec, placeholders, target, options)  # report a wrong spec before a missing image
    if errors:
        raise FieldListError(tuple(errors))
    images = _push(inputs, machine) if request.push else require_images(inputs.named_by_index(), machine)
    return make_text(job_data(spec, images, target, options), request, images)


def _push(inputs: Inputs, machine: Machine) -> Mapping[Role, Digest]:
    from training_imgtool.make.platforms import build_platforms
    from training_imgtool.make.request import BuildOptions, BuildRun

    run = BuildRun(inputs=inputs, options=BuildOptions(push=True), machine=machine)
    return {image.role: image.digest for image in build_platforms(run) if image.digest is not None}


def _write_package(spec: ImageSpec, spec_file: SpecFile, target: Target, request: JobRequest) -> JobText:
    """Writes the job file of a spec with `runtime_version` (without images), and beside it the trainer's package."""
    from training_imgtool.jobs.targets.google.package import build_package, staged_uri

    options = job_options(request, None)
    if not spec.job.staging or spec.job.package_uris:
        return make_text(job_data(spec, {}, target, options), request, {})
    package = build_package(spec, spec_file.folder)
    options = replace(options, package_uri=staged_uri(spec, package))
    written = make_text(job_data(spec, {}, target, options), request, {})
    if not request.dry_run:
        write_atomic((request.output or Path(package.file)).with_name(package.file), package.data)
    return written


def make_text(job: JobFile, request: JobRequest, images: Mapping[Role, Digest]) -> JobText:
    """Formats the job file as `request` asks for."""
    text = dump(job, request.form, machine=request.machine)
    return JobText(text=text, command=submit_lines(job), notes=job.notes, images=images, job=job)


def job_options(request: JobRequest, inputs: Inputs | None) -> JobOptions:
    """Returns the options of the job, from the command line and, if there are images, from the inputs of the images."""
    from training_imgtool.jobs.targets.tf_config import parse_hosts

    cuda = {image.role: image.locked.variant.cuda for image in inputs.images} if inputs else {}
    return JobOptions(
        allow_unknown=request.allow_unknown,
        file=_as_argument(request.output or Path("config.yaml")),
        hosts=parse_hosts(request.hosts) if request.hosts else {},
        cuda={role: version for role, version in cuda.items() if version},
        packages={
            image.role: frozenset(wheel.name for wheel in image.locked.wheels)
            for image in (inputs.images if inputs else ())
        },
        version=__version__,
    )


def _as_argument(path: Path) -> str:
    """Returns a path for a command line. A path with a leading dash gets `./`, because it would look like an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def job_document(
    choice: SpecChoice, request: JobRequest, images: Mapping[str, str] | None, machine: Machine
) -> dict[str, Any]:
    """Returns the job as data, with `images` (None: the current images), by role; raises as `training_imgtool.job`."""
    if images is None:
        return as_data(write_job_file(choice, request, machine).job)
    spec_file = choice.open()
    spec = with_job_id(spec_file.spec, request.job_id)
    try:
        job = job_data(spec, _digests(images), request.target or spec.job.target, job_options(request, None))
    except FieldListError as errors:
        raise FieldListError(tuple(spec_file.located(error) for error in errors.errors)) from errors
    return as_data(job)


def parse_target(name: str) -> Target:
    """Converts the name of a target; raises UsageError for an unknown name."""
    if name not in list(Target):
        raise UsageError(f"target {name!r}: expected {', '.join(Target)}")
    return Target(name)


def _digests(images: Mapping[str, str]) -> dict[Role, Digest]:
    digests = {}
    for name, text in images.items():
        reference = parse_reference(text)
        if name not in list(Role) or not isinstance(reference, Digest):
            raise UsageError(f"images[{name!r}]: {text!r}: expected a role and REPOSITORY@sha256:DIGEST")
        digests[Role(name)] = reference
    return digests


def with_job_id(spec: ImageSpec, job_id: str | None) -> ImageSpec:
    """Returns the spec with `job_id` as the job's name; without a `job_id`, the spec itself."""
    return replace(spec, job=replace(spec.job, id=job_id)) if job_id else spec


def _write_output(written: JobText, request: JobRequest, progress: Progress) -> None:
    """Writes the job file to `request.output` if that is set; raises LocalFileError."""
    if request.output is None or request.dry_run:
        return
    with hold_lock(request.output, lambda text: progress(Note(text))):
        write_atomic(request.output, written.text.encode())
