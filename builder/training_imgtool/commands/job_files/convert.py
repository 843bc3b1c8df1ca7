"""`config --from`: an AI Platform job as one of Vertex AI."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_imgtool.commands.job_files.config import (
    Request,
    Written,
    job_options,
    make_text,
    write_job_file,
    write_output,
)
from training_imgtool.core.atomic_files import check_writable, write_atomic
from training_imgtool.core.errors import InputError, LocalFileError, UsageError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.settings import Settings
from training_imgtool.jobs import check_job
from training_imgtool.jobs.conversion.job import flag_value, image_uris, read_job
from training_imgtool.pipeline.shared_reads import open_spec
from training_imgtool.spec.targets import Target

_REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldJob:
    """A job file of the closed service.

    Attributes:
        file: AI Platform's config.yaml, or the output of `gcloud ai-platform jobs describe`.
        flags: the flags of the gcloud command that submitted it, or the whole command.
        region: as `--region` among the flags.
        spec: where the image.yaml of a packaged job is written; by default beside the package.
    """

    file: Path
    flags: str = ""
    region: str | None = None
    spec: Path | None = None


def convert_file(
    old: OldJob, request: Request, settings: Settings, progress: Progress, *, registry: str | None = None
) -> Written:
    """Converts an AI Platform job: one with images directly, a packaged one through an image.yaml.

    Images that the job names by tag are pinned to what the registry says now. For a packaged job this writes
    `old.spec`; with `request.push` it pushes the images and writes the Vertex file too.

    Raises:
        InputError: the file is no such job.
        FieldListError: what cannot be carried over, every reason with its field.
        UsageError: options that do not go together.
        LocalFileError: a file cannot be written, or `old.spec` exists and says something else.
        ImgtoolError: what the registry and the build raise.
    """
    from training_imgtool.yamlfile.reader import read_bytes

    text = read_bytes(old.file).decode("utf-8", errors="replace")
    if request.target not in {None, Target.VERTEX}:
        raise UsageError(f"--from converts to vertex, not to {request.target}")
    job = read_job(text, str(old.file), flags=old.flags, region=old.region, allow_unknown=request.allow_unknown)
    job |= {"jobId": request.job_id} if request.job_id else {}
    if not image_uris(job):
        return _convert_package(job, old, request, settings, progress, registry=registry)
    if request.push or old.spec is not None:
        option = "--push" if request.push else "--spec"
        message = f"{option}: {old.file} runs images of its own, which Vertex AI runs too"
        raise UsageError(message, hint=f"leave {option} out")
    return _convert_images(job, request, settings, progress)


def _convert_images(job: dict[str, Any], request: Request, settings: Settings, progress: Progress) -> Written:
    from training_imgtool.jobs.conversion.vertex import convert, tags_in
    from training_imgtool.registry.connect import connect

    digests = {}
    if tags := tags_in(job):
        with connect(settings, progress) as registries:
            heads = {tag: registries.at(tag.repository).head(tag) for tag in tags}
        digests = {tag: tag.repository.digest(digest) for tag, digest in heads.items() if digest}
    written = make_text(convert(job, job_options(request, None), digests), request, {})
    write_output(written, request, progress)
    return written


def _convert_package(
    job: Mapping[str, Any],
    old: OldJob,
    request: Request,
    settings: Settings,
    progress: Progress,
    *,
    registry: str | None,
) -> Written:
    if old.spec is None and not request.push:
        raise InputError(
            "the job runs a package on the service's own runtime, which Vertex AI does not have",
            hint="--push writes an image.yaml with the same TensorFlow, pushes its images and prints the Vertex file; "
            "--spec image.yaml only writes the image.yaml",
        )
    if request.output is not None and not request.push:
        raise UsageError("--output: the Vertex file names images by digest", hint="add --push")
    package = flag_value(old.flags, "--package-path")
    spec = old.spec or Path(package or ".").parent / "image.yaml"
    notes = _write_spec(job, spec, package)
    if not request.push:
        where = shlex.quote(str(spec))
        command = f"imgtool config {where} --push -o vertex.yaml"
        return Written(text="", command=command, notes=(*notes, f"next: {command}"), images={})
    for note in notes:
        progress(Note(note.removeprefix("note: ")))
    return write_job_file(spec, request, settings, progress, registry=registry)


def _write_checked(path: Path, text: str) -> bool:
    """Writes an image.yaml that `config` takes, and tells whether it was not there with this content.

    Raises LocalFileError where it has other content, InputError for one that would be refused, which is not kept.
    """
    if path.exists():
        if path.read_bytes() == text.encode():
            return False
        raise LocalFileError(
            f"{path} already exists with other content",
            hint=f"remove it, or use it as it is: imgtool config {shlex.quote(str(path))} --push",
        )
    write_atomic(path, text.encode())
    try:
        check_job(open_spec(path))
    except InputError as error:
        path.unlink()
        message = f"the job cannot become an image.yaml: {error}"
        raise InputError(message, hint="correct the job, or give with --flags what a flag supplied") from error
    return True


def _write_spec(job: Mapping[str, Any], path: Path, package: str | None) -> tuple[str, ...]:
    """Writes the image.yaml and, where setup.py names what to install, a requirements file; returns notes."""
    from training_imgtool.jobs.conversion.spec import spec_text
    from training_imgtool.versions.matrix import load_matrix

    folder = path.resolve().parent
    module = str(job["trainingInput"].get("pythonModule") or "trainer.task")
    source = _find_source(folder, package, module)
    listed = None if (folder / _REQUIREMENTS).exists() else read_install_requires(folder / "setup.py")
    has_requirements = (folder / _REQUIREMENTS).is_file() or bool(listed)
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") or "trainer"
    releases = {minor.name: minor.recommended for minor in load_matrix().minors.values()}
    requirements = _REQUIREMENTS if has_requirements else None
    text, notes = spec_text(job, name, releases, source=source, requirements=requirements)
    check_writable(path)
    if listed and not path.exists():
        write_atomic(folder / _REQUIREMENTS, "".join(f"{line}\n" for line in listed).encode())
        notes = (*notes, f"note: {_REQUIREMENTS} lists what setup.py installs")
    return (*notes, f"note: wrote {path}") if _write_checked(path, text) else notes


def read_install_requires(path: Path) -> tuple[str, ...]:
    """Lists what a setup.py installs, as far as it is written out, without TensorFlow, which a spec names by itself."""
    from imgtool_project_reader.requirement_files import read_setup_py
    from imgtool_project_reader.statement import Fact

    text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
    stated = [item.value for item in read_setup_py(text, path.name) if item.fact is Fact.PACKAGE and not item.group]
    return tuple(item for item in stated if not re.match(r"tensorflow(?:-cpu|-gpu)?(?![-\w])", item))


def _find_source(folder: Path, package: str | None, module: str) -> str:
    """Finds the folder with the trainer's code, relative to the spec's; raises InputError where there is none."""
    source = Path(package).resolve() if package else folder / module.partition(".")[0]
    if not source.is_dir():
        raise InputError(
            f"{source} is not a folder: the job starts the module {module}",
            hint="--flags '--package-path FOLDER --module-name FOLDER.MODULE' names it",
        )
    if not source.is_relative_to(folder):
        raise InputError(f"the package {source} is not below {folder}, where the image.yaml goes", hint="--spec FILE")
    return os.path.relpath(source, folder)
