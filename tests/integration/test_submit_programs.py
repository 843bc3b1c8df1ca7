"""`submit` with the services' own programs: gcloud, kubectl and docker compose; killed at each step, one job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_compose_program import PROGRAM as COMPOSE
from tests.servers.google_jobs import gcloud_environment, serving
from tests.servers.kubernetes import kube_apiserver
from training_imgtool.model.targets import Target

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
WRAPPER = """\
#!/bin/bash
here() { case " $WORDS " in *" $STEP "*) return 0 ;; esac; return 1; }
WORDS="${0##*/} $*"; STEP="${KILL%%:*}"
if [ -n "$KILL" ] && here && [ "${KILL#*:}" = before ]; then kill -9 $PPID; exit 1; fi
if [ -n "$KILL" ] && here && [ "${KILL#*:}" = half ]; then set -- "$@" %s; fi
%s "$@"; code=$?
if [ -n "$KILL" ] && here; then kill -9 $PPID; fi
exit $code
"""


class Runs:
    """A folder in which submissions run, with a wrapper around one program that kills imgtool at a step."""

    def __init__(self, folder: Path, program: str, real: str, half: str = "") -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.wrap(program, real, half)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "PYTHONPATH": f"{ROOT / 'builder'}:{ROOT}", "KILL": ""}

    def wrap(self, program: str, real: str, half: str = "") -> None:
        """Puts a wrapper in the program's place, which `kill` calls by its name or by one of its words."""
        (self.folder / "bin" / program).write_text(WRAPPER % (half, real))
        (self.folder / "bin" / program).chmod(0o755)

    def start(self, target: Target, *words: str, kill: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.jobs.submit_once", target, *words]
        env = {**self.env, "KILL": kill}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True)

    def run(self, target: Target, *words: str, kill: str = "") -> tuple[int, str, str]:
        running = self.start(target, *words, kill=kill)
        out, err = running.communicate(timeout=180)
        return running.returncode, out, err


@pytest.fixture
def gcloud(tmp_path: Path) -> Iterator[tuple[Runs, list[object]]]:
    with serving() as server:
        environment = gcloud_environment(server, tmp_path / "gcloud")
        runs = Runs(tmp_path, "gcloud", str(shutil.which("gcloud")))
        runs.env |= environment
        yield runs, server.jobs


@pytest.mark.parametrize("kill", ["list:before", "list:after", "create:before", "create:after"])
def test_gcloud_killed_at_each_step_is_one_job(kill: str, gcloud: tuple[Runs, list[object]]) -> None:
    runs, jobs = gcloud
    assert runs.run(Target.VERTEX, kill=kill)[0] == -signal.SIGKILL
    code, out, err = runs.run(Target.VERTEX)
    assert (code, len(jobs)) == (0, 1), err
    assert out.split() == ["1", "PENDING", "before" if kill == "create:after" else "now"]
    assert runs.run(Target.VERTEX)[1].split() == ["1", "PENDING", "before"]
    assert runs.run(Target.VERTEX, "--rate=1")[1].split() == ["2", "PENDING", "now"]


def test_gcloud_that_outlives_imgtool_is_waited_for(tmp_path: Path) -> None:
    with serving() as server:
        runs = Runs(tmp_path, "gcloud", str(shutil.which("gcloud")))
        runs.env |= gcloud_environment(server, tmp_path / "gcloud")
        server.delay = 8
        first = runs.start(Target.VERTEX)
        while not server.bodies:
            time.sleep(0.1)
        first.kill()
        first.communicate()
        code, out, err = runs.run(Target.VERTEX)
        assert (code, len(server.jobs), out.split()[-1]) == (0, 1, "before"), err


