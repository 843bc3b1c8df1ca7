"""Lint's three levels: an error is what the service refuses and says where that stands; good files have none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.faults_pods import JOB, RULES
from training_imgtool.jobs.model import Finding, Severity, add_source
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.jobs.tables import machines, nearest

JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  failurePolicy: {maxRestarts: 3, rules: [{action: FailJobSet, targetReplicatedJobs: [driver]}]}
  volumeClaimPolicies:
  - templates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}]
  replicatedJobs:
  - name: driver
    template: &job
      spec:
        completions: 2
        template:
          spec:
            containers:
            - {name: main, image: busybox, volumeMounts: [{name: data, mountPath: /data}]}
  - name: workers
    dependsOn: [{name: driver, status: Ready}]
    template: *job
"""
TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {generateName: tfjob-, namespace: kubeflow}
spec:
  tfReplicaSpecs:
    worker:
      replicas: 2
      template: {spec: {containers: [{name: tensorflow, image: "kubeflow/tf:1.0", env: [{name: A, value: b}]}]}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - {name: main, image: "busybox:1.36", ports: [{containerPort: 80, name: http}]}
"""


def levels(text: str, **options: Any) -> dict[str, str]:
    return {message.field: message.severity.value for message in lint(text, "f", **options)}


GPUS = POD.replace("main", "main, resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 2}}")


@pytest.mark.parametrize("text", [JOBSET, TFJOB, POD, GPUS], ids=["jobset", "tfjob", "pod", "gpus"])
def test_a_good_file_has_no_error(text: str) -> None:
    assert "error" not in levels(text).values(), [str(m) for m in lint(text, "f")]


@pytest.mark.parametrize(
    ("old", "new", "level"),
    [
        ("spec:\n", "spec:\n  successPolicy: ''\n", None),
        ("spec:\n", "spec:\n  successPolicy: AllWorker\n", "spec.successPolicy error"),
        ("worker:\n", "worker:\n      restartPolicy: ExitCode\n", "spec.tfReplicaSpecs.worker.restartPolicy warning"),
    ],
)
def test_policies_of_a_tfjob(old: str, new: str, level: str | None) -> None:
    assert old in TFJOB
    added = levels(TFJOB.replace(old, new, 1)).items() - levels(TFJOB).items()
    assert [f"{field} {said}" for field, said in added] == ([level] if level else [])


@pytest.mark.parametrize("strict", [False, True])
def test_strict_makes_errors_of_warnings(strict: bool) -> None:
    severities = levels(POD, strict=strict)
    assert severities["spec.containers[0].image"] == ("error" if strict else "warning")


@pytest.mark.parametrize(
    ("base", "old", "new", "field", "text"),
    [
        (JOBSET, "- name: driver\n", "- name: driver\n    dependsOn: []\n", "dependsOn", "does not go with the first"),
        (
            JOBSET,
            "dependsOn: [{name: driver",
            "dependsOn: [{name: nobody",
            "dependsOn[0].name",
            "not one of the jobs before",
        ),
        (JOBSET, "[driver]", "[nobody]", "targetReplicatedJobs[0]", "'nobody' is none of driver, workers"),
        (JOBSET, "{action:", "{name: '1x', action:", "rules[0].name", "a letter first"),
        (
            JOBSET,
            "{action:",
            "{onJobFailureReasons: [Bad], action:",
            "onJobFailureReasons[0]",
            "expected Back",
        ),
        (JOBSET, "spec:\n  failure", "spec:\n  managedBy: me\n  failure", "managedBy", "expected DOMAIN/PATH"),
        (JOBSET, "spec:\n  failure", "spec:\n  network: {subdomain: a.b}\n  failure", "subdomain", "Kubernetes name"),
        (JOBSET, "- name: workers\n", "- name: workers\n    groupName: A\n", "groupName", "is not a Kubernetes name"),
        (
            JOBSET,
            "spec:\n  failure",
            "spec:\n  coordinator: {replicatedJob: nobody}\n  failure",
            "coordinator.replicatedJob",
            "is none of",
        ),
        (
            JOBSET,
            "spec:\n  failure",
            "spec:\n  coordinator: {replicatedJob: driver, podIndex: 2}\n  failure",
            "coordinator.podIndex",
            "expected 0 to 1",
        ),
        (
            TFJOB,
            "spec:\n",
            "spec:\n  runPolicy: {managedBy: me}\n",
            "managedBy",
            "expected kubeflow.org/training-operator",
        ),
        (
            JOB.replace("restartPolicy: Never", "restartPolicy: OnFailure"),
            "backoffLimit: 2",
            RULES,
            "spec.podFailurePolicy",
            "does not go with restartPolicy OnFailure: expected Never",
        ),
        (TFJOB, "namespace: kubeflow", "namespace: a.b", "metadata.namespace", "is not a Kubernetes name"),
        (TFJOB, "[{name: A, value: b}]", "[{name: A=B}]", "env[0].name", "is not a variable's name"),
        (POD, "name: main", "name: Main", "containers[0].name", "is not a Kubernetes name"),
        (
            POD,
            "name: main",
            "name: main, resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 1}}",
            "resources.requests.nvidia.com/gpu",
            "1: a GPU is a limit; a request must equal it",
        ),
        (
            POD,
            "name: main",
            "name: main, livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 80}}",
            "livenessProbe.tcpSocket",
            "does not go with exec: expected one of them",
        ),
        (POD, "name: http", "name: '80'", "ports[0].name", "is not a port's name"),
        (POD, "spec:\n", "spec:\n  hostname: a.b\n", "spec.hostname", "is not a Kubernetes name"),
        (POD, "spec:\n", "spec:\n  nodeSelector: {'a b': c}\n", "spec.nodeSelector.a b", "is not a label's name"),
        (POD, "name: train", "name: train, labels: {a: b c}", "metadata.labels.a", "is not a label's value"),
    ],
)
def test_rules_of_the_webhooks(base: str, old: str, new: str, field: str, text: str) -> None:
    assert old in base
    errors = [m for m in lint(base.replace(old, new, 1), "f") if m.severity is Severity.ERROR]
    assert [(m.field.endswith(field), text in m.message) for m in errors] == [(True, True)], [str(m) for m in errors]
    assert errors[0].source


def test_a_replica_s_type_that_is_nearly_one_is_named() -> None:
    (found,) = [m for m in lint(TFJOB.replace("worker:", "Wroker:"), "f") if m.field.endswith(".Wroker")]
    assert (found.severity, found.hint) == (Severity.ERROR, "did you mean Worker?")


@pytest.mark.parametrize("coordinator", ["{podIndex: 2}", "{replicatedJob: [driver]}", "driver"])
def test_a_coordinator_without_a_job_s_name_is_one_error(coordinator: str) -> None:
    text = JOBSET.replace("spec:\n  failure", f"spec:\n  coordinator: {coordinator}\n  failure", 1)
    errors = [m for m in lint(text, "f") if m.severity is Severity.ERROR]
    assert [m.field.startswith("spec.coordinator") for m in errors] == [True], [str(m) for m in errors]


@pytest.mark.parametrize(
    "text",
    [
        "workerPoolSpecs: {machineSpec: {machineType: n1-standard-4}, containerSpec: {imageUri: gcr.io/p/x}}\n",
        "workerPoolSpecs:\n- machineSpec: {machineType: c9-standard-8}\n  containerSpec: {imageUri: gcr.io/p/x}\n",
    ],
    ids=["a lone pool", "a newer machine"],
)
def test_vertex_files_that_the_service_takes(text: str) -> None:
    assert "error" not in levels(text).values()


@pytest.mark.parametrize(("kind", "meant"), [("Pods", "Pod"), ("Servic", "Service"), ("PodTemplate", None)])
def test_a_kind_that_is_nearly_one(kind: str, meant: str | None) -> None:
    (message,) = [each for each in lint(POD.replace("kind: Pod", f"kind: {kind}"), "f") if each.field == "kind"]
    assert message.hint == (f"did you mean {meant}?" if meant else None)


def test_other_kinds_are_not_judged() -> None:
    assert levels("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n") == {"kind": "error"}
    assert levels("apiVersion: serving.knative.dev/v1\nkind: Service\nspec: {template: {}}\n") == {"kind": "error"}
    assert "apiVersion" in levels("apiVersion: kubeflow.ogr/v1\nkind: TFJob\nmetadata: {name: x}\n")
    assert "apiVersion" in levels("apiVersion: v1\nkind: Job\nmetadata: {name: x}\n")
    assert levels("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: x}\n") == {}
    found = {message.field: message for message in lint("apiVersion: kubeflow.org/v1\nkind: TfJob\n", "f")}
    assert (found["kind"].severity, found["kind"].hint) == (Severity.ERROR, "did you mean TFJob?")
    assert len(found) > 1


def test_what_another_program_fills_in_is_no_error() -> None:
    text = JOBSET.replace("name: train", "name: '${NAME}'").replace("image: busybox", "image: 'r/${IMAGE}'")
    severities = levels(text)
    assert "error" not in severities.values(), [str(m) for m in lint(text, "f")]
    assert severities["metadata.name"] == "hint"


def test_a_jobset_of_nothing_is_taken() -> None:
    text = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: x}\nspec:\n"
    assert levels(text) == {"spec": "hint", "spec.replicatedJobs": "warning"}


@pytest.mark.parametrize(
    ("image", "level"),
    [
        ("gcr.io/<project>/<image-name>/cpu", "hint"),
        ("<CHANGE ME>", "hint"),
        ("IMAGE_URI", "hint"),
        ("gcr.io/$PROJECT/x", "hint"),
        ("$(REGISTRY)/x:1", "hint"),
        ("gcr.io/My-Project/x", "warning"),
        ("x:1", "warning"),
        ("x@sha256:" + "a" * 64, None),
    ],
)
def test_an_image_name_is_never_an_error(image: str, level: str | None) -> None:
    files = {
        "spec.containers[0].image": POD.replace("busybox:1.36", image),
        "workerPoolSpecs[0].containerSpec.imageUri": "workerPoolSpecs:\n- machineSpec: {machineType: n1-standard-4}\n"
        f'  containerSpec: {{imageUri: "{image}"}}\n',
    }
    for field, text in files.items():
        assert levels(text).get(field) in {level, "warning" if level is None else level}, field
        assert "error" not in levels(text).values()


def test_placeholders_in_other_values_are_hints() -> None:
    text = POD.replace("name: train", "name: <name>, namespace: $NS")
    assert levels(text)["metadata.name"] == levels(text)["metadata.namespace"] == "hint"


@pytest.mark.parametrize(
    ("value", "choices", "meant"),
    [
        ("n1-standard-32", ("n1-standard-2",), None),
        ("n1-standrd-2", ("n1-standard-2",), "n1-standard-2"),
        ("NVIDIA_TESLA_P1000", ("NVIDIA_TESLA_P100",), "NVIDIA_TESLA_P100"),
        ("NVIDIA_L4", ("NVIDIA_TESLA_T4", "NVIDIA_TESLA_L4"), "NVIDIA_TESLA_L4"),
        ("x", ("yes",), None),
    ],
)
def test_what_a_wrong_word_may_mean(value: str, choices: tuple[str, ...], meant: str | None) -> None:
    assert nearest(value, choices) == (meant and f"did you mean {meant}?")


def test_machines_that_take_a_number_of_gpus() -> None:
    tables = machines(allow_unknown=False)
    one, eight = (set(tables.gpus_that_fit("NVIDIA_TESLA_V100", count)) for count in (1, 8))
    assert ("n1-standard-4" in one, "n1-highmem-96" in one, "n1-highmem-96" in eight) == (True, False, True)


def test_errors_without_a_source_get_the_rules() -> None:
    findings = [Finding(path=(), message="m"), Finding(path=(), message="m", source="own")]
    findings.append(Finding(path=(), message="m", severity=Severity.WARNING))
    assert [finding.source for finding in add_source(findings, "rules")] == ["rules", "own", None]


UNKNOWN_KIND = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
SRUN = "#!/bin/bash\n#SBATCH --nodes=1\nsrun --container-image=IMAGE true\n"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (POD, "error"),
        (POD.replace("busybox:1.36", "busybox@sha256:" + "a" * 64), None),
        (POD.replace("busybox:1.36", "busybox:$TAG"), "hint"),
        (POD.replace("busybox:1.36", "Busybox"), "error"),
        (UNKNOWN_KIND, "error"),
        ("services: {a: {image: busybox}}\n", "error"),
        (SRUN.replace("IMAGE", "busybox:1"), "error"),
        (SRUN.replace("IMAGE", "nvcr.io/nvidia/pytorch:26.01"), "error"),
        (SRUN.replace("IMAGE", "nvcr.io#nvidia/pytorch@sha256:" + "a" * 64), None),
        (SRUN.replace("IMAGE", "$IMAGE"), "hint"),
    ],
)
def test_a_pipeline_takes_images_by_digest_only(text: str, level: str | None) -> None:
    def judged(text: str, answer: str | None) -> list[str]:
        found = lint(text, "f", require_digests=True, answer=answer)
        return [each.severity.value for each in found if " only: imgtool " not in each.message]

    assert judged(text, None) == judged(text, "") == [level] * (level is not None)
    valid = POD.replace("busybox:1.36", "busybox@sha256:" + "a" * 64)
    assert "error" in judged(f"{valid}---\n{UNKNOWN_KIND}", None)


def test_an_unknown_size_of_a_machine_names_the_sizes_of_its_series() -> None:
    pool = "{machineSpec: {machineType: n1-standard-5}, containerSpec: {imageUri: r.example.com/a}}"
    hints = [each.hint for each in lint(f"workerPoolSpecs: [{pool}]\n", "f") if "machine type" in each.message]
    assert len(hints) == 1
    assert "expected one of n1-standard-4, n1-standard-8" in str(hints[0])
