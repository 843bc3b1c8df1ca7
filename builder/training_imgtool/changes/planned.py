"""The inputs that the spec, the lock and the code have now."""

from __future__ import annotations

from training_imgtool.changes.inputs import File, ImageInputs, Sheet, TextReader, format_step, read_predicates
from training_imgtool.context.entries import Entry, blocks
from training_imgtool.core.errors import InputError, NeedsEngineError
from training_imgtool.direct.copy import FileLayer, plan_copy
from training_imgtool.direct.files import ASSUMED
from training_imgtool.dockerfile.evaluate import Scope, walk
from training_imgtool.dockerfile.parse import Dockerfile, Stage
from training_imgtool.dockerfile.substitution import has_variable
from training_imgtool.pipeline.attach import Trace, describe
from training_imgtool.pipeline.inputs import Inputs, RoleImage


def read_planned(inputs: Inputs, image: RoleImage) -> ImageInputs:
    """Returns what a role's image is made from; raises InputError for a file that changes meanwhile."""
    sheet, files, unclear = Sheet(), dict[str, File](), set[str]()
    there, texts, scope = ASSUMED, TextReader(), Scope(env={}, args={})
    for stage in list_ancestry(image.dockerfile, image.dockerfile.stages[-1]):
        steps, scope = walk(image.dockerfile, stage, scope)
        for step in steps:
            if step.name == "ENV":
                escape = step.instruction.escape
                unclear |= {name for name, value in step.instruction.pairs if has_variable(value or "", escape)}
            if step.name not in {"COPY", "ADD"}:
                sheet.add(step)
            elif "from" not in step.flags:
                sheet.add_text(format_step(step))
                try:
                    working = str(sheet.settings.get("WorkingDir") or "/")
                    layer = plan_copy(step, inputs.context, there, working)
                except (NeedsEngineError, InputError):
                    continue  # the text of the step tells what there is to tell
                there = there.with_copied(layer.nodes)
                files |= _read_files(layer, texts)
    trace = Trace(direct=True, builder=False)
    return ImageInputs(
        key=image.key,
        base=f"{image.plan.base_name}@{image.plan.base.digest}",
        files=files,
        settings=sheet.result(),
        steps=tuple(sheet.steps),
        attested=read_predicates(describe(inputs, image, trace, epoch=0)),
        unclear=frozenset(unclear),
    )


def list_ancestry(dockerfile: Dockerfile, stage: Stage) -> tuple[Stage, ...]:
    """Lists the stage and those it starts from, lowest first."""
    below = dockerfile.earlier(stage.base, stage)
    return (*list_ancestry(dockerfile, below), stage) if below else (stage,)


def _read_files(layer: FileLayer, texts: TextReader) -> dict[str, File]:
    files = {}
    for item, content in layer.contents():
        entry = item.entry
        source = layer.placed[f"/{entry.path}"]
        text = texts.read(entry.size, blocks(source))[1] if content and isinstance(source, Entry) else None
        files[f"/{entry.path}"] = File(
            entry.kind, entry.mode, f"{entry.uid}:{entry.gid}", content or entry.target, entry.size, text
        )
    return files
