"""`imgtool prune`: deletes what no run used lately."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json
from training_imgtool.cli.progress_lines import format_size
from training_imgtool.core.errors import EngineUnavailableError, UsageError
from training_imgtool.core.settings import Settings

_DAY = 86_400


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("prune")(prune)


def prune(
    specs: opt.Specs = None,
    unused_for: Annotated[
        float, typer.Option("--unused-for", metavar="DAYS", min=0, help="Keep what a run used within DAYS.")
    ] = 30,
    everything: Annotated[bool, typer.Option("--all", help="Delete everything.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would go; delete nothing.")] = False,
    in_registry: Annotated[
        bool, typer.Option("--registry", help="Look for old images of the specs in their registry instead.")
    ] = False,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=0, help="With --registry: keep the images of the last N commits.")
    ] = 5,
    used_by: Annotated[
        list[Path] | None,
        typer.Option("--keep-used-by", metavar="FILE", help="With --registry: keep what a job file names; repeatable."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="With --registry: delete. Without it, only print.")] = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Delete what no run used for 30 days. This includes cached wheels and layers, and stages in the engine.

    With --registry, print instead which images of the specs nothing needs in their registry, and --delete them.
    """
    from training_imgtool.commands.prune import prune_cache

    if in_registry:
        if everything or dry_run:
            raise UsageError("--registry prints only, unless --delete is there: leave out --all and --dry-run")
        _prune_registry(specs or [None], keep, used_by or [], progress, delete=delete, as_json=as_json)
        return
    if specs or used_by or delete:
        raise UsageError("specs, --keep-used-by and --delete need --registry")
    if not unused_for >= 0:
        raise UsageError(f"--unused-for {unused_for}: expected a number of days")
    settings = machine.settings()
    before = float("inf") if everything else time.time() - unused_for * _DAY
    parts = prune_cache(settings.cache, before, dry_run=dry_run)
    engine = _prune_engine(settings, before, dry_run=dry_run)
    freed, size = sum(part.freed_size for part in parts), sum(part.size for part in parts)
    if as_json:
        rows = [
            {"kind": p.kind, "count": p.count, "bytes": p.size, "freed": p.freed, "freedBytes": p.freed_size}
            for p in parts
        ]
        document = {"ok": True, "cache": str(settings.cache), "dryRun": dry_run, "kinds": rows, "engine": engine}
        emit_json({**document, "freedBytes": freed})
        return
    lines = [
        f"{part.kind:7} {part.freed} of {part.count}, {format_size(part.freed_size)} of {format_size(part.size)}"
        for part in parts
    ]
    if engine:
        of_layers = f", {format_size(engine['freedBytes'])} of its layers" if not dry_run else ""
        lines.append(f"stages  {engine['freed']} of {engine['count']} in the engine{of_layers}")
    lines.append(
        f"{'would free' if dry_run else 'freed'} {format_size(freed)} of {format_size(size)} in {settings.cache}"
    )
    emit("".join(f"{line}\n" for line in lines))


def _prune_registry(
    specs: Sequence[Path | None], keep: int, used_by: Sequence[Path], progress: str, *, delete: bool, as_json: bool
) -> None:
    from training_imgtool.commands.prune_registry import plan_sweep, read_specs, read_used, sweep
    from training_imgtool.pipeline.inputs import prepare
    from training_imgtool.pipeline.shared_reads import open_spec
    from training_imgtool.registry.connect import connect

    settings = machine.settings()
    used = read_used(used_by)
    with machine.progress(progress) as view, connect(settings, view) as registries:
        inputs = [prepare(open_spec(spec), settings, view, locked=True, registries=registries) for spec in specs]
        plans = []
        for repository in dict.fromkeys(one.repository for one in inputs):
            own = read_specs(
                [one for one in inputs if one.repository == repository], commits=keep, environ=settings.environ
            )
            plan = plan_sweep(registries.at(repository), repository, own, used)
            if delete:
                sweep(registries.at(repository), plan, view)
            plans.append(plan)
    if as_json:
        emit_json({"ok": True, "dryRun": not delete, "repositories": [plan.as_data() for plan in plans]})
    else:
        emit("".join(plan.as_text(format_size, deleted=delete) for plan in plans))


def _prune_engine(settings: Settings, before: float, *, dry_run: bool) -> dict[str, Any] | None:
    """Removes old stages from the engine; returns their numbers and names, or None when no engine answers.

    `freedBytes` is what the engine's layers lost; with a dry run 0, as nobody knows which of them others need.
    """
    from training_imgtool.engines.docker.client import connect
    from training_imgtool.engines.docker.engine import list_stages, measure_layers, remove_stage

    try:
        engine = connect(settings)
    except EngineUnavailableError:
        return None
    try:
        built_at = list_stages(engine.api)
        old = [name for name, built in built_at.items() if built < before]
        before_bytes = measure_layers(engine.api) if old and not dry_run else 0
        gone = [name for name in old if dry_run or remove_stage(engine.api, name)]
        freed = max(0, before_bytes - measure_layers(engine.api)) if before_bytes else 0
    finally:
        engine.close()
    return {"count": len(built_at), "freed": len(gone), "freedBytes": freed, "names": gone}
