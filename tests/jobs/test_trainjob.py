"""A TrainJob: the objects around the JobSet in the webhook's order, and what lint says of others' files."""

from __future__ import annotations

import pytest

from tests.jobs.specs import TRIO, images, spec
from training_imgtool.jobs import job_data
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.model.targets import Target

JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: mnist}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {numNodes: 2, image: a/b@sha256:DIGEST}
""".replace("DIGEST", "ab" * 32)
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: own}
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: a/b@sha256:DIGEST}]}}}
""".replace("DIGEST", "ab" * 32)


A_JOB = "spec.template.spec.replicatedJobs[0]"
IN_JOB = f"{A_JOB}.template.spec.template.spec"


def test_the_runtime_comes_first_and_holds_the_jobset() -> None:
    of = spec(TRIO, region=None, queue="team", exclusive_topology="pool")
    runtime, job = job_data(of, images(of), Target.TRAINJOB).documents
    (jobset,) = job_data(of, images(of), Target.JOBSET).documents
    assert [item["kind"] for item in (runtime, job)] == ["TrainingRuntime", "TrainJob"]
    assert runtime["spec"]["template"]["spec"] == jobset["spec"]
    assert runtime["spec"]["template"]["metadata"]["annotations"] == jobset["metadata"]["annotations"]
    names = {item["metadata"]["name"] for item in (runtime, job, jobset)}
    assert names == {job["spec"]["runtimeRef"]["name"]}  # the Pods are named after it
    queued = [("kueue.x-k8s.io/queue-name" in item["metadata"]["labels"]) for item in (runtime, job)]
    assert queued == [False, True]


@pytest.mark.parametrize("text", [JOB, RUNTIME])
def test_a_good_file_has_no_finding(text: str) -> None:
    assert lint(text, "f") == ()


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (JOB, "runtimeRef: {name: torch-distributed}", "suspend: true", "error: spec: 'runtimeRef' is missing"),
        (JOB, "numNodes: 2", "numNodes: 0", "spec.trainer.numNodes: 0: expected 1 or more"),
        (JOB, "numNodes: 2", "num_nodes: 2", "'num_nodes' is not a key here"),
        (JOB, "trainer: {", "managedBy: me\n  trainer: {", "spec.managedBy: 'me': expected"),
        (JOB, "v1alpha1", "v1beta1", "apiVersion: 'trainer.kubeflow.org/v1beta1': expected"),
        (JOB, "b@sha256:", "b:", "is a tag, which can move"),
        (RUNTIME, "name: node, image", "name: main, image", f"{IN_JOB}.containers: the step trainer needs a container"),
        (
            RUNTIME,
            "- name: node\n",
            "- name: node\n        replicas: 2\n",
            f"{A_JOB}.replicas: 2: expected 1 for the",
        ),
        (
            RUNTIME,
            "      replicated",
            "      network: {subdomain: a.b}\n      replicated",
            "spec.template.spec.network.sub",
        ),
    ],
)
def test_what_the_webhooks_refuse(text: str, old: str, new: str, said: str) -> None:
    assert old in text
    messages = "\n".join(map(str, lint(text.replace(old, new), "f")))
    assert said in messages
