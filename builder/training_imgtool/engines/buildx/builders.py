"""The builders that buildx knows, their drivers, and whether they run."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from training_imgtool.core.errors import EngineUnavailableError
from training_imgtool.core.sanitize import join_lines
from training_imgtool.core.settings import Settings
from training_imgtool.engines.buildx.program import find_program, open_environment

_SECONDS = 30.0  # buildx gives a builder 20 s


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderInfo:
    """One builder.

    Attributes:
        name: what `--builder` takes.
        driver: docker, docker-container, kubernetes, remote or cloud; empty where buildx does not say.
        current: whether buildx uses it when none is named.
        endpoints: where its nodes are.
        running: whether a node runs.
        error: why it does not, in buildx's words; empty when it says nothing.
    """

    name: str
    driver: str
    current: bool
    endpoints: tuple[str, ...]
    running: bool
    error: str

    def as_data(self) -> dict[str, Any]:
        """Returns the builder as plain data."""
        return {
            "name": self.name,
            "driver": self.driver,
            "current": self.current,
            "endpoints": list(self.endpoints),
            "running": self.running,
            "error": self.error or None,
        }


def list_builders(settings: Settings) -> tuple[BuilderInfo, ...]:
    """Asks buildx for its builders; raises EngineUnavailableError when there is no buildx, or it fails."""
    program = find_program(settings)
    with open_environment(settings, {}) as environment:
        try:
            done = subprocess.run(
                [*program, "ls", "--format", "json"],
                env=environment.variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineUnavailableError(f"{' '.join(program)} ls: {error}") from error
    if done.returncode:
        words = join_lines(done.stderr) or f"ended with status {done.returncode}"
        raise EngineUnavailableError(f"{' '.join(program)} ls: {words}", hint="buildx 0.13 or newer is needed")
    return tuple(_builder(line) for line in done.stdout.splitlines() if line.startswith("{"))


def _builder(line: str) -> BuilderInfo:
    """Returns one line of `buildx ls --format json`; raises EngineUnavailableError for what is none."""
    try:
        document = json.loads(line)
        nodes = [node for node in document.get("Nodes") or () if isinstance(node, dict)]
        errors = [str(error) for error in (document.get("Err"), *(node.get("Err") for node in nodes)) if error]
        return BuilderInfo(
            name=str(document["Name"]),
            driver=str(document.get("Driver") or ""),
            current=bool(document.get("Current")),
            endpoints=tuple(str(node["Endpoint"]) for node in nodes if node.get("Endpoint")),
            running=any(node.get("Status") == "running" for node in nodes),
            error=join_lines(errors[0]) if errors else "",
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise EngineUnavailableError(f"buildx ls answered {join_lines(line)!r}, which is not a builder") from error
