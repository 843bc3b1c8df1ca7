"""Kubernetes API servers take what imgtool writes, and refuse what lint calls an error.

Run by `make long`, where `scripts/services up kubernetes kube-apiserver` has built the servers: one of release 1.36
with the CRDs of TFJob, JobSet and ImageCache, and a cluster's own of release 1.20 for Pods and Services. The operators'
webhooks are not there: their rules are in tests/jobs/test_kubernetes_names.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs.fault import faulty
from tests.jobs.faults import FAULTS
from tests.jobs.faults_pods import FAULTS as POD_FAULTS
from tests.jobs.faults_pods import NEWER, TAKEN
from tests.jobs.random_arguments import asked, from_objects
from tests.jobs.specs import CASES, images
from tests.jobs.test_placement import JOB, XPK, made
from tests.servers.kubernetes import ApiServer, api_server, kube_apiserver
from training_imgtool.jobs import JobOptions, job_data
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.model.spec import Role
from training_imgtool.model.targets import Target

pytestmark = pytest.mark.long
CUSTOM, OWN = (Target.TFJOB, Target.JOBSET), (Target.PODS, Target.ECI)
Servers = dict[Target, ApiServer]


@pytest.fixture(scope="module")
def custom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("custom")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with kube_apiserver(tmp_path_factory.mktemp("cluster")) as running:
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "medium"}}
        assert (
            running.send("/apis/scheduling.k8s.io/v1/priorityclasses", {**head, "value": 1})[0] == 201
        )  # the goldens'
        yield running


@pytest.fixture
def server(target: Target, request: pytest.FixtureRequest) -> Any:
    """The server that knows the target's objects."""
    return request.getfixturevalue("custom" if target in CUSTOM else "cluster")


def objects(text: str) -> list[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(yaml.load_all(text, Loader=loader))


def complaints(server: ApiServer, text: str) -> list[str]:
    """What the server says against a file's objects; a cluster of one's own has no ImageCaches."""
    items = [item for item in objects(text) if item["kind"] != "ImageCache"]
    return [complaint for item in items if (complaint := server.create(item))]


def test_image_caches_are_taken(custom: ApiServer) -> None:
    for case in CASES:
        if Target.ECI in case.targets:
            text = dump(job_data(case.spec, images(case.spec), Target.ECI, case.job_options()))
            caches = [item for item in objects(text) if item["kind"] == "ImageCache"]
            assert [custom.create(cache) for cache in caches] == [None] * len(caches), case.name


@pytest.mark.parametrize("target", [*CUSTOM, *OWN])
def test_it_takes_every_golden_file(target: Target, server: ApiServer) -> None:
    for case in CASES:
        if target in case.targets:
            text = dump(job_data(case.spec, images(case.spec), target, case.job_options()))
            assert complaints(server, text) == [], case.name


@pytest.mark.parametrize("target", [*CUSTOM, *OWN])
def test_it_refuses_what_lint_calls_an_error_of_the_schema(target: Target, server: ApiServer) -> None:
    faults = [fault for fault in FAULTS if fault.base.endswith(f".{target}") and fault.schema]
    for fault in faults:
        if fault.severity is Severity.ERROR:
            assert complaints(server, faulty(fault)), fault.name


@pytest.mark.parametrize("target", [*CUSTOM, *OWN])
def test_what_the_server_stores_has_every_argument(target: Target, server: ApiServer, tmp_path: Path) -> None:
    """Pods by the printed command, run by bash with the real kubectl, which needs a cluster's own server."""
    lists = list(asked(41, 200, target))
    lines, files = [], []
    for number, wanted in enumerate(lists):
        of = replace(wanted.spec, job=replace(wanted.spec.job, namespace=target.value))
        job = job_data(of, images(of), target, JobOptions(file=f"it's {number}.yaml"))
        (tmp_path / f"it's {number}.yaml").write_text(dump(job))
        files.append(objects(dump(job)))
        lines.append(command_line(job.command))
    if target in CUSTOM:
        for item in (item for file in files for item in file):
            server.store(item)
    else:
        _run("set -e\n" + "\n".join(lines), server.kubeconfig(tmp_path / "kubeconfig"))
    stored = {kind: server.objects(example) for kind, example in {i["kind"]: i for file in files for i in file}.items()}
    for file, wanted in zip(files, lists, strict=True):
        here = [stored[item["kind"]][item["metadata"]["name"]] for item in file]
        assert from_objects(here) == wanted.arguments


def _run(script: str, kubeconfig: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl program on this machine")
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    folder = kubeconfig.parent
    done = subprocess.run(["bash"], input=script, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cluster_refuses_what_lint_refuses_and_takes_what_it_takes(cluster: ApiServer) -> None:
    taken = [(old, new) for text, old, new in POD_FAULTS if not refused(cluster, text.replace(old, new, 1))]
    assert {new for _, new in taken} <= NEWER, taken
    wrong = [(old, new) for text, old, new in TAKEN if refused(cluster, text.replace(old, new, 1))]
    assert wrong == []


def refused(server: ApiServer, text: str) -> bool:
    """Whether the server, or kubectl before it, refuses a file's object; kubectl knows no kind `pod`."""
    (item,) = objects(text)
    return item["kind"] == "pod" or server.create(item) is not None


@pytest.mark.parametrize("name", XPK)
def test_the_servers_take_slices_and_spot_pools(name: str, custom: ApiServer, cluster: ApiServer) -> None:
    """The JobSets that stand beside xpk's: by the CRD, and their Jobs by a cluster."""
    role, more, _ = XPK[name]
    document = made({Role.WORKER: role}, **{**JOB, **more})
    assert custom.create(document) is None
    (replicated,) = document["spec"]["replicatedJobs"]
    head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    job = {**head, "spec": replicated["template"]["spec"]}
    assert cluster.create(job) is None
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"google.com/tpu": "four"}
    assert cluster.create(job) is not None
