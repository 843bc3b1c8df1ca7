"""Each key in a row of `data/targets.toml` changes the target's file, or is refused or named in a note."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.jobs.specs import EC, HOSTS, KEPT, NFS, SK, TC, TUNING, M, P, W, images
from training_imgtool.jobs import JobOptions, check, job_data
from training_imgtool.jobs.model import NO_MAPPING
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.model.job import Eci, JobSpec, Scheduling, Slurm, Volume
from training_imgtool.model.spec import Disk, Gpus, ImageSpec, RoleSpec, Toleration, Tpu
from training_imgtool.model.targets import Target

RUNTIME = {
    "scale_tier": "BASIC",
    "runtime_version": "2.15",
    "python_version": "3.7",
    "package_uris": ("gs://bkt/t.tar.gz",),
}
LABEL = "cloud.google.com/gce-topology-block"
JOB: dict[str, Any] = {  # a value of each key
    "project": "my-project",
    "region": "europe-west4",
    "scheduling": Scheduling(max_running="7200s", restarts=2, strategy="SPOT"),
    "service_account": "trainer@my-project.iam.gserviceaccount.com",
    "network": "projects/123456789/global/networks/training",
    "labels": {"team": "vision"},
    "encryption_key": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
    "web_access": True,
    "chief_in_tf_config": False,
    "env": {"PRICE": "5"},
    "secrets": KEPT["secrets"],
    "secrets_file": "/home/ml/other.env",
    "grace_period": 25,
    "scale_tier": "BASIC_GPU",
    "hyperparameters": TUNING,
    "runtime_version": "2.15",
    "python_version": "3.8",
    "package_uris": ("gs://bkt/other.tar.gz",),
    "staging": "gs://my-staging-bucket",
    "display_name": "MNIST, third try",
    "tensorboard": "projects/p/locations/us-central1/tensorboards/1",
    "dashboard_access": True,
    "persistent_resource": "pool-1",
    "reserved_ip_ranges": ("range",),
    "network_attachment": "projects/p/regions/us-central1/networkAttachments/training",
    "namespace": "training",
    "queue": "team-a",
    "queue_priority": "high",
    "required_topology": LABEL,
    "preferred_topology": LABEL,
    "priority_class": "medium",
    "exclusive_topology": "pool",
    "image_pull_secrets": ("registry",),
    "infra": "gcp/us-central1",
    "slurm": Slurm(partition="gpu"),
    "eci": Eci(cache_size_gb=60),
}
NEEDED: dict[str, dict[str, Any]] = {  # further keys that the one needs to have an effect
    "secrets": {"secrets_file": "/home/ml/train.env"},
    "secrets_file": {"secrets": KEPT["secrets"], "secrets_file": "/home/ml/train.env"},
    "runtime_version": {"scale_tier": "BASIC", "package_uris": RUNTIME["package_uris"]},
    "scale_tier": {"scale_tier": "BASIC"},
    **dict.fromkeys(("package_uris", "python_version"), RUNTIME),
    "staging": {"scale_tier": "BASIC", "runtime_version": "2.15", "staging": "gs://other-bucket"},
    **{key: {"queue": "team-a"} for key in ("queue_priority", "required_topology", "preferred_topology")},
    "reserved_ip_ranges": {"network": JOB["network"]},
}
ROLE: dict[str, Any] = {
    "machine": "n1-standard-16",
    "disk": Disk(type="pd-ssd", size_gb=200),
    "gpus": Gpus(type="NVIDIA_TESLA_V100", count=2),
    "tpu": Tpu(type="TPU_V5_LITEPOD", count=4, topology="2x2"),
    "reservation": "projects/p/zones/us-central1-a/reservations/r",
    "cpus": "3",
    "memory": "5Gi",
    "node_selector": {"pool": "a"},
    "tolerations": (Toleration(key="team", operator="Exists"),),
}
TIMES: dict[str, Any] = {
    "max_wait": "3600s",
    "max_running": "7200s",
    "priority": 10,
    "strategy": "SPOT",
    "restart_on_worker_restart": True,
    "disable_retries": True,
    "restarts": 2,
    "keep_finished": "86400s",
}
VOLUMES = {
    "claim": Volume(mount="/data", claim="results"),
    "nfs": NFS,
    "bucket": Volume(mount="/data", bucket="gs://bkt"),
    "host_path": Volume(mount="/data", host_path="/mnt/data"),
    "memory": Volume(mount="/scratch", memory="2Gi"),
}


def _rows() -> Iterator[tuple[Target, str, str]]:
    """Each key of each row, with the list that has it."""
    for target in Target:
        for part in ("job", "role", "scheduling", "volumes"):
            yield from ((target, part, key) for key in sorted(getattr(target.row, part)))


def _base(target: Target, part: str, key: str) -> ImageSpec:
    """A spec that the target takes, without the key but with what the key needs."""
    given: dict[str, Any] = {"region": "us-central1"}
    if part == "job":
        given |= {name: value for name, value in NEEDED.get(key, {}).items() if name in target.row.job}
    own = "machine" in target.row.role and target is not EC and "scale_tier" not in given
    of_role = RoleSpec(machine="n1-standard-8" if own else None)
    if target is SK or key == "tpu" or "scale_tier" in given:
        roles = {M if "scale_tier" in given else W: of_role}
    else:
        roles = {M: of_role, W: replace(of_role, count=2), P: of_role}
    return ImageSpec(name="mnist", tensorflow="2.15.1", roles=roles, job=JobSpec(**given))


def _with(spec: ImageSpec, target: Target, part: str, key: str) -> ImageSpec:
    kubernetes = {"service_account": "trainer"} if "namespace" in target.row.job else {}
    volumes = {"volumes": tuple(VOLUMES[kind] for kind in sorted(target.row.volumes)[-1:])}
    if part == "job":
        return replace(spec, job=replace(spec.job, **{key: {**JOB, **kubernetes, **volumes}[key]}))
    if part == "scheduling":
        return replace(spec, job=replace(spec.job, scheduling=Scheduling(**{key: TIMES[key]})))
    if part == "volumes":
        return replace(spec, job=replace(spec.job, volumes=(VOLUMES[key],)))
    role = W if W in spec.roles else M
    given: dict[str, Any] = {key: "4-8Gi" if (target, key) == (EC, "machine") else ROLE[key]}
    given |= {"machine": "ct5lp-hightpu-4t"} if key == "tpu" else {}
    return replace(spec, roles={**spec.roles, role: replace(spec.roles[role], **given)})


def _options(spec: ImageSpec, target: Target) -> JobOptions:
    package = f"{spec.job.staging}/0123/mnist-0.1.tar.gz" if spec.job.staging else None
    return JobOptions(package_uri=package, hosts=parse_hosts(HOSTS) if target is TC else NO_MAPPING)


def _written(spec: ImageSpec, target: Target) -> Any:
    """All that the target writes, but for the header."""
    job = job_data(spec, images(spec), target, _options(spec, target))
    texts = [text(None) for text in job.texts.values()]
    return job.documents, job.command, job.stage, job.script, texts, job.notes


@pytest.mark.parametrize(("target", "part", "key"), [*_rows()])
def test_each_key_of_a_row_changes_the_file_or_is_named(
    target: Target, part: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("jobs", "jobs.targets.slurm"):  # the key changes with every value
        monkeypatch.setattr(f"training_imgtool.{place}.job_key", lambda *_: "0" * 12)
    without = _base(target, part, key)
    given = _with(without, target, part, key)
    refused = [error.field for error in check(given, images(given), target, _options(given, target))]
    if refused:
        assert any((part if part in {"volumes", "scheduling"} else key) in str(field) for field in refused), refused
    else:
        (*written, notes), (*before, _) = _written(given, target), _written(without, target)
        assert written != before or any(key in note for note in notes)
