"""Group T: what can be wrong with a user's template. Exit 3 with `template:line`; nothing is built or written."""

from __future__ import annotations

import pytest

from tests.faults.project import SPEC, Project

WITH_TEMPLATE = SPEC.replace("worker: {machine", "worker: {template: worker.j2, machine")
BEFORE_CODE = '{%% extends "worker.Dockerfile.j2" %%}\n{%% block before_code %%}\n%s\n{%% endblock %%}\n'


def inside(text: str) -> str:
    """A template with `text` in line 3, before the code is copied."""
    return BEFORE_CODE % text


def refused(project: Project, template: str, *says: str, hint: str | None = None, env: str = "") -> None:
    """`render` refuses a worker's template."""
    project.write("worker.j2", template)
    project.spec(WITH_TEMPLATE + env)
    project.refused("render", code=3, says=says, hint=hint)


def rendered(project: Project, template: str, env: str = "") -> str:
    """The Dockerfiles of a project whose worker has this template."""
    project.write("worker.j2", template)
    project.spec(WITH_TEMPLATE + env)
    ended = project.run("render", "--role", "worker")
    assert ended.code == 0, ended.err
    return ended.out


def test_t01_undefined(project: Project) -> None:
    refused(
        project, inside("RUN echo {{ nothing }}"), "worker.j2:3: 'nothing' is undefined", hint="defined: apt_packages"
    )
    refused(project, inside("RUN echo {{ variant.nothing }}"), "worker.j2:3: 'dict object' has no attribute 'nothing'")


def test_t02_syntax_and_includes(project: Project) -> None:
    refused(project, inside("{% if %}"), "worker.j2:3: Expected an expression")
    refused(project, '{% extends "nothere.j2" %}', "worker.j2:1: no template 'nothere.j2'", hint="worker.Dockerfile.j2")
    refused(project, '{% include "worker.j2" %}', "worker.j2:1: the template includes or extends itself")
    project.spec(SPEC.replace("worker: {machine", "worker: {template: nothere.j2, machine"), lock=False)
    says = ["image.yaml:7:22: roles.worker.template: there is no 'nothere.j2' next to the spec"]
    project.refused("show", "--json", code=3, says=says)


@pytest.mark.parametrize(("deep", "works"), [(60, True), (300, False)])
def test_a_long_chain_of_templates(project: Project, deep: int, works: bool) -> None:
    for number in range(deep):
        line = f"{{% block after_code %}}{{{{ super() }}}}ENV D{number}=1\n{{% endblock %}}"
        above = f"t{number + 1}.j2" if number + 1 < deep else "worker.Dockerfile.j2"
        (project.folder / f"t{number}.j2").write_text(f'{{% extends "{above}" %}}\n{line}')
    project.spec(SPEC.replace("worker: {machine", "worker: {template: t0.j2, machine"))
    ended = project.run("render", "--role", "worker")
    if works:
        assert ended.code == 0, ended.err
        assert [f"ENV D{number}=1" in ended.out for number in range(deep)] == [True] * deep
    else:
        assert ended.code == 3, ended.err
        assert "includes or extends itself, or more than about 100 others deep" in ended.err


@pytest.mark.parametrize("value", ["1\\nRUN evil", "1\\rRUN evil", "1\\0", "1\\u2028RUN evil", "\\u202e"])
def test_t03_a_value_adds_no_instruction(project: Project, value: str) -> None:
    project.spec(f'{SPEC}env: {{A: "{value}"}}\n', lock=False)
    says = ["image.yaml:11:10: env.A: the character U+", "is not allowed in a value"]
    ended = project.refused("render", code=3, says=says)
    assert "evil" not in ended.err


def test_t04_values_are_quoted(project: Project) -> None:
    """What the built image then has in its environment is compared in tests/integration/test_faults_engine.py."""
    text = rendered(project, inside("RUN true"), env="env: {A: 'x\\', B: '#$HOME \"`id`'}\n")
    assert 'ENV A="x\\\\"' in text
    assert 'B="#\\$HOME \\"`id`"' in text


@pytest.mark.parametrize(
    "text", ["{{ cycler.__init__.__globals__.os }}", "{{ ''.__class__.__mro__ }}", "{{ env.__init__ }}"]
)
def test_t05_sandbox(project: Project, text: str) -> None:
    refused(project, inside(text), "worker.j2:3: not allowed in a template: access to attribute '__")


LOOPS = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param("{{ 'a' * 10 ** 10 }}", id="memory"),
        pytest.param(LOOPS, id="time", marks=pytest.mark.long),  # five seconds; tests/dockerfile has one of less
    ],
)
def test_t06_bombs(project: Project, bomb: str) -> None:
    refused(project, inside(bomb), "the template exceeded 5 s or 512 MiB")


def test_t07_outside(project: Project) -> None:
    refused(
        project, inside("{% include '../../etc/passwd' %}"), "worker.j2:3: the template '../../etc/passwd' lies outside"
    )
    (project.folder / "link.j2").symlink_to("/etc/passwd")
    refused(project, inside("{% include 'link.j2' %}"), "worker.j2:3: the template 'link.j2' lies outside")


@pytest.mark.parametrize(("value", "kind"), [("none", "nothing"), ("apt_packages", "a list"), ("true", "a bool")])
def test_t08_no_text(project: Project, value: str, kind: str) -> None:
    refused(project, inside(f"RUN echo {{{{ {value} }}}}"), f"worker.j2:3: expected text, found {kind}")


def test_t09_line_ends(project: Project) -> None:
    template = inside("RUN a; \\\n{% if false %}\n  b; \\\n{% endif %}\n  c")
    text = rendered(project, template)
    assert "RUN a; \\\n  c\n" in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert rendered(project, template.replace("\n", "\r\n")) == text


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("RUN x\n", "worker.Dockerfile:1: RUN before the first FROM"),
        (inside("RUNN x"), "unknown instruction 'RUNN'"),
        ("# syntax=evil/frontend\n" + inside(""), "syntax=evil/frontend: a frontend is a program that runs the build"),
        (inside("ADD http://example.com/x /x"), "ADD http://example.com/x: what lies behind an address can change"),
        (inside("FROM evil AS x"), "evil is neither a stage above nor an image by digest"),
        (inside("COPY nothere/ /x/"), "worker.Dockerfile:24: COPY: "),
        (inside("COPY ../home/.docker/config.json /x"), "worker.Dockerfile:24: COPY: "),
    ],
)
def test_t10_instructions(project: Project, template: str, says: str) -> None:
    refused(project, template, "worker.", says)


def test_t11_too_long(project: Project) -> None:
    text = "{% for a in range(30000) %}RUN echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n{% endfor %}"
    refused(project, inside(text), "the rendered Dockerfile is longer than 1048576 characters")


def test_t12_the_same_bytes(project: Project) -> None:
    project.write("worker.j2", inside("RUN true"))
    project.spec(WITH_TEMPLATE + "env: {Z: z, A: a, I: '1'}\n")
    texts = {
        project.run("render", env=env).out
        for env in ({}, {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}, {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"})
    }
    assert len(texts) == 1
    assert "RUN true" in texts.pop()


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
