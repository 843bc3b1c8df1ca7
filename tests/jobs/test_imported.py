"""Spec → target → spec → target: the second file is the first, so the spec says again all that the file can say.

`make long` tries 200 random specs per target, the normal suite a sample. What a file has and a spec does not is named.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.random_arguments import argument_lists
from tests.jobs.specs import CASES, CLAIM, NFS, PLACED, images, spec
from training_imgtool.core.errors import FieldListError, InputError
from training_imgtool.jobs import JobOptions, job_data
from training_imgtool.jobs.conversion.imported import import_job
from training_imgtool.jobs.model import JobFile
from training_imgtool.jobs.text import dump
from training_imgtool.spec.job import Scheduling
from training_imgtool.spec.load import load
from training_imgtool.spec.model import Disk, Gpus, ImageSpec, Role, RoleSpec, Toleration, Tpu
from training_imgtool.spec.targets import Target

M, W, P, E = Role.MASTER, Role.WORKER, Role.PS, Role.EVALUATOR
TARGETS = (Target.TFJOB, Target.JOBSET, Target.COMPOSE, Target.VERTEX, Target.AI_PLATFORM, Target.SKYPILOT)
GOLDEN = [(case, target) for case in CASES for target in case.targets if target in TARGETS]


def again(text: str, tensorflow: str, folder: Path) -> tuple[ImageSpec, tuple[str, ...]]:
    """The spec of a job file, as it is read from the image.yaml that would be written, and what is lost."""
    imported = import_job(text, "f", region=None if "trainingInput" in text else "us-central1")
    assert imported is not None
    (folder / "trainer").mkdir(exist_ok=True)
    (folder / "trainer/task.py").write_text("print(1)\n")
    (folder / "image.yaml").write_text(imported.text(tensorflow))
    return load(folder / "image.yaml").spec, imported.lost


def job_file(of: ImageSpec, target: Target) -> JobFile:
    """The job of a spec, all of whose roles have one image."""
    package = "gs://my-bucket/p/p.tar.gz" if of.job.staging else None
    named = dict.fromkeys(of.roles, images(spec({}))[M]) if not of.job.runtime_version else {}
    return job_data(of, named, target, JobOptions(allow_unknown=True, package_uri=package))


def without_key(job: JobFile) -> str:
    """The job file with its key, which is a hash of the whole spec, written as a word, and without its header."""
    (document,) = job.documents
    label, text = of_key(document), dump(job)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return text.replace(label, "KEY") if label else text


def of_key(document: Any) -> str | None:
    """The key among the labels of a document, wherever they are."""
    if isinstance(document, dict):
        own = document.get("imgtool-job")
        return own or next((found for item in document.values() if (found := of_key(item))), None)
    if isinstance(document, list):
        return next((found for item in document if (found := of_key(item))), None)
    return None


def round_trip(of: ImageSpec, target: Target, folder: Path) -> None:
    first = job_file(of, target)
    there, lost = again(dump(first), of.tensorflow, folder)
    assert lost == ()
    assert there.job.target == target
    second = job_file(there, target)
    assert without_key(second) == without_key(first)
    assert again(dump(second), of.tensorflow, folder)[0] == there


@pytest.mark.parametrize(("case", "target"), [pytest.param(*pair, id=f"{pair[0].name}.{pair[1]}") for pair in GOLDEN])
def test_golden_specs_come_back(case: Any, target: Target, tmp_path: Path) -> None:
    if case.spec.job.hyperparameters and target is Target.VERTEX:
        pytest.skip("Vertex AI's study is no part of import")
    round_trip(case.spec, target, tmp_path)


def random_spec(chance: random.Random, target: Target) -> ImageSpec:  # noqa: C901, PLR0915  a case per target
    """A spec with everything that the target can say, each part with a chance of a half."""

    def some(value: Any) -> Any:
        return value if chance.random() < 0.5 else None

    words = argument_lists(chance.randint(0, 10**6), 3)
    google = target in {Target.VERTEX, Target.AI_PLATFORM}

    def role(of: Role) -> RoleSpec:
        more: dict[str, Any] = {} if of is M else {"count": chance.randint(1, 4)}
        more |= {"args": tuple(words[1])} if chance.random() < 0.2 else {}
        more |= {"command": ("python", "-m", "x $y")} if chance.random() < 0.2 else {}
        if google:
            gpus = some(Gpus(type="NVIDIA_TESLA_V100", count=2))
            more |= {"machine": "n1-standard-16", "gpus": gpus, "disk": some(Disk(type="pd-ssd", size_gb=200))}
            if target is Target.VERTEX:
                more["reservation"] = some(
                    chance.choice(["any", "none", "projects/p/zones/us-central1-a/reservations/r"])
                )
            return RoleSpec(**more)
        more |= {"cpus": some("4"), "memory": some("16Gi"), "gpus": some(Gpus(type="any", count=3))}
        if target is not Target.COMPOSE:
            kind = chance.choice(["any", "NVIDIA_L4", "NVIDIA-H100"])
            more["gpus"] = some(Gpus(type=kind, count=3))
            more["reservation"] = some(chance.choice(["r", "projects/p/reservations/r"]))
            if chance.random() < 0.3:
                more["node_selector"] = {"pool": "a"}
                more["gpus"] = some(Gpus(type="any"))
            if chance.random() < 0.3:
                more["tolerations"] = (Toleration(key="team", operator="Equal", value="x"),)
        if target is Target.JOBSET and of is W and chance.random() < 0.3:
            topology = chance.choice(["4x4", "16x16", "2x2"])
            more |= {"gpus": None, "count": 1, "tpu": Tpu(type="tpu-v6e-slice", topology=topology)}
        return RoleSpec(**more)

    roles = {of: role(of) for of in Role if of is M or chance.random() < 0.5}
    if target is Target.SKYPILOT:
        roles = {W: replace(role(W), node_selector={}, tolerations=(), reservation=None, command=None)}
    times: dict[str, Any] = {"max_running": some("7200s")}
    job: dict[str, Any] = {
        "id": some("job-1"),
        "env": some({"A": "$x $$ 'y'", "B": "a\nb"}) or {},
        "labels": some({"team": "a"}) or {},
    }
    if google:
        times |= {"strategy": some("SPOT"), "disable_retries": some(True)}
        job |= {"region": "us-central1", "job_dir": some("gs://my-bucket/x"), "web_access": some(True)}
        job |= {"service_account": some("a@b.com"), "volume": some(NFS), "labels": {}, "id": None}
        job["network"] = "projects/1/global/networks/n"
        if target is Target.AI_PLATFORM:
            times = {"max_wait": some("3600s"), "priority": some(7)}
            job |= {"env": {}, "volume": None, "labels": some({"team": "a"}) or {}}
    elif target is Target.SKYPILOT:
        times = {"strategy": some("SPOT")}
        job |= {"region": None, "id": None, "infra": some("gcp/us-central1")}
    elif target is Target.COMPOSE:
        times = {"restarts": some(3)}
        job |= {"volume": some(chance.choice([CLAIM, NFS])), "region": None}
    else:
        times |= {"restarts": some(2), "keep_finished": some("60s"), "strategy": some("SPOT")}
        job |= {"volume": some(chance.choice([CLAIM, NFS])), "region": None, "namespace": some("ns")}
        job |= {"service_account": some("sa"), "priority_class": some("high"), "queue": some("q")}
        job["image_pull_secrets"] = some(("a", "b")) or ()
        if job["queue"]:
            job |= {"queue_priority": some("p"), "required_topology": some("a/b")}
    scheduling = Scheduling(**{key: value for key, value in times.items() if value is not None})
    return spec(roles, args=tuple(words[0]), scheduling=scheduling, **job)


@pytest.mark.parametrize(("seed", "count"), [(1, 12), pytest.param(2, 200, marks=pytest.mark.long)])
@pytest.mark.parametrize("target", TARGETS)
def test_random_specs_come_back(target: Target, seed: int, count: int, tmp_path: Path) -> None:
    chance = random.Random(f"{seed} {target}")
    tried = 0
    for _ in range(count):
        of = random_spec(chance, target)
        try:
            job_file(of, target)
        except FieldListError:
            continue
        round_trip(of, target, tmp_path)
        tried += 1
    assert tried > count / 2


def test_what_a_spec_does_not_say_is_named() -> None:
    (case,) = [case for case in CASES if case.name == "placed"]
    assert case.spec.roles == PLACED
    text = dump(job_data(case.spec, images(case.spec), Target.JOBSET))
    text = text.replace('restartPolicy: "Never"', 'restartPolicy: "Never"\n            hostNetwork: true', 1)
    text = text.replace("  network:\n", "  suspend: true\n  network:\n", 1)
    imported = import_job(text, "f")
    assert imported is not None
    assert imported.lost == ("spec.suspend", "spec.replicatedJobs[0].template.spec.template.spec.hostNetwork")


def test_a_batch_job_is_a_role_of_a_jobset() -> None:
    text = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  backoffLimit: 3
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100}
      containers:
      - name: main
        image: a/b
        args: [--epochs=3]
        resources: {limits: {cpu: 4, nvidia.com/gpu: 2}}
        workingDir: /src
        volumeMounts: [{name: shm, mountPath: /dev/shm}, {name: here, mountPath: /here}, {name: data, mountPath: /data}]
      volumes:
      - {name: shm, emptyDir: {medium: Memory}}
      - {name: here, hostPath: {path: /here}}
      - {name: data, persistentVolumeClaim: {claimName: c}}
"""
    imported = import_job(text, "f")
    assert imported is not None
    assert imported.document == {
        "name": "train",
        "args": ["--epochs=3"],
        "roles": {"master": {"cpus": "4", "gpus": {"type": "NVIDIA-H100", "count": 2}}},
        "job": {
            "target": "jobset",
            "id": "train",
            "scheduling": {"restarts": 3},
            "volume": {"mount": "/data", "claim": "c"},
        },
    }
    here = ("containers[0].volumeMounts[0].name", "containers[0].volumeMounts[0].mountPath")
    left = ("volumes[0].name", "volumes[0].hostPath.path", "containers[0].workingDir", *here)
    assert {*imported.lost} == {f"spec.template.spec.{path}" for path in left}


