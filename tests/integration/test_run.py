"""`imgtool run` with real containers: the environment they see, how a run ends, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.project import SERVE, SPEC, Project, unique
from tests.make.engines.support import shared_engine, wait_for
from tests.other_user import NOBODY
from training_imgtool.make.engines.docker.engine import DockerEngine

pytestmark = pytest.mark.engine
Make = Callable[..., Project]

PROBE = """\
env > "/job/env-$(hostname)"; echo "$@" > "/job/args-$(hostname)"
"""
FOUR_ROLES = {
    "master": {"machine": "n1-standard-4"},
    "worker": {"machine": "n1-standard-4", "count": 2},
    "ps": {"machine": "n1-highmem-2"},
    "evaluator": {"machine": "n1-standard-4"},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerEngine]:
    with shared_engine(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture
def project(engine: DockerEngine, tmp_path: Path) -> Iterator[Make]:
    made: list[Project] = []

    def make(scripts: dict[str, str], **changes: Any) -> Project:
        made.append(Project(tmp_path, engine, scripts, **{"name": unique(tmp_path), **changes}))
        return made[-1]

    yield make
    for one in made:
        left = one.left()
        one.remove()
        assert not left


def environments(folder: Path) -> dict[str, dict[str, str]]:
    """What every probe wrote, by host name."""
    found = {}
    for path in folder.glob("env-*"):
        pairs = (line.partition("=") for line in path.read_text().splitlines())
        found[path.name.removeprefix("env-")] = {name: value for name, _, value in pairs}
    return found


def probe(project: Make, service: str, **job: Any) -> tuple[dict[str, dict[str, str]], dict[str, Any], Project]:
    """Runs a cluster of five that write down their environment; returns that and the summary."""
    master = PROBE + 'while [ "$(ls /job/env-* | wc -l)" -lt 5 ]; do sleep 0.1; done\n'
    scripts = dict.fromkeys(("worker", "ps", "evaluator"), PROBE + SERVE) | {"master": master}
    made = project(scripts, roles=FOUR_ROLES, job={**SPEC["job"], **job})
    summary = json.loads(made.run("--as", service, "--json", "--progress", "quiet").stdout)
    return environments(made.job), summary, made


def split(variable: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A TF_CONFIG or CLUSTER_SPEC without its `job`, and that."""
    value = json.loads(variable)
    return {key: item for key, item in value.items() if key != "job"}, value.get("job")


@pytest.mark.parametrize("chief", [None, pytest.param(False, marks=pytest.mark.long)])
def test_ai_platform_sets_what_is_documented(project: Make, chief: bool | None) -> None:
    seen, summary, made = probe(project, "ai-platform", chief_in_tf_config=chief)
    first = "chief" if chief is None else "master"
    hosts = {one["name"]: one["host"] for one in summary["replicas"]}
    ident = hosts["worker-1"].split("-")[3]
    assert hosts == {
        "master": f"cmle-training-{first}-{ident}-0",
        "worker-0": f"cmle-training-worker-{ident}-0",
        "worker-1": f"cmle-training-worker-{ident}-1",
        "ps-0": f"cmle-training-ps-{ident}-0",
        "evaluator-0": f"cmle-training-evaluator-{ident}-0",
    }
    at = {name: f"{host}:2222" for name, host in hosts.items()}
    members = {"worker": [at["worker-0"], at["worker-1"]], "ps": [at["ps-0"]]}
    for name, role, index in (("master", first, 0), ("worker-1", "worker", 1), ("ps-0", "ps", 0)):
        config, job = split(seen[hosts[name]]["TF_CONFIG"])
        assert config == {
            "cluster": {first: [at["master"]], **members},  # never the evaluator
            "task": {"type": role, "index": index, "cloud": ident},
            "environment": "cloud",
        }
        assert job is not None
        assert job["scaleTier"] == "CUSTOM"
        assert job["workerCount"] == 2
        assert job["workerConfig"]["imageUri"].startswith("localhost/imgtool/stage@sha256:")
        assert job.get("useChiefInTfConfig") is (None if chief is False else True) or job["useChiefInTfConfig"] is chief
    config, job = split(seen[hosts["evaluator-0"]]["TF_CONFIG"])
    assert config["task"]["type"] == "evaluator"
    assert "evaluator" not in config["cluster"]
    spec, _ = split(seen[hosts["worker-0"]]["CLUSTER_SPEC"])
    assert spec == {
        "cluster": {"master": [at["master"]], **members, "evaluator": [at["evaluator-0"]]},
        "task": {"type": "worker", "index": 0, "cloud": ident},
        "environment": "cloud",
    }
    assert not [name for name in seen[hosts["master"]] if name.startswith("AIP_")]
    assert (made.job / f"args-{hosts['worker-0']}").read_text() == "--epochs=3 --job-dir=/job\n"


