"""What replicas print: bytes become lines, the last ones are kept, each gets its replica's name in a colour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from training_imgtool.core.sanitize import sanitize_line
from training_imgtool.spec.model import Role

KEPT = 20  # lines of a replica that a failure shows
_LONGEST = 64 << 10  # bytes without a line's end that are shown as a line
_COLOURS = {Role.MASTER: "32", Role.WORKER: "36", Role.PS: "35", Role.EVALUATOR: "33"}  # ECMA-48: SGR


def lines_of(blocks: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream of bytes, as UTF-8, made safe for a terminal; an unfinished one at the end counts.

    A progress bar, which writes over its line, gives its last state when the line ends.
    """
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from map(_text, whole)
        if len(rest) > _LONGEST:
            yield _text(rest)
            rest = b""
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str:
    return sanitize_line(line.decode(errors="replace"))


class Tail:
    """The last lines of a replica."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lines: deque[str] = deque(maxlen=kept)

    def add(self, line: str) -> None:
        """Takes a line."""
        self._lines.append(line)

    def lines(self) -> tuple[str, ...]:
        """What is kept, oldest first."""
        return tuple(self._lines)


def with_name(line: str, name: str, role: Role, *, width: int, colour: bool) -> str:
    """`worker-0 | LINE`, the name padded to `width` and, with `colour`, in its role's colour."""
    shown = f"{name:<{width}} |"
    return f"\x1b[{_COLOURS[role]}m{shown}\x1b[0m {line}" if colour else f"{shown} {line}"
