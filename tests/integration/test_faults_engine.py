"""Group E, and P1 and O10, with a real Docker Engine: its failures and the user's, as the command line tells them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.support import BUSYBOX, SLEEPING_STEP, private_engine, wait_for
from tests.faults.base import put_base
from tests.faults.private import Private, private_project
from tests.faults.project import NOBODY, OLD_CONFIG, SPEC, Project
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from tests.servers.registry_process import run_registry

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow]

STEP = '{%% extends "base.Dockerfile.j2" %%}\n{%% block before_code %%}\n%s\n{%% endblock %%}\n'


@pytest.fixture(scope="session")
def registry_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A docker-registry that holds the base, which has a shell here."""
    if not BUSYBOX.is_file():
        pytest.skip("no /bin/busybox (apt install busybox-static)")
    with run_registry(tmp_path_factory.mktemp("registry")) as registry:
        put_base(registry.host)
        yield registry.host


@pytest.fixture
def proxy(registry_host: str) -> Iterator[FaultProxy]:
    """What stands between a project and the registry."""
    with FaultProxy(registry_host) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, proxy: FaultProxy) -> Iterator[Project]:
    """A project that is built by this machine's engine."""
    made = Project(tmp_path)
    made.env["DOCKER_HOST"] = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    made.env["IMGTOOL_REGISTRY"] = f"{proxy.host}/t{made.mark[:12]}"
    made.env["IMGTOOL_MIRRORS"] = f"docker.io={proxy.host}"
    made.login(proxy.host)
    yield made
    assert wait_for(lambda: not containers(made), 10)
    for wanted in (f"label=mark={made.mark}", f"reference={made.env['IMGTOOL_REGISTRY']}/*"):
        names = docker(made, "images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", wanted).split()
        docker(made, "rmi", "--force", *names)


def docker(project: Project, *arguments: str) -> str:
    """What the docker program of the project's engine prints."""
    return subprocess.run(
        ["docker", *arguments], env=project.env, stdout=subprocess.PIPE, text=True, check=arguments[0] == "ps"
    ).stdout


def containers(project: Project) -> list[str]:
    """The containers that run a RUN step of this project; those of LABEL and its like are not counted."""
    rows = docker(project, "ps", "--all", "--no-trunc", "--format", "{{.Command}}").splitlines()
    return [row for row in rows if project.mark in row and "#(nop)" not in row]


def with_step(project: Project, step: str, spec: str = SPEC) -> None:
    """Gives the worker a template with a step of its own."""
    project.write("own.j2", STEP % f"LABEL mark={project.mark}\n{step}")
    project.spec(spec.replace("  worker: {machine", "  worker: {template: own.j2, machine"))


def build(project: Project, *more: str) -> tuple[str, ...]:
    """The command line that builds the worker with the engine."""
    return ("build", "--engine", "docker", "--role", "worker", "--json", *more)


def test_e05_a_step_that_fails(project: Project) -> None:
    """Exit 4: the role, the line, the code, and the last 20 lines."""
    with_step(project, "RUN exec 2>&1; for i in $(seq 30); do echo line $i; done; echo oh no >&2; exit 7")
    rendered = project.run("render", "--role", "worker").out.splitlines()
    line = 1 + next(number for number, text in enumerate(rendered) if text.startswith("RUN exec 2>&1"))
    says = ["worker: RUN exec 2>&1; for i in", f"(line {line} of the rendered Dockerfile): ended with exit code 7"]
    ended = project.refused(*build(project), code=4, says=says)
    details = ended.document["error"]["details"]
    assert details[-1] == "oh no"
    assert "line 30" in details
    assert len(details) == 20
    assert "line 5" not in details


@pytest.mark.long
def test_e05_the_other_roles_are_told(project: Project, proxy: FaultProxy) -> None:
    """What does not fail is built; nothing is pushed as long as a role is missing."""
    with_step(project, "RUN exit 3", SPEC + f"env: {{MARK: {project.mark}}}\n")
    ended = project.refused("push", "--engine", "docker", "--json", code=4, says=["exit code 3"])
    assert "[master] built" in ended.err
    assert [exchange for exchange in proxy.log if exchange.method == "PUT"] == []
    project.refused("config", "-o", "config.yaml", code=3, says=["2 of 2 images"])


def test_e04_a_step_that_is_killed(project: Project) -> None:
    """The engine is asked whether it still is there before the user's step is blamed."""
    with_step(project, "RUN sh -c 'kill -9 $$'; exit $?")
    project.refused(*build(project), code=4, says=["was killed (exit code 137)"], hint="out of memory?")


def test_e10_secrets_need_buildkit(project: Project) -> None:
    """Refused or failed, but never built without the secret."""
    with_step(project, "RUN --mount=type=secret,id=key cat /run/secrets/key")
    ended = project.run(*build(project))
    project.failed(ended, "--json", code=ended.code, says=["--mount"])
    assert ended.code in {3, 4}


