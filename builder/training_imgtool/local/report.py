"""Describes a run on one HTML page: replicas over time, memory, deaths of replicas, and training losses.

The page needs no network, because it has no scripts and no links. The charts are SVG; hover over a mark to see its
text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from training_imgtool.base.version import __version__
from training_imgtool.local.losses import Curve
from training_imgtool.local.summary import (
    DeathResult,
    Kept,
    ReplicaResult,
    State,
    Summary,
    as_lines,
    describe_end,
    kept_of,
)

_HEAD = "<!doctype html>\n<!-- Written by imgtool run"  # `base.context.own_files` recognizes reports by this text
_WIDTH, _LEFT, _RIGHT = 900, 120, 20
_ROW, _HEIGHT = 28, 240
_LEAST, _MOST = 1e-300, 1e300  # of the chart
_COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#0891b2", "#65a30d", "#dc2626")
_STYLE = """\
:root { color-scheme: light dark; --ink: #1f2937; --paper: #ffffff; --line: #d1d5db; --soft: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --paper: #111827; --line: #374151; --soft: #9ca3af; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 940px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.bad { color: #dc2626; } .good { color: #059669; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; } svg .soft { fill: var(--soft); }
svg line, svg path { stroke: var(--line); fill: none; } svg polyline { fill: none; stroke-width: 1.8; }
.exited { fill: #059669; } .stopped { fill: #9ca3af; } .failed { fill: #dc2626; }
svg line.death { stroke: #dc2626; stroke-width: 2; } svg line.limit { stroke-dasharray: 4 4; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .6rem .25rem 0;
  border-bottom: 1px solid var(--line); } td.n, th.n { text-align: right; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid var(--line); border-radius: 6px; font-size: 13px; }
ul.key { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: 13px; }
ul.key i { display: inline-block; width: .9rem; height: .3rem; margin-right: .4rem; vertical-align: middle; }
"""


def render(summary: Summary, losses: Sequence[Curve]) -> str:
    """Renders the page; escapes the names of programs and files, because they may contain HTML."""
    outcome = describe_end(summary)
    good = not summary.failure and kept_of(summary) is not Kept.LOST
    title = escape(f"{summary.name} as {summary.service}")
    memory = [
        Curve(result.replica.name, tuple((at, float(size)) for at, size in result.memory))
        for result in summary.replicas
        if result.memory
    ]
    parts = [
        f"{_HEAD}, {__version__} -->",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{title}: {escape(outcome)}</title><style>{_STYLE}</style></head><body>",
        f'<h1>{title}: <span class="{"good" if good else "bad"}">{escape(outcome)}</span></h1>',
        f"<p>{summary.seconds:.0f} s, {len(summary.replicas)} replicas, run {escape(summary.run)}</p>",
        "<h2>Replicas</h2>",
        _draw_replicas(summary),
        _table(summary),
        "<h2>Memory</h2>",
        _draw_curves(memory, summary, _format_bytes, "memory", limits=_list_limits(summary)),
        "<h2>Loss</h2>",
        _draw_curves(losses, summary, _format_number, "loss"),
        f"<h2>In words</h2><pre>{escape(as_lines(summary))}</pre>",
    ]
    if summary.failure and summary.failure.last_lines:
        last = escape("\n".join(summary.failure.last_lines))
        parts.append(f"<h2>The last lines of {escape(summary.failure.name)}</h2><pre>{last}</pre>")
    if summary.notes:
        parts.append(f"<h2>Notes</h2><ul>{''.join(f'<li>{escape(note)}</li>' for note in summary.notes)}</ul>")
    return "\n".join([*parts, "</body></html>", ""])


def _draw_replicas(summary: Summary) -> str:
    """Draws a bar for each container of each replica, and a mark for each death."""
    scale = _Scale(summary.seconds)
    height = _ROW * len(summary.replicas)
    rows = list(_draw_axis(scale, height))
    for number, result in enumerate(summary.replicas):
        top = number * _ROW
        rows.append(f'<text x="{_LEFT - 8}" y="{top + 18}" text-anchor="end">{escape(result.replica.name)}</text>')
        for attempt, (start, end) in enumerate(result.spans, 1):
            kind = _name_kind(result) if attempt == len(result.spans) else "failed"
            text = f"{result.replica.name}, start {attempt}: {start:.1f} s to {end:.1f} s"
            width = max(1.0, scale(end) - scale(start))
            rows.append(
                f'<rect class="{kind}" x="{scale(start):.1f}" y="{top + 5}" width="{width:.1f}" height="18" rx="3">'
                f"<title>{escape(text)}</title></rect>"
            )
        deaths = (death for death in summary.deaths if death.name == result.replica.name)
        rows += [_draw_death(death, scale, top, _ROW) for death in deaths]
    return _svg(rows, height, "replicas over time")


def _draw_death(death: DeathResult, scale: _Scale, top: int, height: int) -> str:
    text = escape(f"{death.name} {death.what} at {death.at:.1f} s: {death.verdict.because}")
    at = f"{scale(death.at):.1f}"
    return (
        f'<line class="death" x1="{at}" x2="{at}" y1="{top + 1}" y2="{top + height - 1}"><title>{text}</title></line>'
        f'<text x="{at}" y="{top + 19}" text-anchor="middle">✕<title>{text}</title></text>'
    )


def _name_kind(result: ReplicaResult) -> str:
    if result.state is State.STOPPED:
        return "stopped"
    return "failed" if result.exit_code else "exited"


def _table(summary: Summary) -> str:
    heads = ("replica", "ended", "seconds", "peak memory", "limit", "restarts")
    rows = []
    for result in summary.replicas:
        code = "-" if result.exit_code is None else f"exit {result.exit_code}"
        ended = "stopped" if result.state is State.STOPPED else code
        cells = (
            result.replica.name,
            f"{ended}, out of memory" if result.out_of_memory else ended,
            f"{result.seconds:.1f}",
            "-" if result.peak_memory is None else _format_bytes(result.peak_memory),
            _format_bytes(result.share.memory) if result.share.memory else "-",
            str(result.restarts),
        )
        rows.append("".join(f"<td{' class=n' if n > 1 else ''}>{escape(cell)}</td>" for n, cell in enumerate(cells)))
    head = "".join(f"<th{' class=n' if n > 1 else ''}>{name}</th>" for n, name in enumerate(heads))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _list_limits(summary: Summary) -> tuple[float, ...]:
    return tuple(sorted({float(result.share.memory) for result in summary.replicas if result.share.memory}))


class _Scale:
    """Converts seconds since the run began to positions on the horizontal axis."""

    def __init__(self, seconds: float) -> None:
        self.seconds = max(seconds, 0.1)

    def __call__(self, at: float) -> float:
        share = min(max(at / self.seconds, 0.0), 1.0)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _draw_curves(
    curves: Sequence[Curve],
    summary: Summary,
    format_value: Callable[[float], str],
    name: str,
    limits: Sequence[float] = (),
) -> str:
    """Draws curves over time, with the names of the curves below the chart."""
    points = [(at, value) for curve in curves for at, value in curve.points if abs(value) < _MOST]
    if not points:
        nothing = {"loss": "No line of the output contains a loss.", "memory": "The engine reported no memory use."}
        return f"<p>{nothing[name]}</p>"
    scale = _Scale(summary.seconds)
    values = [value for _, value in points]
    low = min(0.0, *values) if name == "memory" else min(values)
    high = max(values)
    shown = [limit for limit in limits if limit <= high * 1.5]
    high = max(high, *shown) if shown else high
    spread = next((size for size in (high - low, abs(high)) if size > _LEAST), 1.0)
    low, high = low - (0 if name == "memory" else spread * 0.05), high + spread * 0.05

    def up(value: float) -> float:
        return _HEIGHT - (value - low) / (high - low) * _HEIGHT

    rows = list(_draw_axis(scale, _HEIGHT))
    for tick in _list_ticks(low, high):
        y = f"{up(tick):.1f}"
        rows.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        rows.append(
            f'<text class="soft" x="{_LEFT - 8}" y="{up(tick) + 4:.1f}" text-anchor="end">{format_value(tick)}</text>'
        )
    for limit in shown:
        y, text = f"{up(limit):.1f}", escape(f"limit {format_value(limit)}")
        rows.append(
            f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"><title>{text}</title></line>'
        )
    for number, curve in enumerate(curves):
        drawn = [(scale(at), up(value)) for at, value in curve.points if abs(value) < _MOST]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        colour = _COLOURS[number % len(_COLOURS)]
        rows.append(
            f'<polyline style="stroke: {colour}" points="{path}"><title>{escape(curve.name)}</title></polyline>'
        )
        if len(drawn) == 1:
            rows.append(f'<circle style="fill: {colour}" cx="{drawn[0][0]:.1f}" cy="{drawn[0][1]:.1f}" r="3"/>')
    rows += [_draw_death(death, scale, 0, _HEIGHT) for death in summary.deaths]
    keys = "".join(
        f'<li><i style="background: {_COLOURS[number % len(_COLOURS)]}"></i>{escape(curve.name)}: '
        f"{format_value(curve.points[0][1])} to {format_value(curve.points[-1][1])}</li>"
        for number, curve in enumerate(curves)
        if curve.points
    )
    return f'{_svg(rows, _HEIGHT, f"{name} over time")}<ul class="key">{keys}</ul>'


def _draw_axis(scale: _Scale, height: int) -> Iterator[str]:
    """Yields the lines and labels of a chart's time axis."""
    for tick in _list_ticks(0, scale.seconds):
        x = f"{scale(tick):.1f}"
        yield f'<line x1="{x}" x2="{x}" y1="0" y2="{height}"/>'
        yield f'<text class="soft" x="{x}" y="{height + 16}" text-anchor="middle">{_format_number(tick)} s</text>'


def _svg(rows: Sequence[str], height: int, label: str) -> str:
    return f'<svg viewBox="0 -4 {_WIDTH} {height + 26}" role="img" aria-label="{label}">' + "\n".join(rows) + "</svg>"


def _list_ticks(low: float, high: float) -> list[float]:
    """Lists about six round numbers from `low` to `high`."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]


def _format_number(value: float) -> str:
    return f"{value:.4g}"


def _format_bytes(value: float) -> str:
    return f"{value / 1e9:.2f} GB" if abs(value) >= 1e9 else f"{value / 1e6:.0f} MB"
