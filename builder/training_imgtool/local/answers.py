"""What a warm container's first process says, among what its programs print."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.make.engines.docker.containers import Ended

MARK = b"\x1e"  # ASCII's record separator, with which a token begins

Answer = dict[str, Any]


class Process:
    """One program of a replica as it runs: what it prints, and how it ended.

    Attributes:
        number: which one in its container; answers name it.
        is_warm: whether its imports were done before it started.
        left: what it has made outside its mounts, once it has ended.
    """

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.is_warm = False
        self.left: tuple[str, ...] = ()
        self._blocks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._end: Ended | ImgtoolError | None = None
        self._over = threading.Event()

    def print(self, block: bytes) -> None:
        """Takes what it prints."""
        if block:
            self._blocks.put(block)

    def end(self, how: Ended | ImgtoolError) -> None:
        """Takes its end; the first one counts."""
        if not self._over.is_set():
            self._end = how
            self._over.set()
            self._blocks.put(None)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def output(self) -> Iterator[bytes]:
        """Yields what it prints, until it ends."""
        while (block := self._blocks.get()) is not None:
            yield block

    def wait(self, seconds: float | None = None) -> Ended | None:
        """Waits for its end; None if that does not come in time. Raises what kept imgtool from knowing it."""
        self._over.wait(seconds)
        if isinstance(self._end, ImgtoolError):
            raise self._end
        return self._end


class AnswerReader:
    """Parts a container's output into answers and what programs print. An answer comes once per stream.

    Args:
        token: with which lines begin that are answers.
        show: takes what programs print.
        take: takes the answers.
    """

    def __init__(self, token: str, show: Callable[[bytes], None], take: Callable[[Answer], None]) -> None:
        self._token, self._show, self._take = token.encode(), show, take
        self._rest = b""
        self._seen: set[tuple[str, int]] = set()

    def feed(self, block: bytes) -> None:
        """Reads on."""
        data = self._rest + block
        while (at := data.find(self._token)) >= 0 and (end := data.find(b"\n", at)) >= 0:
            self._show(data[:at])
            self._read(data[at + len(self._token) : end])
            data = data[end + 1 :]
        at = data.rfind(MARK)
        held = at >= 0 and (self._token.startswith(data[at:]) or data[at:].startswith(self._token))
        self._rest = data[at:] if held else b""
        self._show(data[:at] if held else data)

    def _read(self, text: bytes) -> None:
        with suppress(ValueError, KeyError, TypeError):
            answer: Answer = json.loads(text)
            state, number = str(answer["state"]), int(answer["number"])
            if (state, number) in self._seen:  # both streams have brought it, so all that came before it has been read
                self._take(answer)
            self._seen ^= {(state, number)}


def cut_last(output: bytes, token: str) -> bytes:
    """Returns what the last program printed, of the end of a container's output."""
    kept, *parts = output.split(token.encode())
    for part in parts:
        line, _, rest = part.partition(b"\n")
        kept = rest if b'"started"' in line else kept + rest
    return kept
