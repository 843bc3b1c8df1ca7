"""Downloads wheels in the background, before a layer needs them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.progress import Done, Outcome, Planned, Progress
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.wheels.store import SUBJECT

if TYPE_CHECKING:
    from training_imgtool.resolve.wheels.store import WheelStore

_LARGE = 32 << 20  # bytes of a wheel


class WheelPrefetcher:
    """Fetches expected wheels in the background: the first wheel, then the largest wheels, a few at a time.

    imgtool needs longest for the layers of a large wheel. If all downloads shared the network, they would all end late,
    and imgtool could make no layer meanwhile. A wheel that is larger than all others together, such as TensorFlow's, is
    downloaded alone.
    """

    def __init__(self, open_store: Callable[[], WheelStore], progress: Progress) -> None:
        self._open_store = open_store
        self._progress = progress
        self._lock = threading.Lock()
        self._coming: dict[str, Future[Path]] = {}
        self._before_others: Future[Path] | None = None
        self._fetched = 0
        self._small = ThreadPoolExecutor(4, thread_name_prefix="wheel")
        self._large = ThreadPoolExecutor(2, thread_name_prefix="large wheel")

    @functools.cached_property
    def _store(self) -> WheelStore:
        return self._open_store()  # late: most runs need no wheel, and the store loads the index's client

    def expect(self, wheels: tuple[Wheel, ...]) -> None:
        """Starts to fetch the missing wheels."""
        missing = [wheel for wheel in wheels if self._store.path(wheel) is None]
        if missing:
            self._progress(Planned(SUBJECT, sum(wheel.size for wheel in missing)))
        for first in wheels[:1]:
            if self._store.path(first) is None:
                self._begin(first)
        others = sorted(
            (wheel for wheel in wheels[1:] if self._store.path(wheel) is None), key=lambda wheel: -wheel.size
        )
        if len(others) > 1 and others[0].size > sum(wheel.size for wheel in others[1:]):
            self._before_others = self._begin(others[0])
        for wheel in others:
            self._begin(wheel)

    def path(self, wheel: Wheel) -> Path:
        """Returns the wheel's file; raises what fetching raises."""
        return self._store.path(wheel) or self._begin(wheel).result()

    def close(self) -> None:
        """Starts no further download."""
        for pool in (self._small, self._large):
            pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, wheel: Wheel) -> Future[Path]:
        with self._lock:
            if wheel.sha256 not in self._coming:
                pool = self._large if wheel.size >= _LARGE else self._small
                self._coming[wheel.sha256] = pool.submit(self._fetch, wheel, self._before_others)
            return self._coming[wheel.sha256]

    def _fetch(self, wheel: Wheel, after: Future[Path] | None) -> Path:
        if after is not None:
            after.result()
        self._store.fetch((wheel,), self._progress)
        path = self._store.require(wheel)
        with self._lock:
            self._fetched += 1
            if self._fetched == len(self._coming):
                self._progress(Done(SUBJECT, Outcome.FETCHED, f"{self._fetched} wheels"))
        return path