@pytest.mark.long
@pytest.mark.parametrize("service", ["ai-platform", "vertex", "tfjob", "local"])
def test_replicas_reach_each_other_by_name_and_port(project: Make, service: str) -> None:
    ask = """\
worker=$(echo "$TF_CONFIG" | sed 's/.*"worker":\\["\\([^":]*\\):2222".*/\\1/')
until nc "$worker" 2222 < /dev/null > /said && [ -s /said ]; do sleep 0.1; done; cat /said
"""
    serve = "trap 'exit 0' TERM; while :; do echo hello from $(hostname) | nc -l -p 2222; done &\n" + SERVE
    done = project({"master": ask, "worker": serve}).run("--as", service)
    assert "master   | hello from " in done.stderr


def test_a_failing_worker_fails_the_run_with_its_last_lines(project: Make) -> None:
    worker = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; done; printf 'red \\033[31malert\\n'; exit 3\n"
    made = project({"master": SERVE, "worker": worker}, roles={**SPEC["roles"], "worker": {"count": 2}})
    done = made.run("--kill", "worker:1@30s", code=10)
    assert "Error: the run failed: worker-" in done.stderr
    assert " exited 3\n  line 22\n  line 23\n" in done.stderr
    assert done.stderr.rstrip().endswith("  red alert")
    assert "\x1b" not in done.stderr + done.stdout
    assert "worker-1 was not killed at 30 s" in done.stdout
    assert made.left() == []
    document = json.loads(made.run("--json", "--progress", "quiet", code=10).stdout)
    assert not document["ok"]
    assert document["failed"] in {"worker-0", "worker-1"}
    assert document["error"]["code"] == 10
    assert document["error"]["details"][-1] == "red alert"
    assert len(document["error"]["details"]) == 20
    states = {one["name"]: one["state"] for one in document["replicas"]}
    assert states["master"] == "stopped"
    assert set(document["error"]) == {"code", "message", "retryable", "hint", "details", "fields"}


@pytest.mark.long
def test_the_first_to_fail_is_blamed_and_its_last_lines_are_shown(project: Make) -> None:
    """A parameter server ends after 5 MB of output, and the master's own error follows at once."""
    loud = "yes $(printf %099d 0) | head -c 5000000; echo; echo REAL CAUSE >&2; touch /job/gone; exit 42\n"
    master = "until [ -e /job/gone ]; do sleep 0.05; done; sleep 0.2; echo lost; exit 1\n"
    made = project({"master": master, "ps": loud}, roles={"master": {}, "ps": {}})
    done = made.run("--as", "local", "--json", code=10)
    document = json.loads(done.stdout)
    assert document["failed"] == "ps-0"
    assert "REAL CAUSE" in document["error"]["details"]  # an engine may log a line of stdout after it
    assert [death["replica"] for death in document["deaths"]] in (["ps-0"], ["ps-0", "master"])
    states = {one["name"]: (one["state"], one["exit_code"]) for one in document["replicas"]}
    assert states["ps-0"] == ("exited", 42)


