"""Builds images for `imgtool build` and `push`, and prints the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training_imgtool.cli.output import emit, emit_json
from training_imgtool.commands.images import build_images, prepare_build
from training_imgtool.core.progress import Note
from training_imgtool.pipeline.request import BuildOptions, BuildResult, BuildRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from training_imgtool.pipeline.inputs import Inputs
    from training_imgtool.pipeline.project_files import SpecChoice
    from training_imgtool.registry.connect import Machine

    Opened = AbstractContextManager[Machine]


def build_and_print(choice: SpecChoice, options: BuildOptions, opened: Opened, *, as_json: bool) -> None:
    """Builds the images and prints one line per role; `imgtool push` calls this with `options.push`."""
    with opened as machine:
        inputs, images = build_images(choice, options, machine)
        if options.push:
            _note_push(inputs, images, machine)
    if as_json:
        emit_json({"ok": True, "images": [_as_data(image) for image in images]})
    else:
        emit("".join(f"{image.role} {image.reference}\n" for image in images))


def _note_push(inputs: Inputs, images: Sequence[BuildResult], machine: Machine) -> None:
    """Notes what was pushed, for `show --why`, and says how many bytes the push sent and reused."""
    from training_imgtool.cli.progress_lines import format_size
    from training_imgtool.commands.why import note_pushed

    note_pushed(inputs, images, machine.settings.cache)
    blobs = {digest: size for image in images for digest, size in image.blobs.items()}
    if blobs:
        sent = sum(blobs[digest] for digest in frozenset[str]().union(*(image.sent for image in images)))
        total = sum(blobs.values())
        machine.progress(Note(f"sent {format_size(sent)}, reused {format_size(total - sent)} that the registry had"))


def _as_data(result: BuildResult) -> dict[str, Any]:
    """Returns a result for `--json`; of an image that the run appended, with its bytes."""
    sent = sum(size for digest, size in result.blobs.items() if digest in result.sent)
    return {
        "role": str(result.role),
        "outcome": str(result.outcome),
        "reference": result.reference,
        "digest": result.digest.digest if result.digest else None,
        "tag": str(result.tag) if result.tag else None,
        "key": result.key,
        "image_id": result.image_id,
        "seconds": round(result.seconds, 3),
        "size": sum(result.blobs.values()) if result.blobs else None,
        "sent": sent if result.blobs else None,
    }


def dry_run_and_print(choice: SpecChoice, options: BuildOptions, opened: Opened, *, as_json: bool) -> None:
    """Prints what a build would find and make; asks the registry, changes nothing."""
    from training_imgtool.pipeline.dry_run import dry_run

    rows = []
    with opened as machine:
        inputs = prepare_build(choice, options, machine, write=False)
        for each in inputs.by_platform:
            foreseen = dry_run(BuildRun(inputs=each, options=options, machine=machine))
            tags = {image.role: str(image.tag or image.key[:32]) for image in each.images}
            rows += [(role, what, tags[role]) for role, what in foreseen.items()]
    if as_json:
        emit_json({"ok": True, "images": [{"role": role, "would": what, "tag": tag} for role, what, tag in rows]})
    else:
        emit("".join(f"{role} {what} {tag}\n" for role, what, tag in rows))
