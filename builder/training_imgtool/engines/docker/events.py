"""What the Docker Engine's event streams say: progress to show, the result at the end, or the error.

Build, pull and push answer with status 200 and JSON objects; a failure is an object with `errorDetail` among them,
and a build succeeded when they name an image ID.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from training_imgtool.core.errors import BuildFailedError, EngineUnavailableError, ImgtoolError, InputError
from training_imgtool.core.progress import LogLine, Progress, Step, Transfer
from training_imgtool.core.reference import Login
from training_imgtool.core.sanitize import join_lines, sanitize_line
from training_imgtool.engines import NoClassicBuilderError, StageBuild
from training_imgtool.engines.docker.registry_errors import FULL_HINT, is_full, registry_error

Event = Mapping[str, Any]

_TAIL = 20
_LONGEST_PARTIAL = 1 << 16  # characters of a line without an end
_IN_MESSAGES = 60  # characters of an instruction: the cause comes after it
_STEP = re.compile(r"(?:Step|STEP) (\d+)/(\d+) ?: (.*)\Z", re.DOTALL)  # Docker's, Podman's
_EXIT = re.compile(r"(?:returned a non-zero code:|while running runtime: exit status) (-?\d+)")
_HOUSEKEEPING = re.compile(
    r"(?: ---> (?:[0-9a-f]{12}|Running in [0-9a-f]{12}|Removed intermediate container [0-9a-f]{12}|Using cache)"
    r"|--> (?:Using cache )?[0-9a-f]{12,64}|COMMIT \S+|[0-9a-f]{64}"
    r"|Removing intermediate container [0-9a-f]{12}|Successfully (?:built [0-9a-f]{12}|tagged \S+))\Z"
)
_FILES = re.compile(
    r"(?:COPY|ADD) failed|Dockerfile|failed to parse|unknown (?:instruction|flag)|can't find [ug]id for",
    re.IGNORECASE,
)
_ENGINES_OWN = re.compile(  # why a container could not be started that no Dockerfile is to blame for
    r"failed to create endpoint|network (?:bridge|controller)|container networking|iptables|cgroup"
    r"|resource temporarily unavailable|too many open files|cannot allocate memory",
    re.IGNORECASE,
)
_NO_SUCH_API = frozenset({404, 405, 410, 501})  # of POST /build
_NO_CLASSIC = re.compile(
    r"(?:classic|legacy) builder .*(?:removed|no longer|not (?:available|supported))", re.IGNORECASE
)
_BASE = re.compile(r"manifest|pull access|unauthorized|denied|registry|no such image", re.IGNORECASE)


class BuildLog:
    """Reads the events of one build.

    Args:
        stage: what is built.
        progress: takes the steps and what they print.
        answers: whether the engine still answers: exit code 137 is a killed step or a dying engine.
    """

    def __init__(self, stage: StageBuild, progress: Progress, answers: Callable[[], bool]) -> None:
        self.image_id: str | None = None
        self._stage = stage
        self._progress = progress
        self._answers = answers
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._partial = ""
        self._number = 0
        self._instruction = ""

    def take(self, event: Event) -> None:
        """Reads one event; raises BuildFailedError, InputError, EngineUnavailableError, and those of a registry."""
        if message := error_message(event):
            self._flush()
            raise self.failure(message)
        aux = event.get("aux")
        if isinstance(aux, Mapping) and isinstance(aux.get("ID"), str):
            self.image_id = aux["ID"]
        if isinstance(text := event.get("stream"), str):
            self._print(text)

    def _print(self, text: str) -> None:
        step = _STEP.match(text.rstrip("\n"))
        if step and int(step[1]) == self._number + 1:
            self._flush()
            self._number, self._instruction = int(step[1]), join_lines(step[3], limit=300)
            self._tail.clear()
            self._progress(Step(self._stage.subject, f"{step[1]}/{step[2]} {self._instruction}"))
            return
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._line(line)
        if len(self._partial) > _LONGEST_PARTIAL:
            self._flush()

    def _flush(self) -> None:
        partial, self._partial = self._partial, ""
        if partial:
            self._line(partial)

    def _line(self, line: str) -> None:
        shown = sanitize_line(line)  # the engine wraps what comes from stderr in colours
        if not shown.strip() or _HOUSEKEEPING.match(shown):
            return
        self._tail.append(shown)
        self._progress(LogLine(self._stage.subject, line))

    def where(self) -> str:
        """Returns the stage and the instruction under way, for messages."""
        if not self._number:
            return f"{self._stage.subject}: before the first step"
        lines = self._stage.lines
        if self._number <= len(lines):
            place = f"line {lines[self._number - 1]} of the rendered Dockerfile"
        else:
            place = f"in the stage that begins at line {self._stage.line} of the rendered Dockerfile"
        return f"{self._stage.subject}: {join_lines(self._instruction, limit=_IN_MESSAGES)} ({place})"

    def failure(self, message: str, status: int | None = None) -> ImgtoolError:
        """Translates the engine's `message`; `status` is that of its answer when it refused the request."""
        exited = _EXIT.search(message)
        if exited:
            return self._step_error(int(exited[1]))
        text = f"{self.where()}: {sanitize_line(message)}"
        if error := _engines_state(text, message, status):
            return error
        if self._instruction.startswith("FROM ") and _BASE.search(message):
            return registry_error(self.where(), message, "the base image's registry", None)
        running = self._instruction.startswith("RUN ")
        if status == 400 or "requires BuildKit" in message or (not running and _FILES.search(message)):
            return InputError(text, hint="`imgtool render` prints the Dockerfile; COPY takes from the spec's folder")
        if running and not _ENGINES_OWN.search(message):
            return BuildFailedError(text, details=tuple(self._tail))
        return EngineUnavailableError(f"{text} (the Docker Engine's words)", details=tuple(self._tail))

    def _step_error(self, code: int) -> ImgtoolError:
        text, details = f"{self.where()}: ended with exit code {code}", tuple(self._tail)
        if is_full("\n".join(details)):
            return EngineUnavailableError(f"{text}: a disk is full", hint=FULL_HINT, details=details)
        if any("exec format error" in line for line in details):
            return EngineUnavailableError(
                f"{self.where()}: this engine's machine does not run {self._stage.platform}",
                hint="have a builder of that platform run it: --engine buildx --builder NAME",
                details=details,
            )
        if code != 137:
            hint = "`imgtool render` prints the Dockerfile; " + (
                "the step's last lines are above"
                if details
                else f"the step printed nothing. If a disk is full: {FULL_HINT}"
            )
            return BuildFailedError(text, hint=hint, details=details)
        if not self._answers():
            return EngineUnavailableError(f"{self.where()}: the Docker Engine stopped while this ran")
        return BuildFailedError(
            f"{self.where()}: was killed (exit code 137)",
            hint="out of memory? give the engine's machine or its build more, or let the step use less",
            details=tuple(self._tail),
        )

    def finished(self) -> str:
        """Returns the image that was built; raises EngineUnavailableError when the stream ended without naming one."""
        self._flush()
        if self.image_id is None:
            raise EngineUnavailableError(
                f"{self.where()}: the Docker Engine's answer ended without an image",
                hint="the engine's own log says why; try again",
                details=tuple(self._tail),
            )
        return self.image_id