@pytest.mark.long
def test_an_error_before_the_first_checkpoint_ends_the_run_at_once(project: Make) -> None:
    master = "echo 'ModuleNotFoundError: No module named pkg'; exit 1\n"
    done = project({"master": master, "worker": SERVE}).run("--as", "tfjob", code=10, timeout=30)
    assert "the run failed: master exited 1\n  ModuleNotFoundError: No module named pkg\n" in done.stderr
    assert "--restart restarts it, as tfjob does" in done.stderr


@pytest.mark.parametrize("code", [1, pytest.param(137, marks=pytest.mark.long)])
def test_the_masters_exit_code_is_the_runs(project: Make, code: int) -> None:
    made = project({"master": f"echo said >&2; exit {code}\n", "worker": SERVE})
    done = made.run("--as", "local", code=10)
    assert f"the run failed: master exited {code}\n  said\n" in done.stderr


def test_success_stops_the_others_and_is_summarised(project: Make) -> None:
    made = project({"master": "echo trained; sleep 2\n", "worker": "echo serving\n" + SERVE})
    document = json.loads(made.run("--workers", "3", "--json", "--", "--epochs=1", "--fast").stdout)
    assert document["ok"]
    replicas = {one["name"]: one for one in document["replicas"]}
    assert list(replicas) == ["master", "worker-0", "worker-1", "worker-2"]
    assert replicas["master"]["state"] == "exited"
    assert replicas["master"]["exit_code"] == 0
    assert 2 <= replicas["master"]["seconds"] < 20
    for name in ("worker-0", "worker-1", "worker-2"):
        assert replicas[name]["state"] == "stopped"
        assert replicas[name]["exit_code"] == 0  # its trap: SIGTERM came
        assert 0 <= replicas[name]["peak_memory_bytes"] < 50_000_000
        assert replicas[name]["restarts"] == 0
    assert replicas["master"]["image_from"] == "engine"
    assert replicas["master"]["image"] == made.images["master"]


@pytest.mark.long
def test_a_cluster_of_workers_ends_with_worker_0(project: Make) -> None:
    worker = 'case "$(hostname)" in *-worker-0) sleep 1;; *) ' + SERVE.replace("\n", " ") + ";; esac\n"
    made = project({"worker": worker}, roles={"worker": {"machine": "n1-standard-4", "count": 2}})
    document = json.loads(made.run("--as", "tfjob", "--json").stdout)
    assert [(one["name"], one["state"]) for one in document["replicas"]] == [
        ("worker-0", "exited"),
        ("worker-1", "stopped"),
    ]


@pytest.mark.long
def test_a_program_that_cannot_be_started_is_named(project: Make) -> None:
    made = project({"master": SERVE, "worker": SERVE}, roles={**SPEC["roles"], "worker": {"command": ["/no/such"]}})
    done = made.run(code=10)
    assert "the run failed: worker-0: " in done.stderr
    assert "/no/such" in done.stderr


@pytest.mark.long
def test_a_replica_that_needs_more_memory_than_its_limit_is_said_to(project: Make) -> None:
    made = project({"master": SERVE, "worker": "tail /dev/zero\n"}, roles={"master": {}, "worker": {"memory": "64Mi"}})
    done = made.run(code=10)
    assert "the run failed: worker-0 ran out of its memory of 0.1 GiB" in done.stderr


@pytest.mark.long
def test_what_a_container_takes_with_it_is_said(project: Make) -> None:
    master = "mkdir -p /tmp/ckpt; echo x > /tmp/ckpt/checkpoint\n"
    done = project({"master": master}, roles={"master": {}}, volume="/v").run()
    assert ": succeeded, its model lost, " in done.stdout
    assert "gone with master's container: /tmp/ckpt/checkpoint" in done.stdout
    assert "the files of master in volumes of its image (/v) are lost and not listed" in done.stderr


STARTS = 'echo started >> "/job/starts-$(hostname)"; hostname -i >> "/job/addresses-$(hostname)"\n'


