"""What a run's summary says, to people and to programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs.specs import REPOSITORY, images
from training_imgtool.local.checkpoints import Checkpoint
from training_imgtool.local.limits import Share
from training_imgtool.local.preemption import Disposition, Preemption
from training_imgtool.local.rehearsal import Action, Death, Kill, Verdict, judge
from training_imgtool.local.replicas import Replica, Service, make_cluster
from training_imgtool.local.results import WrittenFile
from training_imgtool.local.summary import (
    DeathResult,
    ReplicaResult,
    RunImage,
    State,
    Summary,
    as_data,
    as_lines,
    error_of,
    failure_of,
)
from training_imgtool.make.engines.docker.containers import Ended
from training_imgtool.model.spec import ImageSpec, Role, RoleSpec

SPEC = ImageSpec(name="mnist", tensorflow="2.15.1", roles={Role.MASTER: RoleSpec(), Role.WORKER: RoleSpec()})
IMAGE = RunImage(reference="r", digest=REPOSITORY.digest("sha256:" + "a" * 64), source="registry")
SHARE = Share(cpus=None, memory=1 << 30, gpus=0)
MASTER, WORKER = make_cluster(SPEC, images(SPEC), Service.LOCAL).replicas
KILLED = DeathResult(
    name="worker-0",
    at=5.04,
    exit_code=137,
    rehearsed=True,
    verdict=Verdict(action=Action.RESTART, because="it is restarted", documented=True),
    back_after=0.46,
    checkpoint=Checkpoint(path="checkpoints/ckpt-2", written=1.0),
)


def result(replica: Replica, state: State = State.EXITED) -> ReplicaResult:
    return ReplicaResult(
        replica=replica,
        image=IMAGE,
        share=SHARE,
        state=state,
        exit_code=0 if state is State.EXITED else 143,
        out_of_memory=False,
        seconds=12.34,
        peak_memory=300_400_000,
        restarts=0,
    )


SUCCESS = Summary(
    run="ab12",
    name="mnist",
    service=Service.VERTEX,
    seconds=13.4,
    job_dir=Path("/j"),
    replicas=(result(MASTER), result(WORKER, State.STOPPED)),
    deaths=(),
    missed=(),
    failure=None,
    checkpoint=Checkpoint(path="checkpoints/ckpt-9", written=2.0),
    written=(WrittenFile(path="model/weights", size=3_000_000),),
    lost={},
    notes=(),
)


def test_success() -> None:
    assert as_lines(SUCCESS) == (
        "mnist as vertex: succeeded, 13 s\n"
        "  master    exit 0      12.3 s    300 MB\n"
        "  worker-0  stopped     12.3 s    300 MB\n"
        "job directory: /j, newest checkpoint checkpoints/ckpt-9\n"
        "  written: 1 file, 3.0 MB: model/weights\n"
    )
    assert error_of(SUCCESS) is None


def test_a_success_without_a_result_says_so() -> None:
    text = as_lines(replace(SUCCESS, checkpoint=None, written=(), lost={"master": ("/app/a", "/b", "/c", "/d")}))
    assert text.startswith("mnist as vertex: succeeded, without a result, 13 s\n")
    assert text.endswith(
        "job directory: /j, no checkpoint\n"
        "  written: nothing: this run has no result in its job directory\n"
        "  gone with master's container: /app/a, /b, /c and 1 more\n"
        "  what a program writes to /job stays; job.pass_job_dir: true passes it --job-dir=/job\n"
    )
    assert as_data(replace(SUCCESS, lost={"master": ("/a",)}))["lost"] == {"master": ["/a"]}
    told = tuple(replace(one, replica=replace(one.replica, args=("--job-dir=/job",))) for one in SUCCESS.replicas)
    text = as_lines(replace(SUCCESS, replicas=told, lost={"master": ("/a",)}))
    assert text.endswith("  what a program writes to /job stays; it gets --job-dir=/job\n")


@pytest.mark.parametrize(
    ("written", "lost", "end"),
    [
        ("model/saved_model.pb", "/tmp/worker-0/model/saved_model.pb", "succeeded"),
        ("model.keras logs/events.out.tfevents.1", "/tmp/ckpt/checkpoint /app/data.npz", "succeeded"),
        ("checkpoint", "/app/model.keras", "succeeded, its model lost"),
        ("logs/events.out.tfevents.1", "/app/checkpoint", "succeeded, its model lost"),
        ("", "/tmp/tmp1/model.ckpt-1.index", "succeeded, its model lost"),
        ("", "/app/weights.pkl", "succeeded, without a result"),
        ("metrics.txt", "/app/weights.pkl", "succeeded, without a model"),
        ("notes", "/app/weights.pkl", "succeeded, without a model"),
        ("metrics.txt", "", "succeeded, without a model"),
        ("weights", "/app/data.txt", "succeeded"),
        ("", "/gcs/bucket/model.keras", "succeeded, without a result"),
    ],
)
def test_a_lost_model_is_no_plain_success(written: str, lost: str, end: str) -> None:
    files = tuple(WrittenFile(path=path, size=1) for path in written.split())
    ended = replace(SUCCESS, written=files, lost={"master": tuple(lost.split())})
    assert as_lines(ended).startswith(f"mnist as vertex: {end}, 13 s\n")
    assert ("no model or checkpoint is among these files" in as_lines(ended)) is end.endswith("without a model")


def test_a_bucket_that_the_arguments_name_was_not_looked_at() -> None:
    told = tuple(
        replace(one, replica=replace(one.replica, args=("--out=gs://b/m", "--in=/gs/x"))) for one in SUCCESS.replicas
    )
    text = as_lines(replace(SUCCESS, replicas=told, written=()))
    assert text.startswith("mnist as vertex: succeeded, without a result here, 13 s\n")
    assert text.endswith("  imgtool has not checked what the run wrote to gs://b/m\n")


@pytest.mark.parametrize("arg", ["--model_dir=out/model", "./out/model/", "/app/out"])
def test_an_argument_that_names_a_lost_place_is_said(arg: str) -> None:
    told = tuple(replace(one, replica=replace(one.replica, args=("--n=1", arg))) for one in SUCCESS.replicas)
    text = as_lines(replace(SUCCESS, replicas=told, lost={"master": ("/app/out/model/saved_model.pb",)}))
    assert text.endswith(f"  what a program writes to /job stays; {arg} is in its container\n")


def test_a_rehearsed_death_says_whether_training_went_on() -> None:
    lines = as_lines(replace(SUCCESS, deaths=(KILLED,))).splitlines()
    assert lines[-4] == "worker-0 was killed at 5.0 s: restarted after 0.5 s. vertex: it is restarted"
    assert lines[-3] == (
        "  training went on: newest checkpoint checkpoints/ckpt-2 when it died, checkpoints/ckpt-9 at the end"
    )
    (death,) = as_data(replace(SUCCESS, deaths=(KILLED,)))["deaths"]
    assert death == {
        "replica": "worker-0",
        "at_seconds": 5.0,
        "exit_code": 137,
        "rehearsed": True,
        "action": "restart",
        "because": "it is restarted",
        "documented": True,
        "back_after_seconds": 0.5,
        "checkpoint_then": "checkpoints/ckpt-2",
        "went_on": True,
        "preemption": None,
    }


def test_a_preemption_says_how_the_program_took_it_and_what_was_trained_twice() -> None:
    saved = Checkpoint(path="checkpoints/ckpt-3", written=0.0)
    took = Preemption(
        grace=30.0, disposition=Disposition.CAUGHT, ended_after=2.0, killed=False, saved=saved,
        unit="epoch", last=4, next=4, next_after=3.5,
    )  # fmt: skip
    death = replace(KILLED, exit_code=0, preemption=took)
    text = as_lines(replace(SUCCESS, deaths=(death,)))
    assert "worker-0 was preempted at 3.0 s: restarted after 0.5 s. " in text
    assert (
        "  saves: checkpoints/ckpt-3 is newer than SIGTERM, and it ended 2.0 s after SIGTERM with exit code 0\n" in text
    )
    assert "  some services treat exit code 0 as the replica's success: exit with 143 " in text
    assert (
        "  epochs lost: 1 (last printed 4, first after the restart 4); the next epoch came 3.5 s after SIGTERM" in text
    )
    (data,) = as_data(replace(SUCCESS, deaths=(death,)))["deaths"]
    assert data["preemption"] == {
        "handling": "saves",
        "sigterm": "caught",
        "grace_seconds": 30.0,
        "ended_after_seconds": 2.0,
        "killed": False,
        "saved": "checkpoints/ckpt-3",
        "checkpoint_step": None,
        "unit": "epoch",
        "last": 4,
        "next": 4,
        "lost": 1,
        "next_after_seconds": 3.5,
    }


def test_a_preemption_before_the_first_step_asks_for_a_later_time() -> None:
    took = Preemption(grace=9.0, disposition=Disposition.DEFAULT, ended_after=0.2, killed=False, saved=None)
    death = replace(KILLED, checkpoint=None, preemption=replace(took, unit="step", next=1, next_after=9.0))
    text = as_lines(replace(SUCCESS, deaths=(death,)))
    assert (
        "  steps lost: unknown, because the program printed no step before SIGTERM: give --preempt a later time;"
        in text
    )
    again = replace(death, began_again=True, preemption=replace(took, unit="step", signalled=6, last=7, next=1))
    assert "  training began again from the start: no checkpoint yet when it died" in as_lines(
        replace(SUCCESS, deaths=(again,))
    )
    assert "  steps lost: 7 (at SIGTERM 6, last printed 7, first after the restart 1); no step was" in as_lines(
        replace(SUCCESS, deaths=(again,))
    )


def test_training_that_begins_again_after_a_rehearsal_is_a_failure() -> None:
    again = replace(SUCCESS, deaths=(replace(KILLED, began_again=True),))
    error = error_of(again)
    assert error is not None
    assert (error.exit_code, error.message) == (
        10,
        f"training began again from the start after {KILLED.name} was killed",
    )
    assert error.message in as_lines(again).splitlines()[0]
    assert as_data(again)["deaths"][0]["went_on"] is False
    assert error_of(replace(SUCCESS, deaths=(replace(KILLED, began_again=True, rehearsed=False),))) is None


def test_whose_checkpoint_it_is_is_said_to_be_unknown_where_others_ran() -> None:
    took = Preemption(
        grace=9.0, disposition=Disposition.CAUGHT, ended_after=2.0, killed=False, saved=KILLED.checkpoint, alone=False
    )
    text = as_lines(replace(SUCCESS, deaths=(replace(KILLED, preemption=took),)))
    assert "is newer than SIGTERM (which replica wrote it, imgtool cannot tell), and it ended" in text
    assert "saves" not in text


def test_without_a_checkpoint() -> None:
    lines = as_lines(replace(SUCCESS, checkpoint=None, deaths=(replace(KILLED, checkpoint=None),)))
    assert "without a checkpoint, imgtool cannot tell whether training resumed\n" in lines
    assert "job directory: /j, no checkpoint\n" in lines


def test_a_rehearsal_that_did_not_happen_is_an_error() -> None:
    late = replace(SUCCESS, missed=(Kill(role=Role.WORKER, index=1, seconds=90),))
    assert as_lines(late).startswith("mnist as vertex: succeeded, without its rehearsal, 13 s\n")
    assert "worker-1 was not killed at 90 s: the run ended at 13.4 s\n" in as_lines(late)
    error = error_of(late)
    assert error is not None
    assert str(error).startswith("the run succeeded, but a rehearsal did not happen: worker-1 was not killed at 90 s")
    data = as_data(late)
    assert (data["ok"], data["failed"]) == (False, None)
    assert data["missed"] == [{"replica": "worker-1", "option": "--kill", "asked_seconds": 90}]
    early = replace(SUCCESS, missed=(Kill(role=Role.WORKER, index=1, seconds=5),))
    assert "worker-1 was not killed at 5 s: it was not running then\n" in as_lines(early)


def test_a_failure_names_the_replica_and_shows_its_last_lines() -> None:
    verdict = judge(Service.VERTEX, Death(exit_code=3))
    death = replace(KILLED, exit_code=3, rehearsed=False, verdict=verdict, back_after=None)
    ended = Ended(exit_code=3, out_of_memory=False, fault="")
    failed = replace(SUCCESS, deaths=(death,), failure=failure_of(death, ended, SHARE, ("one", "two")))
    error = error_of(failed)
    assert error is not None
    assert str(error) == "the run failed: worker-0 exited 3"
    assert error.details == ("one", "two")
    assert error.exit_code == 10
    assert as_lines(failed).startswith("mnist as vertex: failed: worker-0 exited 3, 13 s\n")
    assert "worker-0 exited 3 at 5.0 s: the run failed." in as_lines(failed)
    assert "(assumed)" in as_lines(failed)
    data = as_data(failed)
    assert (data["ok"], data["failed"]) == (False, "worker-0")


def test_reasons_of_a_failure() -> None:
    fail = replace(KILLED, verdict=judge(Service.LOCAL, Death(exit_code=137)), back_after=None)
    by_kill = failure_of(fail, Ended(exit_code=137, out_of_memory=False, fault=""), SHARE, ())
    assert by_kill.message == "worker-0 was killed, as --kill asked"
    starved = failure_of(replace(fail, rehearsed=False), Ended(exit_code=137, out_of_memory=True, fault=""), SHARE, ())
    assert starved.message == "worker-0 ran out of its memory of 1.0 GiB"
    assert "fewer --workers" in (starved.hint or "")
    fault = failure_of(
        replace(fail, rehearsed=False), Ended(exit_code=127, out_of_memory=False, fault="oci"), SHARE, ()
    )
    assert fault.message.endswith("(oci)")


def test_data_of_a_replica() -> None:
    data = as_data(SUCCESS)["replicas"][1]
    assert data == {
        "name": "worker-0",
        "role": "worker",
        "index": 0,
        "task": "worker",
        "host": "worker-0",
        "image": str(IMAGE.digest),
        "image_from": "registry",
        "state": "stopped",
        "exit_code": 143,
        "out_of_memory": False,
        "seconds": 12.3,
        "peak_memory_bytes": 300_400_000,
        "memory_limit_bytes": 1 << 30,
        "cpus": None,
        "gpus": 0,
        "restarts": 0,
    }