def _engines_state(text: str, message: str, status: int | None) -> EngineUnavailableError | None:
    """Returns the error where the message is about the engine itself, whatever it builds."""
    if status in _NO_SUCH_API or _NO_CLASSIC.search(message):
        return NoClassicBuilderError(
            f"the Docker Engine no longer has the classic builder: {sanitize_line(message)}",
            hint="--engine buildx and --push, with Docker's buildx plugin installed",
        )
    if is_full(message):
        return EngineUnavailableError(f"{text}: the Docker Engine's disk is full", hint=FULL_HINT)
    return None


class TransferLog:
    """Reads the events of one push or pull.

    Args:
        doing: the subject and what is done, for messages.
        subject: of the progress events.
        host: the registry.
        login: what was sent to it.
        progress: takes the transfers, one per layer.
    """

    def __init__(self, doing: str, subject: str, host: str, login: Login | None, progress: Progress) -> None:
        self.digest: str | None = None
        self._doing = doing
        self._subject = subject
        self._host = host
        self._login = login
        self._progress = progress
        self._sizes: dict[str, int] = {}
        self._layers: dict[str, set[str]] = {"sent": set(), "mounted": set(), "already there": set()}

    def take(self, event: Event) -> None:
        """Reads one event; raises the error that it is."""
        if message := error_message(event):
            raise self.failure(message)
        aux = event.get("aux")
        if isinstance(aux, Mapping) and isinstance(aux.get("Digest"), str):
            self.digest = aux["Digest"]
        status, layer = str(event.get("status", "")), str(event.get("id", ""))
        if status in {"Pushing", "Downloading"}:
            self._show(layer, event.get("progressDetail"))
        elif status in {"Pushed", "Download complete"}:
            self._layers["sent"].add(layer)
            if size := self._sizes.get(layer):
                self._progress(Transfer(self._subject, layer, size, size))
        elif status == "Layer already exists":
            self._layers["already there"].add(layer)
        elif status.startswith("Mounted from"):
            self._layers["mounted"].add(layer)

    def where(self) -> str:
        """Returns what is done, for messages."""
        return self._doing

    def _show(self, layer: str, detail: object) -> None:
        current, total = (detail.get("current"), detail.get("total")) if isinstance(detail, Mapping) else (None, None)
        if isinstance(current, int):
            # The engine estimates the total of a push from the unpacked files, and can pass it.
            self._sizes[layer] = max(current, total if isinstance(total, int) else 0)
            self._progress(Transfer(self._subject, layer, current, self._sizes[layer]))

    def failure(self, message: str, status: int | None = None) -> ImgtoolError:
        """Makes the error that the engine's `message` is."""
        del status
        if "does not exist locally" in message:
            return EngineUnavailableError(f"{self._doing}: the Docker Engine no longer has the image")
        return registry_error(self._doing, message, self._host, self._login)

    def summary(self) -> str:
        """Counts the layers that a push sent, mounted from another repository, or found there."""
        parts = [f"{len(layers)} {word}" for word, layers in self._layers.items() if layers]
        return f"layers: {', '.join(parts) or 'none'}"


def error_message(event: Event) -> str | None:
    """Returns the engine's sentence when the event is an error."""
    detail = event.get("errorDetail")
    message = detail.get("message") if isinstance(detail, Mapping) else None
    text = message or event.get("error")
    if text is None:
        return "an error without words" if "errorDetail" in event or "error" in event else None
    return str(text)