@pytest.mark.long
@pytest.mark.parametrize(
    ("service", "job", "exit_code", "documented"),
    [
        ("ai-platform", {}, 137, True),
        pytest.param("vertex", {}, 137, True, marks=pytest.mark.long),
        pytest.param("tfjob", {}, 137, True, marks=pytest.mark.long),
        ("tfjob", {}, 1, True),
    ],
)
def test_a_replica_that_died_comes_back_as_the_service_would_have_it(
    project: Make, service: str, job: dict[str, Any], exit_code: int, documented: bool
) -> None:
    again = 'until [ "$(cat /job/starts-*worker* | wc -l)" -ge 2 ]; do sleep 0.1; done; sleep 0.5\n'
    once = f'[ "$(cat "/job/starts-$(hostname)" | wc -l)" -ge 2 ] || {{ touch /mark; sleep 1; exit {exit_code}; }}\n'
    worker = STARTS + "[ -e /mark ] && exit 99\n" + (once if exit_code == 1 else "touch /mark\n") + SERVE
    made = project({"master": again, "worker": worker}, job={**SPEC["job"], **job})
    option = ["--kill", "worker@1s"] if exit_code == 137 else ["--restart"]
    document = json.loads(made.run("--as", service, "--json", *option).stdout)
    (death,) = document["deaths"]
    assert death["replica"] == "worker-0"
    assert death["exit_code"] == exit_code
    assert death["rehearsed"] is (exit_code == 137)
    assert death["action"] == "restart"
    assert death["documented"] is documented
    assert death["went_on"]
    assert death["back_after_seconds"] < 5
    assert document["replicas"][1]["restarts"] == 1
    (starts,), (addresses,) = made.job.glob("starts-*"), made.job.glob("addresses-*")
    assert starts.read_text() == "started\nstarted\n"
    assert len(set(addresses.read_text().splitlines())) == 1  # its address stays, as its host name does


@pytest.mark.long
def test_vertex_restarts_the_whole_job_when_the_spec_says_so(project: Make) -> None:
    master = STARTS + '[ "$(cat /job/starts-*pool0* | wc -l)" -ge 2 ] && { sleep 1; exit 0; }\n' + SERVE
    times = {"restart_on_worker_restart": True}
    made = project({"master": master, "worker": STARTS + SERVE}, job={**SPEC["job"], "scheduling": times})
    document = json.loads(made.run("--as", "vertex", "--json", "--kill", "worker@1s", "--workers", "2").stdout)
    assert document["deaths"][0]["action"] == "restart the job"
    assert [one["restarts"] for one in document["replicas"]] == [1, 1, 1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("service", "exit_code"), [pytest.param("ai-platform", 2, marks=pytest.mark.long), ("vertex", 2), ("local", 137)]
)
def test_a_replica_that_the_service_would_not_restart_fails_the_run(
    project: Make, service: str, exit_code: int
) -> None:
    kill = ["--kill", "worker@0s"] if exit_code == 137 else []
    worker = SERVE if kill else f"exit {exit_code}\n"
    done = project({"master": SERVE, "worker": worker}).run("--as", service, *kill, code=10)
    assert "the run failed. " in done.stdout


def test_a_master_that_is_killed_starts_again_from_its_checkpoint(project: Make) -> None:
    master = """\
mkdir -p /job/checkpoints; n=$(sed -n 's/.*ckpt-\\([0-9]*\\).*/\\1/p' /job/checkpoints/checkpoint 2>/dev/null)
[ -n "$n" ] && echo resumed after epoch $n
n=${n:-0}
while [ "$n" -lt 6 ]; do
  sleep 0.5; n=$((n+1)); echo "epoch $n loss: 0.$((9-n))"
  echo "model_checkpoint_path: \\"ckpt-$n\\"" > /job/checkpoints/checkpoint
done
"""
    made = project({"master": master, "worker": SERVE})
    report = made.folder / "run.html"
    made.run("--report", "-", code=2)
    assert "there is no folder" in made.run("--report", str(report / "run.html"), code=9).stderr
    done = made.run("--kill", "chief@2s", "--report", str(report))
    page = report.read_text()
    assert page.count('<rect class="failed"') == 1
    assert page.count('<rect class="exited"') == 1
    assert page.count('<rect class="stopped"') == 1
    assert "master loss: 0.8 to 0.3" in page
    assert "The engine reported no memory use." not in page
    assert "master   | resumed after epoch " in done.stderr
    assert "master was killed at 2." in done.stdout
    assert "training went on: newest checkpoint checkpoints/ckpt-" in done.stdout
    where, written = done.stdout.splitlines()[-2:]
    assert where == f"job directory: {made.job}, newest checkpoint checkpoints/ckpt-6"
    assert written == "  written: 1 file, 0.0 MB: checkpoints/checkpoint"
    again = made.run()
    assert f"note: {made.job} already contains checkpoints/ckpt-6" in again.stderr


