"""`submit`: one job for the same inputs, whenever a run is killed; the chief's result; what is asked and refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.specs import images
from tests.jobs.submit_once import spec_of, written
from tests.outputs import check_document
from training_imgtool.app import submit
from training_imgtool.app.submit import Submission, Submitted
from training_imgtool.base.errors import CredentialsError, InputError, TemporaryError, UsageError, VerificationError
from training_imgtool.cli.submit import _ask
from training_imgtool.jobs import check
from training_imgtool.jobs.service import KEY, program_error
from training_imgtool.model.targets import Target

STAND_IN = Path(__file__).with_name("service_programs.py")
ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("kubectl", "docker", "gcloud", "sky", "sbatch", "squeue")
VERBS = {  # what asks, and what submits
    Target.COMPOSE: ("ps", "up"),
    Target.SLURM: ("squeue", "sbatch"),
    Target.SKYPILOT: ("queue", "launch"),
    Target.VERTEX: ("list", "create"),
    Target.AI_PLATFORM: ("list", "training"),
}
TARGETS = [target for target in Target if target is not Target.TF_CONFIG]
QUICK = {(Target.VERTEX, "create:after"), (Target.PODS, "create:half"), (Target.COMPOSE, "up:half")}
STEPS = [
    *((target, f"{verb}:{when}") for target in TARGETS for verb, when in zip(
        (*VERBS.get(target, ("get", "create")), VERBS.get(target, ("get", "create"))[1]),
        ("before", "before", "after"), strict=True)),
    *((target, "create:half") for target in (Target.TRAINJOB, Target.PODS, Target.ECI)),
    (Target.COMPOSE, "up:half"),
    (Target.AI_PLATFORM, "cp:after"),
]  # fmt: skip


class Services:
    """A folder with the stand-ins' state."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "services.json"
        (folder / "bin").mkdir()
        for name in PROGRAMS:
            (folder / "bin" / name).write_text(f"#!{sys.executable}\n{STAND_IN.read_text()}")
            (folder / "bin" / name).chmod(0o755)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.environ = {**os.environ, "PATH": path, "SERVICES": str(self.state), "PYTHONPATH": str(ROOT)}

    @property
    def jobs(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.state.read_text()) if self.state.exists() else {}
        return {name: item for name, item in found.items() if "package" not in item}

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in Path(f"{self.state}.calls").read_text().splitlines()]

    def change(self, part: str, **status: Any) -> None:
        """Gives the objects whose names have `part` another status."""
        state = json.loads(self.state.read_text())
        for name in (name for name in state if part in name):
            state[name] |= status
        self.state.write_text(json.dumps(state))

    def process(self, target: Target, *words: str, kill: str = "") -> subprocess.CompletedProcess[str]:
        """A process of its own that submits; `kill` says when the stand-in kills it."""
        command = [sys.executable, "-m", "tests.jobs.submit_once", target, *words]
        env = {**self.environ, "KILL": kill}
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False, timeout=60
        )

    def submission(self, target: Target, args: tuple[str, ...] = (), job_id: str | None = None) -> Submission:
        file = self.folder / "job.yaml"
        job = written(spec_of(target, args, job_id), target, str(file))
        file.write_text(job.text)
        return Submission(job, self.environ, lambda _event: None)

    def submit(self, target: Target, args: tuple[str, ...] = (), job_id: str | None = None) -> Submitted:
        done = self.submission(target, args, job_id).submit()
        check_document("submit", json.loads(json.dumps({"schema": 1, "ok": True, **asdict(done)})))
        return done


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    monkeypatch.setattr(submit, "_SECONDS", 0.01)
    return Services(tmp_path)


def of_one(target: Target) -> int:
    """How many objects of the service one job is."""
    job = written(spec_of(target), target, "job.yaml").job
    assert job is not None
    return len(job.documents[0]["services"]) if target is Target.COMPOSE else max(1, len(job.documents))


@pytest.mark.parametrize(
    ("target", "kill"),
    [pytest.param(*step, marks=[] if step in QUICK else [pytest.mark.long]) for step in STEPS],
)
def test_killed_at_any_step_and_run_again_it_is_one_job(target: Target, kill: str, services: Services) -> None:
    assert services.process(target, kill=kill).returncode == -9
    again = services.process(target)
    assert again.returncode == 0, again.stderr
    assert len(services.jobs) == of_one(target)
    said = again.stdout.split()[-1]
    assert "half" in kill or said == ("before" if kill.endswith("after") and "cp" not in kill else "now")


