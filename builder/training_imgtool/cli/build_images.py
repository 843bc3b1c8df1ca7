"""Runs a build or a push for the command line, and prints the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training_imgtool.app.images import build_images, prepare_build
from training_imgtool.base.progress import Note
from training_imgtool.cli.output import emit_result
from training_imgtool.make.request import BuildOptions, BuildResult, BuildRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from training_imgtool.model.spec import Role
    from training_imgtool.oci.machine import Machine
    from training_imgtool.plan.inputs import Inputs
    from training_imgtool.plan.project_files import SpecChoice


def build_and_print(
    choice: SpecChoice, options: BuildOptions, machine: AbstractContextManager[Machine], *, dry_run: bool, as_json: bool
) -> None:
    """Makes the images, or with `dry_run` finds out what a build would do. Prints one line per role at the end."""
    with machine as opened:
        if dry_run:
            foreseen = tuple(_foresee(choice, options, opened))
            rows = [{"role": role, "would": what, "tag": tag} for role, what, tag in foreseen]
            lines = [" ".join(row) for row in foreseen]
        else:
            inputs, images = build_images(choice, options, opened)
            if options.push:
                _note_push(inputs, images, opened)
            rows = [_as_data(image) for image in images]
            lines = [f"{image.role} {image.reference}" for image in images]
    emit_result({"ok": True, "images": rows}, "".join(f"{line}\n" for line in lines), as_json=as_json)


def _note_push(inputs: Inputs, images: Sequence[BuildResult], machine: Machine) -> None:
    """Records the pushed images for `show --why`, and prints how many bytes the push sent and reused."""
    from training_imgtool.app.why import note_pushed
    from training_imgtool.cli.progress_lines import format_size

    note_pushed(inputs, images, machine.settings.state)
    blobs = {digest: size for image in images for digest, size in image.blobs.items()}
    if blobs:
        sent = sum(blobs[digest] for digest in frozenset[str]().union(*(image.sent for image in images)))
        total = sum(blobs.values())
        reused = f", reused {format_size(total - sent)} that the registry had" if total > sent else ""
        machine.progress(Note(f"sent {format_size(sent)}{reused}"))


def _as_data(result: BuildResult) -> dict[str, Any]:
    """Returns a result for `--json`. The sizes are None unless imgtool itself made the image in this run."""
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


def _foresee(choice: SpecChoice, options: BuildOptions, machine: Machine) -> Iterator[tuple[Role, str, str]]:
    """Yields each role, what a build would do for the role, and the image's tag; asks the registry, changes nothing."""
    from training_imgtool.make.dry_run import dry_run

    inputs = prepare_build(choice, options, machine, write=False)
    for each in inputs.by_platform:
        tags = {image.role: str(image.tag or image.key[:32]) for image in each.images}
        for role, what in dry_run(BuildRun(inputs=each, options=options, machine=machine)).items():
            yield role, what, tags[role]
