"""`imgtool lock`: resolves versions, base images and wheels, and writes the lock beside the spec."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.base.errors import UsageError
from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit_note, emit_result


def lock(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    upgrade: Annotated[
        bool,
        typer.Option("--upgrade", "-U", help="Upgrade all packages and base images to the newest that fit."),
    ] = False,
    upgrade_package: Annotated[
        list[str] | None,
        typer.Option("--upgrade-package", "-P", metavar="NAME", help="Upgrade only this package; repeatable."),
    ] = None,
    upgrade_base: Annotated[
        bool,
        typer.Option("--upgrade-base", help="Take the base images' current digests, and leave the Python packages."),
    ] = False,
    locked: opt.Locked = False,
    no_check: opt.NoCheck = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Resolve versions, base images and wheels, and write the lock. A new lock keeps old versions that still fit."""
    from training_imgtool.app.lock import renew_locks
    from training_imgtool.model.requirements import normalise_name
    from training_imgtool.resolve.lock.carry_over import Renewal

    if upgrade and spec is not None and not spec.exists():
        raise UsageError(f"--upgrade takes no value, and there is no spec {spec}", hint=f"--upgrade-package {spec}")
    renewal = Renewal(upgrade, frozenset(map(normalise_name, upgrade_package or ())))
    if upgrade_base and renewal:
        raise UsageError("--upgrade-base leaves the packages, and --upgrade upgrades them", hint="give one of them")
    renewal = Renewal(bases=True) if upgrade_base else renewal
    if locked and renewal:
        raise UsageError("--locked forbids writing the lock, and --upgrade writes it", hint="give one of them")
    with open_machine(progress) as machine:
        made = renew_locks(opt.read_choice(spec, changes, locked=locked), renewal, machine, check=not no_check)
    rows = [
        {
            "variant": locked_variant.variant.name,
            "platform": lock.platform,
            "roles": [str(role) for role in locked_variant.variant.roles],
            **locked_variant.variant.installed,
            "python": locked_variant.variant.python,
            "base": f"{locked_variant.variant.base}@{locked_variant.base_digest}",
            "wheels": len(locked_variant.wheels),
            "bytes": sum(wheel.size for wheel in locked_variant.wheels),
        }
        for lock in made.locks
        for locked_variant in lock.variants
    ]
    for base, answer in made.moved.items():
        emit_note(f"{base}: {answer}; keep a copy of the base, which the lock names by digest")
    bases = [
        {"base": move.base, "platform": move.platform, "was": move.was, "now": move.now, "state": move.state}
        for move in made.bases
    ]
    names = list(map(str, made.paths))
    text = "".join(
        (f"{row['platform']} " if len(names) > 1 else "")
        + f"{row['variant']} {row['package']} {row['release']} python {row['python']} {row['base']} "
        f"{row['wheels']} wheels {row['bytes']} bytes\n"
        for row in rows
    )
    text += "".join(f"{row['state']} {row['platform']} {row['base']} {row['was']} {row['now']}\n" for row in bases)
    result = {"ok": True, "lock": names[0], "locks": names, "variants": rows, "bases": bases}
    emit_result(result, text, as_json=as_json)
