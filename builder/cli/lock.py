"""`imgtool lock`: resolves versions, bases and wheels, and writes image.lock."""

from __future__ import annotations

import typer

from builder.cli import machine
from builder.cli import options as opt
from builder.cli.output import emit, emit_json


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("lock")(lock)


def lock(
    spec: opt.Spec = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Resolve TensorFlow, the requirements and the bases anew, and write image.lock beside the spec."""
    from builder.inputs import ensure_lock, open_spec
    from builder.lock import LOCK_FILE

    settings = machine.settings()
    with machine.progress(progress) as view:
        spec_file = open_spec(spec, settings)
        made = ensure_lock(spec_file, settings, view, locked=locked, renew=not locked)
    rows = [
        {
            "variant": locked_variant.variant.name,
            "roles": [str(role) for role in locked_variant.variant.roles],
            "tensorflow": f"{locked_variant.variant.package} {locked_variant.variant.tensorflow}",
            "python": locked_variant.variant.python,
            "base": f"{locked_variant.variant.base}@{locked_variant.base_digest}",
            "wheels": len(locked_variant.wheels),
            "bytes": sum(wheel.size for wheel in locked_variant.wheels),
        }
        for locked_variant in made.variants
    ]
    if as_json:
        emit_json({"ok": True, "lock": str(spec_file.folder / LOCK_FILE), "variants": rows})
        return
    for row in rows:
        emit(
            f"{row['variant']} {row['tensorflow']} python {row['python']} {row['base']} "
            f"{row['wheels']} wheels {row['bytes']} bytes\n"
        )