def test_a_preemption_tells_who_saves_who_is_too_slow_and_who_has_no_handler(project: Make) -> None:
    master = """\
mkdir -p /job/checkpoints; n=$(sed -n 's/.*ckpt-\\([0-9]*\\).*/\\1/p' /job/checkpoints/checkpoint 2>/dev/null)
n=${n:-0}
save() { echo "model_checkpoint_path: \\"ckpt-$n\\"" > /job/checkpoints/checkpoint; }
trap 'save; exit 143' TERM
while [ "$n" -lt 30 ]; do
  sleep 0.25; n=$((n+1)); echo "epoch $n/30 loss: 0.5"; [ $((n % 5)) = 0 ] && save
done
exit 0
"""
    worker = """\
case "$(hostname)" in *-1) trap 'sleep 60' TERM;; esac
while :; do sleep 0.2; done
"""
    made = project({"master": master, "worker": worker}, roles={**SPEC["roles"], "worker": {"count": 2}})
    options = [f"--preempt={name}@2s/grace=1s" for name in ("worker:0", "worker:1", "master")]
    document = json.loads(made.run("--as", "vertex", "--json", *options).stdout)
    took = {death["replica"]: death["preemption"] for death in document["deaths"]}
    assert [took[name]["handling"] for name in ("master", "worker-0", "worker-1")] == [
        "saves",
        "no handler",
        "too slow",
    ]
    assert [took[name]["killed"] for name in ("master", "worker-0", "worker-1")] == [False, True, True]
    assert took["master"]["lost"] == 0
    assert took["master"]["next"] == took["master"]["last"] + 1
    assert took["master"]["next_after_seconds"] < 20
    assert [one["restarts"] for one in document["replicas"]] == [1, 1, 1]
    assert all(1.0 <= took[name]["ended_after_seconds"] < 4 for name in ("worker-0", "worker-1"))
    (made.job / "checkpoints/checkpoint").unlink()
    lone = made.run("--as", "local", "--preempt", "worker:0@1s/grace=1s", code=10)
    assert "worker-0 was preempted, as --preempt asked" in lone.stderr


def test_kills_come_in_time_while_a_replica_is_restarted(project: Make) -> None:
    made = project({"master": "sleep 6\n", "worker": SERVE}, roles={**SPEC["roles"], "worker": {"count": 3}})
    kills = [f"--kill=worker:{index}@{1 + index / 10}s" for index in range(3)]
    notes = made.run("--as", "vertex", *kills).stderr
    assert notes.index("worker-2 is killed now") < notes.index("worker-0 is restarted")
    assert all(f"note: worker-{index} is restarted" in notes for index in range(3))


def test_kills_that_cannot_be_are_refused_before_anything_starts(project: Make) -> None:
    made = project({"master": SERVE, "worker": SERVE})
    assert "the cluster has 1 master, 1 worker" in made.run("--kill", "worker:1@5s", code=2).stderr
    assert "expected ROLE[:INDEX]@DURATION" in made.run("--kill", "worker", code=2).stderr
    assert "expected ai-platform, vertex, tfjob, local" in made.run("--as", "sagemaker", code=2).stderr
    assert "the spec has no role ps" in made.run("--ps", "1", code=2).stderr
    assert "--job-dir is empty" in made.run("--job-dir", "", code=2).stderr
    assert "root folder" in made.run("--job-dir", "/", code=2).stderr


