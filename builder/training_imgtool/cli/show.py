"""`imgtool show`: prints the plan of a build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json, emit_note

if TYPE_CHECKING:
    from training_imgtool.commands.why import Why


class _Show(opt.Verb):
    """Lets `--why` stand alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Gives a `--why` without a word an empty one."""
        following = [*args[1:], "-"]
        alone = [word == "--why" and other.startswith("-") for word, other in zip(args, following, strict=False)]
        words = [part for word, is_alone in zip(args, alone, strict=True) for part in (word, *[""] * is_alone)]
        return super().parse_args(ctx, words)


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("show", cls=_Show)(show)


def show(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    why: Annotated[
        str | None,
        typer.Option(
            "--why",
            metavar="[IMAGE]",
            help="Print instead what differs from an image: a tag, a digest, a job file; else what was pushed last.",
        ),
    ] = None,
    no_check: opt.NoCheck = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Print what each image consists of, and its tag."""
    if why is not None:
        _print_why(spec, changes, why, registry, progress, locked=locked, as_json=as_json)
        return
    from training_imgtool.commands import show
    from training_imgtool.commands.images import plan_images
    from training_imgtool.pipeline.request import SpecChoice

    choice = SpecChoice(path=spec, values=opt.read_changes(changes))
    settings = machine.settings()
    with machine.progress(progress) as view:
        inputs = plan_images(choice, settings, view, registry=registry, locked=locked, check=not no_check)
    for other in inputs.others:
        emit_note(f"{other.plan.platform}: {', '.join(str(image.tag or image.key[:32]) for image in other.images)}")
    data = show.as_data(inputs)
    if as_json:
        emit_json({"ok": True, **data})
    else:
        emit(show.as_text(data))


def _print_why(
    spec: Path | None,
    changes: list[str] | None,
    image: str,
    registry: str | None,
    progress: str,
    *,
    locked: bool,
    as_json: bool,
) -> None:
    from training_imgtool.commands.images import plan_images
    from training_imgtool.commands.why import explain
    from training_imgtool.pipeline.request import SpecChoice

    choice = SpecChoice(path=spec, values=opt.read_changes(changes))
    settings = machine.settings()
    rows: list[Why] = []
    with machine.progress(progress) as view:
        inputs = plan_images(choice, settings, view, registry=registry, locked=locked, check=False)
        for each in inputs.by_platform:
            rows += explain(each, image, settings, view)
    if as_json:
        emit_json({"ok": True, "roles": [row.as_data() for row in rows]})
    else:
        emit("".join(row.as_text() for row in rows))