def test_a_role_without_arguments_says_so_beside_one_that_has_some() -> None:
    imported = import_job(
        "services:\n  master: {image: a, entrypoint: [run], command: [x]}\n  worker: {image: a}\n", "f"
    )
    assert imported is not None
    assert imported.document["roles"] == {
        "master": {"command": ["run"], "args": ["x"]},
        "worker": {"count": 1, "args": []},
    }


@pytest.mark.parametrize(("limit", "memory"), [("16g", "16Gi"), ("512m", "512Mi"), ("64k", "64Ki"), ("1024", "1024")])
def test_the_memory_of_a_service_is_in_the_spec_s_words(limit: str, memory: str) -> None:
    limits = f"deploy: {{resources: {{limits: {{memory: {limit}}}}}}}"
    imported = import_job(f"services:\n  master: {{image: a, command: [x], {limits}}}\n", "f")
    assert imported is not None
    assert imported.document["roles"]["master"]["memory"] == memory


def test_labels_of_pods_alone_are_named() -> None:
    imported = import_job(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train, labels: {team: a}}\n"
        "spec:\n  template:\n    metadata: {labels: {team: a, tier: gold, app.kubernetes.io/name: train}}\n"
        "    spec: {containers: [{name: main, image: a}]}\n",
        "f",
    )
    assert imported is not None
    assert (imported.document["job"]["labels"], imported.lost) == (
        {"team": "a"},
        ("spec.template.metadata.labels.tier",),
    )


