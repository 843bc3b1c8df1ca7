"""TF_CONFIG and CLUSTER_SPEC of each service, key by key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.jobs.specs import BARE, CASES, HOSTS, PLACED, images, spec
from training_imgtool.base.errors import InputError
from training_imgtool.jobs import Format, JobOptions, job_data
from training_imgtool.jobs.cluster import Flavour, cluster_spec, tf_config, with_port
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.jobs.text import dump
from training_imgtool.model.spec import Role
from training_imgtool.model.targets import Target

M, W, P, E = Role.MASTER, Role.WORKER, Role.PS, Role.EVALUATOR
FOUR = {M: ["m-0"], W: ["w-0", "w-1"], P: ["p-0"], E: ["e-0"]}
ALONE = {M: ["m-0"]}
CLUSTER = {"worker": ["w-0:2222", "w-1:2222"], "ps": ["p-0:2222"]}
JOB = {"region": "us-central1"}


def test_ai_platform_with_chief() -> None:
    assert tf_config(Flavour.AI_PLATFORM, FOUR, W, 1, job=JOB, trial="3", cloud="c1") == {
        "cluster": {"chief": ["m-0:2222"], **CLUSTER},
        "task": {"type": "worker", "index": 1, "trial": "3", "cloud": "c1"},
        "environment": "cloud",
        "job": JOB,
    }


def test_ai_platform_with_master() -> None:
    config = tf_config(Flavour.AI_PLATFORM_MASTER, FOUR, M, 0)
    assert config == {
        "cluster": {"master": ["m-0:2222"], **CLUSTER},
        "task": {"type": "master", "index": 0},
        "environment": "cloud",
    }


def test_ai_platform_evaluator_is_only_a_task() -> None:
    config = tf_config(Flavour.AI_PLATFORM, FOUR, E, 0)
    assert config is not None
    assert "evaluator" not in config["cluster"]
    assert config["task"] == {"type": "evaluator", "index": 0}


@pytest.mark.parametrize("flavour", [Flavour.AI_PLATFORM, Flavour.AI_PLATFORM_MASTER])
def test_ai_platform_cluster_spec_lists_every_role_and_says_master(flavour: Flavour) -> None:
    assert cluster_spec(flavour, FOUR, E, 0, job=JOB) == {
        "cluster": {"master": ["m-0:2222"], **CLUSTER, "evaluator": ["e-0:2222"]},
        "task": {"type": "evaluator", "index": 0},
        "environment": "cloud",
        "job": JOB,
    }


def test_ai_platform_sets_tf_config_even_for_one_machine() -> None:
    assert tf_config(Flavour.AI_PLATFORM, ALONE, M, 0) == {
        "cluster": {"chief": ["m-0:2222"]},
        "task": {"type": "chief", "index": 0},
        "environment": "cloud",
    }


def test_vertex_cluster_spec_names_pools() -> None:
    assert cluster_spec(Flavour.VERTEX, FOUR, W, 1, job=JOB, trial="1", cloud="never") == {
        "cluster": {
            "workerpool0": ["m-0:2222"],
            "workerpool1": ["w-0:2222", "w-1:2222"],
            "workerpool2": ["p-0:2222"],
            "workerpool3": ["e-0:2222"],
        },
        "environment": "cloud",
        "task": {"type": "workerpool1", "index": 1, "trial": "1"},
        "job": JOB,
    }


def test_vertex_tf_config_says_chief_and_only_with_more_than_one_replica() -> None:
    assert tf_config(Flavour.VERTEX, FOUR, M, 0, job=JOB) == {
        "cluster": {"chief": ["m-0:2222"], **CLUSTER},
        "environment": "cloud",
        "task": {"type": "chief", "index": 0},
        "job": JOB,
    }
    assert tf_config(Flavour.VERTEX, ALONE, M, 0) is None
    assert cluster_spec(Flavour.VERTEX, ALONE, M, 0) == {
        "cluster": {"workerpool0": ["m-0:2222"]},
        "environment": "cloud",
        "task": {"type": "workerpool0", "index": 0},
    }


def test_tfjob_lists_the_evaluator_and_has_no_cluster_spec() -> None:
    assert tf_config(Flavour.TFJOB, FOUR, E, 0, job=JOB) == {
        "cluster": {"chief": ["m-0:2222"], **CLUSTER, "evaluator": ["e-0:2222"]},
        "task": {"type": "evaluator", "index": 0},
        "environment": "cloud",
    }
    assert tf_config(Flavour.TFJOB, ALONE, M, 0) is None
    assert cluster_spec(Flavour.TFJOB, FOUR, M, 0) is None
    assert (tf_config(Flavour.TFJOB_MASTER, FOUR, M, 0) or {})["task"]["type"] == "master"


def test_local_has_no_job_and_no_evaluator_in_the_cluster() -> None:
    config = tf_config(Flavour.LOCAL, FOUR, P, 0, job=JOB)
    assert config == {
        "cluster": {"chief": ["m-0:2222"], **CLUSTER},
        "task": {"type": "ps", "index": 0},
        "environment": "cloud",
    }
    assert (cluster_spec(Flavour.LOCAL_MASTER, FOUR, P, 0) or {})["cluster"] == {
        "master": ["m-0:2222"], **CLUSTER, "evaluator": ["e-0:2222"],
    }  # fmt: skip
    for flavour in (Flavour.LOCAL, Flavour.LOCAL_MASTER):
        assert "job" not in (cluster_spec(flavour, FOUR, P, 0, job=JOB) or {"job": "no cluster"})


@pytest.mark.parametrize(("role", "index"), [(W, 2), (W, -1), (M, 1)])
@pytest.mark.parametrize("make", [tf_config, cluster_spec])
def test_a_replica_that_is_not_there(make: Any, role: Role, index: int) -> None:
    with pytest.raises(InputError, match=f"there is no {role} {index}"):
        make(Flavour.LOCAL, FOUR, role, index)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("vm", "vm:2222"), ("vm:8000", "vm:8000"), ("[fd00::1]", "[fd00::1]:2222"), ("[fd00::1]:1", "[fd00::1]:1")],
)
def test_port(host: str, expected: str) -> None:
    assert with_port(host) == expected


def env_of(container: dict[str, Any]) -> dict[str, str]:
    """The container's variables as the kubelet makes them for index 1: references expanded, `$$` made `$`."""
    made: dict[str, str] = {}
    for item in container.get("env", []):
        text = item.get("value", "1")  # the only valueFrom is the index
        parts = text.split("$$")
        for name, value in made.items():
            parts = [part.replace(f"$({name})", value) for part in parts]
        made[item["name"]] = "$".join(parts)
    return made


