"""Secrets that a template mounts: what is wrong with them is said before anything is built."""

from __future__ import annotations

import pytest

from tests.faults.project import SPEC, Project

pytestmark = pytest.mark.registry

TEMPLATE = """\
{% extends "base.Dockerfile.j2" %}
{% block system_extra %}
RUN --mount=type=secret,id=token true
{% endblock %}
"""
GIVEN = ("--secret", "id=token,env=TOKEN")


@pytest.fixture
def mounting(pushing: Project) -> Project:
    """A project whose worker mounts the secret `token`."""
    pushing.write("own.j2", TEMPLATE)
    pushing.spec(SPEC.replace("  worker: {machine", "  worker: {template: own.j2, machine"))
    pushing.env["TOKEN"] = "0123456"
    return pushing


def test_a_secret_that_nobody_gives(mounting: Project) -> None:
    says = ["worker.Dockerfile:6: RUN --mount=type=secret: no secret 'token' is given (given: none)"]
    mounting.refused("push", code=3, says=says, hint="--secret id=token,env=VARIABLE")
    mounting.refused("build", "--push", "--dry-run", code=3, says=says)


def test_a_secret_that_nothing_mounts(mounting: Project) -> None:
    arguments = ("push", *GIVEN, "--secret", "id=tokne,env=TOKEN")
    mounting.refused(*arguments, code=3, says=["secret tokne: nothing uses it"], hint="the templates mount token")


def test_an_agent_that_nobody_passes_on(mounting: Project) -> None:
    mounting.write("own.j2", TEMPLATE.replace("type=secret,id=token", "type=ssh"))
    mounting.refused(
        "push", code=3, says=["worker.Dockerfile:6: RUN --mount=type=ssh"], hint="--mount=type=secret,id=key"
    )
