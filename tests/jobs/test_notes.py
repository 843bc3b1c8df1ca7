"""What is said beside a job file: warnings, hints, and what the target has no place for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.jobs.specs import BARE, ECI_GPU, GPU_TRIO, ONE, TRIO, cpu, images, spec
from training_imgtool.base.reference import parse_repository
from training_imgtool.jobs import JobOptions, check, job_data, note_loss
from training_imgtool.jobs.model import NOWHERE
from training_imgtool.jobs.targets.ai_platform import CLOSED
from training_imgtool.model.job import Eci, Scheduling, Volume
from training_imgtool.model.spec import Accelerator, Gpus, ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

M, W, P = Role.MASTER, Role.WORKER, Role.PS
AI, VX = Target.AI_PLATFORM, Target.VERTEX
V100 = Gpus(type="NVIDIA_TESLA_V100")
L4 = Gpus(type="NVIDIA_L4")


def notes(of: ImageSpec, target: Target, options: JobOptions | None = None, repository: str | None = None) -> list[str]:
    named = images(of)
    if repository:
        named = {role: parse_repository(repository).digest(digest.digest) for role, digest in named.items()}
    made = job_data(of, named, target, options or JobOptions()).notes
    return [note for note in made if NOWHERE not in note]  # which test_a_job_that_keeps_nothing looks at


@pytest.mark.parametrize("target", list(Target))
@pytest.mark.parametrize(
    ("given", "silent"),
    [
        ({}, False),
        ({"job_dir": "gs://b/m", "pass_job_dir": True}, True),
        ({"env": {"OUT": "s3://bucket/x"}}, True),
        ({"env": {"OUT": "/gcs/bucket/x"}}, True),
        ({"env": {"DATA": "https://host/train.csv", "PEER": "grpc://host:1"}}, False),
        ({"volumes": (Volume(mount="/data", claim="c"),)}, True),
    ],
)
def test_a_job_that_keeps_nothing(target: Target, given: dict[str, Any], silent: bool) -> None:
    assert note_loss(spec(TRIO, **given), target) == (() if silent else (NOWHERE,))
    assert note_loss(spec(TRIO, **given), None) == ()
    assert note_loss(replace(spec(TRIO), args=("--out=gs://bucket/x",)), target) == ()


def test_a_plain_job_says_only_that_the_service_closed() -> None:
    assert notes(spec(TRIO), AI) == [CLOSED]
    assert notes(spec(TRIO), VX) == []


@pytest.mark.parametrize(
    ("repository", "region", "warned"),
    [
        ("us-central1-docker.pkg.dev/p/r/x", "us-central1", None),
        ("us-docker.pkg.dev/p/r/x", "us-central1", None),
        ("us-docker.pkg.dev/p/r/x", "europe-west4", "is in us, the job runs in europe-west4"),
        ("europe-docker.pkg.dev/p/r/x", "europe-west4", None),
        ("europe-west1-docker.pkg.dev/p/r/x", "europe-west4", "is in europe-west1, the job runs in europe-west4"),
        ("asia.gcr.io/p/x", "us-central1", "is in asia, the job runs in us-central1"),
        ("gcr.io/p/x", "us-central1", None),
        ("docker.io/tensorflow/x", "us-central1", None),
        ("127.0.0.1:5000/x", "us-central1", "127.0.0.1:5000 is this machine's own: no service can pull"),
        ("quay.io/p/x", "us-central1", "quay.io is no Artifact Registry host"),
    ],
)
def test_where_the_images_lie(repository: str, region: str, warned: str | None) -> None:
    said = list(notes(spec(TRIO, region=region), VX, repository=repository))
    assert len(said) == (1 if warned else 0), said
    if warned:
        assert said[0].startswith("warning: roles.master, roles.worker, roles.ps: ")
        assert warned in said[0]


def test_who_needs_the_right_to_pull() -> None:
    assert not any("artifactregistry.reader" in note for note in notes(spec(TRIO, project="my-project"), VX))
    (hint,) = notes(spec(TRIO, project="another"), VX)
    assert hint.startswith("hint: roles.master: ")
    assert "@gcp-sa-aiplatform-cc." in hint
    assert "roles/artifactregistry.reader" in hint


@pytest.mark.parametrize(
    ("role", "cuda", "warned"),
    [
        (cpu(gpus=V100), "12.2", None),
        (cpu(gpus=V100), "13.0", "no driver of NVIDIA_TESLA_V100 runs CUDA 13.0: the last supported one is 12"),
        (cpu(1, "g2-standard-8", gpus=L4), "11.2", "NVIDIA_L4 needs CUDA 11.8 or newer; the image has 11.2"),
        (cpu(1, "g2-standard-8", gpus=L4), "11.8", None),
        (cpu(1, "a4-highgpu-8g", gpus=Gpus(type="NVIDIA_B200", count=8)), "12.5", "needs CUDA 12.8"),
    ],
)
def test_cuda_and_the_gpu(role: RoleSpec, cuda: str, warned: str | None) -> None:
    said = [note for note in notes(spec({M: role}), VX, JobOptions(cuda={M: cuda})) if "CUDA" in note]
    assert bool(said) is (warned is not None), said
    if warned:
        assert warned in said[0]
        assert said[0].startswith("warning: roles.master.gpus.type: ")


@pytest.mark.parametrize(
    ("machine", "driver", "cuda", "annotation", "warned"),
    [
        ("ecs.gn6i-c4g1.xlarge", None, "11.2", None, False),
        ("ecs.gn6i-c4g1.xlarge", None, "12.2", "tesla=535", False),
        ("ecs.gn6i-c4g1.xlarge", "470", "12.2", "tesla=470", True),
        ("ecs.gn6i-c4g1.xlarge", "550", "12.2", "tesla=550", False),
        ("ecs.gn8is.2xlarge", None, "12.5", None, False),
        ("ecs.gn8is.2xlarge", None, "13.0", None, True),
        ("ecs.gn6i-c4g1.xlarge", None, None, None, False),
    ],
)
def test_eci_driver(machine: str, driver: str | None, cuda: str | None, annotation: str | None, warned: bool) -> None:
    of = spec(
        {M: RoleSpec(machine=machine, gpus=Gpus(type="T4"))}, region=None, eci=Eci(driver=driver, image_cache="auto")
    )
    job = job_data(of, images(of), Target.ECI, JobOptions(cuda={M: cuda} if cuda else {}))
    (pod,) = job.documents
    assert pod["metadata"]["annotations"].get("k8s.aliyun.com/eci-gpu-driver-version") == annotation
    assert any("the image has CUDA" in note for note in job.notes) is warned


def test_a_named_cache_leaves_no_choice() -> None:
    of = spec(ECI_GPU, region=None, eci=Eci(image_cache="imc-1"))
    annotations = job_data(of, images(of), Target.ECI).documents[0]["metadata"]["annotations"]
    assert annotations["k8s.aliyun.com/eci-imc-id"] == "imc-1"
    assert "k8s.aliyun.com/eci-auto-imc" not in annotations


def test_max_wait_counts_only_with_flex_start() -> None:
    (said,) = notes(spec(ONE, scheduling=Scheduling(max_wait="3600s")), VX)
    assert said == "warning: job.scheduling.max_wait: has an effect only with the strategy FLEX_START"


@pytest.mark.parametrize(
    ("target", "of", "left"),
    [
        (
            AI,
            spec(TRIO, grace_period=5, namespace="n"),
            "job.grace_period (a Spot VM always gets at most 30 seconds), job.namespace",
        ),
        (
            VX,
            spec(TRIO, scheduling=Scheduling(priority=1, restarts=2)),
            "job.scheduling.priority, job.scheduling.restarts",
        ),
        (Target.TFJOB, spec(BARE, web_access=True), "job.region, job.web_access"),
        (Target.PODS, spec({M: cpu()}, region=None), "roles.master.machine"),
        (
            Target.JOBSET,
            spec({M: RoleSpec(gpus=Gpus(type="A100"))}, region=None),
            "roles.master.gpus.type (choose the nodes with roles.master.node_selector)",
        ),
        (Target.COMPOSE, spec(GPU_TRIO, region=None), "roles.master.machine, roles.worker.machine, roles.ps.machine"),
    ],
)
def test_what_a_target_has_no_place_for(target: Target, of: ImageSpec, left: str) -> None:
    assert [note for note in notes(of, target) if note.startswith("note: ") and "has no place for" in note] == [
        f"note: {target} has no place for {left}"
    ]


def test_other_pods_outlive_the_master() -> None:
    (said,) = notes(spec(BARE, region=None, id="train"), Target.PODS)
    assert said.startswith("note: when the master is done, ")
    assert "kubectl delete pods,services -l app.kubernetes.io/instance=train" in said
    assert notes(spec({M: RoleSpec()}, region=None), Target.PODS) == []


@pytest.mark.parametrize(
    ("roles", "target", "warned"),
    [
        ({W: RoleSpec(count=2), P: RoleSpec()}, Target.JOBSET, True),
        ({W: RoleSpec(count=2), P: RoleSpec()}, VX, False),  # worker 0 is the chief there
        ({W: RoleSpec(count=2)}, Target.JOBSET, False),
    ],
)
def test_parameter_servers_without_a_chief(roles: dict[Role, RoleSpec], target: Target, warned: bool) -> None:
    roles = {role: replace(each, machine="n1-standard-8") for role, each in roles.items()} if target is VX else roles
    assert any("wait for a chief" in note for note in notes(spec(roles), target)) is warned


@pytest.mark.parametrize(("target", "warned"), [(Target.ECI, True), (Target.SKYPILOT, True), (Target.COMPOSE, False)])
def test_a_registry_on_this_machine_is_out_of_a_clouds_reach(target: Target, warned: bool) -> None:
    of = replace(spec({W: RoleSpec()}, region=None), registry="127.0.0.1:5000/demo")
    assert any("is this machine" in note for note in notes(of, target)) is warned


def test_any_gpu_needs_no_choice() -> None:
    of = spec({M: RoleSpec(gpus=Gpus(type="any"))}, region=None)
    for target in (Target.JOBSET, Target.ECI):
        said = " ".join(notes(of, target))
        assert "gpus.type" not in said
        assert "eci-gpu-type" not in said


def test_a_gap_between_pools_is_told() -> None:
    (said,) = notes(spec({M: cpu(), P: cpu()}), VX)
    assert said.startswith("warning: roles: a pool between others is empty")


def test_default_accelerator_of_a_role_needs_no_note() -> None:
    of = spec({M: cpu(accelerator=Accelerator.GPU, gpus=V100)})
    assert notes(of, VX) == []


def test_zstd_layers_that_the_target_may_not_read() -> None:
    of = replace(spec(TRIO), compression="zstd")
    assert any("Vertex AI is not known to read layers compressed with zstd" in note for note in notes(of, VX))
    assert not any("zstd" in note for note in notes(spec(TRIO), VX))
    assert any("Docker before 23 does not read layers" in note for note in notes(of, Target.COMPOSE))
    assert not any("zstd" in note for note in notes(of, Target.PODS))


def test_zstd_layers_that_the_target_does_not_read_are_refused() -> None:
    of = replace(spec({M: RoleSpec(machine="2-4Gi")}, region=None), compression="zstd")
    (error,) = [error for error in check(of, images(of), Target.ECI, JobOptions()) if error.field == "compression"]
    assert "image acceleration does not read layers compressed with zstd (alibabacloud.com" in error.message
    assert "compression: gzip" in str(error.hint)
    for target in set(Target) - {Target.ECI}:
        assert not [error for error in check(of, images(of), target, JobOptions()) if error.field == "compression"]


@pytest.mark.parametrize(
    ("target", "registry", "problem"),
    [
        (Target.JOBSET, "registry.example.com/team", None),
        (Target.PODS, "123456789012.dkr.ecr.eu-west-1.amazonaws.com/a", None),
        (Target.JOBSET, "us-central1-docker.pkg.dev/project/repository", "GKE's image streaming is not known"),
        (Target.TFJOB, "gcr.io/project", "GKE's image streaming is not known"),
        (Target.TFJOB, "eu.gcr.io:443/project", "GKE's image streaming is not known"),
        (Target.PODS, "registry.cn-hangzhou.aliyuncs.com/a", "image acceleration does not read"),
        (Target.PODS, "notgcr.io.example.com/a", None),
        (Target.SLURM, "registry.example.com/team", "enroot is not known"),
    ],
)
def test_zstd_layers_where_nodes_stream_images(target: Target, registry: str, problem: str | None) -> None:
    of = replace(spec({M: RoleSpec()}, region=None), compression="zstd", registry=registry)
    said = [note for note in notes(of, target) if "compression:" in note]
    assert len(said) == (problem is not None)
    assert all(str(problem) in note for note in said)


def test_a_network_attachment_of_another_region_is_warned_of() -> None:
    where = "projects/p/regions/{}/networkAttachments/x"
    for region, warned in (("us-central1", False), ("europe-west4", True)):
        of = spec(ONE, network_attachment=where.format(region))
        notes = job_data(of, images(of), VX).notes
        assert any("attachment is in europe-west4, the job runs in us-central1" in n for n in notes) is warned


def test_nfs_without_a_network_is_warned_of() -> None:
    volume = Volume(mount="/mnt/nfs/x", nfs_server="10.0.0.2", nfs_path="/x")
    networks: list[dict[str, Any]] = [
        {}, {"network": "projects/1/global/networks/n"}, {"network_attachment": "x"}, {"persistent_resource": "p"},
    ]  # fmt: skip
    for job in networks:
        notes = job_data(of := spec(ONE, volumes=(volume,), **job), images(of), VX).notes
        assert any("an NFS server is in a VPC network" in note for note in notes) is (job == {})


def test_an_image_with_cuda_on_a_machine_without_gpu_is_warned_of() -> None:
    for roles, warned in (
        ({M: cpu(accelerator=Accelerator.GPU)}, True),
        ({M: cpu(accelerator=Accelerator.GPU, gpus=V100)}, False),
        ({M: cpu(1, "a2-highgpu-1g", accelerator=Accelerator.GPU)}, False),
    ):
        notes = job_data(of := spec(roles), images(of), VX).notes
        assert any("makes an image with CUDA, and the role has no gpus" in note for note in notes) is warned


def test_a_slurm_job_without_an_end_is_told_of() -> None:
    assert ["max_running" in note for note in notes(spec({M: RoleSpec()}, region=None), Target.SLURM)] == [True]
    timed = spec({M: RoleSpec()}, region=None, scheduling=Scheduling(max_running="3600s"))
    assert notes(timed, Target.SLURM) == []


def test_a_gpu_without_a_machine_type_of_eci_is_said() -> None:
    text = "warning: roles.master: the annotation eci-gpu-type: T4 is not in today's documentation; "
    assert not any(note.startswith(text) for note in notes(spec(ECI_GPU), Target.ECI))
    of_role = replace(ECI_GPU[M], machine=None)
    assert any(note.startswith(text) for note in notes(spec({M: of_role}), Target.ECI))