def test_jobset_pods_learn_their_own_index() -> None:
    of = spec(PLACED, region=None, id="train")
    job = job_data(of, images(of), Target.JOBSET).documents[0]
    worker = job["spec"]["replicatedJobs"][1]
    env = env_of(worker["template"]["spec"]["template"]["spec"]["containers"][0])
    config = json.loads(env["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["worker"] == [f"train-worker-0-{index}.train:2222" for index in range(3)]
    assert config["cluster"]["chief"] == ["train-chief-0-0.train:2222"]
    assert json.loads(env["CLUSTER_SPEC"])["cluster"]["evaluator"] == ["train-evaluator-0-0.train:2222"]
    names = [item["name"] for item in job["spec"]["replicatedJobs"]]
    assert names == ["chief", "worker", "ps", "evaluator"]
    assert job["spec"]["network"]["subdomain"] == job["metadata"]["name"] == "train"


def test_pods_find_each_other_by_the_names_of_pods_and_services() -> None:
    of = spec(BARE, region=None, id="train", env={"PRICE": "$(5) $$ ${x}"})
    documents = job_data(of, images(of), Target.PODS).documents
    services = {item["metadata"]["name"] for item in documents if item["kind"] == "Service"}
    pods = [item for item in documents if item["kind"] == "Pod"]
    assert len(pods) == 4
    addresses = {f"{item['spec']['hostname']}.{item['spec']['subdomain']}:2222" for item in pods}
    assert {item["spec"]["subdomain"] for item in pods} == services
    for pod in pods:
        env = env_of(pod["spec"]["containers"][0])
        assert env["PRICE"] == "$(5) $$ ${x}"
        config = json.loads(env["TF_CONFIG"])
        assert {host for hosts in config["cluster"].values() for host in hosts} == addresses
        mine = config["cluster"][config["task"]["type"]][config["task"]["index"]]
        assert mine.startswith(pod["metadata"]["name"] + ".")
        assert pod["metadata"]["labels"]["app.kubernetes.io/component"] in pod["spec"]["subdomain"]


def test_compose_hosts_are_its_services() -> None:
    case = next(case for case in CASES if case.name == "own-folder")
    services = job_data(case.spec, images(case.spec), Target.COMPOSE).documents[0]["services"]
    for name, service in services.items():
        config = json.loads(service["environment"]["TF_CONFIG"])
        hosts = [host for of_task in config["cluster"].values() for host in of_task]
        assert {host.partition(":")[0] for host in hosts} == set(services)
        assert config["cluster"][config["task"]["type"]][config["task"]["index"]] == f"{name}:2222"


@pytest.mark.parametrize(
    ("tensorflow", "job", "wanted"),
    [
        ("2.15.1", {"job_dir": "gs://bkt/x"}, "gs://bkt/x"),
        ("2.15.1", {"job_dir": "/shared/x"}, "/shared/x"),
        ("2.15.1", {"job_dir": "gs://bkt/x", "pass_job_dir": True}, None),
        ("2.16.1", {"job_dir": "gs://bkt/x"}, None),
        ("2.15.1", {}, None),
    ],
)
def test_estimators_get_their_directory(tensorflow: str, job: dict[str, Any], wanted: str | None) -> None:
    of = spec(BARE, tensorflow=tensorflow, region=None, **job)
    made = job_data(of, images(of), Target.TF_CONFIG, JobOptions(hosts=parse_hosts(HOSTS)))
    for node in made.documents[0].values():
        assert node["TF_CONFIG"].get("model_dir") == wanted
        assert "model_dir" not in node["CLUSTER_SPEC"]
    in_container = "/job" if wanted == "/shared/x" else wanted
    commands = dump(made, Format.DOCKER_RUN)
    assert (f'"model_dir":"{in_container}"' in commands) is (wanted is not None)
    assert ("--volume /shared/x:/job " in commands) is (wanted == "/shared/x")
    named = any("job.job_dir (with" in note for note in made.notes)
    assert named is (wanted is None and bool(job) and not job.get("pass_job_dir"))
