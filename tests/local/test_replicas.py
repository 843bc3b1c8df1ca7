"""From a spec to replicas: counts, hosts, arguments, and what is said where a service would differ."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.jobs.specs import images
from training_imgtool.base.errors import InputError, UsageError
from training_imgtool.jobs import view_of
from training_imgtool.local.replicas import (
    Cluster,
    Service,
    adapt,
    hosts_of,
    make_cluster,
    service_of,
    target_of,
)
from training_imgtool.local.run import read_secrets
from training_imgtool.model.job import Hyperparameters, JobSpec, Parameter, SecretRef, Volume
from training_imgtool.model.spec import INIT, ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

M, W, P = Role.MASTER, Role.WORKER, Role.PS


def spec(**changes: Any) -> ImageSpec:
    """A master, two workers and a parameter server, with `changes`."""
    values: dict[str, Any] = {
        "name": "mnist",
        "tensorflow": "2.15.1",
        "args": ("--epochs=3",),
        "roles": {
            M: RoleSpec(machine="n1-standard-4"),
            W: RoleSpec(machine="n1-standard-4", count=2),
            P: RoleSpec(machine="n1-highmem-2"),
        },
        "job": JobSpec(region="us-central1", job_dir="gs://bucket/mnist", pass_job_dir=True),
    }
    return ImageSpec(**{**values, **changes})


def cluster(service: Service, **changes: Any) -> Cluster:
    made = spec(**changes)
    return make_cluster(made, images(made), service)


def test_counts_and_arguments_of_the_command_line() -> None:
    changed = adapt(spec(), workers=3, ps=0, args=("--fast",))
    assert {role: one.count for role, one in changed.roles.items()} == {M: 1, W: 3, P: 0}
    names = [replica.name for replica in make_cluster(changed, images(changed), Service.LOCAL).replicas]
    assert names == ["master", "worker-0", "worker-1", "worker-2"]
    assert adapt(spec()) == spec()


def test_replicas_reach_each_other_without_the_specs_proxy() -> None:
    made = cluster(Service.TFJOB, env={"http_proxy": "http://proxy:3128", "no_proxy": "metadata"})
    hosts = made.replicas[1].env["no_proxy"].split(",")
    assert hosts[0] == "metadata"
    assert {one.host for one in made.replicas} | {one.hostname for one in made.replicas} < {*hosts}
    assert made.replicas[1].env["NO_PROXY"] == made.replicas[1].env["no_proxy"]
    assert "a proxy is in env: imgtool run adds the replicas to NO_PROXY" in " ".join(made.notes)
    assert "NO_PROXY" not in cluster(Service.TFJOB).chief.env


def test_values_of_secrets_come_from_the_environment() -> None:
    made = spec(job=JobSpec(secrets={"HF_TOKEN": SecretRef(name="hf")}))
    assert read_secrets(made, {"HF_TOKEN": "x", "OTHER": "y"}) == {"HF_TOKEN": "x"}
    with pytest.raises(
        UsageError,
        match=r"job\.secrets\.HF_TOKEN: imgtool run reads the value from the variable HF_TOKEN, which is not set",
    ):
        read_secrets(made, {})


@pytest.mark.parametrize(
    ("ps", "names"),
    [(2, ["worker-0", "worker-1", "ps-0", "ps-1"]), (0, ["master"])],
)
def test_servers_are_what_the_others_connect_to(ps: int, names: list[str]) -> None:
    made = adapt(spec(), ps=ps)
    servers = make_cluster(made, images(made), Service.LOCAL).servers
    assert [replica.name for replica in servers] == names


@pytest.mark.parametrize(("counts", "option"), [({"workers": 1}, "--workers 1"), ({"ps": 2}, "--ps 2")])
def test_a_role_that_the_spec_has_not(counts: dict[str, int], option: str) -> None:
    with pytest.raises(UsageError, match=f"{option}: the spec has no role"):
        adapt(spec(roles={M: RoleSpec()}), workers=counts.get("workers"), ps=counts.get("ps"))
    assert adapt(spec(roles={M: RoleSpec()}), workers=0, ps=0) == spec(roles={M: RoleSpec()})


@pytest.mark.parametrize(
    ("service", "job", "hosts"),
    [
        (Service.AI_PLATFORM, {}, ("cmle-training-chief-{id}-0", "cmle-training-worker-{id}-1")),
        (Service.AI_PLATFORM, {"chief_in_tf_config": False}, ("cmle-training-master-{id}-0",)),
        (Service.VERTEX, {}, ("cmle-training-workerpool0-{id}-0", "cmle-training-workerpool1-{id}-1")),
        (Service.TFJOB, {"id": "digits"}, ("digits-chief-0.default.svc", "digits-worker-1.default.svc")),
        (Service.TFJOB, {"id": "digits", "namespace": "ml"}, ("digits-chief-0.ml.svc",)),
        (Service.LOCAL, {}, ("master", "worker-1")),
    ],
)
def test_host_names(service: Service, job: dict[str, Any], hosts: tuple[str, ...]) -> None:
    made = cluster(service, job=JobSpec(region="us-central1", **job))
    chief = made.replicas[0].host
    ident = chief.split("-")[3] if chief.startswith("cmle") else ""
    expected = [host.format(id=ident) for host in hosts]
    assert [made.replicas[0].host, made.replicas[2].host][: len(hosts)] == expected
    again = cluster(service, job=JobSpec(region="us-central1", **job))
    assert [one.host for one in again.replicas] == [one.host for one in made.replicas]
    assert all(one.hostname == one.host.split(".")[0] for one in made.replicas)


def test_tensorflow_1_says_master() -> None:
    for service in (Service.AI_PLATFORM, Service.TFJOB, Service.LOCAL):
        old = cluster(service, tensorflow="1.15.5")
        assert old.chief.task == "master"
        assert "master" in json.loads(old.chief.env["TF_CONFIG"])["cluster"]
    assert cluster(Service.VERTEX, tensorflow="1.15.5").chief.task == "chief"


def test_a_host_name_that_no_dns_takes() -> None:
    long = spec(job=JobSpec(id="a" * 60))
    with pytest.raises(InputError, match="63 at most"):
        hosts_of(long, images(long), Service.TFJOB)


@pytest.mark.parametrize(
    ("service", "variables"),
    [
        (Service.AI_PLATFORM, {"CLOUD_ML_JOB_ID", "TF_CONFIG", "CLUSTER_SPEC"}),
        (
            Service.VERTEX,
            {"CLOUD_ML_JOB_ID", "CLUSTER_SPEC", "AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"},
        ),
        (Service.TFJOB, set()),
    ],
)
def test_a_lone_master_gets_what_the_service_gives_one(service: Service, variables: set[str]) -> None:
    alone = cluster(service, roles={M: RoleSpec(machine="n1-standard-4")})
    assert set(alone.chief.env) == variables


WORKERS = {W: RoleSpec(machine="n1-standard-4", count=2)}


def test_without_a_master_worker_0_is_the_chief() -> None:
    made = cluster(Service.TFJOB, roles=WORKERS)
    assert [replica.name for replica in made.replicas] == ["worker-0", "worker-1"]
    assert made.chief.name == "worker-0"
    config = json.loads(made.chief.env["TF_CONFIG"])
    assert list(config["cluster"]) == ["worker"]
    assert config["task"] == {"type": "worker", "index": 0}


def test_googles_services_call_worker_0_the_chief() -> None:
    workers = spec(roles=WORKERS)
    view = view_of(workers, images(workers), target_of(Service.VERTEX))
    made = make_cluster(view.spec, view.images, Service.VERTEX)
    assert [replica.name for replica in made.replicas] == ["master", "worker-0"]
    assert made.chief.image == made.replicas[1].image
    assert list(json.loads(made.chief.env["TF_CONFIG"])["cluster"]) == ["chief", "worker"]


def test_a_cluster_without_master_and_workers_is_refused() -> None:
    with pytest.raises(InputError, match="no master and no worker"):
        cluster(Service.LOCAL, roles={W: RoleSpec(count=0)})


def test_jobs_environment_where_the_service_can_set_it() -> None:
    job = JobSpec(region="us-central1", job_dir="gs://b/m", env={"SEED": "7"})
    refused = cluster(Service.AI_PLATFORM, job=job)
    assert "SEED" not in refused.chief.env
    assert any("job.env" in note for note in refused.notes)
    for service in (Service.VERTEX, Service.TFJOB, Service.LOCAL):
        assert cluster(service, job=job).chief.env["SEED"] == "7"


def test_a_spec_that_the_service_would_refuse_still_runs_without_its_job() -> None:
    bare = cluster(Service.VERTEX, roles={M: RoleSpec(), W: RoleSpec()})
    assert "job" not in json.loads(bare.chief.env["TF_CONFIG"])
    assert any("vertex would refuse the spec" in note for note in bare.notes)


def test_the_job_directory_is_named_where_the_job_file_names_one() -> None:
    nowhere = spec(job=JobSpec())
    silent = make_cluster(nowhere, images(nowhere), Service.LOCAL)
    assert silent.chief.args == ("--epochs=3",)
    assert any("trainers get no --job-dir" in note for note in silent.notes)
    for service in Service:  # this machine has a folder, whether or not the service would have a bucket
        asked = spec(job=JobSpec(pass_job_dir=True, region="us-central1"))
        passed = make_cluster(asked, images(asked), service)
        assert passed.chief.args == ("--epochs=3", "--job-dir=/job")
        assert any("disappear with its containers" in note for note in passed.notes) is (service is not Service.LOCAL)
    compose = spec(job=JobSpec(target=Target.COMPOSE))
    assert "disappear with its containers" in " ".join(make_cluster(compose, images(compose), Service.LOCAL).notes)
    own = adapt(spec(), args=("--job-dir=/elsewhere",))
    assert make_cluster(own, images(own), Service.LOCAL).chief.args == ("--job-dir=/elsewhere",)


def test_a_volume_is_mounted_where_the_job_would_mount_it() -> None:
    volume = Volume(mount="/mnt/nfs/results", nfs_server="s", nfs_path="/p")
    made = spec(job=JobSpec(region="us-central1", volumes=(volume,)))
    shared = make_cluster(made, images(made), Service.VERTEX)
    assert shared.mounts == ("/job", "/mnt/nfs/results")
    assert shared.chief.args == ("--epochs=3",)
    assert not any("does not mount" in note for note in shared.notes)
    two = spec(job=JobSpec(region="us-central1", volumes=(volume, Volume(mount="/data", bucket="gs://b"))))
    assert any(
        note.endswith("does not mount these volumes of the job: /data")
        for note in make_cluster(two, images(two), Service.VERTEX).notes
    )
    passed = spec(job=JobSpec(region="us-central1", volumes=(volume,), pass_job_dir=True))
    args = make_cluster(passed, images(passed), Service.VERTEX).chief.args
    assert args == ("--epochs=3", "--job-dir=/mnt/nfs/results")


def test_what_the_engine_is_asked_for_may_be_another_name() -> None:
    made = spec()
    local = make_cluster(made, images(made), Service.LOCAL, run_images={M: "sha256:1"})
    assert local.chief.image == "sha256:1"
    assert local.replicas[1].image == str(images(made)[W])


@pytest.mark.parametrize("target", list(Target))
def test_every_target_has_a_service(target: Target) -> None:
    same = {Target.AI_PLATFORM: Service.AI_PLATFORM, Target.VERTEX: Service.VERTEX, Target.TFJOB: Service.TFJOB}
    assert service_of(target) is same.get(target, Service.LOCAL)


def test_commands_of_a_role() -> None:
    made = spec()
    command = ("/bin/sh", "-c", "true")
    made = replace(made, roles={**made.roles, P: replace(made.roles[P], command=command)})
    assert [one.command for one in make_cluster(made, images(made), Service.LOCAL).replicas] == [
        None, None, None, (*INIT, *command),
    ]  # fmt: skip


def test_a_tuning_job_is_its_first_trial() -> None:
    tuning = Hyperparameters(goal="MAXIMIZE", params=(Parameter(name="rate", type="DOUBLE", min="0.1", max="1"),))
    job = JobSpec(
        region="us-central1", hyperparameters=tuning, tensorboard="projects/p/locations/us-central1/tensorboards/1"
    )
    env = cluster(Service.VERTEX, job=job).chief.env
    assert json.loads(env["CLUSTER_SPEC"])["task"]["trial"] == env["CLOUD_ML_TRIAL_ID"] == "1"
    assert env["CLOUD_ML_HP_METRIC_FILE"] == "/tmp/hypertune/output.metrics"
    assert env["CLOUD_ML_JOB_ID"]
    assert env["AIP_TENSORBOARD_RESOURCE_NAME"] == job.tensorboard
    assert "CLOUD_ML_JOB_ID" not in cluster(Service.TFJOB, job=job).chief.env
