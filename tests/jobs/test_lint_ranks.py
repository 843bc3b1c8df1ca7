"""Lint of what the services accept and what then hangs, is never scheduled, or leaves devices idle."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.jobs.faults_pods import JOB
from tests.jobs.specs import cpu, images, spec
from training_imgtool.jobs import module_of
from training_imgtool.jobs.model import JobOptions, Severity
from training_imgtool.jobs.rules.lint import Message, lint
from training_imgtool.jobs.yamlio import to_yaml
from training_imgtool.model.spec import Role
from training_imgtool.model.targets import Target

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
JAX_TRAIN = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: jax-distributed}
  trainer: {image: IMAGE, numNodes: 2, env: [{name: LR, value: '1'}]}
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
              command: [bash, -c, "torchrun --nnodes=4 --nproc-per-node 8 --node_rank=$JOB_COMPLETION_INDEX \
                --master_addr=$MASTER_ADDR t.py"]
              env: [{name: MASTER_ADDR, value: train-workers-0-0.train}]
              resources: {limits: {nvidia.com/gpu: 8, memory: 32Gi}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
            volumes:
            - {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}
            - {name: data, csi: {driver: gcsfuse.csi.storage.gke.io, volumeAttributes: {bucketName: b}}}
""".replace("IMAGE", IMAGE)
JAX_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      subdomain: peers
      containers:
      - name: main
        image: IMAGE
        env:
        - {name: JAX_COORDINATOR_ADDRESS, value: "train-0.peers:1234"}
        - {name: JAX_NUM_PROCESSES, value: '2'}
        - {name: JAX_PROCESS_ID, value: $(JOB_COMPLETION_INDEX)}
""".replace("IMAGE", IMAGE)
_REPLICA = "template: {spec: {containers: [{name: pytorch, image: IMAGE, command: [torchrun, R.py], ENV}]}}"
TORCH_JOB = (
    """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: p}
spec:
  nprocPerNode: '4'
  pytorchReplicaSpecs:
    Master: {replicas: 1, MASTER}
    Worker: {replicas: 3, WORKER}
""".replace("MASTER", _REPLICA.replace("R.py", "m.py"))
    .replace("WORKER", _REPLICA.replace("R.py", "w.py"))
    .replace("ENV", "env: [{name: LR, value: '1'}], resources: {limits: {nvidia.com/gpu: 4}}")
    .replace("IMAGE", IMAGE)
)
SLURM = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
NODES=2
HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun torchrun --nnodes=$NODES --nproc_per_node=8 \\
  --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 t.py
"""
_SERVICE = """\
  w0:
    image: IMAGE
    command: torchrun --nnodes=2 --nproc_per_node=1 --node_rank=0 --master_addr=w0 t.py
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
""".replace("IMAGE", IMAGE)
COMPOSE = "services:\n" + _SERVICE + _SERVICE.replace("  w0:", "  w1:").replace("rank=0", "rank=1")
ON_TPU = JOB.replace("busybox", IMAGE).replace("cpu: 500m", "google.com/tpu: 4").replace("{pool: gpu}", SLICE)


