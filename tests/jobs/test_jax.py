"""JAX's processes find each other wherever a target knows its hosts; TPU slices are as peers write them.

The slices are those of AI-Hypercomputer/xpk 1.16.0 (core/system_characteristics.py) for its names of machines. Neither
xpk nor `gcluster job submit` (cluster-toolkit, pkg/orchestrator/gke/templates/jobset.tmpl) gives slices a variable.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.jobs import schemas
from tests.jobs.specs import images
from training_imgtool.base.errors import FieldListError
from training_imgtool.jobs import JobOptions, check, job_data
from training_imgtool.jobs.launcher import PYTHON
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.jobs.text import dump
from training_imgtool.local.replicas import Service, make_cluster
from training_imgtool.model.job import JobSpec
from training_imgtool.model.spec import Accelerator, Gpus, ImageSpec, Role, RoleSpec, Tpu
from training_imgtool.model.targets import Target

M, W = Role.MASTER, Role.WORKER
TRIO = {M: RoleSpec(machine="n1-standard-4"), W: RoleSpec(machine="n1-standard-4", count=2)}
WORKERS = {W: RoleSpec(count=3)}
SMALL = Tpu(type="TPU_V5E", topology="2x2")
KERAS = ("KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID")
OWN = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def jax(roles: dict[Role, RoleSpec], **job: Any) -> ImageSpec:
    return ImageSpec(name="m", jax="0.10.2", roles=roles, cuda_from="wheels", job=JobSpec(**job))


def told(hosts: list[str], rank: str) -> dict[str, str]:
    values = (",".join(hosts), str(len(hosts)), rank, hosts[0], str(len(hosts)), rank)
    return dict(zip((*KERAS, *OWN), values, strict=True))


def test_containers_on_one_machine() -> None:
    services = job_data(jax(TRIO), images(jax(TRIO)), Target.COMPOSE).documents[0]["services"]
    hosts = ["master:2222", "worker-0:2222", "worker-1:2222"]
    assert [service["environment"] for service in services.values()] == [told(hosts, str(rank)) for rank in range(3)]


def test_machines_of_ones_own() -> None:
    options = JobOptions(hosts=parse_hosts("master=a,worker=b:1,worker=c"))
    (machines,) = job_data(jax(TRIO), images(jax(TRIO)), Target.TF_CONFIG, options).documents
    assert machines["worker-0"] == told(["a:2222", "b:1", "c:2222"], "1")


def test_pods() -> None:
    pods = [item for item in job_data(jax(TRIO), images(jax(TRIO)), Target.PODS).documents if item["kind"] == "Pod"]
    env = {item["name"]: item["value"] for item in pods[2]["spec"]["containers"][0]["env"]}
    assert env["JAX_PROCESS_ID"] == env["KERAS_DISTRIBUTION_PROCESS_ID"] == "2"
    assert env["JAX_COORDINATOR_ADDRESS"].startswith(f"{pods[0]['metadata']['name']}.")


@pytest.mark.parametrize("target", [Target.JOBSET, Target.TRAINJOB])
@pytest.mark.parametrize(
    ("roles", "shapes", "field", "last"),
    [
        (TRIO, [(1, 1), (2, 1)], "metadata.labels['jobset.sigs.k8s.io/job-global-index']", "worker-1-0"),
        (WORKERS, [(1, 3)], "metadata.annotations['batch.kubernetes.io/job-completion-index']", "worker-0-2"),
    ],
)
def test_a_jobset_numbers_the_processes(
    target: Target, roles: dict[Role, RoleSpec], shapes: list[tuple[int, int]], field: str, last: str
) -> None:
    document = job_data(jax(roles), images(jax(roles)), target).documents[0]
    jobs = (document["spec"]["template"] if target is Target.TRAINJOB else document)["spec"]["replicatedJobs"]
    assert [(job["replicas"], job["template"]["spec"]["completions"]) for job in jobs] == shapes
    for job in jobs:
        rank, *env = job["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
        assert rank == {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": field}}}
        values = {item["name"]: item["value"] for item in env}
        hosts = values["KERAS_DISTRIBUTION_JOB_ADDRESSES"].split(",")
        assert len(hosts) == 3
        assert hosts[-1].split(".")[0].endswith(last)
        assert {**values, "JAX_PROCESS_ID": "$(JAX_PROCESS_ID)"} == told(hosts, "$(JAX_PROCESS_ID)")
    if target is Target.JOBSET:
        schemas.need()
        assert schemas.complaints("JobSet", document) == []


SLICES = [
    ("v5e-16", Tpu(type="TPU_V5E", topology="4x4"), 1, "tpu-v5-lite-podslice", 4),
    ("v6e-256", Tpu(type="TPU_V6E", topology="16x16"), 1, "tpu-v6e-slice", 64),
    ("v5p-128", Tpu(type="TPU_V5P", topology="4x4x4"), 1, "tpu-v5p-slice", 16),
    ("tpu7x-128", Tpu(type="TPU7X", topology="4x4x4"), 1, "tpu7x", 16),
    ("two of v6e-16", Tpu(type="TPU_V6E", topology="4x4"), 2, "tpu-v6e-slice", 4),
]


@pytest.mark.parametrize(
    ("tpu", "count", "label", "hosts"), [row[1:] for row in SLICES], ids=[row[0] for row in SLICES]
)
def test_a_slice_is_a_job_of_the_jobset(tpu: Tpu, count: int, label: str, hosts: int) -> None:
    of = jax({W: RoleSpec(tpu=tpu, count=count)})
    made = job_data(of, images(of), Target.JOBSET)
    (job,) = made.documents[0]["spec"]["replicatedJobs"]
    inner = job["template"]["spec"]
    pod = inner["template"]["spec"]
    assert (job["replicas"], inner["parallelism"], inner["completions"], inner["backoffLimit"]) == (
        count,
        hosts,
        hosts,
        0,
    )
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": label,
        "cloud.google.com/gke-tpu-topology": tpu.topology,
    }
    assert pod["containers"][0]["resources"] == {"limits": {"google.com/tpu": 4}}
    assert "env" not in pod["containers"][0]
    assert "successPolicy" not in made.documents[0]["spec"]
    assert [message.message for message in lint(dump(made), "f")] == []
    schemas.need()
    assert schemas.complaints("JobSet", made.documents[0]) == []


def run_launcher(argv: list[str], env: dict[str, str]) -> dict[str, str]:
    """Starts the launcher with a program that prints its environment."""
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    command = [sys.executable if word == PYTHON else word for word in argv]
    done = subprocess.run([*command, sys.executable, "-c", show], env=env, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return {name: found[name] for name in (*KERAS, *OWN)}


def test_vertex_ai_is_translated_where_the_program_starts() -> None:
    of = jax(TRIO, region="us-central1")
    pools = job_data(of, images(of), Target.VERTEX).documents[0]["workerPoolSpecs"]
    command = [word.replace("$$", "$") for word in pools[1]["containerSpec"]["command"]]
    cluster = make_cluster(of, images(of), Service.VERTEX)
    assert list(cluster.replicas[2].command or ()) == command
    env = {name: value for name, value in cluster.replicas[2].env.items() if name not in {*KERAS, *OWN}}
    hosts = [f"{replica.host}:2222" for replica in cluster.replicas]
    assert run_launcher(command[:3], env) == told(hosts, "2")


def test_skypilot_is_translated_where_the_program_starts() -> None:
    document = job_data(jax(WORKERS), images(jax(WORKERS)), Target.SKYPILOT).documents[0]
    words = shlex.split(document["run"].replace('"$CLUSTER_LAUNCHER"', "LAUNCHER"))
    argv = [document["envs"]["CLUSTER_LAUNCHER"] if word == "LAUNCHER" else word for word in words[1:7]]
    env = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n10.0.0.3", "SKYPILOT_NODE_RANK": "1", "PATH": os.environ["PATH"]}
    assert run_launcher(argv, env) == told(["10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.3:2222"], "1")


def test_slurm_is_left_to_jax() -> None:
    text = dump(job_data(jax(WORKERS), images(jax(WORKERS)), Target.SLURM))
    assert "CLUSTER_LAUNCHER" not in text
    assert "JAX_" not in text
    with pytest.raises(FieldListError, match="the same Slurm step: expected one role"):
        job_data(jax(TRIO), images(jax(TRIO)), Target.SLURM)


@pytest.mark.parametrize("target", [Target.TFJOB, Target.AI_PLATFORM])
def test_services_that_tell_tensorflow_alone_are_refused(target: Target) -> None:
    with pytest.raises(FieldListError, match=f"{target} describes a cluster only for TensorFlow"):
        job_data(jax(TRIO), images(jax(TRIO)), target)


def test_a_process_alone_is_told_nothing() -> None:
    gpu = RoleSpec(gpus=Gpus(type="NVIDIA_L4", count=1))
    for target in (Target.COMPOSE, Target.JOBSET, Target.PODS):
        assert "PROCESS_ID" not in dump(job_data(jax({M: gpu}), images(jax({M: gpu})), target))
    (replica,) = make_cluster(jax({M: replace(gpu, gpus=None)}), images(jax({M: gpu})), Service.LOCAL).replicas
    assert replica.env == {}


SELECTOR = "{cloud.google.com/gke-tpu-accelerator: LABEL, cloud.google.com/gke-tpu-topology: TOPOLOGY}"
POD = f"{{restartPolicy: Never, nodeSelector: {SELECTOR}, containers: [{{name: a, image: IMAGE, RESOURCES}}]}}"
RESOURCES = "resources: {limits: {google.com/tpu: CHIPS}}"
OF_KIND = {
    "Job": f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec: {{JOB, template: {{spec: {POD}}}}}\n",
    "TrainJob": (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: j}\nspec:\n"
        "  runtimeRef: {name: jax-distributed}\n"
        f"  trainer: {{numNodes: HOSTS, resourcesPerNode: {RESOURCES.partition(': ')[2]}}}\n"
        f"  podTemplateOverrides: [{{targetJobs: [{{name: node}}], spec: {{nodeSelector: {SELECTOR}}}}}]\n"
    ),
}


@pytest.mark.parametrize("kind", OF_KIND)
@pytest.mark.parametrize(
    ("label", "topology", "chips", "hosts", "said"),
    [
        ("tpu-v5p-slice", "2x2x2", 4, 2, ""),
        ("tpu-v6e-slice", "2x4", 8, 1, ""),
        ("tpu-v4-podslice", "8x4x4", 4, 32, ""),
        ("tpu7x", "4x4x4", 4, 16, ""),
        ("another-tpu", "7x7", 3, 5, ""),
        ("tpu-v5p-slice", "2x2x2", 8, 1, "8 chips: a machine of tpu-v5p-slice 2x2x2 has 4"),
        ("tpu-v5-lite-podslice", "1x1", 4, 1, "4 chips: a machine of tpu-v5-lite-podslice 1x1 has 1"),
        ("tpu-v6e-slice", "4x4x4", 4, 16, "'4x4x4': "),
        ("tpu-v5p-slice", "8x4x4", 4, 32, "'8x4x4': "),
        ("tpu-v6e-slice", "4x4", 4, 2, "2: tpu-v6e-slice 4x4 has 4 hosts, and each runs one Pod"),
    ],
)
def test_lint_knows_slices(kind: str, label: str, topology: str, *, chips: int, hosts: int, said: str) -> None:
    text = OF_KIND[kind].replace("RESOURCES", RESOURCES).replace("JOB", "parallelism: HOSTS, completions: HOSTS")
    for word, value in (("LABEL", label), ("TOPOLOGY", topology), ("CHIPS", str(chips)), ("HOSTS", str(hosts))):
        text = text.replace(word, value)
    text = text.replace("IMAGE", f"example.com/i@sha256:{'a' * 64}")
    errors = [message.message for message in lint(text, "f") if message.severity == "error"]
    assert [error.startswith(said) for error in errors] == ([True] if said else []), errors


def refusals(of: ImageSpec, target: Target, **options: Any) -> list[str]:
    return [f"{error.field}: {error.message}" for error in check(of, images(of), target, JobOptions(**options))]


@pytest.mark.parametrize(
    ("roles", "target", "field"),
    [
        ({M: RoleSpec(), W: RoleSpec(tpu=Tpu(type="TPU_V6E", topology="4x4"))}, Target.JOBSET, "roles.worker"),
        ({M: RoleSpec(tpu=SMALL), W: RoleSpec(tpu=SMALL, count=3)}, Target.TRAINJOB, "roles.master"),
        ({M: RoleSpec(accelerator=Accelerator.TPU, tpu=Tpu(type="TPU_V3"))}, Target.AI_PLATFORM, "roles"),
    ],
)
def test_tpus_that_jax_or_the_service_cannot_use(roles: dict[Role, RoleSpec], target: Target, field: str) -> None:
    assert any(found.startswith(f"{field}: ") for found in refusals(jax(roles), target))


@pytest.mark.parametrize("target", [Target.JOBSET, Target.TRAINJOB, Target.PODS, Target.COMPOSE, Target.SKYPILOT])
@pytest.mark.parametrize("name", [*OWN, *KERAS])
def test_a_variable_that_imgtool_sets(target: Target, name: str) -> None:
    with_job = jax(WORKERS, env={name: "1"})
    assert f"job.env.{name}: imgtool sets this variable" in refusals(with_job, target)
    assert f"env.{name}: imgtool sets this variable" in refusals(replace(jax(WORKERS), env={name: "1"}), target)
    assert not refusals(jax({M: RoleSpec()}, env={name: "1"}), Target.JOBSET)


def test_the_package_kubernetes_numbers_the_processes_of_one_job() -> None:
    packages = dict.fromkeys(Role, frozenset({"jax", "kubernetes"}))
    assert any("jax[k8s]" in text for text in refusals(jax(TRIO), Target.JOBSET, packages=packages))
    assert not refusals(jax(WORKERS), Target.JOBSET, packages=packages)
    assert not refusals(jax(TRIO), Target.COMPOSE, packages=packages)


def test_slurm_gives_a_process_all_gpus_of_its_node() -> None:
    gpus = {W: RoleSpec(count=3, gpus=Gpus(type="any", count=8))}
    assert script(jax(gpus))["JAX_LOCAL_DEVICE_IDS"] == "0,1,2,3,4,5,6,7"
    assert script(jax(gpus, env={"JAX_LOCAL_DEVICE_IDS": "0"}))["JAX_LOCAL_DEVICE_IDS"] == "0"
    assert "JAX_LOCAL_DEVICE_IDS" not in script(jax(WORKERS))


def script(of: ImageSpec) -> dict[str, str]:
    env: dict[str, str] = job_data(of, images(of), Target.SLURM).documents[0]["env"]
    return env


def test_pods_and_eci_name_the_container_after_the_framework() -> None:
    for target in (Target.PODS, Target.ECI):
        of = jax({M: RoleSpec(cpus="4", memory="8Gi"), W: RoleSpec(cpus="4", memory="8Gi", count=2)})
        found = [item for item in job_data(of, images(of), target).documents if item["kind"] == "Pod"]
        assert {item["spec"]["containers"][0]["name"] for item in found} == {"jax"}


def test_machines_of_ones_own_have_no_place_for_the_job_directory() -> None:
    of = jax(TRIO, job_dir="gs://bucket-x/out")
    made = job_data(of, images(of), Target.TF_CONFIG, JobOptions(hosts=parse_hosts("master=a,worker=b,worker=c")))
    assert any("no place for" in note and "job.job_dir (with" in note for note in made.notes)
