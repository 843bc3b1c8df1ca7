"""The inputs that the spec, the lock and the code have now."""

from __future__ import annotations

from collections.abc import Mapping

from training_imgtool.changes.inputs import File, ImageInputs, Shared, Sheet, TextReader, format_step, read_predicates
from training_imgtool.context.entries import Entry, blocks
from training_imgtool.core.errors import InputError, NeedsEngineError
from training_imgtool.direct.copy import FileLayer, plan_copy
from training_imgtool.direct.files import ASSUMED
from training_imgtool.dockerfile.evaluate import Scope, walk
from training_imgtool.dockerfile.substitution import has_variable
from training_imgtool.pipeline.attach import Trace, describe
from training_imgtool.pipeline.inputs import Inputs, RoleImage


def read_planned(inputs: Inputs, image: RoleImage, shared: Shared | None = None) -> ImageInputs:
    """Returns what a role's image is made from; raises InputError for a file that changes meanwhile.

    `shared` has what is read already, and gains what is read here.
    """
    shared = shared or Shared()
    sheet, unclear = Sheet(), set[str]()
    files: Mapping[str, File] = {}
    there, texts, scope = ASSUMED, TextReader(shared.texts), Scope(env={}, args={})
    above: tuple[object, ...] = (id(inputs.context),)
    for stage in (*image.dockerfile.below(image.dockerfile.stages[-1]), image.dockerfile.stages[-1]):
        steps, scope = walk(image.dockerfile, stage, scope)
        for step in steps:
            if step.name == "ENV":
                escape = step.instruction.escape
                unclear |= {name for name, value in step.instruction.pairs if has_variable(value or "", escape)}
            if step.name not in {"COPY", "ADD"}:
                sheet.add(step)
            elif "from" not in step.flags:
                sheet.add_text(format_step(step))
                working = str(sheet.settings.get("WorkingDir") or "/")
                above = (*above, working, format_step(step))
                if above not in shared.copied:
                    try:
                        layer = plan_copy(step, inputs.context, there, working)
                    except (NeedsEngineError, InputError):
                        continue  # the text of the step tells what there is to tell
                    shared.copied[above] = there.with_copied(layer.nodes), {**files, **_read_files(layer, texts)}
                there, files = shared.copied[above]
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


def _read_files(layer: FileLayer, texts: TextReader) -> dict[str, File]:
    files = {}
    for item, content in layer.contents():
        entry = item.entry
        source = layer.placed[f"/{entry.path}"]
        text = texts.recall(content, entry.size, blocks(source)) if content and isinstance(source, Entry) else None
        files[f"/{entry.path}"] = File(
            entry.kind, entry.mode, f"{entry.uid}:{entry.gid}", content or entry.target, entry.size, text
        )
    return files
