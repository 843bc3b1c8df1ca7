"""The screen and the keys of `imgtool run --watch`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.cli.output import emit, emit_error, emit_failure, emit_note, error_data
from training_imgtool.cluster.summary import as_data, as_lines, error_of
from training_imgtool.cluster.watch import Asked, Changed, Ended, Failed, FirstLine, How, Sign, Started

if TYPE_CHECKING:
    from training_imgtool.cluster.watch import Watch
    from training_imgtool.spec.model import Role

_MOST_FILES = 3
_KEY_DIGITS = 12  # of a key, on a screen
_DONE = {
    How.CODE: "into the containers",
    How.IMAGES: "new images and containers",
    How.NOTHING: "the same files",
}


class Screen:
    """Shows what happens: lines on stderr and summaries on stdout, or with --json one object per line on stdout."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._as_json, self._quiet = as_json, quiet
        self._lock = threading.Lock()

    def __call__(self, sign: Sign) -> None:
        """Takes what happens, from any thread."""
        with self._lock:
            if self._as_json:
                emit(json.dumps(make_event(sign), ensure_ascii=False) + "\n")
            elif isinstance(sign, Ended):
                self._show_end(sign)
            elif isinstance(sign, Failed):
                emit_failure(sign.error)
            elif not self._quiet:
                emit_error(f"[watch] {make_line(sign)}\n")

    def _show_end(self, sign: Ended) -> None:
        error = error_of(sign.summary)
        if error:
            emit_failure(error)
        emit(as_lines(sign.summary))
        if not self._quiet:
            emit_error("[watch] waiting for a change (keys on a terminal: r restarts, p pushes, q quits)\n")


def make_line(sign: Sign) -> str:
    """Says in one line what happens."""
    match sign:
        case Changed(files, how):
            more = f" and {len(files) - _MOST_FILES} more" if len(files) > _MOST_FILES else ""
            return f"changed: {', '.join(files[:_MOST_FILES]) or 'nothing'}{more}: {_DONE[how]}"
        case Started(seconds, how, cold, keys):
            names = f"; cold: {', '.join(cold)}" if cold else ""
            return f"started after {seconds:.1f} s ({_DONE[how]}{names}), {_name_keys(keys)}"
        case FirstLine(name, seconds):
            return f"first line after {seconds:.1f} s, from {name}"
        case Asked(keys, is_current):
            return f"pushing {_name_keys(keys)}" if is_current else "not pushed: the files are newer than what runs"
        case Failed(error):
            return str(error)
        case Ended(summary):
            return f"{summary.name} has ended"


def _name_keys(keys: Mapping[Role, str]) -> str:
    return ", ".join(f"{role}-{key[:_KEY_DIGITS]}" for role, key in keys.items())


def make_event(sign: Sign) -> dict[str, Any]:
    """Makes the JSON of what happens."""
    match sign:
        case Changed(files, how):
            return {"event": "changed", "files": list(files), "how": str(how)}
        case Started(seconds, how, cold, keys):
            shown = {str(role): key for role, key in keys.items()}
            how_long = {"seconds": round(seconds, 3), "how": str(how), "cold": list(cold)}
            return {"event": "started", **how_long, "keys": shown}
        case FirstLine(name, seconds):
            return {"event": "first-line", "replica": name, "seconds": round(seconds, 3)}
        case Asked(keys, is_current):
            shown = {str(role): key for role, key in keys.items()}
            return {"event": "push", "keys": shown, "current": is_current}
        case Failed(error):
            return {"event": "failed", "error": error_data(error)}
        case Ended(summary):
            failure = error_of(summary)
            end = {"error": error_data(failure)} if failure else {}
            return {"event": "ended", **as_data(summary), **end}


@contextmanager
def open_keys(watch: Watch, push: Callable[[], None]) -> Iterator[None]:
    """Takes keys, where stdin is a terminal: r restarts, p pushes, q quits."""
    if not (sys.stdin and sys.stdin.isatty()):
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        threading.Thread(target=_read_keys, args=(descriptor, watch, push), name="imgtool-keys", daemon=True).start()
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read_keys(descriptor: int, watch: Watch, push: Callable[[], None]) -> None:
    while key := os.read(descriptor, 1):
        if key == b"r":
            watch.restart()
        elif key == b"q":
            watch.quit()
            return
        elif key == b"p" and watch.push():
            push()


def push_again(spec: Path | None, values: Mapping[str, str], registry: str | None) -> None:
    """Pushes the images of the spec's files as `imgtool push` does."""
    command = [sys.executable, "-m", "training_imgtool", "push", "--progress", "plain"]
    command += [str(spec)] if spec else []
    command += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    command += ["--registry", registry] if registry else []
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        emit_note(f"the push ended with {done.returncode}")
