"""Finds out what a build would do, without building (`build --dry-run`)."""

from __future__ import annotations

from training_imgtool.make.build import check_inputs
from training_imgtool.make.engines.engine import Engine
from training_imgtool.make.engines.secrets import check_given
from training_imgtool.make.find import find_images
from training_imgtool.make.request import BuildRun
from training_imgtool.make.sinks import open_sink
from training_imgtool.model.spec import Role
from training_imgtool.oci.repository.stored_stages import tag_of_stage
from training_imgtool.plan.inputs import RoleImage


def dry_run(run: BuildRun) -> dict[Role, str]:
    """Returns `found`, `build` or `build-and-push` for each role: what a build would do. Changes nothing.

    Raises EngineUnavailableError if an image needs an engine and no engine answers, and what `check_inputs` raises.
    """
    check_inputs(run)
    with Engine(run) as engine:
        if run.options.push:
            digests = find_images(run.wanted, run.machine)
            check_given(run, (image for image in run.wanted if digests[image.role] is None))
            for image in run.wanted:
                if digests[image.role] is None:
                    _require_engine(run, image, engine)
            return {role: "found" if digest else "build-and-push" for role, digest in digests.items()}
        with open_sink(run, engine) as sink:
            results = sink.find(run.wanted)
    return {image.role: "found" if image.role in results else "build" for image in run.wanted}


def _require_engine(run: BuildRun, image: RoleImage, engine: Engine) -> None:
    if run.options.engine == "buildx":
        engine.require(image.own.name, "--engine buildx")
    elif image.own.engine:
        engine.require(image.own.name, image.own.engine)
    for stage in image.stages[:-1] if run.options.engine != "buildx" else ():
        tag = tag_of_stage(run.inputs.repository, stage.name, stage.key)
        if stage.engine and not run.machine.registries.at(run.inputs.repository).head(tag):
            engine.require(stage.name, stage.engine)
