"""`build` and `push`: find the images by key, choose a builder for those that are missing, make them, name them.

A run that finds every image loads neither builders nor sinks, so the functions that make images import them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.core.errors import ImgtoolError, NeedsEngineError
from training_imgtool.core.progress import Note
from training_imgtool.core.threads import run_all
from training_imgtool.direct.registry.pending_heads import ImageExistsError
from training_imgtool.pipeline.engine.secrets import check_given, check_unused
from training_imgtool.pipeline.find import KeyedImages
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.pipeline.request import BuildResult, BuildRun
from training_imgtool.pipeline.trainer_check import check_trainer
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.spec.model import Role

if TYPE_CHECKING:
    from training_imgtool.engines import Engine
    from training_imgtool.pipeline.builders import Builder, Sink
    from training_imgtool.pipeline.engine.engines import Engines

_MUCH_CODE = 100_000_000  # bytes


def build(run: BuildRun, registries: Registries) -> tuple[BuildResult, ...]:
    """Makes sure that the sink has the images of the selected roles, for one platform.

    Raises what finding, building and pushing raise. The tags that the user named move only when every role has arrived.
    """
    check_inputs(run)
    pushed = KeyedImages(run, registries) if run.options.push else None
    results = pushed.find(run.wanted) if pushed else {}
    if pushed and len(results) == len(run.wanted):
        pushed.finish(tuple(results.values()))
    else:
        from training_imgtool.pipeline.builders import without_engine
        from training_imgtool.pipeline.engine.engines import Engines
        from training_imgtool.pipeline.sinks import open_sink

        hint = partial(without_engine, run)
        with Engines(run, registries, hint=hint) as engines, open_sink(run, registries, engines, pushed) as sink:
            results = _make(run, sink, engines, results)
    return tuple(results[image.role] for image in run.wanted)


def check_inputs(run: BuildRun) -> None:
    """Checks what can be known without a registry; raises FieldListError for the trainer, InputError for a secret."""
    if run.options.check:
        check_trainer(run.inputs, run.settings, run.progress)
    check_unused(run)


def build_in_engine(run: BuildRun, engine: Engine) -> tuple[BuildResult, ...]:
    """Makes sure that an open engine has the images in its own store."""
    from training_imgtool.pipeline.engine.engines import Engines
    from training_imgtool.pipeline.sinks import EngineSink

    with connect(run.settings, run.progress) as registries, Engines(run, registries, engine) as engines:
        results = _make(run, EngineSink(run, registries, engines), engines, {})
    return tuple(results[image.role] for image in run.wanted)


def _make(
    run: BuildRun, sink: Sink, engines: Engines, results: Mapping[Role, BuildResult]
) -> Mapping[Role, BuildResult]:
    """Adds the images that the sink has or that this makes, then gives all of them their names."""
    from training_imgtool.pipeline.builders import DirectBuilder, EngineBuilder

    results = dict(results)
    if not run.options.no_cache:
        results |= sink.find(tuple(image for image in run.wanted if image.role not in results))
    if missing := tuple(image for image in run.wanted if image.role not in results):
        check_given(run, missing)
        _note_size(run)
        if run.options.only_engine:
            engines.build_all(missing)  # a role that fails here keeps the others from being pushed
        direct, engine = DirectBuilder(run, sink), EngineBuilder(sink, engines)

        def make(image: RoleImage) -> None:
            results[image.role] = _make_image(run, sink, image, direct, engine)

        try:
            run_all({image.role: partial(make, image) for image in missing}, most=sink.at_once)
        except ImgtoolError as error:
            error.details += _outcomes(run, results)
            raise
    sink.finish(tuple(results[image.role] for image in run.wanted))
    return results


def _make_image(run: BuildRun, sink: Sink, image: RoleImage, direct: Builder, engine: Builder) -> BuildResult:
    """Chooses a builder and makes an image: the direct one where it is proven to give an engine's image."""
    if run.options.only_engine:
        return engine.make(image)
    try:
        return direct.make(image)
    except (ImageExistsError, NeedsEngineError) as error:
        if (result := sink.answer(image)) is not None:
            return result  # the registry answered while the image was made
        if run.options.engine == "direct" or not run.options.push:
            raise
        run.progress(Note(f"{image.role}: needs an engine: {error}"))
        return engine.make(image)


def _outcomes(run: BuildRun, results: Mapping[Role, BuildResult]) -> tuple[str, ...]:
    """One line per role of a failed run: the image's name, or that there is none."""
    if not results:
        return ()
    outcomes = {role: f"{result.outcome} {result.reference}" for role, result in results.items()}
    return tuple(f"{image.role}: {outcomes.get(image.role, 'failed')}" for image in run.wanted)


def _note_size(run: BuildRun) -> None:
    """Tells the user when the code is so large that it must contain data, which every change would send again."""
    files = run.inputs.context.on_disk()
    size = sum(entry.size for entry in files)
    if size > _MUCH_CODE:
        largest = max(files, key=lambda entry: entry.size)
        run.progress(
            Note(
                f"{size / 1e6:.0f} MB of files go into the images with the code, {largest.size / 1e6:.0f} MB of it "
                f"{largest.path}; data belongs in a bucket and in .dockerignore"
            )
        )
