"""Shows progress events on stderr: a live view on a terminal, one line per step elsewhere, JSON, or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TextIO

from training_imgtool.base.errors import UsageError
from training_imgtool.base.progress import Progress, silent
from training_imgtool.base.progress_records import Records
from training_imgtool.cli.progress_lines import PlainLines, Writer


class Mode(StrEnum):
    """`--progress`."""

    AUTO = "auto"
    TTY = "tty"
    PLAIN = "plain"
    JSON = "json"
    QUIET = "quiet"


def choose_mode(mode: Mode, *, is_tty: bool, environ: Mapping[str, str]) -> Mode:
    """Returns the mode that `auto` means: the live view on a capable terminal if CI is unset, otherwise lines."""
    if mode is not Mode.AUTO:
        return mode
    is_plain = not is_tty or environ.get("TERM", "dumb") == "dumb" or environ.get("CI")
    return Mode.PLAIN if is_plain else Mode.TTY


@contextmanager
def open_progress(
    mode: Mode | str,
    stream: TextIO | None,
    environ: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Progress]:
    """Yields a thread-safe Progress that writes to `stream` until the block ends, and never raises an error.

    Args:
        mode: one of `Mode`; another word raises UsageError.
        stream: usually sys.stderr. None, a closed or a broken one shows nothing.
        environ: TERM, CI and NO_COLOR.
        clock: seconds, for tests.
    """
    writer = Writer(stream)
    if mode not in list(Mode):
        raise UsageError(f"--progress {mode}: expected {', '.join(Mode)}")
    chosen = choose_mode(Mode(mode), is_tty=writer.isatty(), environ=environ)
    if stream is None or chosen is Mode.QUIET:
        yield silent
    elif chosen is Mode.JSON:
        yield Records(lambda record: writer.line(json.dumps(record)), clock)
    elif chosen is Mode.PLAIN:
        with PlainLines(writer, clock) as lines:
            yield lines
    else:
        from training_imgtool.cli.live_view import LiveView

        with LiveView(writer, environ, clock) as view:
            yield view
