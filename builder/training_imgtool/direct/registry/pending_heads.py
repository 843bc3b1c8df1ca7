"""Whether images are in the registry, asked while they are being made.

The answer takes a round trip, and so does opening an upload. Where the images are most likely new, both are begun at
once: content is sent only when the answer has come and something is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from training_imgtool.core.reference import Digest, Tag


class ThereError(Exception):
    """The image is there already; what was begun to put it there is given up."""


class Asked:
    """Questions under way. Threads may wait for them at will; end it with `close`.

    Args:
        questions: for each tag a HEAD: the digest, or None; it raises what the registry's client raises.
    """

    def __init__(self, questions: Mapping[Tag, Callable[[], Digest | None]]) -> None:
        self._pool = ThreadPoolExecutor(len(questions), thread_name_prefix="asked")
        self._answers: dict[Tag, Future[Digest | None]] = {
            tag: self._pool.submit(ask) for tag, ask in questions.items()
        }

    def digest(self, tag: Tag) -> Digest | None:
        """The answer for a tag; raises what asking raised."""
        return self._answers[tag].result()

    def unless_there(self, tag: Tag) -> None:
        """Returns when nothing is under a tag; raises ThereError otherwise, and what asking raised."""
        if tag in self._answers and self.digest(tag) is not None:
            raise ThereError

    def unless_all_there(self) -> None:
        """Returns when a tag has nothing yet; raises ThereError when all have, and what asking raised."""
        answers = [answer.result() for answer in self._answers.values()]
        if None not in answers:
            raise ThereError

    def close(self) -> None:
        """Waits for no answer any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
