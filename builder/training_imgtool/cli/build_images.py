"""Builds images for `imgtool build` and `push`, and prints the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from training_imgtool.cli import machine
from training_imgtool.cli.output import emit, emit_failure, emit_json, emit_note, error_data, exit_code
from training_imgtool.commands.images import prepare_build, steps_of
from training_imgtool.core.progress import Note
from training_imgtool.jobs import check_job
from training_imgtool.pipeline.renewal import build_renewed
from training_imgtool.pipeline.request import BuildOptions, BuildResult, BuildRun, SpecChoice
from training_imgtool.registry.connect import connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from training_imgtool.changes.after_push import Changed
    from training_imgtool.core.progress import Progress
    from training_imgtool.core.settings import Settings
    from training_imgtool.lock.carry_over import Renewal
    from training_imgtool.pipeline.inputs import Inputs
    from training_imgtool.pipeline.many import SpecResult


def build_and_print(
    choices: tuple[SpecChoice, ...],
    options: BuildOptions,
    *,
    registry: str | None,
    secrets: tuple[str, ...],
    locked: bool,
    progress: str,
    as_json: bool,
) -> None:
    """Builds the images and prints one line per role; `imgtool push` calls this with `options.push`.

    With several specs a line begins with the spec's name, and the exit code is that of the most severe failure.
    """
    settings = machine.settings(secrets)
    if len(choices) > 1:
        from training_imgtool.pipeline.many import build_many

        of_spec: dict[str, tuple[Changed, ...]] = {}
        said: set[str] = set()

        def note(choice: SpecChoice, inputs: Inputs, images: tuple[BuildResult, ...], view: Progress) -> None:
            variant = " ".join(f"{key}={value}" for key, value in choice.values.items())
            of_spec[choice.name] = _note_changes(inputs, images, settings, view, variant, said)

        with machine.progress(progress) as view:
            inspect = check_job if options.check else None
            after = note if options.push else None
            results = build_many(
                choices, options, settings, view, registry=registry, locked=locked, inspect=inspect, after=after
            )
        _print_many(results, of_spec, as_json=as_json)
        return
    with machine.progress(progress) as view, connect(settings, view) as registries:
        read, make = steps_of(choices[0], options, settings, view, registries, registry=registry, locked=locked)
        every: list[Inputs] = []

        def read_and_keep(renewal: Renewal | None) -> Inputs:
            every.append(read(renewal))
            return every[-1]

        images = build_renewed(read_and_keep, make, view, locked=locked)
        changed = _note_changes(every[-1], images, settings, view) if options.push else ()
    if as_json:
        emit_json({"ok": True, "images": [_as_data(image, changed) for image in images]})
    else:
        emit("".join(f"{image.role} {image.reference}\n" for image in images))


def _note_changes(
    inputs: Inputs,
    images: tuple[BuildResult, ...],
    settings: Settings,
    view: Progress,
    variant: str = "",
    said: set[str] | None = None,
) -> tuple[Changed, ...]:
    """Remembers what was pushed and says what changed; nothing to say of images that were pushed last, too.

    `said` has the files that Git does not track, which are said once where specs share them.
    """
    from training_imgtool.changes.pushed import find_pushed
    from training_imgtool.pipeline.platforms import pair_parts

    pairs = pair_parts(inputs, images)
    where = (settings.cache, inputs.repository)
    last = (find_pushed(*where, str(one.role), own.plan.platform, variant) for own, one in pairs)
    if all(was and one.digest and was.digest == one.digest.digest for was, (_, one) in zip(last, pairs, strict=True)):
        return ()
    from training_imgtool.changes.after_push import describe_push, describe_untracked, note_push
    from training_imgtool.cli.progress_lines import format_size

    changed, said = note_push(inputs, images, settings, variant), set() if said is None else said
    untracked = describe_untracked(inputs, settings) if changed else ""
    for line in (*([untracked] if untracked and untracked not in said else ()), *describe_push(changed, format_size)):
        view(Note(line))
    said.add(untracked)
    return changed


def _print_many(results: tuple[SpecResult, ...], changed: Mapping[str, tuple[Changed, ...]], *, as_json: bool) -> None:
    """Prints every image and every failure, and raises the most severe."""
    failures = {result.choice.name: result.error for result in results if result.error is not None}
    if not as_json:
        emit("".join(f"{row.choice.name} {image.role} {image.reference}\n" for row in results for image in row.images))
    else:
        specs = [
            {
                "spec": str(row.choice.path or "."),
                "set": dict(row.choice.values),
                "images": [_as_data(image, changed.get(row.choice.name, ())) for image in row.images],
                "error": error_data(row.error) if row.error else None,
            }
            for row in results
        ]
        emit_json({"ok": not failures, "specs": specs})
    for name, error in failures.items():
        emit_failure(error, name)
    emit_note(f"{len(results) - len(failures)} of {len(results)} specs are done")
    if failures:
        raise typer.Exit(exit_code(failures.values()))


def _as_data(result: BuildResult, changed: tuple[Changed, ...]) -> dict[str, Any]:
    """Returns a result for `--json`; of an image that the run appended, with its bytes and what changed."""
    sent = sum(size for digest, size in result.blobs.items() if digest in result.sent)
    own = [one.differences for one in changed if one.result.role is result.role]
    texts = {difference.text: None for differences in own for difference in differences or ()}
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
        "changes": [*texts] if own and None not in own else None,
    }


def dry_run_and_print(
    choices: tuple[SpecChoice, ...],
    options: BuildOptions,
    *,
    registry: str | None,
    secrets: tuple[str, ...],
    locked: bool,
    progress: str,
    as_json: bool,
) -> None:
    """Prints what a build would find and make; asks the registry, changes nothing."""
    from training_imgtool.pipeline.dry_run import dry_run
    from training_imgtool.pipeline.engine.secrets import with_own_secrets

    settings, many = machine.settings(secrets), len(choices) > 1
    rows = []
    for choice in choices:
        with machine.progress(progress) as view:
            inputs = prepare_build(choice, options, settings, view, registry=registry, locked=locked, write=False)
            own = with_own_secrets(inputs, settings) if many else settings
            for each in inputs.by_platform:
                foreseen = dry_run(BuildRun(inputs=each, options=options, settings=own, progress=view))
                tags = {image.role: str(image.tag or image.key[:32]) for image in each.images}
                rows += [(choice, role, what, tags[role]) for role, what in foreseen.items()]
    if as_json:
        images = [
            {**({"spec": choice.name} if many else {}), "role": role, "would": what, "tag": tag}
            for choice, role, what, tag in rows
        ]
        emit_json({"ok": True, "images": images})
    else:
        emit("".join(f"{f'{choice.name} ' if many else ''}{role} {what} {tag}\n" for choice, role, what, tag in rows))
