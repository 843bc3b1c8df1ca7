"""Extracts the answers of a warm container's first process from the container's output."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.make.engines.docker.containers import Ended

MARK = b"\x1e"  # ASCII's record separator, the first character of a token

Answer = dict[str, Any]


class Process:
    """One run of a replica's program: its output and its end.

    Attributes:
        number: the program's number in its container; answers contain it.
        is_warm: whether the container had imported the program's modules before the start.
        left: the paths that the program created outside its mounts; empty until the program ends.
    """

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.is_warm = False
        self.left: tuple[str, ...] = ()
        self._blocks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._end: Ended | ImgtoolError | None = None
        self._over = threading.Event()

    def print(self, block: bytes) -> None:
        """Adds a block to the output."""
        if block:
            self._blocks.put(block)

    def end(self, how: Ended | ImgtoolError) -> None:
        """Records how the program ended; ignores later calls."""
        if not self._over.is_set():
            self._end = how
            self._over.set()
            self._blocks.put(None)

    @property
    def is_over(self) -> bool:
        """Whether the program has ended."""
        return self._over.is_set()

    def output(self) -> Iterator[bytes]:
        """Yields the output until the program ends."""
        while (block := self._blocks.get()) is not None:
            yield block

    def wait(self, seconds: float | None = None) -> Ended | None:
        """Returns how the program ended, or None if it still runs after `seconds`; raises the error given to `end`."""
        self._over.wait(seconds)
        if isinstance(self._end, ImgtoolError):
            raise self._end
        return self._end


class AnswerReader:
    """Separates answers from the output of programs. A container writes each answer to both stdout and stderr.

    Args:
        token: the text with which every answer begins.
        show: receives the output of programs.
        take: receives the answers.
    """

    def __init__(self, token: str, show: Callable[[bytes], None], take: Callable[[Answer], None]) -> None:
        self._token, self._show, self._take = token.encode(), show, take
        self._rest = b""
        self._seen: set[tuple[str, int]] = set()

    def feed(self, block: bytes) -> None:
        """Reads the next block."""
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
            if (state, number) in self._seen:  # both streams contained it, so all earlier output has been read
                self._take(answer)
            self._seen ^= {(state, number)}


def cut_last(output: bytes, token: str) -> bytes:
    """Removes the answers, and the output of earlier programs, from a container's last output."""
    kept, *parts = output.split(token.encode())
    for part in parts:
        line, _, rest = part.partition(b"\n")
        kept = rest if b'"started"' in line else kept + rest
    return kept
