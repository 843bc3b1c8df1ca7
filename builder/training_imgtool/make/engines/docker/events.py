"""Reads progress and errors from the event streams of a Docker Engine.

Pull and load answer with status 200 and a stream of JSON objects. A failure is an object with `errorDetail`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.progress import Progress, Transfer
from training_imgtool.base.reference import Login
from training_imgtool.make.engines.docker.registry_errors import registry_error

Event = Mapping[str, Any]


class PullLog:
    """Reads the events of one pull.

    Args:
        subject: the subject of the progress events.
        host: the registry.
        login: the login that the engine sent to the registry.
        progress: receives the transfers, one per layer.
    """

    def __init__(self, subject: str, host: str, login: Login | None, progress: Progress) -> None:
        self._subject = subject
        self._host = host
        self._login = login
        self._progress = progress
        self._sizes: dict[str, int] = {}

    def take(self, event: Event) -> None:
        """Reads one event; if the event reports an error, raises this error."""
        if message := error_message(event):
            raise self.failure(message)
        status, layer = str(event.get("status", "")), str(event.get("id", ""))
        if status == "Downloading":
            self._show(layer, event.get("progressDetail"))
        elif status == "Download complete" and (size := self._sizes.get(layer)):
            self._progress(Transfer(self._subject, layer, size, size))

    def where(self) -> str:
        """Returns the current work, for messages."""
        return f"{self._subject}: pull"

    def _show(self, layer: str, detail: object) -> None:
        current, total = (detail.get("current"), detail.get("total")) if isinstance(detail, Mapping) else (None, None)
        if isinstance(current, int):
            self._sizes[layer] = max(current, total if isinstance(total, int) else 0)
            self._progress(Transfer(self._subject, layer, current, self._sizes[layer]))

    def failure(self, message: str, status: int | None = None) -> ImgtoolError:
        """Makes the error from the engine's `message`."""
        del status
        return registry_error(self.where(), message, self._host, self._login)


def error_message(event: Event) -> str | None:
    """Returns the engine's message if the event is an error."""
    detail = event.get("errorDetail")
    message = detail.get("message") if isinstance(detail, Mapping) else None
    text = message or event.get("error")
    if text is None:
        return "an error without words" if "errorDetail" in event or "error" in event else None
    return str(text)
