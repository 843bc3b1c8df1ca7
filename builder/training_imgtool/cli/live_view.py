"""The live view on a terminal, with rich.progress. `sanitize_line` cleans each text that is not imgtool's own."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TaskID
from rich.table import Column, Table
from rich.text import Text

from training_imgtool.base.progress import Done, Event, LogLine, Note, Outcome, Planned, Step, Transfer
from training_imgtool.base.sanitize import sanitize_line
from training_imgtool.cli.progress_lines import Row, Writer, format_moved, format_seconds, format_size

_FRAMES_PER_SECOND = 8
_ECHO = 4  # columns at the end of a row that stay free: a terminal writes ^C there, and a wrap would move the rows
_BAR = 16
_GLYPHS = {
    Outcome.FOUND: ("=", "cyan"),
    Outcome.FETCHED: ("↓", "cyan"),
    Outcome.LOCKED: ("✓", "green"),
    Outcome.APPENDED: ("+", "green"),
    Outcome.BUILT: ("✓", "green"),
    Outcome.PUSHED: ("↑", "green"),
    Outcome.CREATED: ("+", "green"),
    Outcome.FAILED: ("✗", "red"),
}


class _Column(ProgressColumn):
    """A column of rich. The function `show` makes each cell from rich's task and imgtool's `Row`."""

    def __init__(self, show: Callable[[Task, Row], RenderableType], column: Column | None = None) -> None:
        super().__init__(column or Column(no_wrap=True, justify="right", style="cyan"))
        self._show = show

    def render(self, task: Task) -> RenderableType:
        return self._show(task, task.fields["row"])


class _Rows(Progress):
    """The table of rich's tasks, a little narrower than the terminal."""

    def __init__(self, *columns: ProgressColumn, console: Console) -> None:
        self._terminal = console  # the table is made before rich's own attribute is
        super().__init__(
            *columns,
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        table = super().make_tasks_table(tasks)
        table.width = max(1, self._terminal.width - _ECHO)
        return table


class LiveView:
    """Shows one row per subject. When a subject ends, a line above the rows replaces the subject's row.

    Only one thread draws. rich computes a line's place before it writes the line, so two threads would overwrite each
    other's lines. The cursor stays visible, so a process that is killed leaves the terminal usable.
    """

    def __init__(self, writer: Writer, environ: Mapping[str, str], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._tasks: dict[str, TaskID] = {}
        self._lines: list[RenderableType] = []  # that stay, and are not drawn yet
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw_frames, name="imgtool-progress", daemon=True)
        self._console = Console(
            file=writer,  # type: ignore[arg-type]  # it has the methods that rich calls
            force_terminal=True,
            no_color=bool(environ.get("NO_COLOR")),
            highlight=False,
            legacy_windows=False,
        )
        self._view = _Rows(
            SpinnerColumn("dots", style="cyan"),
            _Column(
                lambda task, _: Text(sanitize_line(task.description)),
                Column(no_wrap=True, style="bold", max_width=30, overflow="ellipsis"),
            ),
            _Column(_show_bar),
            _Column(lambda _, row: format_moved(row)),
            _Column(lambda task, _: f"{format_size(task.speed)}/s" if task.speed and not task.finished else ""),
            _Column(_show_left),
            _Column(_show_text, Column(no_wrap=True, ratio=1, overflow="ellipsis")),
            _Column(lambda _, row: Text(format_seconds(row.elapsed(self._clock()))), Column(no_wrap=True)),
            console=self._console,
        )

    def __enter__(self) -> Self:
        self._view.start()
        self._console.show_cursor(True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._rows.clear()
        self._draw()
        self._view.stop()

    def _draw_frames(self) -> None:
        while not self._ended.wait(1 / _FRAMES_PER_SECOND):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
            rows = [(subject, row, row.moved()) for subject, row in self._rows.items()]
        for subject in self._tasks.keys() - {subject for subject, _, _ in rows}:
            self._view.remove_task(self._tasks.pop(subject))
        for subject, row, moved in rows:
            if subject not in self._tasks:
                self._tasks[subject] = self._view.add_task(subject, total=None, row=row)
            if moved:
                self._view.update(self._tasks[subject], completed=moved.done, total=moved.total, row=row)
        for line in lines:
            self._console.print(line)
        self._view.refresh()

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        now = self._clock()
        with self._lock:
            match event:
                case Note(text):
                    self._lines.append(Text(f"note: {sanitize_line(text)}", style="yellow"))
                case Done():
                    self._lines.append(self._last_line(event, self._rows.pop(event.subject, None), now))
                case Planned(subject, size, is_estimate):
                    self._row(subject).plan(size, is_estimate=is_estimate)
                case Step(subject, text):
                    self._row(subject).step(sanitize_line(text), now)
                case LogLine(subject, text):
                    self._row(subject).log = sanitize_line(text, limit=300)
                case Transfer(subject, what, done, total):
                    self._row(subject).move(what, done, total, now)

    def _row(self, subject: str) -> Row:
        return self._rows.setdefault(subject, Row())

    def _last_line(self, event: Done, row: Row | None, now: float) -> RenderableType:
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


def _show_bar(_: Task, row: Row) -> RenderableType:
    moved = row.moved()
    if moved is None or not moved.total:
        return ""
    full = min(_BAR - moved.is_estimate, _BAR * moved.done // moved.total)  # an estimate never says that all is done
    return Text("━" * full, style="cyan") + Text("┄" * (_BAR - full), style="bright_black")


def _show_left(task: Task, row: Row) -> RenderableType:
    return f"{format_seconds(task.time_remaining)} left" if task.time_remaining and row.moved() else ""


def _show_text(_: Task, row: Row) -> RenderableType:
    if row.began is None:
        return Text("waiting", style="dim")
    text = Text(row.text)
    if row.log:
        text.append(f"  {row.log}", style="dim")
    return text
