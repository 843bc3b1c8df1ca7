"""Implements `build` and `push`: finds images by key, makes the missing images, and names all images.

Only functions that make images import builders and sinks, so that a run that finds every image is fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.errors import ImgtoolError, LocalFileError, NeedsEngineError
from training_imgtool.base.progress import Done, Note, Outcome, Step
from training_imgtool.base.threads import run_all
from training_imgtool.make.engines.secrets import check_given, check_unused
from training_imgtool.make.find import find_results, name_results
from training_imgtool.make.request import BuildResult, BuildRun
from training_imgtool.make.trainer_check import check_trainer
from training_imgtool.model.spec import Role
from training_imgtool.oci.registry.failures import BlobUnknownError
from training_imgtool.plan.inputs import RoleImage

if TYPE_CHECKING:
    from training_imgtool.make.direct_builder import Appending
    from training_imgtool.make.engines.docker.engine import DockerEngine
    from training_imgtool.make.sinks import Sink

_MUCH_CODE = 100_000_000  # bytes


def build(run: BuildRun, docker: DockerEngine | None = None) -> tuple[BuildResult, ...]:
    """Makes sure that the sink (registry, OCI layout or engine) has the images of the selected roles, for one platform.

    If the options do not name a sink, the sink is the image store of `docker`. Raises what finding, building and
    pushing raise. imgtool moves the tags of `--tag` only after the sink has the images of all roles.
    """
    check_inputs(run)
    results = dict(find_results(run)) if run.options.push else {}
    if len(results) == len(run.wanted):
        name_results(run, tuple(results.values()))
    else:
        try:
            _make_missing(run, docker, results)
        except LocalFileError as error:
            if not _lost_cache(run, error):
                raise
            run.machine.progress(Note("somebody deleted the cache meanwhile; imgtool starts again"))
            _make_missing(run, docker, results)
    return tuple(results[image.role] for image in run.wanted)


def _lost_cache(run: BuildRun, error: LocalFileError) -> bool:
    """Tells whether `error` means that a file of the cache is gone. Users may delete the cache at any time."""
    cause = error.__cause__
    return isinstance(cause, FileNotFoundError) and Path(str(cause.filename)).is_relative_to(run.machine.settings.cache)


def _make_missing(run: BuildRun, docker: DockerEngine | None, results: dict[Role, BuildResult]) -> None:
    """Makes the images that are not yet in `results`, and adds them to `results`."""
    from training_imgtool.make.engines.engine import Engine
    from training_imgtool.make.sinks import open_sink

    with Engine(run) as engine, open_sink(run, engine, docker) as sink:
        tasks = _list_tasks(run, sink, results)
        try:
            run_all(tasks, most=sink.at_once)
        except ImgtoolError as error:
            error.details += _outcomes(run, results)
            raise
        sink.finish(tuple(results[image.role] for image in run.wanted))


def check_inputs(run: BuildRun) -> None:
    """Checks the trainer and the secrets, without a registry; raises FieldListError or InputError."""
    if run.options.check:
        check_trainer(run.inputs, run.machine)
    check_unused(run)


def _list_tasks(run: BuildRun, sink: Sink, results: dict[Role, BuildResult]) -> dict[str, Callable[[], None]]:
    """Adds to `results` the images that the sink has; maps the roles of each other image to its maker function."""
    if not run.options.no_cache:
        results |= sink.find(tuple(image for image in run.wanted if image.role not in results))
    by_key: dict[str, list[RoleImage]] = {}
    for image in run.wanted:
        if image.role not in results:
            by_key.setdefault(image.key, []).append(image)
    if by_key:
        check_given(run, (image for images in by_key.values() for image in images))
        _note_size(run)
    return {
        ", ".join(image.role for image in images): partial(_make, run, images, sink, results)
        for images in by_key.values()
    }


def _make(run: BuildRun, images: list[RoleImage], sink: Sink, results: dict[Role, BuildResult]) -> None:
    """Makes one image, and puts it into the sink for each role that shares the image.

    If imgtool cannot make the image, an engine makes it. imgtool makes the parent image first, because only this step
    shows whether the wheels fit together without an engine.
    """
    started, (image, *others) = time.monotonic(), images
    if run.options.engine == "buildx":
        made = sink.put_from_engine(image, NeedsEngineError("--engine buildx"))
    else:
        try:
            appending = sink.parents.of(image)
        except NeedsEngineError as reason:
            made = sink.put_from_engine(image, reason)
        else:
            made = _append(run, image, sink, appending)
            name = str(image.tag) if made.outcome is Outcome.FOUND else made.reference
            run.machine.progress(Done(image.role, made.outcome, name, time.monotonic() - started))
    made = results[image.role] = replace(made, seconds=time.monotonic() - started)
    for other in others:
        shared = results[other.role] = sink.share(other, made)
        run.machine.progress(Done(other.role, shared.outcome, shared.reference, made.seconds))


def _append(run: BuildRun, image: RoleImage, sink: Sink, appending: Appending) -> BuildResult:
    """Appends an image's stages to its parent image; makes the parent again if the registry has lost it."""
    run.machine.progress(Step(image.role, "appending"))
    try:
        with sink.builder.append(appending, image.role) as made:
            return sink.put(image, made, appending.parent.stored)
    except BlobUnknownError as error:
        if not appending.is_lost(error):
            raise
        again = sink.parents.of(appending.image, lost=appending)
        with sink.builder.append(again, image.role) as made:
            return sink.put(image, made, again.parent.stored)


def _outcomes(run: BuildRun, results: Mapping[Role, BuildResult]) -> tuple[str, ...]:
    """Returns one line per role of a failed run: the image's name, or `failed`."""
    if not results:
        return ()
    outcomes = {role: f"{result.outcome} {result.reference}" for role, result in results.items()}
    return tuple(f"{image.role}: {outcomes.get(image.role, 'failed')}" for image in run.wanted)


def _note_size(run: BuildRun) -> None:
    """Notes that very large code probably contains data, which imgtool would upload again after each change."""
    files = run.inputs.context.on_disk()
    size = sum(entry.size for entry in files)
    if size > _MUCH_CODE:
        largest = max(files, key=lambda entry: entry.size)
        run.machine.progress(
            Note(
                f"{size / 1e6:.0f} MB of files go into the images with the code, {largest.size / 1e6:.0f} MB of it "
                f"{largest.path}; data belongs in a bucket and in .dockerignore"
            )
        )
