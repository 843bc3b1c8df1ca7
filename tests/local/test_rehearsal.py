"""What is killed when, and what each service does with a replica that died."""

from __future__ import annotations

import pytest

from training_imgtool.base.errors import UsageError
from training_imgtool.local.rehearsal import Action, Death, Kill, grace_of, judge, parse_kill
from training_imgtool.local.replicas import Service
from training_imgtool.model.job import Scheduling
from training_imgtool.model.spec import Role

AI, VX, TF, LO = Service
W, M, P = Role.WORKER, Role.MASTER, Role.PS
RESTART, WHOLE, FAIL = Action


@pytest.mark.parametrize(
    ("text", "kill"),
    [
        ("worker:1@30s", Kill(role=W, index=1, seconds=30)),
        ("worker@5s", Kill(role=W, index=0, seconds=5)),
        ("ps:12@2m", Kill(role=P, index=12, seconds=120)),
        ("master@500ms", Kill(role=M, index=0, seconds=0.5)),
        ("chief:0@1.5h", Kill(role=M, index=0, seconds=5400)),
        ("evaluator@0s", Kill(role=Role.EVALUATOR, index=0, seconds=0)),
    ],
)
def test_kills(text: str, kill: Kill) -> None:
    assert parse_kill(text) == kill


def test_a_preemption_may_have_a_grace_of_its_own() -> None:
    kill = parse_kill("worker:1@30s/grace=1.5m", preempted=True)
    assert kill == Kill(role=W, index=1, seconds=30, preempted=True, grace=90)
    assert grace_of(TF, kill, 5) == 90
    bare = parse_kill("worker@1s", preempted=True)
    assert [grace_of(service, bare, None) for service in (AI, VX, TF, LO)] == [30, 30, 30, 10]
    assert [grace_of(service, bare, 5) for service in (AI, VX, TF, LO)] == [30, 30, 5, 5]  # Google's is fixed
    with pytest.raises(UsageError, match=r"--kill .*expected ROLE"):
        parse_kill("worker@1s/grace=5s")
    with pytest.raises(UsageError, match=r"--preempt .*/grace=DURATION"):
        parse_kill("worker@1s/grace=5", preempted=True)


@pytest.mark.parametrize(
    "text",
    ["", "worker", "worker@", "worker@30", "worker:@30s", "worker:-1@3s", "boss@3s", "worker:1@30 s", "worker@3s\n",
     "worker@1e3s", "WORKER@3s", "worker:x@3s", "worker@-3s", "@3s"],
)  # fmt: skip
def test_what_is_no_kill(text: str) -> None:
    with pytest.raises(UsageError, match="expected ROLE"):
        parse_kill(text)


@pytest.mark.parametrize(
    ("service", "death", "scheduling", "action", "documented"),
    [
        # the two Google services restart a replica five times; the program's own errors are taken for permanent
        (AI, Death(exit_code=137), None, RESTART, True),
        (AI, Death(exit_code=139, restarts=4), None, RESTART, True),
        (AI, Death(exit_code=137, restarts=5), None, FAIL, True),
        (AI, Death(exit_code=1), None, FAIL, False),
        (AI, Death(exit_code=127), None, FAIL, False),
        (AI, Death(exit_code=128), None, RESTART, True),
        (AI, Death(exit_code=137, out_of_memory=True), None, FAIL, False),
        (AI, Death(exit_code=137), Scheduling(restart_on_worker_restart=True), RESTART, True),  # Vertex AI's alone
        (VX, Death(exit_code=143), None, RESTART, True),
        (VX, Death(exit_code=2), None, FAIL, False),
        (VX, Death(exit_code=137), Scheduling(restart_on_worker_restart=True), WHOLE, True),
        (VX, Death(exit_code=137), Scheduling(restart_on_worker_restart=False), RESTART, True),
        (VX, Death(exit_code=137), Scheduling(restart_on_worker_restart=True, disable_retries=True), RESTART, True),
        # a TFJob's replicas are OnFailure: whatever the code, until the backoff limit
        (TF, Death(exit_code=1), None, RESTART, True),
        (TF, Death(exit_code=137, out_of_memory=True), None, RESTART, True),
        (TF, Death(exit_code=1, restarts=5), None, FAIL, False),
        (TF, Death(exit_code=1), Scheduling(restarts=0), FAIL, True),
        (TF, Death(exit_code=1, restarts=1, restarts_in_all=3), Scheduling(restarts=3), FAIL, True),
        (TF, Death(exit_code=1, restarts=7, restarts_in_all=7), Scheduling(restarts=9), RESTART, True),
        # before the first checkpoint a program's own error ends the run, a signal does not
        (TF, Death(exit_code=1, unstarted=True), None, FAIL, True),
        (TF, Death(exit_code=137, unstarted=True), None, RESTART, True),
        (TF, Death(exit_code=143, unstarted=True), None, RESTART, True),
        (VX, Death(exit_code=255, unstarted=True), None, FAIL, True),
        (AI, Death(exit_code=139, unstarted=True), None, FAIL, True),
        (VX, Death(exit_code=143, unstarted=True), None, RESTART, True),
        (TF, Death(exit_code=255, unstarted=True), None, FAIL, True),  # sys.exit(-1)
        (TF, Death(exit_code=134, unstarted=True), None, FAIL, True),  # abort()
        (TF, Death(exit_code=139, unstarted=True), None, FAIL, True),
        (TF, Death(exit_code=137, unstarted=True, out_of_memory=True), None, FAIL, True),
        (LO, Death(exit_code=137), None, FAIL, True),
    ],
)
def test_verdicts(
    service: Service, death: Death, scheduling: Scheduling | None, action: Action, documented: bool
) -> None:
    verdict = judge(service, death, scheduling)
    assert verdict.action is action
    assert verdict.documented is documented
    assert verdict.because


def test_kubernetes_waits_longer_each_time() -> None:
    limit = Scheduling(restarts=100)
    delays = [judge(TF, Death(exit_code=1, restarts=n), limit).delay for n in range(8)]
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]
    assert judge(AI, Death(exit_code=137, restarts=4)).delay == 0