@pytest.mark.parametrize("target", [*TARGETS[:3], *(pytest.param(one, marks=pytest.mark.long) for one in TARGETS[3:])])
def test_the_same_inputs_are_one_job_and_others_another(target: Target, services: Services) -> None:
    first, second, other = services.submit(target), services.submit(target), services.submit(target, ("--rate=1",))
    assert [first.now, second.now, other.now] == [True, False, True]
    assert (second.job, len(services.jobs)) == (first.job, 2 * of_one(target))
    assert other.job != first.job


@pytest.mark.parametrize("target", TARGETS)
def test_it_runs_the_very_command_that_config_prints(target: Target, services: Services) -> None:
    services.submit(target)
    job = services.submission(target)
    lines = job.commands().replace("&&\n", "\n").replace("\\\n", " ").splitlines()
    asked, *printed = [shlex.split(line) for line in lines]
    assert services.calls == [asked, *printed, asked]


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in {Target.VERTEX, Target.SKYPILOT}])
def test_another_job_of_the_name_is_not_taken_for_this_one(target: Target, services: Services) -> None:
    services.submit(target, job_id="mine")
    with pytest.raises(InputError, match="another job called mine"):
        services.submit(target, ("--rate=1",), job_id="mine")
    assert len(services.jobs) == of_one(target)


