"""How the work of a sink ends, whatever it is that takes the images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from training_imgtool.make import sinks


def test_only_a_run_that_failed_gives_up_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[bool] = []

    class Recorder:
        def __init__(self, *_: object) -> None: ...

        def close(self, *, failed: bool) -> None:
            ends.append(failed)

    monkeypatch.setattr(sinks, "LayoutSink", Recorder)
    nothing: Any = SimpleNamespace(options=SimpleNamespace(push=False, layout="x"))
    with sinks.open_sink(nothing, nothing):
        pass
    with pytest.raises(KeyboardInterrupt), sinks.open_sink(nothing, nothing):
        raise KeyboardInterrupt
    assert ends == [False, True]
