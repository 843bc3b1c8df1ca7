"""`build` and `push`: find the images by key, choose a builder for those that are missing, make them, name them."""

from __future__ import annotations

from functools import partial

from training_imgtool.build.builders import Builder, DirectBuilder, EngineBuilder, Sink, plan_role
from training_imgtool.build.buildx.secrets import check_given, check_unused
from training_imgtool.build.engine_stages import EngineStages
from training_imgtool.build.find import find_images
from training_imgtool.build.inputs import RoleImage
from training_imgtool.build.request import BuildResult, BuildRun
from training_imgtool.build.sinks import EngineSink, open_sink
from training_imgtool.build.source_wheels import keep_built_wheels
from training_imgtool.build.trainer_check import check_trainer
from training_imgtool.core.errors import EngineUnavailableError, ImgtoolError, NeedsEngineError
from training_imgtool.core.progress import Note, Outcome
from training_imgtool.core.threads import run_all
from training_imgtool.direct.registry.memory import tag_of_stage
from training_imgtool.direct.registry.pending_heads import ImageExistsError
from training_imgtool.engines import Engine
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.spec.model import Role

_MUCH_CODE = 100_000_000  # bytes


def build(run: BuildRun, registries: Registries | None = None) -> tuple[BuildResult, ...]:
    """Makes sure that the sink has the images of the selected roles, over the connections of `registries` or its own.

    Raises what finding, building and pushing raise. The tags that the user named move only when every role has arrived.
    """
    if registries is None:
        with connect(run.settings, run.progress) as own:
            return build(run, own)
    if run.options.check:
        check_trainer(run.inputs, run.settings, run.progress)
    check_unused(run)
    with EngineStages(run, registries) as stages:
        try:
            with open_sink(run, registries, stages) as sink:
                results = _build(run, sink, stages)
        except EngineUnavailableError as error:
            if run.options.only_engine and run.options.engine == "auto":
                error.hint = "; or ".join(filter(None, (error.hint, _without_engine(run))))
            raise
        if run.options.push and any(result.outcome is not Outcome.FOUND for result in results):
            keep_built_wheels(run, registries)
        return results


def build_in_engine(run: BuildRun, engine: Engine) -> tuple[BuildResult, ...]:
    """Makes sure that an open engine has the images in its own store."""
    with connect(run.settings, run.progress) as registries, EngineStages(run, registries, engine) as stages:
        return _build(run, EngineSink(run, registries, stages), stages)


def foresee(run: BuildRun) -> dict[Role, str]:
    """Returns what `build` would do with each role, without a change: `found`, `build`, or `build-and-push`.

    Raises EngineUnavailableError when an image needs an engine and none answers, and what the trainer's check raises.
    """
    if run.options.check:
        check_trainer(run.inputs, run.settings, run.progress)
    with connect(run.settings, run.progress) as registries, EngineStages(run, registries) as stages:
        if run.options.push:
            digests = find_images(run.inputs, run.wanted, registries, run.progress)
            for image in run.wanted:
                if digests[image.role] is None:
                    _require_engine(run, image, registries, stages)
            return {role: "found" if digest else "build-and-push" for role, digest in digests.items()}
        with open_sink(run, registries, stages) as sink:
            results = sink.find(run.wanted)
    return {image.role: "found" if image.role in results else "build" for image in run.wanted}


def _require_engine(run: BuildRun, image: RoleImage, registries: Registries, stages: EngineStages) -> None:
    label, reason = image.label, "--engine docker"
    if not run.options.only_engine:
        try:
            chain = plan_role(run.inputs, image).chain
        except NeedsEngineError as error:
            reason = error.message
        else:
            if chain.engine_stage is None:
                return
            label = chain.engine_stage.label
            if registries.at(run.inputs.repository).head(tag_of_stage(run.inputs.repository, label, image.keys[label])):
                return
            reason = chain.reasons[label]
    stages.require(image, label, reason)


def _build(run: BuildRun, sink: Sink, stages: EngineStages) -> tuple[BuildResult, ...]:
    results = {} if run.options.no_cache else dict(sink.find(run.wanted))
    missing = tuple(image for image in run.wanted if image.role not in results)
    if missing:
        check_given(run, missing)
        _prepare(run, missing, stages)
        direct, engine = DirectBuilder(run, sink), EngineBuilder(sink, stages)

        def make(image: RoleImage) -> None:
            results[image.role] = _make(run, sink, image, direct, engine)

        try:
            run_all({image.role: partial(make, image) for image in missing}, most=sink.at_once)
        except ImgtoolError as error:
            error.details += _outcomes(run, results)
            raise
    made = tuple(results[image.role] for image in run.wanted)
    sink.finish(made)
    return made


def _make(run: BuildRun, sink: Sink, image: RoleImage, direct: Builder, engine: Builder) -> BuildResult:
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


def _prepare(run: BuildRun, missing: tuple[RoleImage, ...], stages: EngineStages) -> None:
    _note_size(run)
    if run.options.create_repository:
        from training_imgtool.registry.auth.google import create_repository

        create_repository(run.inputs.repository, run.settings, run.progress)
    if run.options.only_engine:
        stages.build_all(missing)  # a role that fails here keeps the others from being pushed


def _outcomes(run: BuildRun, results: dict[Role, BuildResult]) -> tuple[str, ...]:
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


def _without_engine(run: BuildRun) -> str:
    """Names what works without an engine, or what needs one."""
    needed = []
    for image in run.wanted:
        try:
            chain = plan_role(run.inputs, image).chain
        except NeedsEngineError as error:
            needed.append(str(error))
            continue
        if stage := chain.engine_stage:
            needed.append(f"stage {stage.label}: {chain.reasons[stage.label]}")
    if needed:
        return f"build where one answers ({needed[0]})"
    return "let imgtool build without one: --push, or --output oci:DIR"
