"""What `buildx build --progress rawjson` prints on stderr: progress to show, and the words of a failure.

A line is a JSON object with `vertexes`, `statuses`, `logs` and `warnings` (BuildKit's `client.SolveStatus`), or text.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

from training_imgtool.core.progress import LogLine, Progress, Step, Transfer
from training_imgtool.core.sanitize import join_lines, sanitize_line

_TAIL = 20
_STEP = re.compile(r"\[(?:[^\]]* )?(\d+)/(\d+)\] (.*)\Z", re.DOTALL)  # [linux/amd64 system 2/4] RUN …
_SOURCE_LINE = re.compile(r"\S*Dockerfile:(\d+)\Z")
_LAYER = re.compile(r"sha256:[0-9a-f]{64}\Z")
_SHOWN_DIGEST = 19


class SolveLog:
    """Reads the lines of one build, and keeps what an error message needs.

    Args:
        subject: of the progress events.
        progress: takes the steps and what they print.
        hidden: values of secrets, which no line shows should a step print them.

    Attributes:
        instruction: the instruction of the vertex that failed, else of the one that began last; empty before the first.
        source_line: the line of the Dockerfile that buildx blames, 1-based; None when it names none.
        hid: whether a step printed a secret.
    """

    def __init__(self, subject: str, progress: Progress, hidden: tuple[str, ...] = ()) -> None:
        self.instruction = ""
        self.source_line: int | None = None
        self.hid = False
        self._subject = subject
        self._progress = progress
        self._hidden = hidden
        self._begun: set[str] = set()
        self._tails: dict[str, deque[str]] = {}
        self._partial: dict[str, bytes] = {}
        self._current = ""
        self._words: list[str] = []

    @property
    def running(self) -> bool:
        """Whether the instruction is a RUN."""
        return self.instruction.startswith("RUN ")

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines that the instruction printed."""
        return tuple(self._tails.get(self._current, ()))

    @property
    def words(self) -> str:
        """What buildx says about the failure, without `ERROR:`; empty when it says nothing."""
        errors = [line.removeprefix("ERROR: ") for line in self._words if line.startswith("ERROR: ")]
        return errors[-1] if errors else " ".join(self._words[-3:])

    def take(self, line: str) -> None:
        """Reads one line."""
        try:
            event = json.loads(line) if line.startswith("{") else None
        except ValueError:
            event = None
        if not isinstance(event, dict):
            self._take_words(line)
            return
        for vertex in _objects(event, "vertexes"):
            self._take_vertex(vertex)
        for status in _objects(event, "statuses"):
            self._take_status(status)
        for log in _objects(event, "logs"):
            self._take_log(log)

    def _take_words(self, line: str) -> None:
        text = sanitize_line(self._mask(line))
        if match := _SOURCE_LINE.match(text):
            self.source_line = int(match[1])
        if text.strip():
            self._words.append(text)

    def _take_vertex(self, vertex: Mapping[str, Any]) -> None:
        digest, name = str(vertex.get("digest", "")), str(vertex.get("name", ""))
        step = _STEP.match(name)
        failed = bool(vertex.get("error")) and "context canceled" not in str(vertex["error"])
        if step and (failed or (vertex.get("started") and digest not in self._begun)):
            self.instruction, self._current = join_lines(step[3], limit=300), digest
        if not vertex.get("started") or digest in self._begun or vertex.get("cached"):
            return
        self._begun.add(digest)
        if step:
            self._progress(Step(self._subject, f"{step[1]}/{step[2]} {join_lines(step[3], limit=300)}"))
        elif name.startswith(("exporting ", "pushing ")):
            self._progress(Step(self._subject, join_lines(name)))

    def _take_status(self, status: Mapping[str, Any]) -> None:
        name, current, total = str(status.get("id", "")), status.get("current"), status.get("total")
        if not isinstance(current, int):
            return
        if name == "transferring context:":
            self._progress(Transfer(self._subject, "context", current, None))
        elif _LAYER.match(name) and isinstance(total, int) and total:
            self._progress(Transfer(self._subject, name[:_SHOWN_DIGEST], current, total))
        elif name == "pushing layers" and not status.get("completed"):
            self._progress(Step(self._subject, "pushing layers"))

    def _take_log(self, log: Mapping[str, Any]) -> None:
        vertex = str(log.get("vertex", ""))
        try:
            data = base64.b64decode(str(log.get("data", "")))
        except binascii.Error:
            return
        *lines, self._partial[vertex] = (self._partial.get(vertex, b"") + data).split(b"\n")
        for line in lines:
            self._print(vertex, line)

    def _print(self, vertex: str, line: bytes) -> None:
        masked = self._mask(line.decode(errors="replace"))
        shown = sanitize_line(masked)
        if shown.strip():
            self._tails.setdefault(vertex, deque(maxlen=_TAIL)).append(shown)
            self._progress(LogLine(self._subject, masked))

    def _mask(self, line: str) -> str:
        shown = line
        for secret in self._hidden:
            shown = shown.replace(secret, "***")
        self.hid = self.hid or shown != line
        return shown

    def finish(self) -> None:
        """Shows lines without an end."""
        for vertex, line in self._partial.items():
            self._print(vertex, line)
        self._partial.clear()


def _objects(event: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    values = event.get(name)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
