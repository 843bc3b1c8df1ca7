"""Progress as records: `{"time": seconds since the start, "event": planned|step|transfer|log|done|note, …}`.

The other keys are the fields of the event: `subject`, `size`, `text`, `what`, `done`, `total`, `outcome`, `seconds`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from training_imgtool.base.progress import Done, Event, LogLine, Note, Planned, Step, Transfer
from training_imgtool.base.sanitize import LONGEST_LINE

_NAMES: dict[type, str] = {
    Planned: "planned",
    Step: "step",
    Transfer: "transfer",
    LogLine: "log",
    Done: "done",
    Note: "note",
}


class Records:
    """Passes one record per event to `take`, but for a transfer at most one per second, and one at its end.

    Args:
        take: gets the records one after the other, from any thread: the fields are those of `--progress json`.
        clock: seconds.
    """

    def __init__(self, take: Callable[[dict[str, Any]], None], clock: Callable[[], float]) -> None:
        self._take = take
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._shown: dict[tuple[str, str], float] = {}

    def __call__(self, event: Event) -> None:
        """Takes one event."""
        with self._lock:
            now = self._clock()
            if isinstance(event, Transfer):
                name = (event.subject, event.what)
                if event.done != event.total and now - self._shown.get(name, -1.0) < 1.0:
                    return
                self._shown[name] = now
            self._take({"time": round(now - self._began, 3), **as_record(event)})


def as_record(event: Event) -> dict[str, Any]:
    """Returns an event's kind and its fields, with long texts shortened."""
    return {"event": _NAMES[type(event)]} | {
        field.name: _cut(getattr(event, field.name)) for field in fields(type(event))
    }


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > LONGEST_LINE:
        return f"{value[:LONGEST_LINE]}… ({len(value)} characters)"
    return value
