"""`imgtool run` with real containers: the environment they see, how a run ends, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import MakeCluster
from tests.local.project import SERVE, SPEC, STARTS, Project
from tests.make.engines.support import wait_for
from tests.other_user import NOBODY

pytestmark = pytest.mark.engine

PROBE = """\
env > "/job/env-$(hostname)"; echo "$@" > "/job/args-$(hostname)"
"""
FOUR_ROLES = {
    "master": {"machine": "n1-standard-4"},
    "worker": {"machine": "n1-standard-4", "count": 2},
    "ps": {"machine": "n1-highmem-2"},
    "evaluator": {"machine": "n1-standard-4"},
}


def environments(folder: Path) -> dict[str, dict[str, str]]:
    """What every probe wrote, by host name."""
    found = {}
    for path in folder.glob("env-*"):
        pairs = (line.partition("=") for line in path.read_text().splitlines())
        found[path.name.removeprefix("env-")] = {name: value for name, _, value in pairs}
    return found


def probe(cluster: MakeCluster, service: str, **job: Any) -> tuple[dict[str, dict[str, str]], dict[str, Any], Project]:
    """Runs a cluster of five that write down their environment; returns that and the summary."""
    master = PROBE + 'while [ "$(ls /job/env-* | wc -l)" -lt 5 ]; do sleep 0.1; done\n'
    scripts = dict.fromkeys(("worker", "ps", "evaluator"), PROBE + SERVE) | {"master": master}
    made = cluster(scripts, roles=FOUR_ROLES, job={**SPEC["job"], **job})
    summary = json.loads(made.run("--as", service, "--json", "--progress", "quiet").stdout)
    return environments(made.job), summary, made


def split(variable: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A TF_CONFIG or CLUSTER_SPEC without its `job`, and that."""
    value = json.loads(variable)
    return {key: item for key, item in value.items() if key != "job"}, value.get("job")


@pytest.mark.parametrize("chief", [None, pytest.param(False, marks=pytest.mark.long)])
def test_ai_platform_sets_what_is_documented(cluster: MakeCluster, chief: bool | None) -> None:
    seen, summary, made = probe(cluster, "ai-platform", chief_in_tf_config=chief)
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
def test_replicas_reach_each_other_by_name_and_port(cluster: MakeCluster, service: str) -> None:
    ask = """\
worker=$(echo "$TF_CONFIG" | sed 's/.*"worker":\\["\\([^":]*\\):2222".*/\\1/')
until nc "$worker" 2222 < /dev/null > /said && [ -s /said ]; do sleep 0.1; done; cat /said
"""
    serve = "trap 'exit 0' TERM; while :; do echo hello from $(hostname) | nc -l -p 2222; done &\n" + SERVE
    done = cluster({"master": ask, "worker": serve}).run("--as", service)
    assert "master   | hello from " in done.stderr


def test_a_failing_worker_fails_the_run_with_its_last_lines(cluster: MakeCluster) -> None:
    worker = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; done; printf 'red \\033[31malert\\n'; exit 3\n"
    made = cluster({"master": SERVE, "worker": worker}, roles={**SPEC["roles"], "worker": {"count": 2}})
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
def test_the_first_to_fail_is_blamed_and_its_last_lines_are_shown(cluster: MakeCluster) -> None:
    """A parameter server ends after 5 MB of output, and the master's own error follows at once."""
    loud = "yes $(printf %099d 0) | head -c 5000000; echo; echo REAL CAUSE >&2; touch /job/gone; exit 42\n"
    master = "until [ -e /job/gone ]; do sleep 0.05; done; sleep 0.2; echo lost; exit 1\n"
    made = cluster({"master": master, "ps": loud}, roles={"master": {}, "ps": {}})
    done = made.run("--as", "local", "--json", code=10)
    document = json.loads(done.stdout)
    assert document["failed"] == "ps-0"
    assert "REAL CAUSE" in document["error"]["details"]  # an engine may log a line of stdout after it
    assert [death["replica"] for death in document["deaths"]] in (["ps-0"], ["ps-0", "master"])
    states = {one["name"]: (one["state"], one["exit_code"]) for one in document["replicas"]}
    assert states["ps-0"] == ("exited", 42)


@pytest.mark.long
def test_an_error_before_the_first_checkpoint_ends_the_run_at_once(cluster: MakeCluster) -> None:
    master = "echo 'ModuleNotFoundError: No module named pkg'; exit 1\n"
    done = cluster({"master": master, "worker": SERVE}).run("--as", "tfjob", code=10, timeout=30)
    assert "the run failed: master exited 1\n  ModuleNotFoundError: No module named pkg\n" in done.stderr
    assert "--restart restarts the replica, as tfjob does" in done.stderr


@pytest.mark.parametrize("code", [1, pytest.param(137, marks=pytest.mark.long)])
def test_the_masters_exit_code_is_the_runs(cluster: MakeCluster, code: int) -> None:
    made = cluster({"master": f"echo said >&2; exit {code}\n", "worker": SERVE})
    done = made.run("--as", "local", code=10)
    assert f"the run failed: master exited {code}\n  said\n" in done.stderr


