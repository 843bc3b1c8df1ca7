"""What `imgtool run` does when a replica dies, by itself, by --kill or by --preempt: as the service would."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.conftest import MakeCluster
from tests.local.project import SERVE, SPEC, STARTS

pytestmark = pytest.mark.engine


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
    cluster: MakeCluster, service: str, job: dict[str, Any], exit_code: int, documented: bool
) -> None:
    again = 'until [ "$(cat /job/starts-*worker* | wc -l)" -ge 2 ]; do sleep 0.1; done; sleep 0.5\n'
    once = f'[ "$(cat "/job/starts-$(hostname)" | wc -l)" -ge 2 ] || {{ touch /mark; sleep 1; exit {exit_code}; }}\n'
    worker = STARTS + "[ -e /mark ] && exit 99\n" + (once if exit_code == 1 else "touch /mark\n") + SERVE
    made = cluster({"master": again, "worker": worker}, job={**SPEC["job"], **job})
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
def test_vertex_restarts_the_whole_job_when_the_spec_says_so(cluster: MakeCluster) -> None:
    master = STARTS + '[ "$(cat /job/starts-*pool0* | wc -l)" -ge 2 ] && { sleep 1; exit 0; }\n' + SERVE
    times = {"restart_on_worker_restart": True}
    made = cluster({"master": master, "worker": STARTS + SERVE}, job={**SPEC["job"], "scheduling": times})
    document = json.loads(made.run("--as", "vertex", "--json", "--kill", "worker@1s", "--workers", "2").stdout)
    assert document["deaths"][0]["action"] == "restart the job"
    assert [one["restarts"] for one in document["replicas"]] == [1, 1, 1]


@pytest.mark.parametrize(("service", "code"), [("vertex", 0), ("local", 10)])
def test_what_fails_because_of_a_rehearsed_death_is_not_the_cause(
    cluster: MakeCluster, service: str, code: int
) -> None:
    """As the ranks of PyTorch do, the master fails at once when the worker gets SIGTERM, and the worker ends later."""
    again = '[ "$(cat /job/starts-*pool0* | wc -l)" -ge 2 ] && exit 0\n'
    master = STARTS + again + "until [ -e /job/lost ]; do sleep 0.1; done\nexit 1\n"
    worker = "trap 'touch /job/lost; sleep 2; exit 1' TERM\nwhile :; do sleep 0.1; done\n"
    times = {"restart_on_worker_restart": True}
    made = cluster({"master": master, "worker": worker}, job={**SPEC["job"], "scheduling": times})
    done = made.run("--as", service, "--json", "--preempt", "worker@2s", code=code)
    document = json.loads(done.stdout)
    assert [(death["replica"], death["preemption"] is not None) for death in document["deaths"]] == [("worker-0", True)]
    assert [one["restarts"] for one in document["replicas"]] == ([1, 1] if service == "vertex" else [0, 0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("service", "exit_code"), [pytest.param("ai-platform", 2, marks=pytest.mark.long), ("vertex", 2), ("local", 137)]
)
def test_a_replica_that_the_service_would_not_restart_fails_the_run(
    cluster: MakeCluster, service: str, exit_code: int
) -> None:
    kill = ["--kill", "worker@0s"] if exit_code == 137 else []
    worker = SERVE if kill else f"exit {exit_code}\n"
    done = cluster({"master": SERVE, "worker": worker}).run("--as", service, *kill, code=10)
    assert "the run failed. " in done.stdout


def test_a_master_that_is_killed_starts_again_from_its_checkpoint(cluster: MakeCluster) -> None:
    master = """\
mkdir -p /job/checkpoints; n=$(sed -n 's/.*ckpt-\\([0-9]*\\).*/\\1/p' /job/checkpoints/checkpoint 2>/dev/null)
[ -n "$n" ] && echo resumed after epoch $n
n=${n:-0}
while [ "$n" -lt 6 ]; do
  sleep 1; n=$((n+1)); echo "epoch $n loss: 0.$((9-n))"
  echo "model_checkpoint_path: \\"ckpt-$n\\"" > /job/checkpoints/checkpoint