ENDS: list[tuple[Target, str, dict[str, Any], str]] = [
    (
        Target.VERTEX,
        "1",
        {"state": "JOB_STATE_FAILED", "error": {"message": "status of 13"}},
        "is FAILED: status of 13",
    ),
    (Target.AI_PLATFORM, "mnist", {"state": "CANCELLED"}, "is CANCELLED"),
    (Target.SLURM, "4", {"state": "FAILED", "exit": 13 << 8}, "is FAILED: the chief ended with 13"),
    (Target.SKYPILOT, "1", {"status": "FAILED_SETUP"}, "is FAILED_SETUP"),
    (Target.COMPOSE, "/master", {"State": "exited", "ExitCode": 7}, "the chief ended with 7"),
    (
        Target.JOBSET,
        "JobSet",
        {"status": {"conditions": [{"type": "Failed", "status": "True", "message": "first failed job: w"}]}},
        "is Failed: first failed job: w",
    ),
    (Target.TRAINJOB, "TrainJob", {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "is Failed"),
    (
        Target.PODS,
        "master-0",
        {"status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 9}}}]}},
        "the chief ended with 9",
    ),
]
GOOD: list[tuple[Target, str, dict[str, Any]]] = [
    (Target.VERTEX, "1", {"state": "JOB_STATE_SUCCEEDED"}),
    (Target.AI_PLATFORM, "mnist", {"state": "SUCCEEDED"}),
    (Target.SLURM, "4", {"state": "COMPLETED"}),
    (Target.SKYPILOT, "1", {"status": "SUCCEEDED"}),
    (Target.COMPOSE, "/master", {"State": "exited"}),
    (Target.JOBSET, "JobSet", {"status": {"conditions": [{"type": "Completed", "status": "True"}]}}),
    (Target.TRAINJOB, "TrainJob", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
    (Target.TFJOB, "TFJob", {"status": {"conditions": [
        {"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}]}}),
    (Target.PODS, "master-0", {"status": {"phase": "Succeeded"}}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "part", "status", "said"), ENDS)
def test_wait_ends_with_the_chiefs_failure(
    target: Target, part: str, status: dict[str, Any], said: str, services: Services
) -> None:
    job = services.submission(target)
    job.submit()
    services.change(part, **status)
    with pytest.raises(VerificationError, match=re.escape(said)):
        job.wait()
    assert not services.submit(target).now  # a job that failed is not started anew by itself


@pytest.mark.parametrize(("target", "part", "status"), GOOD)
def test_wait_ends_with_the_chiefs_success(
    target: Target, part: str, status: dict[str, Any], services: Services
) -> None:
    job = services.submission(target)
    job.submit()
    services.change(part, **status)
    job.wait()
    ended = [call for call in services.calls if {"stop", "delete"} & set(call)]
    assert len(ended) == (1 if target in {Target.COMPOSE, Target.PODS} else 0)  # which leave the others running


def pod(**status: Any) -> dict[str, Any]:
    return {"replicas": [{"metadata": {"name": "worker-0"}, "status": status}]}


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    return pod(containerStatuses=[{"state": {"waiting": {"reason": reason, "message": "why"}}, **more}])


@pytest.mark.parametrize("target", [Target.PODS, Target.ECI, Target.JOBSET])
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 2}}),
            "worker-0: CrashLoopBackOff, ended with 2: why",
        ),
        (waiting("ImagePullBackOff"), "worker-0: ImagePullBackOff: why"),
        (waiting("CreateContainerConfigError"), "worker-0: CreateContainerConfigError: why"),
        (pod(conditions=[{"reason": "Unschedulable", "message": "no node"}]), "worker-0: Unschedulable: no node"),
    ],
)
def test_wait_ends_when_a_replica_cannot_run(
    target: Target, status: dict[str, Any], said: str, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "_PATIENCE", {reason: min(2, n) for reason, n in submit._PATIENCE.items()})
    job = services.submission(target)
    job.submit()
    services.change("JobSet" if target is Target.JOBSET else "master-0", **status)
    with pytest.raises(VerificationError, match=re.escape(f"cannot continue: {said}")) as caught:
        job.wait()
    assert "kubectl delete" in str(caught.value.hint)
    assert job.status()[1][1:] == (said,)


PROGRAM_SAYS = [  # real answers of gcloud 528, kubectl 1.20 to 1.34, Slurm 22.05, Docker Compose 2.40
    (
        (
            "Using endpoint [http://127.0.0.1:9/]\nERROR: gcloud crashed (ConnectionError): HTTPConnectionPool("
            "host='127.0.0.1', port=9): Connection refused\n\nIf you would like to report this issue, run:\n"
            "  gcloud feedback\n"
        ),
        TemporaryError,
        "ERROR: gcloud crashed (ConnectionError): HTTPConnectionPool(host='127.0.0.1', port=9): Connection refused",
    ),
    (
        (
            "ERROR: (gcloud.ai.custom-jobs.list) You do not currently have an active account selected.\nPlease run:\n\n"
            "  $ gcloud auth login\n\nto obtain new credentials.\n"
        ),
        CredentialsError,
        "ERROR: (gcloud.ai.custom-jobs.list) You do not currently have an active account selected.",
    ),
    (
        "ERROR: (gcloud.ai.custom-jobs.list) Error parsing [region].\nFailed to find attribute [project].\n",
        InputError,
        "ERROR: (gcloud.ai.custom-jobs.list) Error parsing [region].",
    ),
    (
        (
            'E1128 11:39 32136 memcache.go:265] err="dial tcp 127.0.0.1:8080: connect: connection refused"\n'
            'error: unable to recognize "pod.yaml": the server has asked for the client to provide credentials\n'
        ),
        CredentialsError,
        'error: unable to recognize "pod.yaml": the server has asked for the client to provide credentials',
    ),
    (
        'Error from server (Forbidden): pods "a" is forbidden: User "x" cannot get resource "pods"\n',
        CredentialsError,
        'Error from server (Forbidden): pods "a" is forbidden: User "x" cannot get resource "pods"',
    ),
    (
        "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed\n",
        InputError,
        "sbatch: error: invalid partition specified: nope",
    ),
    (
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
        TemporaryError,
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    ),
    (
        "Cannot connect to the Docker daemon at unix:///nope. Is the docker daemon running?\n",
        TemporaryError,
        "Cannot connect to the Docker daemon at unix:///nope. Is the docker daemon running?",
    ),
    *(
        (f"{said}\n", kind, said)
        for said, kind in {
            'Unable to connect to the server: Post "https://h/apis": EOF': TemporaryError,
            "Error from server (TooManyRequests): the server has received too many requests": TemporaryError,
            'Error from server (InternalError): an error on the server ("") has prevented it': TemporaryError,
            (
                'Error from server (InternalError): failed calling webhook "mjobset.kb.io": failed to call webhook: '
                'Post "https://w": no endpoints available for service "jobset-webhook-service"'
            ): TemporaryError,
            'Error from server (Forbidden): jobs "t" is forbidden: exceeded quota: q, used: cpu=500': InputError,
            'Error from server (Forbidden): admission webhook "vjobset.kb.io" denied the request: no': InputError,
        }.items()
    ),
]


def test_a_program_that_is_silent_is_ended(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it started: gcloud is a shell script, whose Python keeps the pipe open."""
    monkeypatch.setattr(submit, "_ANSWER", 0.5)
    (services.folder / "bin/kubectl").write_text("#!/bin/sh\nsleep 100\n")
    with pytest.raises(TemporaryError, match=r"kubectl printed nothing for 0\.5 s"):
        services.submission(Target.JOBSET).status()
    monkeypatch.setattr(submit, "_SILENT", 0.5)
    (services.folder / "bin/kubectl").write_text('#!/bin/sh\n[ "$1" = get ] && exit\nsleep 0.3; echo a; sleep 100\n')
    with pytest.raises(TemporaryError, match=r"kubectl printed nothing for 0\.5 s"):
        services.submit(Target.JOBSET)


@pytest.mark.parametrize(("said", "kind", "cause"), PROGRAM_SAYS)
def test_a_program_that_fails_tells_what_helps(said: str, kind: type[Exception], cause: str) -> None:
    error = program_error(("tool", "list"), 1, said)
    assert (type(error), error.message) == (kind, f"tool ended with 1: {cause}")


def test_two_runs_at_once_are_both_named(services: Services) -> None:
    services.submit(Target.VERTEX)
    state = json.loads(services.state.read_text())
    state["2"] = {**state["1"], "name": "projects/p/locations/us-central1/customJobs/2", "createTime": "2"}
    services.state.write_text(json.dumps(state))
    again = services.submit(Target.VERTEX)
    assert (again.job, again.now) == ("2", False)
    assert [command.split()[:5] for command in again.others] == [["gcloud", "ai", "custom-jobs", "cancel", "1"]]
    services.submission(Target.VERTEX).cancel()
    assert [call[4] for call in services.calls if "cancel" in call] == ["2", "1"]


def test_status_as_a_document(services: Services, capsys: pytest.CaptureFixture[str]) -> None:
    job = services.submission(Target.COMPOSE)
    job.submit()
    services.change("/master", State="exited", ExitCode=7)
    _ask(job, logs=False, cancel=False, as_json=True)
    document = json.loads(capsys.readouterr().out)
    check_document("submit", document)
    assert (document["state"], document["code"]) == ("exited", 7)


def test_what_nobody_submitted_has_no_status(services: Services) -> None:
    with pytest.raises(InputError, match="no job with these inputs"):
        services.submission(Target.VERTEX).status()


def test_wait_for_a_job_that_somebody_deleted(services: Services) -> None:
    job = services.submission(Target.VERTEX)
    job.submit()
    services.state.write_text("{}")
    with pytest.raises(VerificationError, match="is gone"):
        job.wait()


def test_no_answer_is_no_ground_to_submit(services: Services, tmp_path: Path) -> None:
    job = services.submission(Target.VERTEX)
    (tmp_path / "bin" / "gcloud").write_text("#!/bin/sh\necho not logged in >&2\nexit 1\n")
    for act in (job.submit, job.wait):
        with pytest.raises(CredentialsError, match="gcloud ended with 1: not logged in"):
            act()
    (tmp_path / "bin" / "gcloud").write_text("#!/bin/sh\necho '<html>'\n")
    with pytest.raises(TemporaryError, match="does not understand"):
        job.submit()
    with pytest.raises(TemporaryError, match="the job may still run"):
        job.wait()


def test_a_job_that_accounting_alone_remembers(services: Services, tmp_path: Path) -> None:
    services.submit(Target.SLURM)
    (number, job), *_ = services.jobs.items()
    services.state.write_text("{}")
    (tmp_path / "bin" / "sacct").write_text(f"#!/bin/sh\necho '{number}|CANCELLED by 0|'\n")
    (tmp_path / "bin" / "sacct").chmod(0o755)
    again = services.submit(Target.SLURM)
    assert (again.job, again.state, again.now) == (number, "CANCELLED", False)
    assert job["name"].startswith("mnist-")


def test_skypilot_without_a_controller_has_no_job(services: Services, tmp_path: Path) -> None:
    job = services.submission(Target.SKYPILOT)
    (tmp_path / "bin" / "sky").write_text("#!/bin/sh\necho 'No in-progress managed jobs.' >&2\nexit 1\n")
    with pytest.raises(InputError, match="sky ended with 1: No in-progress managed jobs"):
        job.submit()


def test_without_the_program_or_a_service(services: Services) -> None:
    job = written(spec_of(Target.VERTEX), Target.VERTEX, "job.yaml")
    with pytest.raises(UsageError, match="gcloud is not on PATH"):
        Submission(job, {"PATH": "/nonexistent"}, lambda _event: None).submit()
    with pytest.raises(UsageError, match="cannot submit a job"):
        Submission(replace(job, job=replace(job.job, service=None)), {}, lambda _event: None)


def test_the_label_is_imgtools_own() -> None:
    of = spec_of(Target.VERTEX)
    of = replace(of, job=replace(of.job, labels={KEY: "x"}))
    assert [error.field for error in check(of, images(of), Target.VERTEX)] == [f"job.labels.{KEY}"]
