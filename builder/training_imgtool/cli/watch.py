"""Shows the events of `imgtool run --watch`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training_imgtool.cli.output import emit, emit_error, emit_failure, emit_json, error_data
from training_imgtool.local.summary import as_data, as_lines, error_of
from training_imgtool.local.watch import Changed, Ended, Failed, How, Sign, Started

if TYPE_CHECKING:
    from training_imgtool.model.spec import Role

_MOST_FILES = 3
_KEY_DIGITS = 12  # of a key, on a screen
_DONE = {
    How.CODE: "into the containers",
    How.IMAGES: "new images and containers",
    How.NOTHING: "the same files",
}


class Screen:
    """Shows events as lines on stderr and summaries on stdout, or with --json as one object per line on stdout."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._as_json, self._quiet = as_json, quiet
        self._lock = threading.Lock()

    def __call__(self, sign: Sign) -> None:
        """Shows an event. Any thread can call this method."""
        with self._lock:
            if self._as_json:
                emit_json(make_event(sign), indent=None)
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
            emit_error("[watch] waiting for a change; Ctrl-C ends\n")


def make_line(sign: Sign) -> str:
    """Formats an event as one line."""
    match sign:
        case Changed(files, how):
            more = f" and {len(files) - _MOST_FILES} more" if len(files) > _MOST_FILES else ""
            return f"changed: {', '.join(files[:_MOST_FILES]) or 'nothing'}{more}: {_DONE[how]}"
        case Started(seconds, how, cold, keys):
            names = f"; cold: {', '.join(cold)}" if cold else ""
            return f"started after {seconds:.1f} s ({_DONE[how]}{names}), {_name_keys(keys)}"
        case Failed(error):
            return str(error)
        case Ended(summary):
            return f"{summary.name} has ended"


def _name_keys(keys: Mapping[Role, str]) -> str:
    return ", ".join(f"{role}-{key[:_KEY_DIGITS]}" for role, key in keys.items())


def make_event(sign: Sign) -> dict[str, Any]:
    """Returns an event as the object that --json prints."""
    match sign:
        case Changed(files, how):
            return {"event": "changed", "files": list(files), "how": str(how)}
        case Started(seconds, how, cold, keys):
            shown = {str(role): key for role, key in keys.items()}
            how_long = {"seconds": round(seconds, 3), "how": str(how), "cold": list(cold)}
            return {"event": "started", **how_long, "keys": shown}
        case Failed(error):
            return {"event": "failed", "error": error_data(error)}
        case Ended(summary):
            failure = error_of(summary)
            end = {"error": error_data(failure)} if failure else {}
            return {"event": "ended", **as_data(summary), **end}
