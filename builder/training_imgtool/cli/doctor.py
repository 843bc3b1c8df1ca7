"""`imgtool doctor`: checks what a build needs on this machine."""

from __future__ import annotations

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit_note, emit_result


def doctor(
    spec: opt.Spec = None, changes: opt.Changes = None, registry: opt.Registry = None, as_json: opt.Json = False
) -> None:
    """Check what a build needs on this machine. The exit code is the one with which a build would end."""
    from training_imgtool.app import doctor

    findings = doctor.examine(opt.read_choice(spec, changes, registry), machine.settings())
    code = doctor.exit_code(findings)
    text = "".join(f"{finding.as_line()}\n" for finding in findings)
    emit_result({"ok": code == 0, "checks": [finding.as_data() for finding in findings]}, text, as_json=as_json)
    if code == 0 and any(not finding.ok and finding.name in {"engine", "builder"} for finding in findings):
        emit_note("push needs neither engine nor builder; run, build and shell lines in the spec need one")
    raise typer.Exit(code)
