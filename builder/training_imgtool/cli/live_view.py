"""The live view on a terminal. All foreign text passes through `sanitize_line`."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from training_imgtool.cli.progress_lines import (
    Moved,
    Row,
    Writer,
    format_left,
    format_pair,
    format_seconds,
    format_size,
)
from training_imgtool.core.progress import Done, Event, LogLine, Note, Outcome, Planned, Step, Transfer
from training_imgtool.core.sanitize import sanitize_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_FRAMES_PER_SECOND = 8
_NARROW = 90  # columns; below, rows show no rate, and no text beside bytes
_ECHO = 4  # columns at the end of a row that stay free: a terminal writes ^C there, and a wrap would move the rows
_GLYPHS = {
    Outcome.FOUND: ("=", "cyan"),
    Outcome.FETCHED: ("↓", "cyan"),
    Outcome.LOCKED: ("✓", "green"),
    Outcome.APPENDED: ("+", "green"),
    Outcome.BUILT: ("✓", "green"),
    Outcome.PUSHED: ("↑", "green"),
    Outcome.FAILED: ("✗", "red"),
}


class _Frames:
    """Renders anew whenever rich draws, also when a line that stays pushes the live rows down."""

    def __init__(self, frame: Callable[[], RenderableType]) -> None:
        self._frame = frame

    def __rich__(self) -> RenderableType:
        return self._frame()


class LiveView:
    """One live row per subject; a subject that ends leaves a line above the rows, and no row outlives the view.

    One thread alone draws: rich computes where a line goes before it writes, so lines of two threads overwrite each
    other. The cursor stays visible, so a process that is killed leaves the terminal usable.
    """

    def __init__(self, writer: Writer, environ: Mapping[str, str], clock: Callable[[], float]) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._lines: list[RenderableType] = []  # that stay, and are not drawn yet
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw_frames, name="imgtool-progress", daemon=True)
        self._spinner = Spinner("dots")
        self._console = Console(
            file=writer,  # type: ignore[arg-type]  # it has the methods that rich calls
            force_terminal=True,
            no_color=bool(environ.get("NO_COLOR")),
            highlight=False,
            legacy_windows=False,
        )
        self._live = Live(
            _Frames(self._frame),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        self._console.show_cursor(True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._rows.clear()
        self._draw()
        self._live.stop()

    def _draw_frames(self) -> None:
        while not self._ended.wait(1 / _FRAMES_PER_SECOND):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            self._console.print(line)
        self._live.refresh()

    def __call__(self, event: Event) -> None:
        """Takes one event."""
        from rich.text import Text

        now = self._clock()
        with self._lock:
            match event:
                case Note(text):
                    self._lines.append(Text(f"note: {sanitize_line(text)}", style="yellow"))
                case Done():
                    self._lines.append(self._last_line(event, self._rows.pop(event.subject, None), now))
                case Planned(subject, size, is_estimate):
                    self._row(subject, now).plan(size, is_estimate=is_estimate)
                case Step(subject, text):
                    self._row(subject, now).step(sanitize_line(text), now)
                case LogLine(subject, text):
                    self._row(subject, now).log = sanitize_line(text, limit=300)
                case Transfer(subject, what, done, total):
                    self._row(subject, now).move(what, done, total, now)

    def _row(self, subject: str, now: float) -> Row:
        return self._rows.setdefault(subject, Row(now))

    def _last_line(self, event: Done, row: Row | None, now: float) -> RenderableType:
        from rich.text import Text

        glyph, style = _GLYPHS[event.outcome]
        seconds = event.seconds if event.seconds is not None or row is None else row.elapsed(now)
        text = re.sub(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}\b", r"\1", sanitize_line(event.text))  # stdout has all of it
        line = Text()
        line.append(f"{glyph} ", style=style)
        line.append(f"{sanitize_line(event.subject)}  ", style="bold")
        room = self._console.width - len(line) - len(event.outcome) - len(format_seconds(seconds)) - 4
        if event.outcome is not Outcome.FAILED and len(text) > room > 0:
            text = f"{text[: room - 1]}…"
        line.append("  ".join(part for part in (event.outcome.value, text, format_seconds(seconds)) if part))
        return line

    def _frame(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        now, wide = self._clock(), self._console.width >= _NARROW
        with self._lock:
            ordered = sorted(self._rows.items(), key=lambda item: item[1].began is None)  # those that wait come last
            rows = [(subject, self._cells(row, now, wide=wide)) for subject, row in ordered]
        most = max(1, self._console.height - 2)
        table = Table.grid(padding=(0, 1), expand=True)
        table.width = max(1, self._console.width - _ECHO)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, style="bold", max_width=30 if wide else 18, overflow="ellipsis")
        table.add_column(no_wrap=True, style="cyan")
        for _ in range(3 if wide else 2):
            table.add_column(no_wrap=True, justify="right", style="cyan")
        table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        table.add_column(no_wrap=True, justify="right")
        for subject, cells in rows[:most]:
            table.add_row(cells[0], Text(sanitize_line(subject)), *cells[1:])
        if len(rows) > most:
            table.add_row("", Text(f"and {len(rows) - most} more"))
        return table

    def _cells(self, row: Row, now: float, *, wide: bool) -> tuple[Any, ...]:
        """Returns a row's cells: glyph, bar, bytes, rate (only in wide rows), time left, text, elapsed time."""
        from rich.text import Text

        text = Text(row.text)
        if row.log:
            text.append(f"  {row.log}", style="dim")
        elapsed = row.elapsed(now)
        if elapsed is None:
            return ("·", Text("waiting", style="dim"), *[""] * (4 if wide else 3), "")
        moved = row.moved(now)
        shown = text if wide or moved is None else ""
        return (self._spinner, *_bytes_cells(moved, wide=wide), shown, Text(format_seconds(elapsed)))


def _bytes_cells(moved: Moved | None, *, wide: bool) -> tuple[str | Text, ...]:
    """Returns the cells for a bar, the bytes, the rate (only in wide rows) and the time left."""
    from rich.text import Text

    if moved is None:
        return ("",) * (4 if wide else 3)
    width = 16 if wide else 8
    most = width - moved.is_estimate  # an estimate never says that all is done
    full = 0 if not moved.total else min(most, width * moved.done // moved.total)
    bar = Text("━" * full, style="cyan") + Text("┄" * (width - full), style="bright_black")
    rate = (f"{format_size(moved.rate)}/s" if moved.rate else "",) if wide else ()
    left = format_left(moved.left) if moved.left else ""
    return (
        bar if moved.total else "",
        format_pair(moved.done, moved.total, is_estimate=moved.is_estimate),
        *rate,
        left,
    )
