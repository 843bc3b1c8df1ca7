"""Reads what `buildx build --progress rawjson` prints on stderr: the progress, and the message of a failure.

A line is a JSON object with `vertexes`, `statuses`, `logs` and `warnings` (BuildKit's `client.SolveStatus`), or text.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.base.errors import BuildFailedError, EngineUnavailableError, ImgtoolError, InputError
from training_imgtool.base.progress import LogLine, Progress, Step, Transfer
from training_imgtool.base.reference import Login
from training_imgtool.base.sanitize import join_lines, sanitize_line
from training_imgtool.make.engines.buildx.request import Solve
from training_imgtool.make.engines.docker.registry_errors import is_full, registry_error

_TAIL = 20
_STEP = re.compile(r"\[(?:[^\]]* )?(\d+)/(\d+)\] (.*)\Z", re.DOTALL)  # [linux/amd64 system 2/4] RUN …
_SOURCE_LINE = re.compile(r"\S*Dockerfile:(\d+)\Z")
_LAYER = re.compile(r"sha256:[0-9a-f]{64}\Z")
_SHOWN_DIGEST = 19
_RENDERED = "`imgtool render` prints the Dockerfile"
_IN_MESSAGES = 60  # characters of an instruction, so that the cause after it stays visible
_PREFIX = re.compile(
    r"(?:failed to build: |failed to solve: |failed to solve with frontend \S+: |failed to create LLB definition: "
    r"|rpc error: code = \w+ desc = )+"
)
_EXIT = re.compile(r"did not complete successfully: exit code: (\d+)")
_PUSH = re.compile(r"failed to push (\S+?): ")
_BASE = re.compile(
    r"failed to resolve source metadata for ([^/\s]+)/|failed to (?:copy|do request): .*?https?://([^/\"\s]+)/v2/"
)
_HUB = "docker.io"
_NOT_THERE = re.compile(
    r"no builder .* found|cannot connect to the docker daemon|context deadline exceeded|code = unavailable"
    r"|\bunavailable: |error reading from server|transport is closing|failed to list workers|failed to receive status"
    r"|connection error: |no such host|connection refused|connection reset|no valid drivers|builder .* is not running",
    re.IGNORECASE,
)
_TOO_OLD = re.compile(
    r"unknown flag: --(?:provenance|sbom|metadata-file|secret)\b|invalid progress mode|unknown progress"
)
_FILES = re.compile(
    r"dockerfile parse error|failed to calculate checksum|failed to compute cache key: .*not found|unknown instruction"
    r"|unknown flag|secret \S+: not found|failed to process|failed to parse",
    re.IGNORECASE,
)


class SolveLog:
    """Reads the lines of one build, and stores the parts that an error message needs.

    Args:
        subject: the subject of the progress events.
        progress: receives the steps and their output.
        hidden: the values of secrets, which this class masks in every line.

    Attributes:
        instruction: the instruction that failed, else the one that began last; empty before the first.
        source_line: the line of the Dockerfile that buildx blames, from 1; None when buildx names no line.
        hid: whether a step printed a secret.
    """

    def __init__(self, subject: str, progress: Progress, hidden: tuple[str, ...]) -> None:
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
        """The message of buildx about the failure, without `ERROR:`; empty when there is none."""
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
        """Shows output of the steps that does not end with a line end."""
        for vertex, line in self._partial.items():
            self._print(vertex, line)
        self._partial.clear()


def _objects(event: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    values = event.get(name)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A build that failed.

    Attributes:
        solve: the request.
        builder: the builder's name in messages.
        log: what buildx printed.
    """

    solve: Solve
    builder: str
    log: SolveLog

    @property
    def where(self) -> str:
        """The stage and the instruction, for messages."""
        number = self.log.source_line
        place = f" (line {number} of the rendered Dockerfile)" if number and self.solve.is_whole else ""
        if not self.log.instruction:
            return f"{self.solve.subject}{place}"
        return f"{self.solve.subject}: {sanitize_line(self.log.instruction, limit=_IN_MESSAGES)}{place}"

    @property
    def start_hint(self) -> str:
        """The hint for a builder that does not answer."""
        return f"`docker buildx inspect{self.flag}` shows its state; start it, or name another one with --builder"

    @property
    def flag(self) -> str:
        """The option that names the builder, for commands in hints."""
        return f" --builder {self.builder.split()[1]}" if self.builder.startswith("builder ") else ""


def failure(attempt: Attempt, status: int) -> ImgtoolError:
    """Makes a failed build's error from the first pattern that matches the message, else from the exit status."""
    log, words = attempt.log, _PREFIX.sub("", attempt.log.words)
    if is_full(words) or is_full("\n".join(log.tail)):
        hint = f"`docker buildx prune{attempt.flag}` frees space"
        return EngineUnavailableError(f"{attempt.where}: a disk is full: {words}", hint=hint, details=log.tail)
    if exited := _EXIT.search(words):
        return _ended_step(attempt, int(exited[1]))
    if _PUSH.search(words):
        host = attempt.solve.host
        return _refused(attempt, f"{attempt.where}: push", words, host, attempt.solve.logins.get(host))
    if match := _BASE.search(words):
        host = _HUB if (match[1] or match[2]).endswith(_HUB) else match[1] or match[2]
        return _refused(attempt, attempt.where, words, host, None)
    return _own_failure(attempt, words or f"buildx ended with status {status} and printed nothing")


def _own_failure(attempt: Attempt, words: str) -> ImgtoolError:
    """Makes the error for a failure that neither a step of the build nor a registry caused."""
    text = f"{attempt.where}: {words}"
    if _NOT_THERE.search(attempt.log.words):
        what = "stopped while this ran" if attempt.log.instruction else "does not answer"
        text = f"{attempt.where}: {attempt.builder} {what}: {words}"
        return EngineUnavailableError(text, hint=attempt.start_hint)
    if _TOO_OLD.search(words):
        return EngineUnavailableError(f"{text} (this buildx is too old)", hint="install buildx 0.13 or newer")
    if _FILES.search(words):
        return InputError(text, hint=f"{_RENDERED}; the spec's folder is `code/` in the build context")
    return BuildFailedError(text, hint=_RENDERED, details=attempt.log.tail)


def _ended_step(attempt: Attempt, code: int) -> ImgtoolError:
    what = "was killed (exit code 137)" if code == 137 else f"ended with exit code {code}"
    seen = "the step's last lines are above" if attempt.log.tail else "the step printed nothing"
    hint = "out of memory? give the builder more, or let the step use less" if code == 137 else f"{_RENDERED}; {seen}"
    return BuildFailedError(f"{attempt.where}: {what}", hint=hint, details=attempt.log.tail)


def _refused(attempt: Attempt, doing: str, words: str, host: str, login: Login | None) -> ImgtoolError:
    """Makes the error for a builder's request that a registry refused. Builders ignore IMGTOOL_MIRRORS."""
    error = registry_error(doing, words, host, login, engine=attempt.builder)
    error.hint = f"{error.hint}; if the builder has another name for {host}: IMGTOOL_BUILDER_REGISTRIES={host}=HOST"
    return error
