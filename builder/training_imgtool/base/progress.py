"""Progress of long work: typed events, and the interface that receives them.

The command line shows the events (`cli.progress`); tests collect them in a list. The `subject` of an event is a role,
a shared stage (`packages cpu`), or a thing such as `base python:3.11-slim`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Outcome(StrEnum):
    """How imgtool got an image or a part of an image."""

    FOUND = "found"
    FETCHED = "fetched"
    LOCKED = "locked"
    APPENDED = "appended"
    BUILT = "built"
    PUSHED = "pushed"
    CREATED = "created"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Planned:
    """Announces work on `subject`, which will transfer `size` bytes (None if unknown); `is_estimate` marks a guess."""

    subject: str
    size: int | None = None
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """`subject` begins a step, such as `Step 3/7 : RUN …` or `pushing`."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """The state of one transfer that belongs to `subject`.

    Attributes:
        subject: see the module.
        what: the transfer's name, such as a layer's short digest or a wheel.
        done: bytes so far.
        total: bytes in all; None if unknown.
    """

    subject: str
    what: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a build step or a server printed; see `sanitize` for such foreign text."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """`subject` ended."""

    subject: str
    outcome: Outcome
    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A message for the user that does not belong to a step."""

    text: str


Event = Planned | Step | Transfer | LogLine | Done | Note


class Progress(Protocol):
    """Receives events from any thread. A call must be cheap, because imgtool calls this for each block of bytes."""

    def __call__(self, event: Event) -> None:
        """Receives one event."""


def silent(event: Event) -> None:
    """Shows nothing."""
