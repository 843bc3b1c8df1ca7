"""`imgtool show`: prints the plan of a build."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json, emit_note
from training_imgtool.core.errors import UsageError


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
    tree: Annotated[
        bool, typer.Option("--tree", help="Print instead the images' layers: sizes, and the roles that share them.")
    ] = False,
    no_check: opt.NoCheck = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Print what each image consists of, and its tag."""
    if why is not None and tree:
        raise UsageError("--why and --tree print two things", hint="give one of them")
    if why is not None or tree:
        _print_stored(spec, changes, why, registry, progress, locked=locked, as_json=as_json)
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


def _print_stored(
    spec: Path | None,
    changes: list[str] | None,
    image: str | None,
    registry: str | None,
    progress: str,
    *,
    locked: bool,
    as_json: bool,
) -> None:
    """Prints what differs from an image, or without one the tree of layers; of each platform."""
    from training_imgtool.cli.progress_lines import format_size
    from training_imgtool.commands.images import plan_images
    from training_imgtool.pipeline.request import SpecChoice

    choice = SpecChoice(path=spec, values=opt.read_changes(changes))
    settings = machine.settings()
    with machine.progress(progress) as view:
        inputs = plan_images(choice, settings, view, registry=registry, locked=locked, check=False)
        if image is None:
            from training_imgtool.commands.tree import read_tree

            trees = [read_tree(each, settings, view) for each in inputs.by_platform]
            data = {"platforms": [tree.as_data() for tree in trees]}
            text = "\n".join(tree.as_text(format_size) for tree in trees)
        else:
            from training_imgtool.commands.why import explain

            rows = [row for each in inputs.by_platform for row in explain(each, image, settings, view)]
            data = {"roles": [row.as_data() for row in rows]}
            text = "".join(row.as_text() for row in rows)
    if as_json:
        emit_json({"ok": True, **data})
    else:
        emit(text)
