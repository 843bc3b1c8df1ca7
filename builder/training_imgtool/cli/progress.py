"""Shows progress events on stderr: a live view on a terminal, one line per step elsewhere, JSON, or nothing.

Only this module imports rich, and only for the live view. Every text of others passes through `sanitize_line`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TextIO

from training_imgtool.cli.progress_lines import JsonLines, PlainLines, Writer, format_bytes, format_seconds
from training_imgtool.core.errors import UsageError
from training_imgtool.core.progress import Done, Event, LogLine, Note, Outcome, Progress, Step, Transfer, silent
from training_imgtool.core.sanitize import sanitize_line

if TYPE_CHECKING:
    from rich.console import RenderableType

_FRAMES_PER_SECOND = 8
_GLYPHS = {
    Outcome.FOUND: ("=", "cyan"),
    Outcome.FETCHED: ("↓", "cyan"),
    Outcome.APPENDED: ("+", "green"),
    Outcome.BUILT: ("✓", "green"),
    Outcome.PUSHED: ("↑", "green"),
    Outcome.FAILED: ("✗", "red"),
}


class Mode(StrEnum):
    """`--progress`."""

    AUTO = "auto"
    TTY = "tty"
    PLAIN = "plain"
    JSON = "json"
    QUIET = "quiet"


def choose_mode(mode: Mode, *, is_tty: bool, environ: Mapping[str, str]) -> Mode:
    """What `auto` means here: the live view on a terminal that can show it, unless CI or NO_COLOR is set."""
    if mode is not Mode.AUTO:
        return mode
    plain = not is_tty or environ.get("TERM", "dumb") == "dumb" or environ.get("CI") or environ.get("NO_COLOR")
    return Mode.PLAIN if plain else Mode.TTY


@contextmanager
def open_progress(
    mode: Mode | str,
    stream: TextIO | None,
    environ: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Progress]:
    """Yields a Progress that writes to `stream` until the block ends; safe from any thread, and never raises.

    Args:
        mode: one of `Mode`; another word raises UsageError.
        stream: usually sys.stderr; None, or one that is closed or breaks, shows nothing.
        environ: TERM, CI and NO_COLOR are looked at.
        clock: seconds, for tests.
    """
    writer = Writer(stream)
    if mode not in list(Mode):
        raise UsageError(f"--progress {mode}: expected {', '.join(Mode)}")
    chosen = choose_mode(Mode(mode), is_tty=writer.isatty(), environ=environ)
    if stream is None or chosen is Mode.QUIET:
        yield silent
    elif chosen is Mode.JSON:
        yield JsonLines(writer, clock)
    elif chosen is Mode.PLAIN:
        with PlainLines(writer, clock) as lines:
            yield lines
    else:
        with LiveView(writer, environ, clock) as view:
            yield view


class _Row:
    """What the live line of one subject shows."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.text = ""
        self.log = ""
        self.transfers: dict[str, tuple[int, int | None]] = {}
        self.transfers_began = 0.0


class _Frames:
    """A renderable that is made anew whenever rich draws: also when a line that stays pushes the live ones down."""

    def __init__(self, frame: Callable[[], RenderableType]) -> None:
        self._frame = frame

    def __rich__(self) -> RenderableType:
        return self._frame()


class LiveView:
    """One live line per subject, drawn a few times a second from what the events left; finished lines stay above.

    The cursor is not hidden, so that a process that is killed leaves the terminal as it should be.
    """

    def __init__(self, writer: Writer, environ: Mapping[str, str], clock: Callable[[], float]) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._spinner = Spinner("dots")
        self._console = Console(
            file=writer,  # type: ignore[arg-type]  # writes, flushes and knows whether it is a terminal
            force_terminal=True,
            no_color=bool(environ.get("NO_COLOR")),
            highlight=False,
            legacy_windows=False,
        )
        self._live = Live(
            _Frames(self._frame),
            console=self._console,
            refresh_per_second=_FRAMES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        self._console.show_cursor(True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Takes one event."""
        line = self._noted(event)
        if line is not None:
            self._console.print(line, soft_wrap=True)  # outside the lock: a frame is drawn under rich's own

    def _noted(self, event: Event) -> RenderableType | None:
        """Remembers the event; returns the line that stays, for those that leave one."""
        from rich.text import Text

        with self._lock:
            match event:
                case Note(text):
                    return Text(f"note: {sanitize_line(text)}", style="yellow")
                case Done():
                    row = self._rows.pop(event.subject, None)
                    return self._last_line(event, row)
                case Step(subject, text):
                    row = self._row(subject)
                    row.text, row.log = sanitize_line(text), ""
                    row.transfers.clear()
                case LogLine(subject, text):
                    self._row(subject).log = sanitize_line(text, limit=300)
                case Transfer():
                    row = self._row(event.subject)
                    if not row.transfers:
                        row.transfers_began = self._clock()
                    row.transfers[event.what] = (event.done, event.total)
        return None

    def _row(self, subject: str) -> _Row:
        return self._rows.setdefault(subject, _Row(self._clock()))

    def _last_line(self, event: Done, row: _Row | None) -> RenderableType:
        from rich.text import Text

        glyph, style = _GLYPHS[event.outcome]
        seconds = event.seconds if event.seconds is not None or row is None else self._clock() - row.began
        parts = [event.outcome.value, sanitize_line(event.text), format_seconds(seconds)]
        line = Text()
        line.append(f"{glyph} ", style=style)
        line.append(f"{sanitize_line(event.subject)}  ", style="bold")
        line.append("  ".join(part for part in parts if part))
        return line

    def _frame(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        now = self._clock()
        with self._lock:
            rows = [(subject, self._cells(row, now)) for subject, row in self._rows.items()]
        most = max(1, self._console.height - 2)
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, style="bold", max_width=30)
        table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, justify="right")
        table.expand = True
        for subject, cells in rows[:most]:
            table.add_row(self._spinner, Text(sanitize_line(subject)), *cells)
        if len(rows) > most:
            table.add_row("", Text(f"and {len(rows) - most} more"))
        return table

    def _cells(self, row: _Row, now: float) -> tuple[Any, ...]:
        from rich.text import Text

        text = Text(row.text)
        if row.log:
            text.append(f"  {row.log}", style="dim")
        done, total, rate = _summed(row, now)
        moved = Text(format_bytes(done, total, rate) if row.transfers else "", style="cyan")
        return text, moved, Text(format_seconds(now - row.began))


def _summed(row: _Row, now: float) -> tuple[int, int | None, float | None]:
    """Bytes done, bytes in all where known, and bytes per second, of all transfers of the row."""
    done = sum(part for part, _ in row.transfers.values())
    totals = [total for _, total in row.transfers.values()]
    total = None if None in totals else sum(total or 0 for total in totals)
    passed = now - row.transfers_began
    return done, total, done / passed if passed > 0.5 else None
