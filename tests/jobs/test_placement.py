"""Where Pods go: TPU slices, GPUs, spot capacity, reservations, queues; beside what xpk writes for the same machines.

The table is what `xpk workload create --dry-run` of AI-Hypercomputer/xpk at 2026-06-25 printed for each machine. What
differs on purpose is not in it: the trainer's command and its shell, `hostNetwork` and `privileged` (Pods find each
other by their names, and TPU nodes need neither since GKE 1.28), FailJobSet on exit codes (here a failed Pod uses a
restart, and an evicted one none), and for GPUs the sidecar of GPUDirect, which belongs to the cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.jobs import schemas
from tests.jobs.specs import images, spec
from training_imgtool.base.errors import FieldListError
from training_imgtool.jobs import job_data
from training_imgtool.jobs.rules.lint import lint
from training_imgtool.jobs.text import dump
from training_imgtool.model.job import Scheduling, Volume
from training_imgtool.model.spec import Accelerator, Gpus, Role, RoleSpec, Toleration, Tpu
from training_imgtool.model.targets import Target

M, W = Role.MASTER, Role.WORKER
JOB: dict[str, Any] = {
    "region": None,
    "queue": "multislice-queue",
    "priority_class": "medium",
    "scheduling": Scheduling(restarts=0, keep_finished="43200s"),
}
XPK: dict[str, tuple[RoleSpec, dict[str, Any], dict[str, Any]]] = {
    "v5e-16": (
        RoleSpec(tpu=Tpu(type="TPU_V5_LITEPOD", topology="4x4")),
        {},
        {
            "hosts": 4,
            "nodeSelector": {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                "cloud.google.com/gke-tpu-topology": "4x4",
            },
            "limits": {"google.com/tpu": 4},
            "tolerated": ["google.com/tpu"],
            "exclusive": "cloud.google.com/gke-nodepool",
            "topology": {},
        },
    ),
    "v6e-256": (
        RoleSpec(tpu=Tpu(type="TPU_V6E", topology="16x16")),
        {},
        {
            "hosts": 64,
            "nodeSelector": {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
                "cloud.google.com/gke-tpu-topology": "16x16",
            },
            "limits": {"google.com/tpu": 4},
            "tolerated": ["google.com/tpu"],
            "exclusive": "cloud.google.com/gke-nodepool",
            "topology": {},
        },
    ),
    "h100-spot": (  # xpk leaves its nodes to Kueue's flavors; its node pools have these labels (core/capacity.py)
        RoleSpec(count=2, gpus=Gpus(type="NVIDIA_H100_80GB", count=8)),
        {
            "preferred_topology": "kubernetes.io/hostname",
            "scheduling": Scheduling(restarts=0, keep_finished="43200s", strategy="SPOT"),
        },
        {
            "hosts": 2,
            "nodeSelector": {
                "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
                "cloud.google.com/gke-spot": "true",
            },
            "limits": {"nvidia.com/gpu": 8},
            "tolerated": ["nvidia.com/gpu", "cloud.google.com/gke-spot"],
            "exclusive": None,
            "topology": {"kueue.x-k8s.io/podset-preferred-topology": "kubernetes.io/hostname"},
        },
    ),
}


def made(roles: dict[Role, RoleSpec], target: Target = Target.JOBSET, **job: Any) -> dict[str, Any]:
    of = spec(roles, **{"region": None, **job})
    return dict(job_data(of, images(of), target).documents[-1])


@pytest.mark.parametrize("name", XPK)
def test_a_jobset_is_what_xpk_writes_for_the_machine(name: str) -> None:
    role, more, theirs = XPK[name]
    document = made({W: role}, **{**JOB, **more})
    labels, of = document["metadata"]["labels"], document["spec"]
    (job,) = of["replicatedJobs"]
    inner = job["template"]["spec"]
    pod = inner["template"]["spec"]
    (running,) = pod["containers"]
    annotations = job["template"].get("metadata", {}).get("annotations", {})
    assert labels["kueue.x-k8s.io/queue-name"] == "multislice-queue"
    assert (of["ttlSecondsAfterFinished"], of["failurePolicy"]["maxRestarts"], job["replicas"]) == (43200, 0, 1)
    assert (inner["parallelism"], inner["completions"], inner["backoffLimit"]) == (theirs["hosts"], theirs["hosts"], 0)
    assert annotations.get("alpha.jobset.sigs.k8s.io/exclusive-topology") == theirs["exclusive"]
    assert inner["template"]["metadata"].get("annotations", {}) == theirs["topology"]
    assert (pod["nodeSelector"], running["resources"]["limits"]) == (theirs["nodeSelector"], theirs["limits"])
    assert [item["key"] for item in pod["tolerations"]] == theirs["tolerated"]
    assert (pod["restartPolicy"], pod["priorityClassName"]) == ("Never", "medium")
    assert {"mountPath": "/dev/shm", "name": "shm"} in running["volumeMounts"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    text = dump(job_data(spec({W: role}, **{**JOB, **more}), images(spec({W: role})), Target.JOBSET))
    assert [message.message for message in lint(text, "f")] == []
    schemas.need()
    assert schemas.complaints("JobSet", document) == []


@pytest.mark.parametrize(
    ("machine", "kind", "topology", "hosts", "chips"),
    [
        (None, "TPU_V5E", "1x1", 1, 1),
        (None, "tpu-v6e-slice", "2x2", 1, 4),
        ("ct6e-standard-8t", "TPU_V6E", "2x4", 1, 8),
        ("ct6e-standard-4t", "TPU_V6E", "2x4", 2, 4),
        (None, "TPU_V5P", "2x2x2", 2, 4),
    ],
)
def test_how_many_hosts_a_slice_has(machine: str | None, kind: str, topology: str, hosts: int, chips: int) -> None:
    (job,) = made({W: RoleSpec(machine=machine, tpu=Tpu(type=kind, topology=topology))})["spec"]["replicatedJobs"]
    inner = job["template"]["spec"]
    running = inner["template"]["spec"]["containers"][0]
    assert (inner["completions"], running["resources"]["limits"]["google.com/tpu"]) == (hosts, chips)
    names = [variable["name"] for variable in running.get("env", [])]
    assert ("TF_CONFIG" in names) is (hosts > 1)  # its hosts are the workers


@pytest.mark.parametrize(
    ("roles", "job", "field", "said"),
    [
        ({W: RoleSpec(accelerator=Accelerator.TPU)}, {}, "roles.worker.tpu", "a type and a topology"),
        ({W: RoleSpec(tpu=Tpu(type="TPU_V6E"))}, {}, "roles.worker.tpu", "a type and a topology"),
        ({W: RoleSpec(tpu=Tpu(type="TPU_V3", topology="4x4"))}, {}, "roles.worker.tpu.type", "not a TPU of GKE"),
        ({W: RoleSpec(tpu=Tpu(type="TPU_V6E", topology="4x6"))}, {}, "roles.worker.tpu.topology", "1x1, 2x2, 2x4"),
        ({W: RoleSpec(tpu=Tpu(type="TPU_V5P", topology="4x4"))}, {}, "roles.worker.tpu.topology", "multiples of four"),
        ({W: RoleSpec(tpu=Tpu(type="TPU_V5P", topology="4x4x6"))}, {}, "roles.worker.tpu.topology", "multiples"),
        ({M: RoleSpec(tpu=Tpu(type="TPU_V6E", topology="4x4"))}, {}, "roles.master", "a slice of 4 hosts"),
        ({W: RoleSpec(count=2, tpu=Tpu(type="TPU_V6E", topology="4x4"))}, {}, "roles.worker.count", "one slice"),
        ({M: RoleSpec(reservation="a b")}, {}, "roles.master.reservation", "not a reservation"),
        ({M: RoleSpec()}, {"queue_priority": "high"}, "job.queue_priority", "expected job.queue"),
        ({M: RoleSpec()}, {"required_topology": "a"}, "job.required_topology", "expected job.queue"),
        (
            {M: RoleSpec()},
            {"queue": "q", "required_topology": "a", "preferred_topology": "b"},
            "job.preferred_topology",
            "only one of the two",
        ),
        ({M: RoleSpec()}, {"priority_class": "A"}, "job.priority_class", "not a Kubernetes name"),
    ],
)
def test_refused(roles: dict[Role, RoleSpec], job: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(FieldListError) as caught:
        made(roles, **job)
    assert [(error.field, said in error.message) for error in caught.value.errors] == [(field, True)]


def test_the_labels_of_a_spec_win_and_other_clusters_have_their_own() -> None:
    def pod(**role: Any) -> dict[str, Any]:
        return dict(made({M: RoleSpec(**role)}, Target.PODS)["spec"])

    gpu = Gpus(type="NVIDIA_L4")
    assert pod(gpus=gpu)["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert pod(gpus=gpu, node_selector={"pool": "a"})["nodeSelector"] == {"pool": "a"}
    assert pod(gpus=Gpus(type="NVIDIA-L4"))["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L4"}
    assert "nodeSelector" not in pod(gpus=Gpus(type="any"))
    own = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
    assert len(pod(gpus=gpu, tolerations=(own,))["tolerations"]) == 1


def test_a_volume_at_dev_shm_is_the_users() -> None:
    mine = Volume(mount="/dev/shm", claim="shm")
    pod = made({M: RoleSpec(gpus=Gpus(type="any"))}, Target.PODS, volumes=(mine,))["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["volume-0"]


def test_virtual_nodes_have_no_labels_of_devices() -> None:
    pod = made({M: RoleSpec(machine="ecs.gn6i-c4g1.xlarge", gpus=Gpus(type="NVIDIA_TESLA_T4"))}, Target.ECI)["spec"]
    assert not {"nodeSelector", "tolerations"} & pod.keys()


@pytest.mark.parametrize("target", [Target.JOBSET, Target.TRAINJOB, Target.TFJOB, Target.PODS])
def test_jobs_of_arm64_images_select_arm64_nodes_and_tolerate_their_taint(target: Target) -> None:
    own = RoleSpec(count=2, node_selector={"kubernetes.io/arch": "mine"})
    of = replace(spec({M: RoleSpec(), W: own}, region=None), platform="linux/arm64")
    text = dump(job_data(of, images(of), target))
    assert text.count('kubernetes.io/arch: "arm64"') == 1
    assert text.count('kubernetes.io/arch: "mine"') in {1, 2}
    assert 'key: "kubernetes.io/arch"' in text
    usual = spec({M: RoleSpec()}, region=None)
    assert "kubernetes.io/arch" not in dump(job_data(usual, images(usual), target))
