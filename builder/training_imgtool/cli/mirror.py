"""`imgtool mirror`: copies the bases, wheels and Debian packages of a lock to where you keep them."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json, emit_note
from training_imgtool.core.errors import UsageError


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("mirror")(mirror)


def mirror(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="HOST/PATH", help="Copy the base images to this registry.")
    ] = None,
    wheels: Annotated[
        Path | None,
        typer.Option("--wheels", metavar="DIR", help="Copy wheels and Debian packages into this folder."),
    ] = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Copy the lock's bases and packages to a place of your own."""
    from training_imgtool.commands import mirror as mirroring
    from training_imgtool.commands.mirror import MirroredFiles, mirror_files
    from training_imgtool.pipeline.current_lock import ensure_lock
    from training_imgtool.pipeline.shared_reads import open_spec

    if to is None and wheels is None:
        raise UsageError("nothing to copy to", hint="give --to HOST/PATH, --wheels DIR, or both")
    place = mirroring.check_target(to) if to is not None else None
    values = opt.read_changes(changes)
    settings = machine.settings()
    bases: tuple[mirroring.MirroredBase, ...] = ()
    files = MirroredFiles()
    with machine.progress(progress) as view:
        spec_file = open_spec(spec, values)
        for platform in spec_file.platforms:
            lock = ensure_lock(spec_file.for_platform(platform), settings, view, locked=locked)
            if place is not None:
                bases += mirroring.mirror_bases(lock, settings, place, view)
            if wheels is not None:
                files += mirror_files(spec_file, lock, wheels, settings, view)
    if as_json:
        rows = [{"base": base.base, "copy": str(base.copy)} for base in bases]
        emit_json({"ok": True, "bases": rows, "wheels": list(files.wheels), "debian": list(files.debian)})
        return
    emit("".join(f"{base.base} {base.copy}\n" for base in bases))
    if place is not None:
        emit_note(f"IMGTOOL_MIRRORS={mirroring.mirror_setting(bases, place)} reads the bases there")
    if wheels is not None:
        debian = f" and {len(files.debian)} Debian packages" if files.debian else ""
        emit_note(f"UV_FIND_LINKS={quote(str(wheels.absolute()))} finds the {len(files.wheels)} wheels{debian} there")
