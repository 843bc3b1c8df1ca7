"""`imgtool doctor`: checks what a build needs on this machine."""

from __future__ import annotations

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json


def doctor(
    spec: opt.Spec = None, changes: opt.Changes = None, registry: opt.Registry = None, as_json: opt.Json = False
) -> None:
    """Check what a build needs on this machine. The exit code is that of the build."""
    from training_imgtool.cli.commands import doctor

    findings = doctor.examine(opt.read_choice(spec, changes, registry), machine.settings())
    code = doctor.exit_code(findings)
    if as_json:
        emit_json({"ok": code == 0, "checks": [finding.as_data() for finding in findings]})
    else:
        emit("".join(f"{finding.as_line()}\n" for finding in findings))
    raise typer.Exit(code)
