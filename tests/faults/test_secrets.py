"""Secrets that lines of `run` mount: what is wrong with them is said before anything is built."""

from __future__ import annotations

import pytest

from tests.faults.project import SPEC, Project

pytestmark = pytest.mark.registry

LINES = "run: [true]\nsecrets: {token: {}}\n"


@pytest.fixture
def mounting(pushing: Project) -> Project:
    """A project whose lines see the secret `token`."""
    pushing.spec(SPEC + LINES)
    pushing.env["TOKEN"] = "0123456"
    return pushing


def test_a_secret_that_nobody_gives(mounting: Project) -> None:
    mounting.refused("push", code=3, says=["secret token: not given"], hint="--secret id=token,env=VARIABLE")
    mounting.refused("build", "--push", "--dry-run", code=3, says=["secret token: not given"])


def test_a_secret_that_nothing_mounts(mounting: Project) -> None:
    arguments = ("push", "--secret", "id=token,env=TOKEN", "--secret", "id=tokne,env=TOKEN")
    mounting.refused(*arguments, code=3, says=["secret tokne: nothing uses it"], hint="`secrets:` of the spec declares")
    mounting.spec(SPEC + "secrets: {token: {}}\n")
    mounting.refused(
        "push",
        code=3,
        says=["secret token: nothing uses it"],
        hint="only lines of `run` and templates can mount secrets",
    )
