"""Names and labels on Kubernetes: what a controller's suffix adds counts, and what imgtool selects by stays."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.jobs.specs import BARE, FOUR, images, spec
from training_imgtool.jobs import check, job_data
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.rules import names
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.jobs.text import dump
from training_imgtool.model.spec import ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

M, W, E = Role.MASTER, Role.WORKER, Role.EVALUATOR
SHAPES = {
    "master": {M: RoleSpec()},
    "workers": {W: RoleSpec(count=3)},
    "eleven": {M: RoleSpec(), W: RoleSpec(count=11)},
    "evaluator": {M: RoleSpec(), W: RoleSpec(count=2), E: RoleSpec()},
}


def webhook_takes(name: str, roles: dict[Role, RoleSpec]) -> bool:
    """The rule of jobset v0.12.0, pkg/webhooks/jobset_webhook.go: the longest Pod name, with a random ending."""
    words = {M: "chief", W: "worker", E: "evaluator"}
    longest = [f"{name}-{words[role]}-0-{of_role.count - 1}-abcde" for role, of_role in roles.items()]
    return all(len(pod) <= 63 and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", pod) for pod in (name, *longest))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", range(30, 64))
def test_a_jobset_name_is_taken_exactly_when_the_webhook_takes_it(shape: str, length: int) -> None:
    name = "j" * length
    of = spec(SHAPES[shape], region=None, id=name)
    assert (check(of, images(of), Target.JOBSET) == []) is webhook_takes(name, SHAPES[shape])


@pytest.mark.parametrize("target", [Target.TFJOB, Target.JOBSET, Target.PODS, Target.ECI])
@pytest.mark.parametrize("name", ["a-", "-a", "1a", "A", "a.b", "a_b"])
def test_a_name_that_the_api_server_refuses(name: str, target: Target) -> None:
    """Each was sent to an API server with the CRDs (apiextensions-apiserver 1.36)."""
    of = spec({M: RoleSpec()}, region=None, id=name)
    errors = check(of, images(of), target)
    assert [error.field for error in errors] == ["job.id"]
    assert "is not a Kubernetes name" in str(errors[0])


@pytest.mark.parametrize("length", range(30, 64))
def test_lint_has_the_same_rule(length: int) -> None:
    of = spec(SHAPES["eleven"], region=None, id="short")
    name = "j" * length
    text = dump(job_data(of, images(of), Target.JOBSET)).replace('"short"', f'"{name}"')
    errors = [m for m in lint(text, "f") if m.severity is Severity.ERROR]
    assert (errors == []) is webhook_takes(name, SHAPES["eleven"]), errors


@pytest.mark.parametrize("target", [Target.TFJOB, Target.JOBSET, Target.PODS, Target.ECI])
def test_a_long_spec_name_is_no_long_label(target: Target) -> None:
    of = ImageSpec(
        name="a" * 60 + "-bcdefg", tensorflow="2.15.1", roles=BARE, job=spec(BARE, region=None, id="short").job
    )
    for document in job_data(of, images(of), target).documents:
        assert list(names.labels(document["metadata"]["labels"])) == []


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (names.label_key, ["a", "a.b/c", "A_b-1", "x" * 63], ["", "a b", "a..b/c", "/a", "a/", "x" * 64, "-a"]),
        (names.label_value, ["", "a", "1.2_3-4"], ["a b", "-a", "x" * 64, "a-"]),
        (names.dns_label, ["a", "0a-b"], ["", "a.b", "A", "a" * 64, "a-"]),
        (names.subdomain, ["a.b", "0"], ["a..b", ".a", "a_b", "a" * 254]),
        (names.env_name, ["A", "a.b", "a b", "1A"], ["", "A=B", "é"]),
        (names.port_name, ["http", "a-1"], ["http--x", "80", "a" * 16, "-a"]),
    ],
)
def test_rules(rule: object, good: list[str], bad: list[str]) -> None:
    assert callable(rule)
    assert [text for text in good if rule(text)] == []
    assert [text for text in bad if not rule(text)] == []


def test_a_queue_reaches_every_object_that_kueue_admits() -> None:
    of = spec({**BARE, E: RoleSpec()}, region=None, queue="team-a")
    for target in (Target.TFJOB, Target.JOBSET):
        (document,) = job_data(of, images(of), target).documents
        assert document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    for target in (Target.PODS, Target.ECI):
        job = job_data(of, images(of), target)
        assert not any("job.queue" in note for note in job.notes)
        _one_group([document for document in job.documents if document["kind"] == "Pod"])


def test_a_pod_alone_is_no_group_of_its_queue() -> None:
    of = spec({M: RoleSpec()}, region=None, queue="team-a")
    (pod,) = job_data(of, images(of), Target.PODS).documents
    kueue = {key: value for key, value in pod["metadata"]["labels"].items() if key.startswith("kueue.")}
    assert kueue == {"kueue.x-k8s.io/queue-name": "team-a"}
    assert "kueue.x-k8s.io/pod-group-total-count" not in pod["metadata"].get("annotations", {})


def _one_group(pods: list[Any]) -> None:
    groups = {pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] for pod in pods}
    totals = {pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] for pod in pods}
    assert (len(groups), totals) == (1, {str(len(pods))})


def test_a_hundred_pods_are_warned_of() -> None:
    of = spec({M: RoleSpec(), W: RoleSpec(count=100)}, region=None)
    assert any("jobset lists it once" in note for note in job_data(of, images(of), Target.PODS).notes)
    few = spec(FOUR, region=None)
    assert not any("jobset lists it once" in note for note in job_data(few, images(few), Target.PODS).notes)


@pytest.mark.parametrize("form", names.FORMATS)
def test_each_format_refuses_some_text(form: str) -> None:
    """`re` compiles a format's pattern at its first use, so that loading the module shows no broken one."""
    assert any(names.FORMATS[form](text) for text in ("", "\n", "../x"))
