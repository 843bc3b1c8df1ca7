"""PyTorch's processes find each other on every target, one per replica or several below torchrun."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import schemas
from tests.jobs.specs import images
from training_imgtool.base.errors import ImgtoolError, UsageError
from training_imgtool.jobs import Format, JobOptions, check, job_data
from training_imgtool.jobs.launcher import PYTHON
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.jobs.text import dump
from training_imgtool.local.preemption import Disposition, read_disposition
from training_imgtool.local.replicas import Service, adapt, make_cluster
from training_imgtool.model.job import JobSpec, Scheduling, Volume
from training_imgtool.model.load import load
from training_imgtool.model.spec import INIT, Gpus, ImageSpec, Role, RoleSpec, Trainer
from training_imgtool.model.targets import Target

M, W, E = Role.MASTER, Role.WORKER, Role.EVALUATOR
TRIO = {M: RoleSpec(), W: RoleSpec(count=2)}
UNLIKE = {M: RoleSpec(gpus=Gpus(type="any")), W: RoleSpec(count=2, gpus=Gpus(type="any", count=4)), E: RoleSpec()}
HOSTS = ["master", "worker-0", "worker-1"]


def torch(roles: dict[Role, RoleSpec], trainer: Trainer | None = None, **job: Any) -> ImageSpec:
    trainer = trainer or Trainer(module="trainer.task")
    return ImageSpec(name="m", torch="2.13.0", roles=roles, cuda_from="wheels", trainer=trainer, job=JobSpec(**job))


def plain(rank: str, *, size: int = 3, address: str = "master", port: str = "2222") -> dict[str, str]:
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "RANK": rank,
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "NODE_RANK": rank,
    }


def pet(rank: str, each: int, *, size: int = 3, address: str = "master", port: str = "2222") -> dict[str, str]:
    told = {"PET_NNODES": str(size), "PET_NPROC_PER_NODE": str(each), "PET_NODE_RANK": rank}
    return {**told, "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port}


def services_of(spec: ImageSpec) -> dict[str, Any]:
    services: dict[str, Any] = job_data(spec, images(spec), Target.COMPOSE).documents[0]["services"]
    return services


def test_one_process_per_replica_reads_torchs_own_variables() -> None:
    services = services_of(torch({**TRIO, E: RoleSpec()}))
    assert [services[name].get("environment") for name in services] == [*(plain(str(r)) for r in range(3)), None]
    assert not any("entrypoint" in service for service in services.values())


def test_several_processes_start_below_torchrun_which_numbers_them() -> None:
    services = services_of(torch(UNLIKE))
    told = [pet("0", 1), pet("1", 4), pet("2", 4), None]
    assert [services[name].get("environment") for name in services] == told
    *before, last = services["worker-1"]["entrypoint"][:5]
    assert before == [*INIT, PYTHON, "-c"]
    assert "torch.distributed.run" in last
    assert services["worker-1"]["entrypoint"][5:] == ["-m", "trainer.task"]
    assert "entrypoint" not in services["evaluator-0"]


@pytest.mark.parametrize(
    ("role", "trainer", "end"),
    [
        (RoleSpec(processes=2), Trainer(source="t.py", script="."), ["/app/t.py"]),
        (RoleSpec(processes=2), Trainer(module="a", function="f"), ["--no-python", PYTHON, "-c"]),
        (RoleSpec(processes=2, command=("run.sh", "x")), Trainer(module="a"), ["--no-python", "run.sh", "x"]),
    ],
)
def test_a_replica_that_is_alone_needs_no_address(role: RoleSpec, trainer: Trainer, end: list[str]) -> None:
    (service,) = services_of(torch({M: role}, trainer)).values()
    options, rest = service["entrypoint"][5:7], service["entrypoint"][7:]
    assert options == ["--standalone", "--nproc-per-node=2"]
    assert rest[: len(end)] == end
    assert "environment" not in service


def test_the_launcher_is_the_specs_and_a_command_may_be_torchrun() -> None:
    gpus = {W: RoleSpec(count=2, gpus=Gpus(type="any", count=4))}
    by_python = services_of(torch(gpus, launcher="python"))["worker-1"]
    assert by_python["environment"] == plain("1", size=2, address="worker-0")
    assert services_of(torch(TRIO, launcher="torchrun"))["worker-1"]["environment"] == pet("2", 1)
    own = services_of(torch({W: RoleSpec(count=2, processes=2, command=("torchrun", "x.py"))}))["worker-1"]
    assert own["entrypoint"] == [*INIT, "torchrun", "x.py"]
    assert own["environment"] == pet("1", 2, size=2, address="worker-0")


def test_pods_and_machines_of_ones_own() -> None:
    spec = torch({M: RoleSpec(processes=2), W: RoleSpec(count=2, processes=2)})
    pods = [item for item in job_data(spec, images(spec), Target.PODS).documents if item["kind"] == "Pod"]
    env = {item["name"]: item["value"] for item in pods[2]["spec"]["containers"][0]["env"]}
    assert env == pet("2", 2, address=f"{pods[0]['metadata']['name']}.{pods[0]['spec']['subdomain']}")
    options = JobOptions(hosts=parse_hosts("master=[fd00::1]:29500,worker=b:1,worker=c"))
    job = job_data(spec, images(spec), Target.TF_CONFIG, options)
    assert job.documents[0]["worker-0"] == pet("1", 2, address="fd00::1", port="29500")
    words = shlex.split(job.texts[Format.DOCKER_RUN]("worker-1"), comments=True)
    assert words[words.index("--shm-size") + 1] == "2g"
    assert words[words.index("--entrypoint") + 1] == INIT[0]


@pytest.mark.parametrize("each", [1, 2])
def test_pods_on_eci_find_rank_0_and_share_memory(each: int) -> None:
    role = RoleSpec(machine="ecs.gn6i-c24g1.12xlarge", gpus=Gpus(type="T4", count=each))
    spec = torch({M: role, W: replace(role, count=2)})
    _, service, _, *pods = job_data(spec, images(spec), Target.ECI).documents
    assert [pod["kind"] for pod in pods] == ["Pod"] * 3
    address = f"{pods[0]['spec']['hostname']}.{service['metadata']['name']}"
    for rank, pod in enumerate(pods):
        (container,) = pod["spec"]["containers"]
        env = {item["name"]: item["value"] for item in container["env"]}
        assert env == (plain(str(rank), address=address) if each == 1 else pet(str(rank), each, address=address))
        assert ("command" in container) is (each > 1)
        assert container["name"] == "pytorch"
        assert container["ports"] == [{"containerPort": 2222, "name": "pytorchjob-port"}]
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
        assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["spec"]["volumes"]


@pytest.mark.parametrize("target", [Target.JOBSET, Target.TRAINJOB])
def test_a_jobset_ends_with_its_ranks(target: Target) -> None:
    for spec, index, each in (
        (torch({**TRIO, E: RoleSpec()}), "RANK", plain),
        (torch({M: RoleSpec(processes=2), W: RoleSpec(count=2, processes=2), E: RoleSpec()}), "PET_NODE_RANK", None),
    ):
        document = job_data(spec, images(spec), target).documents[0]
        inner = (document["spec"]["template"] if target is Target.TRAINJOB else document)["spec"]
        assert inner["successPolicy"]["targetReplicatedJobs"] == ["master", "worker"]
        master, worker, evaluator = (
            job["template"]["spec"]["template"]["spec"]["containers"][0] for job in inner["replicatedJobs"]
        )
        assert "env" not in evaluator
        number, *env = worker["env"]
        assert number["name"] == index
        assert number["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['jobset.sigs.k8s.io/job-global-index']"
        address = f"{inner['network']['subdomain']}-master-0-0.{inner['network']['subdomain']}"
        whole = plain("$(RANK)", address=address) if each else pet("", 2, address=address)
        assert {item["name"]: item["value"] for item in env} == {n: v for n, v in whole.items() if n != index}
        assert master["env"][1:] == env
        assert {"name": "shm", "mountPath": "/dev/shm"} in worker["volumeMounts"]
    if target is Target.JOBSET:
        schemas.need()
        assert schemas.complaints("JobSet", document) == []


def test_the_trainers_plugin_describes_replicas_that_are_alike() -> None:
    """As kubeflow/trainer v2.3 reads it: pkg/runtime/framework/plugins/torch/torch.go, and validateReplicatedJobs."""
    alike = {M: RoleSpec(processes=2), W: RoleSpec(count=2, processes=2)}
    spec = torch(alike, env={"A": "1"}, grace_period=90)
    one = dict.fromkeys(alike, images(spec)[M])
    runtime, job = job_data(spec, one, Target.TRAINJOB).documents
    assert job["spec"]["trainer"] == {"numNodes": 3, "numProcPerNode": 2}
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"] == job["metadata"]["name"]
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 3, "torch": {}}
    inner = runtime["spec"]["template"]["spec"]
    (node,) = inner["replicatedJobs"]
    assert (node["name"], node["replicas"], node["template"]["spec"]["completions"]) == ("node", 1, 3)
    assert node["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["env"]) == ("node", [{"name": "A", "value": "1"}])
    assert inner["network"]["subdomain"] == job["metadata"]["name"]  # the plug-in's address: NAME-node-0-0.NAME
    assert container["command"][5:] == ["-m", "trainer.task"]
    for other in (torch(UNLIKE), torch({**alike, E: RoleSpec()}), torch(TRIO)):
        assert "trainer" not in job_data(other, images(other), Target.TRAINJOB).documents[1]["spec"]


def run_launcher(command: list[str], env: dict[str, str], program: list[str]) -> dict[str, str]:
    """Starts the launcher, with a program in place of the trainer that prints its environment."""
    at = len(command) - len(program)
    assert command[at:] == program
    show = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    words = [sys.executable if word == PYTHON else word for word in command[:at]]
    done = subprocess.run([*words, *show], env=env, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return {name: value for name, value in found.items() if name in plain("") or name.startswith("PET_")}


@pytest.mark.parametrize("each", [1, 2])
def test_vertex_ai_is_translated_where_the_program_starts(each: int) -> None:
    roles = {M: RoleSpec(machine="n1-standard-4", processes=each), W: RoleSpec(machine="n1-standard-4", count=2)}
    spec = torch({**roles, W: replace(roles[W], processes=each), E: RoleSpec()}, region="us-central1")
    cluster = make_cluster(spec, images(spec), Service.VERTEX)
    for rank, replica in enumerate(cluster.replicas):
        command = list(replica.command or ())
        host = cluster.chief.host
        told = (plain(str(rank), address=host) if each == 1 else pet(str(rank), each, address=host)) if rank < 3 else {}
        assert run_launcher(command, dict(replica.env), command[3:]) == told


def test_slurm_starts_one_torchrun_per_node() -> None:
    spec = torch({M: RoleSpec(processes=1), W: RoleSpec(count=2, processes=2), E: RoleSpec()})
    document = job_data(spec, images(spec), Target.SLURM).documents[0]
    assert document["options"]["ntasks-per-node"] == 1
    for rank, step, own in ((0, 0, 0), (1, 1, 0), (2, 1, 1), (3, 2, 0)):
        env = {**os.environ, **document["env"], "CLUSTER_NODES": "a\nb\nc\nd", "SLURM_PROCID": str(own)}
        words = shlex.split(document["steps"][step]["command"].replace('"$CLUSTER_LAUNCHER"', "LAUNCHER"))
        words[2] = document["env"]["CLUSTER_LAUNCHER"]
        told = pet(str(rank), [1, 2, 2][rank], address="a") if rank < 3 else {}
        assert run_launcher(words, env, words[6:]) == told


def test_skypilot_starts_one_torchrun_per_node() -> None:
    spec = torch({W: RoleSpec(count=2, processes=2)})
    (task,) = job_data(spec, images(spec), Target.SKYPILOT).documents
    words = shlex.split(task["run"].removeprefix("exec ").replace('"$CLUSTER_LAUNCHER"', "LAUNCHER"))
    words[2] = task["envs"]["CLUSTER_LAUNCHER"]
    env = {**os.environ, **task["envs"], "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NODE_RANK": "1"}
    assert run_launcher(words, env, words[6:]) == pet("1", 2, size=2, address="10.0.0.1")


@pytest.mark.parametrize("target", [Target.TFJOB, Target.AI_PLATFORM])
def test_services_that_know_tensorflow_alone_run_one_replica(target: Target) -> None:
    assert "PyTorch cannot find each other" in str(check(torch(TRIO), images(torch(TRIO)), target)[0])


FAILED = """
class ChildFailedError(Exception):
    def get_first_failure(self):
        return 0, type("Failure", (), {"exitcode": CODE})
