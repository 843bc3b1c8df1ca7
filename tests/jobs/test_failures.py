"""What docs/jobs/failures.md says of each target: imgtool writes the fields that say so to the service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.specs import images, spec
from training_imgtool.jobs import job_data
from training_imgtool.model.job import Scheduling
from training_imgtool.model.spec import Role, RoleSpec
from training_imgtool.model.targets import Target

PAGE = Path(__file__).resolve().parents[2] / "docs/jobs/failures.md"
ROLES = {Role.MASTER: RoleSpec(), Role.WORKER: RoleSpec(count=3), Role.PS: RoleSpec()}
JOBSETS, PODS = (Target.JOBSET, Target.TRAINJOB), (Target.PODS, Target.ECI)


def test_the_page_has_a_row_for_every_target() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE)
    assert {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)} == set(Target)


def written(target: Target, restarts: int | None = 2) -> list[Any]:
    times = Scheduling(
        max_running=None if target is Target.COMPOSE else "3600s", restarts=None if target in PODS else restarts
    )
    of = spec(ROLES, region=None, scheduling=times)
    return list(job_data(of, images(of), target).documents)


def jobset(target: Target) -> dict[str, Any]:
    """The spec of the JobSet, which a TrainJob has in its runtime."""
    first = written(target)[0]["spec"]
    return dict(first["template"]["spec"] if target is Target.TRAINJOB else first)


@pytest.mark.parametrize("target", JOBSETS)
def test_a_failure_fails_the_jobset_or_starts_it_anew(target: Target) -> None:
    of = jobset(target)
    assert of["failurePolicy"]["maxRestarts"] == 2
    for job in (item["template"]["spec"] for item in of["replicatedJobs"]):
        assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")


@pytest.mark.parametrize("target", JOBSETS)
def test_the_chief_alone_decides_a_jobset(target: Target) -> None:
    of = jobset(target)
    assert of["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["chief"]}
    counts = {item["name"]: item["template"]["spec"]["completions"] for item in of["replicatedJobs"]}
    assert counts == {"chief": 1, "worker": 3, "ps": 1}


@pytest.mark.parametrize("target", JOBSETS)
def test_eviction_uses_no_restart(target: Target) -> None:
    evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    for job in jobset(target)["replicatedJobs"]:
        assert job["template"]["spec"]["podFailurePolicy"]["rules"] == [evicted]


@pytest.mark.parametrize("target", [*JOBSETS, *PODS])
def test_what_cannot_start_ends_with_max_running(target: Target) -> None:
    if target in JOBSETS:
        specs = [job["template"]["spec"] for job in jobset(target)["replicatedJobs"]]
    else:
        specs = [item["spec"] for item in written(target) if item["kind"] == "Pod"]
    assert [item["activeDeadlineSeconds"] for item in specs] == [3600] * len(specs)
    assert specs


@pytest.mark.parametrize("target", [Target.TFJOB, Target.COMPOSE, *PODS])
def test_what_is_restarted_in_place(target: Target) -> None:
    documents = written(target)
    if target is Target.TFJOB:
        of = documents[0]["spec"]
        assert of["runPolicy"]["backoffLimit"] == 2
        policies = {replica["restartPolicy"] for replica in of["tfReplicaSpecs"].values()}
    elif target is Target.COMPOSE:
        services = documents[0]["services"].values()
        assert not any("depends_on" in service for service in services)
        policies = {service["restart"] for service in services}
        assert {service["restart"] for service in written(target, None)[0]["services"].values()} == {"no"}
    else:
        policies = {item["spec"]["restartPolicy"] for item in documents if item["kind"] == "Pod"}
    assert policies == {"on-failure:2" if target is Target.COMPOSE else "OnFailure"}


@pytest.mark.parametrize("target", PODS)
def test_nothing_makes_a_lone_pod_anew(target: Target) -> None:
    documents = written(target)
    assert {item["kind"] for item in documents} <= {"Pod", "Service", "ImageCache"}
    assert not any("ownerReferences" in item["metadata"] for item in documents)


def test_composes_header_keeps_the_logs() -> None:
    of = spec(ROLES, region=None)
    lines = "\n".join(job_data(of, images(of), Target.COMPOSE).header)
    assert "docker wait" in lines
    assert "exit $code" in lines
    assert re.search(r"\bdown\b", lines) is None