def test_success_stops_the_others_and_is_summarised(cluster: MakeCluster) -> None:
    made = cluster({"master": "echo trained; sleep 2\n", "worker": "echo serving\n" + SERVE})
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
def test_a_cluster_of_workers_ends_with_worker_0(cluster: MakeCluster) -> None:
    worker = 'case "$(hostname)" in *-worker-0) sleep 1;; *) ' + SERVE.replace("\n", " ") + ";; esac\n"
    made = cluster({"worker": worker}, roles={"worker": {"machine": "n1-standard-4", "count": 2}})
    document = json.loads(made.run("--as", "tfjob", "--json").stdout)
    assert [(one["name"], one["state"]) for one in document["replicas"]] == [
        ("worker-0", "exited"),
        ("worker-1", "stopped"),
    ]


@pytest.mark.long
def test_a_program_that_cannot_be_started_is_named(cluster: MakeCluster) -> None:
    made = cluster({"master": SERVE, "worker": SERVE}, roles={**SPEC["roles"], "worker": {"command": ["/no/such"]}})
    done = made.run(code=10)
    assert "the run failed: worker-0: " in done.stderr
    assert "dumb-init" in done.stderr  # which starts each program; this image has none


@pytest.mark.long
def test_a_replica_that_needs_more_memory_than_its_limit_is_said_to(cluster: MakeCluster) -> None:
    made = cluster({"master": SERVE, "worker": "tail /dev/zero\n"}, roles={"master": {}, "worker": {"memory": "64Mi"}})
    done = made.run(code=10)
    assert "the run failed: worker-0 ran out of its memory of 0.1 GiB" in done.stderr


@pytest.mark.long
def test_what_a_container_takes_with_it_is_said(cluster: MakeCluster) -> None:
    master = "mkdir -p /tmp/ckpt; echo x > /tmp/ckpt/checkpoint\n"
    done = cluster({"master": master}, roles={"master": {}}, volume="/v").run()
    assert ": succeeded, its model lost, " in done.stdout
    assert "gone with master's container: /tmp/ckpt/checkpoint" in done.stdout
    assert "the files of master in volumes of its image (/v) are lost and not listed" in done.stderr


def running(made: Project, count: int) -> bool:
    """Whether so many containers have begun and said so in the job directory."""
    return wait_for(lambda: len(list(made.job.glob("starts-*"))) == count, 30)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_nothing_is_left_after_a_signal(cluster: MakeCluster, number: signal.Signals) -> None:
    stubborn = STARTS + "trap '' TERM INT; while :; do sleep 0.2; done\n"
    made = cluster({"master": stubborn, "worker": stubborn})
    process = made.start("--workers", "3")
    assert running(made, 4)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert "Traceback" not in said
    assert process.returncode == 128 + number
    assert made.left() == []


@pytest.mark.long
def test_nothing_is_left_after_a_signal_while_it_starts(cluster: MakeCluster) -> None:
    made = cluster({"master": SERVE, "worker": SERVE})
    for wait in (0.6, 0.8, 1.0, 1.2):
        process = made.start("--workers", "4")
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 130, said
        assert made.left() == [], wait


@pytest.mark.long
def test_what_a_killed_run_left_is_swept_by_the_next(cluster: MakeCluster) -> None:
    made = cluster({"master": STARTS + SERVE, "worker": STARTS + SERVE})
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
def test_a_container_that_somebody_removes_ends_the_run(cluster: MakeCluster) -> None:
    made = cluster({"master": STARTS + SERVE, "worker": STARTS + SERVE})
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


def test_without_an_engine_it_says_so(cluster: MakeCluster) -> None:
    made = cluster({"master": SERVE, "worker": SERVE})
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
def test_a_registry_that_cannot_be_asked_is_said_and_no_hindrance(cluster: MakeCluster) -> None:
    made = cluster({"master": "echo trained\n", "worker": SERVE})
    made.env["IMGTOOL_REGISTRY"] = "127.0.0.1:9/nobody"
    done = made.run("--json", timeout=200)
    assert "note: imgtool uses no image from the registry: " in done.stderr
    assert {one["image_from"] for one in json.loads(done.stdout)["replicas"]} == {"engine"}


RIGHTS = """\
grep -E 'CapEff|CapBnd|NoNewPrivs|^Uid' /proc/self/status > /job/rights; echo "$HOME" >> /job/rights
mknod /job/device b 8 0 2>> /job/rights && echo MADE >> /job/rights
exit 0
"""


def test_programs_have_no_rights_of_roots(cluster: MakeCluster) -> None:
    made = cluster({"master": RIGHTS}, roles={"master": {"machine": "n1-standard-4"}})
    made.run("--as", "vertex", "--progress", "quiet")
    text = (made.job / "rights").read_text()
    assert {line.split(":")[1].strip() for line in text.splitlines() if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in text
    assert "MADE" not in text
    assert not (made.job / "device").exists()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_are_the_folders_owners(cluster: MakeCluster) -> None:
    made = cluster({"master": RIGHTS}, roles={"master": {"machine": "n1-standard-4"}})
    made.job.mkdir()
    os.chown(made.job, NOBODY, NOBODY)
    made.run("--as", "vertex", "--progress", "quiet")
    assert (made.job / "rights").stat().st_uid == NOBODY
    lines = (made.job / "rights").read_text().splitlines()
    assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}" in lines
    assert "/tmp" in lines
