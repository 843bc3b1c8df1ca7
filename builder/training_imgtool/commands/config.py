"""`config`: from a spec, or from a job file of another service, to the job file that is printed or written."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool import __version__
from training_imgtool.build.inputs import Inputs, open_spec, prepare
from training_imgtool.core.atomic_files import check_writable, hold_lock, write_atomic
from training_imgtool.core.errors import FieldListError, InputError, LocalFileError, UsageError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.core.settings import Settings
from training_imgtool.jobs import Format, JobFile, JobOptions, check, check_spec, job_data
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.jobs.tf_config import parse_hosts
from training_imgtool.spec.model import ImageSpec, Role, Target

if TYPE_CHECKING:
    from training_imgtool.spec.load import SpecFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of `imgtool config`."""

    target: Target | None = None
    job_id: str | None = None
    form: Format = Format.YAML
    hosts: str | None = None
    allow_unknown: bool = False
    output: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What goes with a job file of the closed service.

    Attributes:
        flags: the flags of the gcloud command that submitted it, or the whole command.
        region: as `--region` among the flags.
        spec: where the image.yaml of a packaged job is written.
    """

    flags: str = ""
    region: str | None = None
    spec: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A job file ready to go: its text, the command that submits it, and what the user should know."""

    text: str
    command: str
    notes: tuple[str, ...]
    images: Mapping[Role, Digest]


def write_job_file(
    where: Path | None,
    request: Request,
    settings: Settings,
    progress: Progress,
    *,
    registry: str | None = None,
    locked: bool = False,
) -> Written:
    """Makes the job file of a spec, whose images the registry must have, and writes it to `request.output` if given.

    Raises:
        FieldListError: what the service would refuse, every violation with its place in the spec.
        InputError: an image of the current inputs is not in the registry.
        LocalFileError: the file cannot be written; an older one is as it was.
    """
    if request.output is not None:
        check_writable(request.output)
    spec_file = open_spec(where)
    spec = with_job_id(spec_file.spec, request.job_id)
    target = request.target or spec.job.target
    try:
        if spec.job.runtime_version:
            written = _packaged(spec, spec_file, target, request)
        else:
            inputs = prepare(spec_file, settings, progress, registry=registry, locked=locked)
            written = _of_images(spec, inputs, target, request=request, settings=settings, progress=progress)
    except FieldListError as errors:
        raise FieldListError(tuple(spec_file.located(error) for error in errors.errors)) from errors
    _write(written, request, progress)
    return written


def _of_images(
    spec: ImageSpec, inputs: Inputs, target: Target, *, request: Request, settings: Settings, progress: Progress
) -> Written:
    from training_imgtool.build.find import require_images
    from training_imgtool.registry.connect import connect

    options = _options(request, inputs)
    placeholders = {image.role: inputs.repository.digest("sha256:" + image.key) for image in inputs.images}
    errors = check(spec, placeholders, target, options)  # first: a wrong spec is a nearer cause than a missing image
    if errors:
        raise FieldListError(tuple(errors))
    with connect(settings, progress) as registries:
        images = require_images(inputs, registries, progress)
    return _written(job_data(spec, images, target, options), request, images)


def _packaged(spec: ImageSpec, spec_file: SpecFile, target: Target, request: Request) -> Written:
    """The job of a spec that names a runtime version: no images, the trainer's package beside the file instead."""
    from training_imgtool.jobs.google.package import build_package, staged_uri

    options = _options(request, None)
    if not spec.job.staging or spec.job.package_uris:
        return _written(job_data(spec, {}, target, options), request, {})
    package = build_package(spec, spec_file.folder)
    options = replace(options, package_uri=staged_uri(spec, package))
    written = _written(job_data(spec, {}, target, options), request, {})
    write_atomic((request.output or Path(package.file)).with_name(package.file), package.data)
    return written


def _written(job: JobFile, request: Request, images: Mapping[Role, Digest]) -> Written:
    return Written(text=dump(job, request.form), command=command_line(job.command), notes=job.notes, images=images)


def _options(request: Request, inputs: Inputs | None) -> JobOptions:
    cuda = {image.role: image.plan.locked.variant.cuda for image in inputs.images} if inputs else {}
    return JobOptions(
        allow_unknown=request.allow_unknown,
        file=str(request.output or "config.yaml"),
        hosts=parse_hosts(request.hosts) if request.hosts else {},
        cuda={role: version for role, version in cuda.items() if version},
        version=__version__,
    )


