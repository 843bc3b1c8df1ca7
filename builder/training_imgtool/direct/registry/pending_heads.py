"""HEAD requests for the tags of images, under way while the images are made.

The answer takes a round trip, and so does opening an upload. Where images are most likely missing, both begin at once,
and content is sent only when the answer has arrived and an image is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from training_imgtool.core.reference import Digest, Tag


class ImageExistsError(Exception):
    """The image is in the registry already, so its upload was given up."""


class PendingHeads:
    """Requests under way; threads may wait for them. End it with `close`.

    Args:
        heads: for each tag, what returns the digest or None; it raises what the registry's client raises.
    """

    def __init__(self, heads: Mapping[Tag, Callable[[], Digest | None]]) -> None:
        self._pool = ThreadPoolExecutor(len(heads) or 1, thread_name_prefix="heads")
        self._answers: dict[Tag, Future[Digest | None]] = {tag: self._pool.submit(head) for tag, head in heads.items()}

    def digest(self, tag: Tag) -> Digest | None:
        """Waits for the answer for a tag, and raises what the request raised; None for a tag without a request."""
        return self._answers[tag].result() if tag in self._answers else None

    def require_missing(self, tag: Tag) -> None:
        """Waits for the answer for a tag; raises ImageExistsError if an image has it."""
        if self.digest(tag) is not None:
            raise ImageExistsError

    def require_any_missing(self) -> None:
        """Waits for all answers; raises ImageExistsError if every tag has an image."""
        answers = [answer.result() for answer in self._answers.values()]
        if answers and None not in answers:
            raise ImageExistsError

    def close(self) -> None:
        """Drops requests that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)