"""
ENDS = "from torch.distributed.elastic.multiprocessing.errors import ChildFailedError as E\ndef main(): raise E\n"
STOPS = "from torch.distributed.elastic.multiprocessing.api import SignalException as E\ndef main(): raise E\n"
DONE = "def main(): pass\n"


@pytest.mark.parametrize(("main", "code", "ended"), [(ENDS, 3, 3), (ENDS, -9, 137), (STOPS, 0, 143), (DONE, 0, 0)])
def test_the_programs_exit_code_is_the_containers(tmp_path: Path, main: str, code: int, ended: int) -> None:
    (tmp_path / "torch/distributed/elastic/multiprocessing").mkdir(parents=True)
    for path, text in (
        ("elastic/multiprocessing/errors.py", FAILED.replace("CODE", str(code))),
        ("elastic/multiprocessing/api.py", "class SignalException(Exception):\n    sigval = 15\n"),
        ("run.py", main),
    ):
        (tmp_path / "torch/distributed" / path).write_text(text)
    source = services_of(torch(UNLIKE))["worker-0"]["entrypoint"][4]
    done = subprocess.run([sys.executable, "-c", source], env={"PYTHONPATH": str(tmp_path)}, check=False)
    assert done.returncode == ended


def test_torchrun_waits_as_long_as_the_service() -> None:
    spec = torch(UNLIKE, grace_period=120)
    job = job_data(spec, images(spec), Target.COMPOSE)
    assert '["PET_SHUTDOWN_TIMEOUT"] = "120"' in job.documents[0]["services"]["master"]["entrypoint"][4]
    assert not any("torchrun" in note for note in job.notes)
    old = replace(spec, torch="2.8.0")
    assert any("2.8.0 may kill its processes 30 s" in note for note in job_data(old, images(old), Target.COMPOSE).notes)


@pytest.mark.parametrize("target", [Target.JOBSET, Target.TRAINJOB, Target.PODS, Target.COMPOSE])
@pytest.mark.parametrize("own", [None, ("torchrun", "x.py")])
@pytest.mark.parametrize("each", [1, 2])
def test_whatever_code_a_lost_rank_ends_with_it_starts_again(
    target: Target, each: int, own: tuple[str, ...] | None
) -> None:
    """A rank that loses another one ends with 1, and so does torchrun itself, as a role's command, after SIGTERM."""
    role = RoleSpec(processes=each, command=own)
    spec = torch({M: role, W: role}, scheduling=Scheduling(restarts=None if target is Target.PODS else 3))
    documents = job_data(spec, dict.fromkeys(spec.roles, images(spec)[M]), target).documents
    assert "onExitCodes" not in json.dumps(documents)
    if target is Target.COMPOSE:
        assert {service["restart"] for service in documents[0]["services"].values()} == {"on-failure:3"}
    elif target is Target.PODS:
        assert {item["spec"]["restartPolicy"] for item in documents if item["kind"] == "Pod"} == {"OnFailure"}
    else:
        first = documents[0]["spec"]
        assert (first["template"]["spec"] if target is Target.TRAINJOB else first)["failurePolicy"] == {
            "maxRestarts": 3
        }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (torch({W: RoleSpec(processes=2)}, launcher="python"), "roles.worker.processes"),
        (torch({W: RoleSpec(processes=2, gpus=Gpus(type="any"))}), "roles.worker.processes"),
        (torch(TRIO, env={"PET_NNODES": "2"}), "job.env.PET_NNODES"),
        (torch(TRIO, env={"RANK": "2"}), "job.env.RANK"),
    ],
)
def test_contradictions_are_refused(spec: ImageSpec, field: str) -> None:
    assert [error.field for error in check(spec, images(spec), Target.COMPOSE)] == [field]