def test_the_volume_of_a_project() -> None:
    volumes = "{results: {driver_opts: {type: nfs, o: 'addr=10.0.0.2,rw', device: ':/data'}}}"
    imported = import_job(f"services:\n  master: {{image: a, volumes: ['results:/out']}}\nvolumes: {volumes}\n", "f")
    assert imported is not None
    assert imported.document["job"]["volume"] == {"mount": "/out", "nfs_server": "10.0.0.2", "nfs_path": "/data"}


@pytest.mark.parametrize(("count", "roles"), [(1, {"master"}), (2, {"worker"})])
def test_the_nodes_of_a_task_are_workers(count: int, roles: set[str]) -> None:
    imported = import_job(f"num_nodes: {count}\nresources: {{image_id: 'docker:a/b'}}\nrun: python x.py\n", "f")
    assert imported is not None
    assert imported.document["roles"].keys() == roles


@pytest.mark.parametrize(
    "text",
    [
        "resources: {image_id: 'docker:a/b'}\nrun: python x.py\n",
        "services:\n  master: {image: a}\n",
        "trainingInput: {region: us-central1, masterConfig: {imageUri: a}}\n",
    ],
)
def test_a_job_without_a_name_gives_a_spec_with_one(text: str) -> None:
    imported = import_job(text, "f")
    assert imported is not None
    assert imported.document["name"] == "imported"


def test_replicas_that_are_no_roles_are_refused_or_named() -> None:
    services = "services:\n  worker-0: {image: a, command: [x]}\n  worker-1: {image: a, command: [y]}\n"
    with pytest.raises(InputError, match="replicas of a role are alike"):
        import_job(services, "f")
    imported = import_job("services:\n  master: {image: a}\n  web: {image: b, ports: ['80:80']}\n", "f")
    assert imported is not None
    assert imported.lost == ("services.web.image", "services.web.ports[0]")
    imported = import_job("services: {master: {image: a, environment: [A=b=c, B]}}\n", "f")
    assert imported is not None
    assert (imported.document["job"]["env"], imported.lost) == ({"A": "b=c"}, ("services.master.environment.B",))
    with pytest.raises(InputError, match="no role of TensorFlow"):
        import_job("services:\n  web: {image: a}\n  db: {image: b}\n", "f")
    with pytest.raises(InputError, match="imgtool lint f says"):
        import_job("services:\n  master: {image: a, volumes: 3}\n", "f")
    assert import_job("a: 1\n", "f") is None
    assert import_job("a: 1\n---\nb: 2\n", "f") is None
    assert import_job("---\nservices:\n  master: {image: a}\n---\n", "f") is not None
