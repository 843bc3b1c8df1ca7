"""What long work tells of itself: typed events and the one-method interface that takes them.

The command line shows them (`cli.progress`); tests collect them in a list. `subject` is what a
line is about: a role, a shared stage (`packages cpu`), or a thing such as `base python:3.11-slim`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Outcome(StrEnum):
    """How an image came to be, or something on the way to it."""

    FOUND = "found"
    FETCHED = "fetched"
    APPENDED = "appended"
    BUILT = "built"
    PUSHED = "pushed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Step:
    """`subject` begins something, such as `Step 3/7 : RUN …` or `pushing`."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes of one transfer of `subject`; `what` names it (a layer's short digest, a wheel), total None if unknown."""

    subject: str
    what: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a build step or a server printed; untrusted text."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """`subject` ended."""

    subject: str
    outcome: Outcome
    text: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should know; not tied to a step."""

    text: str


Event = Step | Transfer | LogLine | Done | Note


class Progress(Protocol):
    """Takes events from any thread. It must be cheap: events come per block of bytes."""

    def __call__(self, event: Event) -> None:
        """Takes one event."""


def silent(event: Event) -> None:
    """A Progress that shows nothing."""