@pytest.mark.parametrize("framework", ['tensorflow: "2.15.1"', 'jax: "0.10.2"'])
def test_other_frameworks_have_one_process(tmp_path: Path, framework: str) -> None:
    for text, field in (
        ("roles: {worker: {processes: 2}}", "processes"),
        ("roles: {worker: {}}\njob: {launcher: torchrun}", "launcher"),
    ):
        (tmp_path / "image.yaml").write_text(f"name: m\n{framework}\n{text}\n")
        with pytest.raises(ImgtoolError, match=f"{field}.*one process"):
            load(tmp_path / "image.yaml")


def test_dev_shm_is_as_large_as_the_memory_that_contains_it() -> None:
    roles = {M: RoleSpec(memory="4Gi"), W: RoleSpec()}
    assert [service["shm_size"] for service in services_of(torch(roles)).values()] == ["4g", "2g"]
    own = torch({M: RoleSpec(memory="4Gi")}, volumes=(Volume(mount="/dev/shm", memory="8Gi"),))
    job = job_data(own, images(own), Target.COMPOSE)
    assert "shm_size" not in job.documents[0]["services"]["master"]
    assert any("job.volumes[0]" in note and "roles.master.memory" in note for note in job.notes)


def test_a_rehearsal_has_one_process_per_replica_unless_asked() -> None:
    spec = torch({W: RoleSpec(count=2, gpus=Gpus(type="any", count=4))})
    counts = [make_cluster(adapt(spec, processes=n), images(spec), Service.LOCAL).chief.processes for n in (None, 2)]
    assert counts == [0, 2]
    with pytest.raises(UsageError, match="launcher python"):
        adapt(torch(TRIO, launcher="python"), processes=2)
    with pytest.raises(UsageError, match="one process"):
        adapt(replace(spec, torch=None, jax="0.10.2"), processes=2)


def test_a_preemption_judges_the_program_and_not_torchrun() -> None:
    row = "Name:\t{}\nPid:\t{}\nPPid:\t{}\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{}\n"
    statuses = "".join(
        row.format(*fields)
        for fields in (
            ("dumb-init", 1, 0, "0"),
            ("python", 7, 1, "4000"),
            ("python", 9, 7, "0"),
            ("python", 10, 7, "0"),
        )
    )
    assert read_disposition(statuses) is Disposition.CAUGHT
    assert read_disposition(statuses, below=True) is Disposition.DEFAULT
    statuses += row.format("python", 11, 7, "4000")  # of several processes, one may save for all
    assert read_disposition(statuses, below=True) is Disposition.CAUGHT


def test_lint_accepts_what_imgtool_writes() -> None:
    for spec in (torch(TRIO), torch(UNLIKE), torch({W: RoleSpec(count=2, processes=2)})):
        for target in (Target.JOBSET, Target.TRAINJOB, Target.PODS, Target.COMPOSE):
            found = lint(dump(job_data(spec, images(spec), target)), "f")
            assert [each.message for each in found if each.severity is not Severity.HINT] == []