def job_document(
    where: Path,
    *,
    target: str | None,
    registry: str | None,
    images: Mapping[str, str] | None,
    job_id: str | None,
    hosts: str | None,
    allow_unknown: bool,
    settings: Settings,
) -> dict[str, Any]:
    """`training_imgtool.job`: the job as data; arguments and errors as there."""
    if target is not None and target not in list(Target):
        raise UsageError(f"target {target!r}: expected {', '.join(Target)}")
    request = Request(
        target=Target(target) if target else None,
        job_id=job_id,
        form=Format.JSON,
        hosts=hosts,
        allow_unknown=allow_unknown,
    )
    if images is None:
        written = write_job_file(where, request, settings, lambda _event: None, registry=registry)
        document: dict[str, Any] = json.loads(written.text)
        return document
    spec_file = open_spec(where)
    spec = with_job_id(spec_file.spec, job_id)
    try:
        job = job_data(spec, _digests(images), request.target or spec.job.target, _options(request, None))
    except FieldListError as errors:
        raise FieldListError(tuple(spec_file.located(error) for error in errors.errors)) from errors
    parsed: dict[str, Any] = json.loads(dump(job, Format.JSON))
    return parsed


def _digests(images: Mapping[str, str]) -> dict[Role, Digest]:
    digests = {}
    for name, text in images.items():
        reference = parse_reference(text)
        if name not in list(Role) or not isinstance(reference, Digest):
            raise UsageError(f"images[{name!r}]: {text!r}: expected a role and REPOSITORY@sha256:DIGEST")
        digests[Role(name)] = reference
    return digests


def job_notes(spec: ImageSpec) -> tuple[str, ...]:
    """What `config` would refuse, one note each, for verbs that need no job: a spec without `job` has none."""
    return tuple(f"config would refuse job: {error}" for error in check_spec(spec))


def with_job_id(spec: ImageSpec, job_id: str | None) -> ImageSpec:
    """The spec with another job name."""
    return replace(spec, job=replace(spec.job, id=job_id)) if job_id else spec


def convert_file(source: Path, old: Conversion, request: Request, settings: Settings, progress: Progress) -> Written:
    """An existing AI Platform job: as its Vertex equivalent, or with `old.spec` as an image.yaml that is written there.

    Images that it names by tag are pinned to what the registry says now. Raises InputError for a file that is no
    such job, and what asking the registry raises.
    """
    from training_imgtool.jobs.conversion.job import is_packaged, read_job
    from training_imgtool.jobs.conversion.vertex import convert, tags_in
    from training_imgtool.registry.connect import connect
    from training_imgtool.yamlfile.reader import read_bytes

    if request.target not in {None, Target.VERTEX}:
        raise UsageError(f"--from converts to vertex, not to {request.target}")
    text = read_bytes(source).decode("utf-8", errors="replace")
    options = replace(_options(request, None), file=str(request.output or "config.yaml"))
    job = read_job(text, str(source), flags=old.flags, region=old.region, allow_unknown=request.allow_unknown)
    job |= {"jobId": request.job_id} if request.job_id else {}
    if is_packaged(job):
        return _spec_of_package(job, old)
    if old.spec is not None:
        raise UsageError(f"--spec: {source} runs images of its own, which Vertex AI runs too", hint="leave --spec out")
    digests = {}
    if tags := tags_in(job):
        with connect(settings, progress) as registries:
            heads = {tag: registries.at(tag.repository).head(tag) for tag in tags}
        digests = {tag: tag.repository.digest(digest) for tag, digest in heads.items() if digest}
    written = _written(convert(job, options, digests), request, {})
    _write(written, request, progress)
    return written


def _spec_of_package(job: Mapping[str, Any], old: Conversion) -> Written:
    from training_imgtool.jobs.conversion.spec import spec_text
    from training_imgtool.versions.matrix import load_matrix

    if old.spec is None:
        raise InputError(
            "the job runs a package on the service's own runtime, which Vertex AI does not have",
            hint="--spec image.yaml writes the spec of images with the same TensorFlow",
        )
    check_writable(old.spec)
    if old.spec.exists():
        raise LocalFileError(f"{old.spec} exists already: choose another name, or remove it")
    releases = {name: minor.recommended for name, minor in load_matrix().minors.items()}
    folder = old.spec.resolve().parent
    requirements = "requirements.txt" if (folder / "requirements.txt").is_file() else None
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") or "trainer"
    text, notes = spec_text(job, name, releases, requirements=requirements)
    write_atomic(old.spec, text.encode())
    where = shlex.quote(str(old.spec))
    command = f"imgtool push {where} && imgtool config {where} -o vertex.yaml"
    return Written(text=text, command=command, notes=(*notes, f"next: {command}"), images={})


def _write(written: Written, request: Request, progress: Progress) -> None:
    if request.output is None:
        return
    with hold_lock(request.output, lambda text: progress(Note(text))):
        write_atomic(request.output, written.text.encode())
