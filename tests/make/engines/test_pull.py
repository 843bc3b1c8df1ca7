"""An engine that pulls: a registry that does not answer for a moment is asked again, a refusal is final."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.oci.registry.support import machine as settings_of
from training_imgtool.base.errors import ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.base.progress import Event, Note
from training_imgtool.base.reference import parse_repository
from training_imgtool.make.engines.docker.engine import DockerEngine
from training_imgtool.make.engines.pull import pull_image
from training_imgtool.oci.machine import Machine

IMAGE = parse_repository("127.0.0.1:5/team/image").digest("sha256:" + "0" * 64)


class Engine:
    """An engine whose pulls end with the given errors, and then well."""

    reads_zstd = True

    def __init__(self, *errors: ImgtoolError) -> None:
        self.errors = list(errors)
        self.pulls = 0

    def pull_base(self, *_: Any) -> None:
        self.pulls += 1
        if self.errors:
            raise self.errors.pop(0)


def test_a_moment_without_an_answer(tmp_path: Path) -> None:
    events: list[Event] = []

    def progress(event: Event) -> None:
        events.append(event)

    engine = Engine(TemporaryError("connection refused"))
    with Machine.open(settings_of(tmp_path), progress) as machine:
        name = pull_image(IMAGE, "k", platform="linux/amd64", engine=cast("DockerEngine", engine), machine=machine)
    assert (name, engine.pulls) == (str(IMAGE), 2)
    assert [event.text.partition(";")[0] for event in events if isinstance(event, Note)] == [
        "127.0.0.1:5 does not answer the engine"
    ]


def test_a_refusal_is_final(tmp_path: Path) -> None:
    engine = Engine(RegistryRefusedError("no such image"))
    with Machine.open(settings_of(tmp_path)) as machine, pytest.raises(RegistryRefusedError):
        pull_image(IMAGE, "k", platform="linux/amd64", engine=cast("DockerEngine", engine), machine=machine)
    assert engine.pulls == 1