done
"""
    made = cluster({"master": master, "worker": SERVE})
    report = made.folder / "run.html"
    made.run("--report", "-", code=2)
    assert "there is no folder" in made.run("--report", str(report / "run.html"), code=9).stderr
    done = made.run("--kill", "chief@4s", "--report", str(report))
    page = report.read_text()
    assert page.count('<rect class="failed"') == 1
    assert page.count('<rect class="exited"') == 1
    assert page.count('<rect class="stopped"') == 1
    assert "master loss: 0.8 to 0.3" in page
    assert "The engine reported no memory use." not in page
    assert "master   | resumed after epoch " in done.stderr
    assert "master was killed at 4." in done.stdout
    assert "training went on: newest checkpoint checkpoints/ckpt-" in done.stdout
    where, written = done.stdout.splitlines()[-2:]
    assert where == f"job directory: {made.job}, newest checkpoint checkpoints/ckpt-6"
    assert written == "  written: 1 file, 0.0 MB: checkpoints/checkpoint"
    again = made.run()
    assert f"note: {made.job} already contains checkpoints/ckpt-6" in again.stderr


def test_a_preemption_tells_who_saves_who_is_too_slow_and_who_has_no_handler(cluster: MakeCluster) -> None:
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
    made = cluster({"master": master, "worker": worker}, roles={**SPEC["roles"], "worker": {"count": 2}})
    options = [f"--preempt={name}@2s/grace=1s" for name in ("worker:0", "worker:1", "master")]
    document = json.loads(made.run("--as", "vertex", "--json", *options).stdout)
    took = {death["replica"]: death["preemption"] for death in document["deaths"]}
    assert [took[name]["handling"] for name in ("master", "worker-0", "worker-1")] == [
        "a replica saves",  # the workers ran, too
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


def test_kills_come_in_time_while_a_replica_is_restarted(cluster: MakeCluster) -> None:
    made = cluster({"master": "sleep 6\n", "worker": SERVE}, roles={**SPEC["roles"], "worker": {"count": 3}})
    kills = [f"--kill=worker:{index}@{1 + index / 10}s" for index in range(3)]
    deaths = json.loads(made.run("--as", "vertex", "--json", *kills).stdout)["deaths"]
    late = {death["replica"]: death["at_seconds"] - 1 for death in deaths}
    assert late.keys() == {"worker-0", "worker-1", "worker-2"}
    assert all(seconds < 1 for seconds in late.values()), late  # one after another with their restarts take longer
    assert all(death["back_after_seconds"] is not None for death in deaths)


def test_kills_that_cannot_be_are_refused_before_anything_starts(cluster: MakeCluster) -> None:
    made = cluster({"master": SERVE, "worker": SERVE})
    assert "the cluster has 1 master, 1 worker" in made.run("--kill", "worker:1@5s", code=2).stderr
    assert "expected ROLE[:INDEX]@DURATION" in made.run("--kill", "worker", code=2).stderr
    assert "expected ai-platform, vertex, tfjob, local" in made.run("--as", "sagemaker", code=2).stderr
    assert "the spec has no role ps" in made.run("--ps", "1", code=2).stderr
    assert "--job-dir is empty" in made.run("--job-dir", "", code=2).stderr
    assert "root folder" in made.run("--job-dir", "/", code=2).stderr


def test_training_that_begins_again_after_a_kill_ends_with_10(cluster: MakeCluster) -> None:
    master = """\
mkdir -p /job/ckpt
for n in $(seq 1 20); do sleep 0.25; echo "step $n loss: 0.5"; echo x > /job/ckpt/step_$n.npz; done
"""
    made = cluster({"master": master, "worker": SERVE})
    done = made.run("--as", "vertex", "--kill", "master@2s", code=10)
    assert "training began again from the start after master was killed" in done.stdout + done.stderr