@pytest.mark.long
def test_o06_a_log_with_escapes(project: Project) -> None:
    with_step(project, r"RUN printf '\033]0;owned\007\033[2J\rhidden\n\342\200\256gpj.exe\n'; exit 1")
    ended = project.refused(*build(project), code=4, says=["exit code 1"])
    for character in ("\x1b", "\x07", "\u202e", "\r"):
        assert character not in ended.err
        assert character not in ended.document["error"]["message"]


@pytest.mark.long
def test_o10_a_long_log(project: Project) -> None:
    """200 000 lines: flat memory, and the end is shown."""
    with_step(project, "RUN seq 200000; exit 1")
    ended = project.run(
        *build(project, "--progress", "quiet"), before=("prlimit", "--as=2000000000", "--"), timeout=120
    )
    project.failed(ended, "--json", code=4, says=["exit code 1"])
    assert ended.document["error"]["details"][-1].endswith("200000")
    assert len(ended.document["error"]["details"]) <= 21


def test_t04_values_reach_the_image(project: Project) -> None:
    """Quotes, dollars, backquotes, backslashes and spaces: the image's environment is the spec's, byte for byte."""
    env = {"A": "x\\", "B": "#$HOME \"`id`\" 'q'", "C": "  two  spaces ", "D": "${X:-y}\\n", "E": "ü€"}
    project.spec(SPEC + f"env: {json.dumps(env, ensure_ascii=False)}\n")
    ended = project.run(*build(project))
    assert ended.code == 0, ended.err
    image = ended.document["images"][0]["image_id"]
    shown = json.loads(docker(project, "inspect", image))[0]["Config"]["Env"]
    assert env.items() <= dict(row.split("=", 1) for row in shown).items()


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("unix:///nonexistent/docker.sock", "(from DOCKER_HOST): No such file or directory"),
        ("tcp://127.0.0.1:9", "(from DOCKER_HOST): Connection refused"),
        ("docker.example.com", "expected unix:///PATH or tcp://HOST:PORT"),
        ("ssh://host", "ssh is not supported"),
    ],
)
def test_e01_no_engine(project: Project, host: str, says: str) -> None:
    for arguments in (build(project), ("push", "--engine", "docker", "--json")):
        project.refused(*arguments, code=5, says=[host, says], hint="DOCKER_HOST", env={"DOCKER_HOST": host})


def test_e01_not_allowed(project: Project) -> None:
    project.open_to_nobody()
    project.refused(*build(project), code=5, says=["Permission denied"], hint="group `docker`", before=NOBODY)


def test_r02_the_registry_refuses_the_engine(project: Project, proxy: FaultProxy) -> None:
    """docker-py raises nothing for a push that fails; the stream says so."""
    body = b'{"errors":[{"code":"DENIED","message":"requested access is denied"}]}'
    proxy.add(Fault(action=Action.ANSWER, method="POST", times=-1, status=403, body=body))
    says = ["denied", proxy.host]
    project.refused("push", "--engine", "docker", "--json", code=6, says=says, hint="the right to do this")


def test_r01_the_registry_does_not_know_the_engine(project: Project, proxy: FaultProxy) -> None:
    challenge = {"WWW-Authenticate": 'Basic realm="x"'}
    proxy.add(Fault(action=Action.ANSWER, method="POST", times=-1, status=401, headers=challenge))
    project.refused("push", "--engine", "docker", "--json", code=7, says=[proxy.host], hint="log in")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=lambda signum: signum.name)
def test_p01_while_building(project: Project, signum: int) -> None:
    """The step's container is gone too."""
    with_step(project, f"RUN : {project.mark}; sleep 300")
    with project.under_way(*build(project)) as process:
        assert wait_for(lambda: containers(project), 60)
        process.send_signal(signum)
        ended = project.ended(process, timeout=30)
    assert ended.code == 128 + signum
    assert ended.document["error"]["code"] == ended.code
    assert wait_for(lambda: not containers(project), 10)
    assert project.config.read_text() == OLD_CONFIG
    assert project.leaks() == []


def test_p01_while_the_engine_pushes(project: Project, proxy: FaultProxy) -> None:
    proxy.add(Fault(action=Action.DELAY, method="PATCH", times=-1, seconds=60))
    with project.under_way("push", "--engine", "docker", "--json") as process:
        assert wait_for(lambda: "PATCH" in proxy.methods(), 60)
        process.send_signal(signal.SIGTERM)
        ended = project.ended(process, timeout=30)
    assert ended.code == 143
    assert project.config.read_text() == OLD_CONFIG


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Private]:
    with private_project(tmp_path, lambda _: private_engine()) as made:
        yield made


@pytest.mark.long
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_e03_the_engine_goes_while_it_builds(private: Private, end: str) -> None:
    """SIGKILL breaks connections off; SIGTERM kills the steps first, which is not their fault."""
    project = private.project
    with_step(project, SLEEPING_STEP)
    with project.under_way(*build(project), before=private.before) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, b"")
        told = next(line for line in lines if b"begun" in line and b"|" in line)
        assert b"[worker]" in told
        (private.engine.kill if end == "killed" else private.engine.stop)()
        ended = project.ended(process, timeout=30)
    project.failed(ended, "--json", code=5)
    assert f"worker: {SLEEPING_STEP} (line " in ended.err
    assert ended.document["error"]["retryable"] is True
