"""A build whose lock names a Debian package that the archives have dropped."""

from __future__ import annotations

from typing import cast

import pytest

from training_imgtool.core.errors import PackageGoneError, TemporaryError
from training_imgtool.core.progress import Event, Note
from training_imgtool.lock.carry_over import Renewal
from training_imgtool.pipeline.inputs import Inputs
from training_imgtool.pipeline.renewal import build_renewed

GONE = PackageGoneError("no archive of the base has curl 1.0 any more")


class Project:
    """Counts what happens; the first `failures` builds raise."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.renewals: list[Renewal | None] = []
        self.notes: list[str] = []

    def prepare(self, renewal: Renewal | None) -> Inputs:
        self.renewals.append(renewal)
        return cast("Inputs", len(self.renewals))

    def make(self, inputs: Inputs) -> str:
        if self.failures:
            raise self.failures.pop(0)
        return f"built with lock {inputs}"

    def build(self, *, locked: bool = False) -> str:
        def tell(event: Event) -> None:
            assert isinstance(event, Note)
            self.notes.append(event.text)

        return build_renewed(self.prepare, self.make, tell, locked=locked)


def test_a_dropped_package_renews_the_lock_and_says_so() -> None:
    project = Project(GONE)
    assert project.build() == "built with lock 2"
    assert project.renewals == [None, Renewal(debian=True)]
    assert project.notes == [f"{GONE}, and no registry has the layer; imgtool renews the lock"]


def test_a_locked_build_refuses() -> None:
    project = Project(GONE)
    with pytest.raises(PackageGoneError):
        project.build(locked=True)
    assert project.renewals == [None]


def test_a_new_lock_that_cannot_be_fetched_either_is_an_error() -> None:
    project = Project(GONE, GONE)
    with pytest.raises(PackageGoneError):
        project.build()
    assert len(project.renewals) == 2


def test_another_failure_renews_nothing() -> None:
    project = Project(TemporaryError("the archive does not answer"))
    with pytest.raises(TemporaryError):
        project.build()
    assert project.renewals == [None]
