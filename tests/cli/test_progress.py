"""Progress on stderr: the exact bytes of each mode, and that nothing on the way is a reason to fail."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.measure import peak_memory
from training_imgtool.base.errors import UsageError
from training_imgtool.base.progress import Done, Event, LogLine, Note, Outcome, Step, Transfer
from training_imgtool.cli.progress import Mode, choose_mode, open_progress
from training_imgtool.cli.progress_lines import Moved, PlainLines, Row, Writer, format_seconds, format_size

EVENTS: list[tuple[float, Event]] = [
    (0.0, Step("base library/python", "pulling python")),
    (0.1, Transfer("base library/python", "a1", 1_000_000, 40_000_000)),
    (0.2, Transfer("base library/python", "b2", 500, 1000)),
    (6.0, Transfer("base library/python", "a1", 30_000_000, 40_000_000)),
    (6.1, Transfer("base library/python", "a1", 40_000_000, 40_000_000)),
    (7.0, Done("base library/python", Outcome.BUILT, "pulled")),
    (7.0, Step("worker", "1/2 FROM python")),
    (8.0, Step("worker", "2/2 RUN make [bold]")),
    (8.5, LogLine("worker", "\x1b[31mcompiling\x1b[0m \x1b]0;title\x07\n")),
    (9.0, LogLine("worker", "10%\r100%")),
    (9.0, Note("the base is old\u202e")),
    (80.0, Done("worker", Outcome.FAILED, "exit code 7")),
    (80.0, Done("ps", Outcome.FOUND, "", 0.25)),
]

PLAIN = r"""[base library/python] pulling python
[base library/python] 30.0 MB of ~40.0 MB
[base library/python] built  pulled  7.0s
[worker] 1/2 FROM python
[worker] 2/2 RUN make [bold]
[worker] | compiling \x1b]0;title\x07
[worker] | 100%
note: the base is old\u202e
[worker] failed  exit code 7  1m13s
[ps] found  0.2s
"""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(mode: str, environ: dict[str, str] | None = None) -> str:
    stream, clock = io.StringIO(), Clock()
    with open_progress(mode, stream, environ or {}, clock=clock) as progress:
        for moment, event in EVENTS:
            clock.now = 100.0 + moment
            progress(event)
    return stream.getvalue()


@pytest.mark.parametrize("environ", [{}, {"TERM": "xterm"}, {"CI": "true"}, {"NO_COLOR": "1"}])
def test_lines_where_no_terminal_is(environ: dict[str, str]) -> None:
    assert shown("auto", environ) == PLAIN
    assert shown("plain", environ) == PLAIN


def test_quiet_says_nothing() -> None:
    assert shown("quiet") == ""


def test_json_is_one_object_per_line() -> None:
    text = shown("json")
    assert text.isascii()
    records = [json.loads(line) for line in text.splitlines()]
    assert records[0] == {"time": 0.0, "event": "step", "subject": "base library/python", "text": "pulling python"}
    assert records[1] == {
        "time": 0.1,
        "event": "transfer",
        "subject": "base library/python",
        "what": "a1",
        "done": 1_000_000,
        "total": 40_000_000,
    }
    assert [record["event"] for record in records].count("transfer") == 4
    assert records[-2] == {
        "time": 80.0,
        "event": "done",
        "subject": "worker",
        "outcome": "failed",
        "text": "exit code 7",
        "seconds": None,
    }
    assert records[-3] == {"time": 9.0, "event": "note", "text": "the base is old\u202e"}


@pytest.mark.parametrize(
    ("mode", "is_tty", "environ", "chosen"),
    [
        (Mode.AUTO, True, {"TERM": "xterm"}, Mode.TTY),
        (Mode.AUTO, True, {"TERM": "xterm", "NO_COLOR": ""}, Mode.TTY),
        (Mode.AUTO, True, {"TERM": "xterm", "NO_COLOR": "1"}, Mode.TTY),
        (Mode.AUTO, True, {"TERM": "xterm", "CI": "true"}, Mode.PLAIN),
        (Mode.AUTO, True, {"TERM": "dumb"}, Mode.PLAIN),
        (Mode.AUTO, True, {}, Mode.PLAIN),
        (Mode.AUTO, False, {"TERM": "xterm"}, Mode.PLAIN),
        (Mode.TTY, False, {}, Mode.TTY),
        (Mode.JSON, True, {"TERM": "xterm"}, Mode.JSON),
    ],
)
def test_auto_chooses(mode: Mode, is_tty: bool, environ: dict[str, str], chosen: Mode) -> None:
    assert choose_mode(mode, is_tty=is_tty, environ=environ) is chosen


def test_another_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="--progress fancy: expected auto, tty, plain, json, quiet"):
        shown("fancy")


@pytest.mark.parametrize("mode", ["auto", "tty", "plain", "json", "quiet"])
def test_a_stream_that_is_gone_is_no_reason_to_fail(mode: str, tmp_path: Path) -> None:
    closed = (tmp_path / "closed").open("w")
    closed.close()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1, closefd=False) as broken, Path("/dev/full").open("w", buffering=1) as full:
        for stream in (None, closed, broken, full):
            with open_progress(mode, stream, {"TERM": "xterm"}) as progress:
                for _, event in EVENTS:
                    progress(event)
        for stream in (broken, full):  # what is left in their buffers cannot be written either
            with suppress(OSError):
                stream.close()
    os.close(writer)


def test_a_stream_of_ascii_is_given_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    with open_progress("plain", stream, {}) as progress:
        progress(LogLine("worker", "größe"))
    assert raw.getvalue() == b"[worker] | gr??e\n"


def test_silence_ends_after_the_heartbeat() -> None:
    stream = io.StringIO()
    with PlainLines(Writer(stream), time.monotonic, heartbeat_seconds=0.1) as progress:
        progress(Step("worker", "2/2 RUN sleep"))
        time.sleep(0.5)
    lines = stream.getvalue().splitlines()
    assert 3 <= len(lines) <= 6
    assert all(re.fullmatch(r"\[worker\] still working for 0\.\ds: 2/2 RUN sleep", line) for line in lines[1:])


def test_a_subject_that_only_moves_bytes_has_no_empty_step() -> None:
    stream = io.StringIO()
    with PlainLines(Writer(stream), time.monotonic, heartbeat_seconds=0.1) as progress:
        progress(Transfer("wheels", "a.whl", 5_000_000, None))
        time.sleep(0.3)
    assert re.search(r"\[wheels\] still working for 0\.\ds: 5\.0 MB", stream.getvalue())


def test_a_row_knows_its_total_from_the_plan() -> None:
    row = Row()
    row.plan(100_000)
    row.move("a", 10_000, 10_000, 0.0)
    row.move("b", 10_000, 40_000, 2.0)
    assert row.moved() == Moved(done=20_000, total=100_000, is_estimate=False)


def test_an_estimate_never_says_that_all_is_done() -> None:
    row = Row()
    row.plan(100, is_estimate=True)
    row.move("a", 60, 90, 0.0)
    assert row.moved() == Moved(done=60, total=100, is_estimate=True)
    row.move("b", 60, 60, 0.1)
    assert row.moved() == Moved(done=120, total=150, is_estimate=True)
    row.move("c", 10, None, 0.3)
    assert row.moved() == Moved(done=130, total=130, is_estimate=True)


def test_what_was_announced_is_known_before_anything_moves() -> None:
    row = Row()
    row.plan(100)
    row.step("reading", 0.0)
    assert row.moved() == Moved(done=0, total=100, is_estimate=False)
    row.move("b", 60, 110, 1.0)
    assert row.moved() == Moved(done=60, total=110, is_estimate=True)
    row.step("another", 2.0)
    assert row.moved() is None
    row.plan(7)
    assert row.moved() == Moved(done=0, total=7, is_estimate=False)


@pytest.mark.parametrize("mode", ["tty", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("plain", "json"))])
def test_memory_stays_flat_over_a_long_log(mode: str) -> None:
    class Sink(io.StringIO):
        def write(self, text: str) -> int:
            return len(text)

    with open_progress(mode, Sink(), {"TERM": "xterm"}) as progress:
        progress(LogLine("worker", "x" * 1_000_000))
        with peak_memory() as peak:
            for number in range(2_000):
                progress(LogLine("worker", f"line {number} {'of a long log ' * 200}"))
                progress(Transfer("worker", "layer", number, 2_000))
    assert peak.bytes < 2_500_000  # of 5.6 MB


def test_events_come_from_any_thread() -> None:
    stream = io.StringIO()
    with open_progress("plain", stream, {}) as progress:

        def work(name: str) -> None:
            for number in range(200):
                progress(LogLine(name, str(number)))

        threads = [threading.Thread(target=work, args=(name,)) for name in ("master", "worker", "ps")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if line.startswith("[ps]")] == [f"[ps] | {number}" for number in range(200)]
    assert len(lines) == 600


LIVE = """
import os, sys, time
from training_imgtool.cli.progress import open_progress
from training_imgtool.base.progress import *
with open_progress("auto", sys.stderr, os.environ) as progress:
    progress(Step("worker", "2/2 RUN make [bold]"))
    progress(LogLine("worker", "compiling \\x1b]0;title\\x07 [red]x"))
    progress(Transfer("worker", "layer", 5_000_000, 20_000_000))
    time.sleep(0.4)
    progress(Step("ps", "pushing"))
    progress(Done("worker", Outcome.PUSHED, "layers: 1 sent", 12.0))
    progress(Note("the base is old"))
    time.sleep(0.4)
    progress(Done("ps", Outcome.FAILED, ""))
    progress(Planned("evaluator"))
    progress(Step("wheels", "left open"))
    time.sleep(0.4)
