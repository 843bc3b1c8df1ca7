"""A build whose lock names a Debian package that the archives have dropped."""

from __future__ import annotations

from typing import Any

import pytest

from training_imgtool.app import images
from training_imgtool.base.errors import PackageGoneError, TemporaryError
from training_imgtool.base.progress import Event, Note
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.project_files import SpecChoice
from training_imgtool.resolve.lock.carry_over import Renewal

GONE = PackageGoneError("no archive of the base has curl 1.0 any more")


class Project:
    """Counts what happens; the first `failures` builds raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failures: Exception) -> None:
        self.failures = list(failures)
        self.renewals: list[Renewal | None] = []
        self.notes: list[str] = []
        monkeypatch.setattr(images, "prepare_build", self.prepare)
        monkeypatch.setattr(images, "BuildRun", lambda inputs, **_: inputs)
        monkeypatch.setattr(images, "build_platforms", self.make)

    def prepare(self, *_: object, renewal: Renewal | None = None, **__: object) -> int:
        self.renewals.append(renewal)
        return len(self.renewals)

    def make(self, inputs: int) -> str:
        if self.failures:
            raise self.failures.pop(0)
        return f"built with lock {inputs}"

    def build(self, *, locked: bool = False) -> Any:
        def tell(event: Event) -> None:
            assert isinstance(event, Note)
            self.notes.append(event.text)

        nothing: Any = None
        return images.build_images(SpecChoice(locked=locked), nothing, Machine(nothing, tell, nothing))


def test_a_dropped_package_renews_the_lock_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(monkeypatch, GONE)
    assert project.build() == (2, "built with lock 2")
    assert project.renewals == [None, Renewal(debian=True)]
    assert project.notes == [f"{GONE}, and no registry has the layer; imgtool renews the lock"]


def test_a_locked_build_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(monkeypatch, GONE)
    with pytest.raises(PackageGoneError):
        project.build(locked=True)
    assert project.renewals == [None]


def test_a_new_lock_that_cannot_be_fetched_either_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(monkeypatch, GONE, GONE)
    with pytest.raises(PackageGoneError):
        project.build()
    assert len(project.renewals) == 2


def test_another_failure_renews_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(monkeypatch, TemporaryError("the archive does not answer"))
    with pytest.raises(TemporaryError):
        project.build()
    assert project.renewals == [None]
