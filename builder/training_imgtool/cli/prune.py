"""`imgtool prune`: deletes cached files and engine images that no run has used lately."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from training_imgtool.base.errors import EngineUnavailableError, UsageError
from training_imgtool.base.settings import Settings
from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit_result
from training_imgtool.cli.progress_lines import format_size

_DAY = 86_400


def prune(
    unused_for: Annotated[
        float, typer.Option("--unused-for", metavar="DAYS", min=0, help="Keep what a run used in the last DAYS days.")
    ] = 30,
    everything: Annotated[bool, typer.Option("--all", help="Delete everything, even what a run used today.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what prune would delete; delete nothing.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Delete cached files and engine images unused for 30 days. The cached files are wheels and layers."""
    from training_imgtool.app.prune import prune_cache

    if not unused_for >= 0:
        raise UsageError(f"--unused-for {unused_for}: expected a number of days")
    settings = machine.settings()
    before = float("inf") if everything else time.time() - unused_for * _DAY
    parts = prune_cache(settings.cache, before, dry_run=dry_run)
    engine = _prune_engine(settings, before, dry_run=dry_run)
    freed, size = sum(part.freed_size for part in parts), sum(part.size for part in parts)
    names = ("kind", "count", "bytes", "freed", "freedBytes")
    rows = [dict(zip(names, (p.kind, p.count, p.size, p.freed, p.freed_size), strict=True)) for p in parts]
    document = {"ok": True, "cache": str(settings.cache), "dryRun": dry_run, "kinds": rows, "engine": engine}
    lines = [
        f"{part.kind:7} {part.freed} of {part.count}, {format_size(part.freed_size)} of {format_size(part.size)}"
        for part in parts
    ]
    if engine:
        of_layers = f", {format_size(engine['freedBytes'])} of its layers" if not dry_run else ""
        lines.append(f"images  {engine['freed']} of {engine['count']} in the engine{of_layers}")
    lines.append(
        f"{'would free' if dry_run else 'freed'} {format_size(freed)} of {format_size(size)} in {settings.cache}"
    )
    emit_result({**document, "freedBytes": freed}, "".join(f"{line}\n" for line in lines), as_json=as_json)


def _prune_engine(settings: Settings, before: float, *, dry_run: bool) -> dict[str, Any] | None:
    """Removes old images from the engine; returns how many images and which, or None without an engine.

    `freedBytes` is the space that the engine freed. A dry run returns 0, because other images may share the layers.
    """
    from training_imgtool.make.engines.docker.connect import connect
    from training_imgtool.make.engines.docker.engine import list_stages, measure_layers, remove_stage

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