"""


def left_on_the_screen(written: str) -> list[str]:
    """The lines of a terminal after `written`, as far as the view moves its cursor: up, and over a line."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif up := re.fullmatch(r"\x1b\[(\d*)A", part):
            row -= int(up[1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b") and part != "\r":
            lines[row] += part
    return [line.rstrip() for line in lines]


def on_a_terminal(script: str, columns: str = "100", **environ: str) -> str:
    """What `script` writes to a terminal."""
    ours, theirs = pty.openpty()
    env = {"PATH": os.environ["PATH"], "TERM": "xterm", "COLUMNS": columns, "LINES": "20", **environ}
    with subprocess.Popen([sys.executable, "-c", script], stderr=theirs, stdin=theirs, env=env) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:  # the terminal's other side was closed
                break
            if not block:
                break
            written += block
        assert process.wait(20) == 0
    os.close(ours)
    return written.decode()


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_terminal_shows_live_lines() -> None:
    written = on_a_terminal(LIVE)
    plain = without_escapes(written)
    live = re.search(r"worker .*5\.0 MB of ~20\.0 MB .*2/2 RUN make \[bold\]  compiling .* 0\.\ds", plain)
    assert live, plain
    assert r"\x1b]0;title" in plain
    assert "\x1b]0" not in written
    assert "\x1b[2K" in written  # lines are drawn over
    lines = [line.rstrip() for line in plain.replace("\r", "\n").split("\n")]
    assert "↑ worker  pushed  layers: 1 sent  12s" in lines
    assert "note: the base is old" in lines
    assert any(re.fullmatch(r"✗ ps  failed  0\.\ds", line) for line in lines)
    after = plain[plain.index("↑ worker") :]
    assert "2/2 RUN make" not in after, "a finished subject has no live line any more"
    assert written.rstrip().endswith("\x1b[?25h")
    shown_again = written.index("\x1b[?25h")
    assert shown_again < written.index("worker"), "the cursor is there while lines are live"


def test_without_colour_a_live_view_that_was_asked_for_has_none() -> None:
    assert re.search(r"\x1b\[(?:\d+;)*3[0-9]m", on_a_terminal(LIVE))
    written = on_a_terminal(LIVE, NO_COLOR="1")
    assert not re.search(r"\x1b\[(?:\d+;)*[34][0-9]m", written)
    assert "\x1b[2K" in written, "the rows are still live"
    assert re.search("━+┄+", without_escapes(written)), "a bar needs no colour"


@pytest.mark.parametrize("columns", ["60", "100"])
def test_no_row_outlives_the_view(columns: str) -> None:
    screen = left_on_the_screen(on_a_terminal(LIVE, columns=columns))
    assert [line for line in screen if line] == [
        "↑ worker  pushed  layers: 1 sent  12s",
        "note: the base is old",
        *[line for line in screen if line.startswith("✗ ps  failed  0.")],
    ]


def test_lines_of_many_threads_all_stay() -> None:
    script = """
import os, sys, threading
from training_imgtool.cli.progress import open_progress
from training_imgtool.base.progress import *
with open_progress("tty", sys.stderr, os.environ) as progress:
    def work(name):
        for number in range(20):
            progress(Step(f"{name}{number}", "working"))
            progress(Done(f"{name}{number}", Outcome.BUILT, ""))
    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
    lines = [line.split()[1] for line in left_on_the_screen(on_a_terminal(script)) if line]
    assert sorted(lines) == sorted(f"{name}{number}" for name in "abcd" for number in range(20))


@pytest.mark.parametrize("columns", [60, 100])
def test_rows_fit_the_terminal(columns: int) -> None:
    written = without_escapes(on_a_terminal(LIVE, columns=str(columns)))
    rows = [
        line for line in written.replace("\r", "\n").split("\n") if "5.0 MB of ~20.0 MB" in line or "waiting" in line
    ]
    assert rows
    assert max(map(len, rows)) <= columns - len("^C^C"), "a terminal echoes Ctrl-C behind the last row"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (999_960, "1.0 MB"), (5_000_000_000_000, "5000.0 GB")]
)
def test_sizes(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.04, "0.0s"), (9.94, "9.9s"), (59.6, "1m00s"), (125, "2m05s"), (3725, "1h02m")]
)
def test_seconds(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text
