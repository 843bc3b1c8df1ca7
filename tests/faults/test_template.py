"""Group T: what can be wrong with a user's template. Exit 3 with `template:line`; nothing is built or written."""

from __future__ import annotations

import pytest

from tests.faults.project import SPEC, Project

WITH_TEMPLATE = SPEC.replace("worker: {machine", "worker: {template: worker.j2, machine")
BEFORE_CODE = '{%% extends "base.Dockerfile.j2" %%}\n{%% block before_code %%}\n%s\n{%% endblock %%}\n'


def inside(text: str) -> str:
    """A template with `text` in line 3, before the code is copied."""
    return BEFORE_CODE % text


def rendered(project: Project, template: str, env: str = "") -> str:
    """The Dockerfiles of a project whose worker has this template."""
    project.write("worker.j2", template)
    project.spec(WITH_TEMPLATE + env)
    ended = project.run("render", "--role", "worker")
    assert ended.code == 0, ended.err
    return ended.out


@pytest.mark.parametrize(("deep", "works"), [(60, True), (300, False)])
def test_a_long_chain_of_templates(project: Project, deep: int, works: bool) -> None:
    for number in range(deep):
        line = f"{{% block after_code %}}{{{{ super() }}}}ENV D{number}=1\n{{% endblock %}}"
        above = f"t{number + 1}.j2" if number + 1 < deep else "base.Dockerfile.j2"
        (project.folder / f"t{number}.j2").write_text(f'{{% extends "{above}" %}}\n{line}')
    project.spec(SPEC.replace("worker: {machine", "worker: {template: t0.j2, machine"))
    ended = project.run("render", "--role", "worker")
    if works:
        assert ended.code == 0, ended.err
        assert [f"ENV D{number}=1" in ended.out for number in range(deep)] == [True] * deep
    else:
        assert ended.code == 3, ended.err
        assert "includes or extends itself, or more than about 100 others deep" in ended.err


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ENV MYSECRET_TOKEN=s3cr3tCANARYx9q2", "ENV MYSECRET_TOKEN looks like a secret by its name"),
        ('ENV A=1 DB_PASSWORD="hunter2 CANARY"', "ENV DB_PASSWORD looks like a secret by its name"),
        ("ARG API_KEY=CANARY0123456", "ARG API_KEY looks like a secret by its name"),
        ("LABEL note=ghp_CANARY0123456789abcdef", "LABEL note looks like a GitHub token"),
        ("ONBUILD ENV X_SECRET=CANARY0123", "ENV X_SECRET looks like a secret by its name"),
    ],
)
def test_t11_a_secret_in_a_template(project: Project, text: str, what: str) -> None:
    project.write("worker.j2", inside(text))
    project.spec(WITH_TEMPLATE)
    ended = project.refused("render", code=3, says=[f"worker.j2:3: {what}"], hint="allow_secrets")
    assert "CANARY" not in ended.err


def test_t11_what_is_no_secret_in_a_template(project: Project) -> None:
    text = "ARG PAD_TOKEN\nENV PAD_TOKEN=abcdefghijklm0 DB_PASSWORD_FILE=/run/x TOKEN=$PAD_TOKEN"
    rendered(project, inside(text), env="allow_secrets: [env.PAD_TOKEN]\n")