@pytest.mark.parametrize(
    ("text", "old", "new", "part"),
    [
        (TRAIN_JOB, "--nnodes=2", "--nnodes=3", "command: 3 machines, but the job has 2"),
        (TRAIN_JOB, "numProcPerNode: 8", "numProcPerNode: 4", "numProcPerNode: 4 processes on a machine with 8 GPUs"),
        (JOBSET, "--nnodes=4", "--nnodes=2", "2 machines, but the job has 4"),
        (JOBSET, "--nproc-per-node 8", "--nproc_per_node=4", "4 processes on a machine with 8 GPUs"),
        (JOBSET, "workers-0-0", "worker-0-0", "train-worker-0-0.train: no machine of the job has this name"),
        (JOBSET, "--nproc-per-node 8", "--nproc-per-node gpu", None),
        (JOBSET, "train-workers-0-0", "train-workers-0-1", "the processes wait for rank 0, which is not there"),
        (JOBSET, "value: train-workers-0-0.train", "value: localhost", "each machine waits at its own address"),
        (JOBSET, "--node_rank=$JOB_COMPLETION_INDEX", "--node_rank=0", "0: all 4 machines have this rank"),
        (JOBSET, "--node_rank=$JOB_COMPLETION_INDEX", "", "torchrun without --node_rank"),
        (JOBSET, "--node_rank=$JOB_COMPLETION_INDEX", "--rdzv_backend=c10d", "torchrun without --rdzv_endpoint"),
        (JOBSET, "--nnodes=4", "", "torchrun without --nnodes trains on each of 4 machines alone"),
        (JOBSET, "--nnodes=4", "$OPTIONS", None),
        (JOBSET, "t.py", "--master_port=99999 t.py", "'99999': expected a port"),
        (JOBSET, "MASTER_ADDR, value: train-workers-0-0.train", "JAX_NUM_PROCESSES, value: '8'", None),
        (JAX_JOB, "'2'", "'4'", "4 processes, but the job has 2"),
        (JAX_JOB, ":1234", "", "train-0.peers has no port: expected HOST:PORT"),
        (JAX_JOB, "$(JOB_COMPLETION_INDEX)", "'1'", "1: all 2 machines have this rank"),
        (JAX_JOB, "completionMode: Indexed", "suspend: true", "only a Job with completionMode: Indexed has"),
        (JAX_JOB, "subdomain: peers", "dnsPolicy: Default", "train-0.peers: no machine of the job has this name"),
        (JAX_TRAIN, "numNodes: 2", "numNodes: 2, numProcPerNode: 8", "JAX starts one process on each node"),
        (JAX_TRAIN, "name: LR", "name: JAX_NUM_PROCESSES", "JAX_NUM_PROCESSES: the controller sets this variable"),
        (TRAIN_JOB, "[torchrun, --nnodes=2", "[python", "without torchrun, the program gets no rank"),
        (TRAIN_JOB, "--nnodes=2", "--standalone", "1 machine, but the job has 2"),
        (TORCH_JOB, "torchrun, w.py", "torchrun, --nnodes=3, w.py", "3 machines, but the job has 4"),
        (TORCH_JOB, "torchrun, w.py", "torchrun, --master_port=29500, w.py", "port 29500: other machines have 23456"),
        (TORCH_JOB, "name: LR", "name: WORLD_SIZE", "WORLD_SIZE: the operator replaces this variable"),
        (TORCH_JOB, "nprocPerNode: '4'", "nprocPerNode: '2'", "nprocPerNode: 2 processes on a machine with 4 GPUs"),
        (SLURM, "--nodes=2", "--nodes=4", "2 machines, but the job has 4"),
        (SLURM, "srun torchrun", "torchrun", "only the first node runs this line"),
        (SLURM, "--ntasks-per-node=1", "--ntasks-per-node=8", "srun starts torchrun 8 times on each node"),
        (SLURM, "--ntasks-per-node=1", "--ntasks=16", "srun starts torchrun 8 times on each node"),
        (SLURM, "--gres=gpu:8", "--gpus-per-task=4", "8 processes on a machine with 4 GPUs"),
        (SLURM, "--rdzv_backend=c10d", "--node_rank=$SLURM_NODEID", "the batch shell replaces the rank"),
        (SLURM, "--nnodes=$NODES", '"${ARGS[@]}"', None),
        (COMPOSE, "--node_rank=1", "--node_rank=0", "services.w1.command: 0: another machine has this rank"),
        (COMPOSE, "--node_rank=1 --master_addr=w0", "--node_rank=1 --master_addr=w2", "w2: no machine of the job"),
        (COMPOSE, "--nnodes=2", "--nnodes=3", "3 machines, but the job has 2"),
        (COMPOSE, "count: 1", "count: 2", "1 processes on a machine with 2 GPUs"),
        (JOBSET, 'gke-gcsfuse/volumes: "true"', "a: b", "volumes[1]: the Pod needs the annotation"),
        (JOBSET, "sizeLimit: 16Gi", "sizeLimit: 64Gi", "64Gi of memory count as the container's, whose limit is 32Gi"),
        (ON_TPU, "tpu-v6e-slice", "v6e-slice", "'v6e-slice' is not a TPU of GKE"),
        (ON_TPU, f"{TPU}: tpu-v6e-slice, ", "", "is missing: GKE's TPU nodes have this label"),
        (ON_TPU, "google.com/tpu: 4", "cpu: 4", "no container requests google.com/tpu"),
        (ON_TPU, "completionMode: Indexed", "suspend: false", "completionMode: expected Indexed"),
    ],
)
def test_what_a_service_accepts_and_then_does_not_run(text: str, old: str, new: str, part: str | None) -> None:
    assert not judge(text)
    assert old in text
    found = judge(text.replace(old, new, 1))
    assert [message.severity for message in found] == ([Severity.WARNING] if part else [])
    assert all(part is not None and part in str(message) for message in found)


def judge(text: str) -> list[Message]:
    """Returns the messages about ranks: without those that say that no program of the service was asked."""
    return [message for message in lint(text, "f") if " only: imgtool " not in message.message]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("replicas: 1", "replicas: 2", "Master.replicas"),
        ("Worker: {", "Helper: {", "Helper"),
        ("name: pytorch", "name: main", "Master.template.spec.containers"),
    ],
)
def test_what_the_operator_refuses_in_a_pytorchjob(old: str, new: str, field: str) -> None:
    found = [each for each in lint(TORCH_JOB.replace(old, new, 1), "f") if each.severity is Severity.ERROR]
    assert [each.field for each in found] == [f"spec.pytorchReplicaSpecs.{field}"]


def test_an_elastic_job_takes_its_numbers_from_its_policy() -> None:
    policy = "elasticPolicy: {minReplicas: 1, maxReplicas: 3, nProcPerNode: 4}"
    text = re.sub("    Master: .*\n", "", TORCH_JOB).replace("nprocPerNode: '4'", policy)
    assert not lint(text, "f")
    (found,) = lint(text.replace("minReplicas: 1, maxReplicas: 3", "minReplicas: 4"), "f")
    assert found.message == "4 machines, but the job has 3: its processes wait for each other"


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


@pytest.mark.parametrize("target", [Target.JOBSET, Target.TRAINJOB, Target.PODS, Target.COMPOSE, Target.SLURM])
@pytest.mark.parametrize(
    ("release", "processes"),
    [({"torch": "2.13.0"}, None), ({"torch": "2.13.0"}, 2), ({"jax": "0.10.2"}, None)],
    ids=["torch", "torchrun", "jax"],
)
def test_own_files_fit_their_machines(target: Target, release: dict[str, str], processes: int | None) -> None:
    """The evaluator is no rank."""
    master, worker = (cpu(count, None, processes=processes) for count in (1, 2))
    roles = {Role.MASTER: master, Role.WORKER: worker, Role.EVALUATOR: cpu(1, None)}
    made = replace(spec(roles), tensorflow=None, **release)  # type: ignore[arg-type]
    job = module_of(target).make(made, images(made), JobOptions())
    assert not judge(job.script or "---\n".join(map(to_yaml, job.documents)))
