"""Secrets that a template mounts: what is wrong with them is said before anything is built."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project

pytestmark = pytest.mark.registry

TEMPLATE = """\
{% extends "worker.Dockerfile.j2" %}
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


def test_an_engine_that_cannot_mount_it(mounting: Project) -> None:
    arguments = ("push", "--engine", "docker", *GIVEN)
    says = ["worker.Dockerfile:6: RUN --mount=type=secret needs BuildKit"]
    mounting.refused(*arguments, code=3, says=says, hint="--engine buildx")


def test_a_value_on_the_command_line(mounting: Project) -> None:
    mounting.refused("push", "--secret", "id=token,value=0123456", code=2, says=["expected id=ID,src=FILE"])


def test_a_secret_from_a_pipe(mounting: Project, tmp_path: Path) -> None:
    """As `src=<(program)` names one: imgtool would read it, and buildx would wait for it for ever."""
    os.mkfifo(tmp_path / "pipe")
    arguments = ("push", "--engine", "buildx", "--secret", f"id=token,src={tmp_path}/pipe")
    mounting.refused(*arguments, code=2, says=["pipe is not a regular file"], hint="--secret id=token,env=VARIABLE")
