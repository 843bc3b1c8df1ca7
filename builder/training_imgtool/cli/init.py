"""`imgtool init`: writes a first spec that works."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from training_imgtool.base.errors import UsageError, VerificationError
from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit, emit_error, emit_note
from training_imgtool.model.frameworks import FRAMEWORKS
from training_imgtool.model.spec import Accelerator

if TYPE_CHECKING:
    from training_imgtool.app.init import Written

_MOST_ROWS = 24


def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The folder with the code.")] = Path(),
    release: Annotated[
        str | None,
        typer.Option("--tensorflow", metavar="VERSION", help="TensorFlow's release [default: the project's]."),
    ] = None,
    jax: Annotated[
        str | None,
        typer.Option("--jax", metavar="VERSION", help="JAX's release, such as 0.10.2, instead of TensorFlow's."),
    ] = None,
    torch: Annotated[
        str | None,
        typer.Option("--torch", metavar="VERSION", help="PyTorch's release, such as 2.13.0, instead of TensorFlow's."),
    ] = None,
    accelerator: Annotated[Accelerator | None, typer.Option(metavar="NAME", help="Run on cpu, gpu or tpu.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The images' name [default: the project's].")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing spec.")] = False,
    lock: Annotated[
        bool | None,
        typer.Option(
            "--lock/--no-lock",
            help="Write the lock, too, and drop version limits that no wheel satisfies. --lock is the default if "
            "FOLDER has a program.",
        ),
    ] = None,
    attempt: Annotated[bool, typer.Option("--try", help="Run the code, and add missing packages to the spec.")] = False,
    progress: opt.ProgressMode = "auto",
) -> None:
    """Write a first spec for the code in FOLDER.

    If FOLDER has no code, write a trainer, too. If FOLDER has a spec, only print how a new spec would differ from it.
    """
    from training_imgtool.app.init import write_starter
    from training_imgtool.app.init_try import adopt

    given = {key: value for key, value in (("tensorflow", release), ("jax", jax), ("torch", torch)) if value}
    if len(given) > 1:
        options = " or ".join(f"--{key}" for key in given)
        raise UsageError(
            f"an image has one of {', '.join(row.title for row in FRAMEWORKS.values())}", hint=f"leave out {options}"
        )
    with open_machine(progress) as machine:
        propose = partial(
            write_starter,
            folder,
            name=name,
            framework=next(iter(given), None),
            release=next(iter(given.values()), None),
            accelerator=accelerator,
            settings=machine.settings,
            progress=machine.progress,
        )
        adopted = adopt(folder, propose, machine, force=force, lock=lock, attempt=attempt)
    written, trial = adopted.written, adopted.trial
    emit_error(_format_table(written))
    where = "" if folder == Path() else f" {shlex.quote(str(folder))}"
    if written.diff is not None:
        emit(written.diff)
        emit_note(
            f"image.yaml stays as it is; imgtool init --force{where} replaces it" if written.diff else "no change"
        )
        return
    emit("".join(f"{path}\n" for path in written.paths))
    for note in written.notes:
        emit_note(note)
    if adopted.error:
        emit_note("imgtool wrote image.yaml, but cannot lock its packages; correct it, then run imgtool lock")
        raise adopted.error
    if adopted.trouble:
        emit_note(f"the program cannot start yet: {adopted.trouble}")
    if trial:
        emit_error("".join(f"  {line}\n" for line in trial.lines))
        why = f", since {trial.lacks} is missing" if trial.lacks else ", by its own error" if trial.failed else ""
        emit_note(f"the program started in its image: {trial.ended}{why}")
        if trial.failed:
            raise typer.Exit(VerificationError.exit_code)
    if not written.proposal.placement and written.proposal.has_code:
        return
    emit_note(f"next: imgtool push{where}    # to a registry; imgtool run{where} trains here, with a Docker Engine")


def _format_table(written: Written) -> str:
    """Formats what `init` found, and the files where it found each fact, as columns."""
    rows = [(row.fact, row.value, row.place, row.remark) for row in written.proposal.table()]
    shown = rows[:_MOST_ROWS]
    widths = [min(40, max((len(row[column]) for row in shown), default=0)) for column in range(2)]
    lines = [
        f"{fact if not index or shown[index - 1][0] != fact else '':{widths[0]}}  {value:{widths[1]}}  {place}"
        + (f"  ({remark})" if remark else "")
        for index, (fact, value, place, remark) in enumerate(shown)
    ]
    lines += [f"and {len(rows) - len(shown)} more"] if len(rows) > len(shown) else []
    return "".join(f"{line.rstrip()}\n" for line in lines)