def running(made: Project, count: int) -> bool:
    """Whether so many containers have begun and said so in the job directory."""
    return wait_for(lambda: len(list(made.job.glob("starts-*"))) == count, 30)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_nothing_is_left_after_a_signal(project: Make, number: signal.Signals) -> None:
    stubborn = STARTS + "trap '' TERM INT; while :; do sleep 0.2; done\n"
    made = project({"master": stubborn, "worker": stubborn})
    process = made.start("--workers", "3")
    assert running(made, 4)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert "Traceback" not in said
    assert process.returncode == 128 + number
    assert made.left() == []


@pytest.mark.long
def test_nothing_is_left_after_a_signal_while_it_starts(project: Make) -> None:
    made = project({"master": SERVE, "worker": SERVE})
    for wait in (0.6, 0.8, 1.0, 1.2):
        process = made.start("--workers", "4")
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 130, said
        assert made.left() == [], wait


@pytest.mark.long
def test_what_a_killed_run_left_is_swept_by_the_next(project: Make) -> None:
    made = project({"master": STARTS + SERVE, "worker": STARTS + SERVE})
    other = made.start("--workers", "1")
    assert running(made, 2)
    for path in made.job.glob("starts-*"):
        path.unlink()
    killed = made.start("--workers", "1")
    assert running(made, 2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=10)
    assert len(made.left()) == 6  # two runs, each of two containers and a network
    for path in made.job.glob("starts-*"):
        path.unlink()
    third = made.start("--workers", "0")
    assert running(made, 1)
    assert len(made.left()) == 5  # the killed run's are gone; those of the one that lives are not
    for process in (third, other):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert made.left() == []


@pytest.mark.long
def test_a_container_that_somebody_removes_ends_the_run(project: Make) -> None:
    made = project({"master": STARTS + SERVE, "worker": STARTS + SERVE})
    process = made.start()
    assert running(made, 2)
    (worker,) = [
        one for one in made.containers.containers_with("dev.imgtool.replica=worker-0") if one.name in made.left()
    ]
    made.containers.remove(worker.id)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 10, said
    assert "worker-0" in said
    assert made.left() == []


def test_without_an_engine_it_says_so(project: Make) -> None:
    made = project({"master": SERVE, "worker": SERVE})
    done = subprocess.run(
        made.command(),
        env={**made.env, "DOCKER_HOST": "unix:///nonexistent.sock"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "Docker Engine not reachable" in done.stderr


@pytest.mark.long
def test_a_registry_that_cannot_be_asked_is_said_and_no_hindrance(project: Make) -> None:
    made = project({"master": "echo trained\n", "worker": SERVE})
    made.env["IMGTOOL_REGISTRY"] = "127.0.0.1:9/nobody"
    done = made.run("--json", timeout=200)
    assert "note: imgtool uses no image from the registry: " in done.stderr
    assert {one["image_from"] for one in json.loads(done.stdout)["replicas"]} == {"engine"}


RIGHTS = """\
grep -E 'CapEff|CapBnd|NoNewPrivs|^Uid' /proc/self/status > /job/rights; echo "$HOME" >> /job/rights
mknod /job/device b 8 0 2>> /job/rights && echo MADE >> /job/rights
exit 0
"""


def test_programs_have_no_rights_of_roots(project: Make) -> None:
    made = project({"master": RIGHTS}, roles={"master": {"machine": "n1-standard-4"}})
    made.run("--as", "vertex", "--progress", "quiet")
    text = (made.job / "rights").read_text()
    assert {line.split(":")[1].strip() for line in text.splitlines() if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in text
    assert "MADE" not in text
    assert not (made.job / "device").exists()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_are_the_folders_owners(project: Make) -> None:
    made = project({"master": RIGHTS}, roles={"master": {"machine": "n1-standard-4"}})
    made.job.mkdir()
    os.chown(made.job, NOBODY, NOBODY)
    made.run("--as", "vertex", "--progress", "quiet")
    assert (made.job / "rights").stat().st_uid == NOBODY
    lines = (made.job / "rights").read_text().splitlines()
    assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}" in lines
    assert "/tmp" in lines