@pytest.mark.parametrize("kill", ["get:before", "create:before", "create:half", "create:after"])
def test_kubectl_killed_at_each_step_is_one_job(kill: str, tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl program on this machine")
    (tmp_path / "server").mkdir()
    with kube_apiserver(tmp_path / "server") as server:
        half = "--selector app.kubernetes.io/component=master"
        runs = Runs(tmp_path, "kubectl", str(shutil.which("kubectl")), half)
        runs.env["KUBECONFIG"] = str(server.kubeconfig(tmp_path / "kubeconfig"))
        assert runs.run(Target.PODS, kill=kill)[0] == -signal.SIGKILL
        code, out, err = runs.run(Target.PODS)
        assert code == 0, err
        example = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}
        assert len(server.objects(example)) == 2
        assert runs.run(Target.PODS)[1] == f"{out.split()[0]} Pending before\n"
        other = runs.run(Target.PODS, "--id=mine"), runs.run(Target.PODS, "--id=mine", "--rate=1")
        assert [ended[0] for ended in other] == [0, 1]
        assert "another job called mine" in other[1][2]


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Runs]:
    docker = shutil.which("docker")
    if not COMPOSE.exists() or docker is None:
        pytest.skip("no docker, or no docker-compose here (scripts/services up compose)")
    real = f'if [ "$1" = compose ]; then shift; set -- {COMPOSE} "$@"; else set -- {docker} "$@"; fi; command env'
    runs = Runs(tmp_path, "docker", real)
    yield runs
    runs.env["KILL"] = ""
    if (tmp_path / "job.yaml").exists():
        down = [str(COMPOSE), "--file", "job.yaml", "down", "--volumes", "--timeout", "1"]
        subprocess.run(down, cwd=tmp_path, capture_output=True, check=False)


@pytest.mark.parametrize("kill", ["ps:before", "up:before", "up:after"])
@pytest.mark.engine
def test_compose_killed_at_each_step_is_one_job_and_wait_gives_the_chiefs_code(kill: str, compose: Runs) -> None:
    compose.env |= {"IMAGE": small_image(), "COMMAND": "import sys, time; print('BOOM'); time.sleep(20); sys.exit(7)"}
    assert compose.run(Target.COMPOSE, kill=kill)[0] == -signal.SIGKILL
    code, out, err = compose.run(Target.COMPOSE)
    assert code == 0, err
    name = out.split()[0]
    ids = _containers(name)
    assert len(ids) == 2
    code, out, err = compose.run(Target.COMPOSE, "--wait")
    assert (code, _containers(name)) == (1, ids), err
    assert "the chief ended with 7" in err
    logs = subprocess.run(["docker", "logs", ids[0]], capture_output=True, text=True, check=False)
    assert "BOOM" in logs.stdout + logs.stderr  # they stay
    assert compose.run(Target.COMPOSE)[1] == f"{name} exited before\n"


@pytest.mark.engine
def test_compose_that_cannot_start_starts_nothing(compose: Runs) -> None:
    compose.env |= {"IMAGE": f"{small_image().partition('@')[0]}@sha256:{'0' * 64}"}
    code, _, err = compose.run(Target.COMPOSE)
    assert code, err
    up = [str(COMPOSE), "--file", "job.yaml", "up", "--detach"]
    done = subprocess.run(up, cwd=compose.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert _containers((compose.folder / "job.yaml").read_text().partition("name: ")[2].split()[0].strip('"')) == []


def _containers(project: str) -> list[str]:
    label = f"label=com.docker.compose.project={project}"
    done = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", label], capture_output=True, text=True, check=True
    )
    return sorted(done.stdout.split())


def small_image() -> str:
    """A small image with Python, and a script in the place of dumb-init, in the local registry, by digest."""
    host = os.environ.get("IMGTOOL_REGISTRY", "127.0.0.1:5000").partition("/")[0]
    reference = f"{host}/library/python:3.10-slim-bookworm"
    done = subprocess.run(["docker", "pull", "--quiet", reference], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no image {reference} here: {done.stderr.strip()}")
    init = "/opt/venv/bin/dumb-init"
    script = '#!/bin/sh\\nshift\\nexec "$@"\\n'
    text = f"FROM {reference}\nRUN mkdir -p /opt/venv/bin && printf '{script}' >{init} && chmod +x {init}\n"
    own = f"{host}/library/submitted:python3.10"
    subprocess.run(["docker", "build", "--quiet", "--tag", own, "-"], input=text, text=True, check=True)
    subprocess.run(["docker", "push", "--quiet", own], check=True)
    form = "{{index .RepoDigests 0}}"
    command = ["docker", "image", "inspect", "--format", form, own]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return shown.stdout.strip()
