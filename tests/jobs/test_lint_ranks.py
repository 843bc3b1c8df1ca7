"""Lint of what the services accept and what then hangs, is never scheduled, or leaves devices idle."""

from __future__ import annotations

import pytest

from tests.jobs.faults_pods import JOB
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.rules.lint import lint

IMAGE = "r.example.com/a@sha256:" + "a" * 64
TPU, TOPOLOGY = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"
SLICE = f"{{{TPU}: tpu-v6e-slice, {TOPOLOGY}: 2x4}}"
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    image: IMAGE
    numNodes: 2
    numProcPerNode: 8
    command: [torchrun, --nnodes=2, t.py]
    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}
""".replace("IMAGE", IMAGE)
JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 4
        completions: 4
        template:
          metadata: {annotations: {gke-gcsfuse/volumes: "true"}}
          spec:
            containers:
            - name: main
              image: IMAGE
              command: [bash, -c, "torchrun --nnodes=4 --nproc-per-node 8 t.py"]
              env: [{name: MASTER_ADDR, value: train-workers-0-0.train}]
              resources: {limits: {nvidia.com/gpu: 8, memory: 32Gi}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
            volumes:
            - {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}
            - {name: data, csi: {driver: gcsfuse.csi.storage.gke.io, volumeAttributes: {bucketName: b}}}
""".replace("IMAGE", IMAGE)
ON_TPU = JOB.replace("busybox", IMAGE).replace("cpu: 500m", "google.com/tpu: 4").replace("{pool: gpu}", SLICE)


@pytest.mark.parametrize(
    ("text", "old", "new", "part"),
    [
        (TRAIN_JOB, "--nnodes=2", "--nnodes=3", "command: 3 machines, but the job has 2"),
        (TRAIN_JOB, "numProcPerNode: 8", "numProcPerNode: 4", "numProcPerNode: 4 processes on a machine with 8 GPUs"),
        (JOBSET, "--nnodes=4", "--nnodes=2", "2 machines, but the job has 4"),
        (JOBSET, "--nproc-per-node 8", "--nproc_per_node=4", "4 processes on a machine with 8 GPUs"),
        (JOBSET, "workers-0-0", "worker-0-0", "train-worker-0-0.train: no Pod has this name"),
        (JOBSET, "MASTER_ADDR, value: train-workers-0-0.train", "PET_NPROC_PER_NODE, value: '2'", None),
        (JOBSET, 'gke-gcsfuse/volumes: "true"', "a: b", "volumes[1]: the Pod needs the annotation"),
        (JOBSET, "sizeLimit: 16Gi", "sizeLimit: 64Gi", "64Gi of memory count as the container's, whose limit is 32Gi"),
        (ON_TPU, "tpu-v6e-slice", "v6e-slice", "'v6e-slice' is not a TPU of GKE"),
        (ON_TPU, f"{TPU}: tpu-v6e-slice, ", "", "is missing: GKE's TPU nodes have this label"),
        (ON_TPU, "google.com/tpu: 4", "cpu: 4", "no container requests google.com/tpu"),
        (ON_TPU, "completionMode: Indexed", "suspend: false", "completionMode: expected Indexed"),
    ],
)
def test_what_a_service_accepts_and_then_does_not_run(text: str, old: str, new: str, part: str | None) -> None:
    assert not lint(text, "f")
    assert old in text
    found = lint(text.replace(old, new, 1), "f")
    assert [message.severity for message in found] == ([Severity.WARNING] if part else [])
    assert all(part is not None and part in str(message) for message in found)


@pytest.mark.parametrize("variable", ["PET_NNODES", "PET_MASTER_ADDR"])
def test_variables_that_trainer_sets_are_refused(variable: str) -> None:
    text = TRAIN_JOB.replace("    command:", f"    env: [{{name: {variable}, value: '2'}}]\n    command:")
    (found,) = lint(text, "f")
    assert (found.severity, found.field) == (Severity.ERROR, "spec.trainer.env[0].name")


@pytest.mark.parametrize(
    ("kind", "version"),
    [("PersistentVolume", "v1"), ("JobSetList", "jobset.x-k8s.io/v1alpha2"), ("MXJob", "kubeflow.org/v1")],
)
def test_a_kind_without_a_schema_is_not_taken_for_another(kind: str, version: str) -> None:
    (found,) = lint(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n---\n{ON_TPU}", "f")
    assert found.severity is Severity.WARNING
    assert found.message.startswith("nothing was checked")
