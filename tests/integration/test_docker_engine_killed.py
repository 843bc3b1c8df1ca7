"""An engine that dies, stops or hangs while it works: the right error, soon. Each test has a dockerd of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.engines.support import (
    SLEEPING_STEP,
    Events,
    PrivateEngine,
    busybox_base,
    private_engine,
    refusing_server,
    settings,
    stage,
    wait_for,
)
from training_imgtool.core.errors import BuildFailedError, EngineUnavailableError
from training_imgtool.core.progress import LogLine
from training_imgtool.core.reference import parse_repository
from training_imgtool.engines.docker.client import connect
from training_imgtool.engines.docker.engine import DockerEngine

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture
def private() -> Iterator[PrivateEngine]:
    with private_engine() as found:
        yield found


def connected(private: PrivateEngine, folder: Path) -> DockerEngine:
    return connect(settings(folder, DOCKER_HOST=private.host), timeout=20)


def build_and(engine: DockerEngine, act: Callable[[], None]) -> Exception:
    """What a build of `sleep` raises when `act` happens while it sleeps."""
    base = busybox_base(engine)
    events = Events()
    caught: list[Exception] = []

    def build() -> None:
        try:
            engine.build(stage(f"FROM {base}\n{SLEEPING_STEP}\n"), events)
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            caught.append(error)

    thread = threading.Thread(target=build, daemon=True)
    thread.start()
    assert wait_for(lambda: events.of(LogLine), 60)
    act()
    thread.join(30)
    assert caught, "the build went on"
    return caught[0]


def test_killed_while_building(private: PrivateEngine, tmp_path: Path) -> None:
    with closing(connected(private, tmp_path)) as engine:
        error = build_and(engine, private.kill)
    assert isinstance(error, EngineUnavailableError)
    assert error.exit_code == 5
    assert f"worker: {SLEEPING_STEP} (line 11 of the rendered Dockerfile)" in error.message
    assert private.host in error.message


def test_stopped_while_building_is_not_the_steps_fault(private: PrivateEngine, tmp_path: Path) -> None:
    with closing(connected(private, tmp_path)) as engine:
        error = build_and(engine, private.stop)
    assert isinstance(error, EngineUnavailableError)
    assert "sleep 300" in error.message


@pytest.mark.long
def test_killed_while_pushing(private: PrivateEngine, tmp_path: Path) -> None:
    """The registry answers 503, which is tried again; the engine dies in between."""
    with (
        closing(connected(private, tmp_path)) as engine,
        refusing_server(503, "<html>", beside=private.process.pid) as (address, seen),
    ):
        base = busybox_base(engine)
        tag = parse_repository(f"{address}/team/image").tag("x")
        engine.tag(base, tag)

        def kill() -> None:
            wait_for(lambda: seen, 20)
            private.kill()

        threading.Thread(target=kill, daemon=True).start()
        with pytest.raises(EngineUnavailableError, match="x: push"):
            engine.push(tag, None, Events())


@pytest.mark.long
def test_hanging_is_noticed(private: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training_imgtool.engines.docker.client._PING_SECONDS", 0.5)
    monkeypatch.setattr("training_imgtool.engines.docker.client.SILENCE_SECONDS", 1.0)
    with closing(connected(private, tmp_path)) as engine:
        began = time.monotonic()
        error = build_and(engine, lambda: os.kill(private.process.pid, signal.SIGSTOP))
    assert isinstance(error, EngineUnavailableError)
    assert "stopped answering" in error.message
    assert time.monotonic() - began < 30
    with pytest.raises(EngineUnavailableError, match="no answer in time"):
        connect(settings(tmp_path, DOCKER_HOST=private.host), timeout=0.5)
    os.kill(private.process.pid, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize(
    "step", ["RUN dd if=/dev/zero of=/x bs=1048576 count=200", "RUN dd if=/dev/zero of=/x bs=1048576 2>/dev/null"]
)
def test_a_step_that_fills_the_engines_disk(tmp_path: Path, step: str) -> None:
    """With its last words, or without any: the message or the hint names the disk."""
    with private_engine(disk="60m") as private, closing(connected(private, tmp_path)) as engine:
        base = busybox_base(engine)
        with pytest.raises((BuildFailedError, EngineUnavailableError)) as caught:
            engine.build(stage(f"FROM {base}\n{step}\n"), Events())
        said = " ".join((str(caught.value), str(caught.value.hint), *caught.value.details)).lower()
        assert "no space left" in said or "disk is full" in said
        assert "docker system df" in str(caught.value.hint)
