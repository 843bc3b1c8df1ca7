"""Lint of files that someone else wrote: places, targets, YAML's traps, and that nothing makes it fail."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
import yaml

from tests.jobs.specs import text_of
from training_imgtool.core.errors import InputError
from training_imgtool.jobs.lint import Message, find_target, lint
from training_imgtool.jobs.model import Severity

JOB = """\
# a Job as people write it
jobId: my_job
trainingInput:
  scaleTier: CUSTOM
  masterType: complex_model_m
  workerType: complex_model_m
  workerCount: 9
  masterConfig:
    imageUri: gcr.io/p/m@sha256:{digest}
  region: us-central1
  scheduling: {{maxRunningTime: 2h}}
  args: [--rate, 1e-4, --flag, y, --zip, 0755]
""".format(digest="a" * 64)
POOL = "{machineSpec: {machineType: n1-standard-4}, replicaCount: 1, containerSpec: {imageUri: a}}"
TFJOB = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec:\n"
ECI = (
    "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{k8s.aliyun.com/eci-use-specs: '{}'}}}}\n"
    "spec: {{containers: [{{name: a, image: b}}]}}\n"
)


def said(text: str, **options: Any) -> list[str]:
    return [str(message) for message in lint(text, "config.yaml", **options)]


def test_each_finding_has_its_place_in_the_order_of_the_file() -> None:
    messages = lint(JOB, "config.yaml")
    assert [(m.line, m.column, m.field.removeprefix("trainingInput.")) for m in messages] == [
        (11, 32, "scheduling.maxRunningTime"),
        (12, 18, "args[1]"),
        (12, 32, "args[3]"),
        (12, 42, "args[5]"),
    ]
    assert str(messages[0]) == (
        "config.yaml:11:32: error: trainingInput.scheduling.maxRunningTime: '2h' is not a duration: "
        "expected seconds and an s, such as 3600s [ml.v1 API, revision 20251213]"
    )
    assert messages[0].hint == "write 7200s"


def test_bare_scalars_are_judged_as_gcloud_reads_them() -> None:
    by_field = {message.field: message for message in lint(JOB, "c")}
    assert by_field["trainingInput.args[1]"].message == "found 0.0001: expected text"
    assert by_field["trainingInput.args[3]"].message == "found true: expected text"
    assert by_field["trainingInput.args[5]"].message == "found 493: expected text"
    assert 'write "1e-4"' in str(by_field["trainingInput.args[1]"].hint)


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("scaleTier: CUSTOM\nmasterType: standard\n", "scaleTier", "belongs under trainingInput"),
        ("parameter_server_type: large_model\n", "parameter_server_type", "belongs under trainingInput"),
        ("hello: world\n", "", "is not a job file that imgtool recognizes"),
        ("- a\n- b\n", "", "expected a mapping at the top"),
        ("", "", "is empty: expected a job file"),
        (
            "kind: Deployment\napiVersion: apps/v1\n",
            "kind",
            "nothing was checked: imgtool has no schema",
        ),
        (
            "trainingInput: {hyperparameters: {goal: MAXIMIZE, params: []}}\n",
            "trainingInput.hyperparameters.params",
            "is empty: expected at least one",
        ),
        ("jobSpec: {workerPoolSpecs: []}\n", "", "'displayName' is missing"),
        (f"{TFJOB}  tfReplicaSpecs: {{Worker: 3}}\n", "spec.tfReplicaSpecs.Worker", "expected a mapping"),
        (f"{TFJOB}  tfReplicaSpecs: {{Chief: {{replicas: 2}}}}\n", "spec.tfReplicaSpecs.Chief.replicas", "one Chief"),
        (f"{TFJOB}  tfReplicaSpecs: {{PS: {{replicas: -1}}}}\n", "spec.tfReplicaSpecs.PS.replicas", "0 or more"),
        (f"workerPoolSpecs: [{{}}, {POOL}]\n", "workerPoolSpecs[0]", "is empty: pool 0 is the chief"),
        (f"workerPoolSpecs: [{POOL}, {{}}]\n", "workerPoolSpecs[1]", "is empty: leave out the last pools instead"),
        (
            f"workerPoolSpecs: [{POOL}, {{}}, {POOL}]\n",
            "workerPoolSpecs[1]",
            "is empty, which gcloud refuses in a file",
        ),
        (
            (
                "trainingInput: {scaleTier: CUSTOM, masterType: n1-standard-4, workerType: cloud_tpu, workerCount: 1, "
                "workerConfig: {acceleratorConfig: {type: NVIDIA_TESLA_V100, count: 8}}}\n"
            ),
            "trainingInput.workerConfig.acceleratorConfig.type",
            "does not go with cloud_tpu",
        ),
        (ECI.format("a,b,c,d,e,f"), "metadata.annotations.k8s.aliyun.com/eci-use-specs", "6 types: expected 5 at most"),
        (
            "displayName: x\njobSpec: {workerPoolSpecs: []}\n",
            "jobSpec.workerPoolSpecs",
            "is empty: expected at least one",
        ),
        (
            "displayName: x\nstudySpec: {parameters: [{parameterId: a, integerValueSpec: 5}]}\ntrialJobSpec: {}\n",
            "studySpec.parameters[0].integerValueSpec",
            "5: expected a mapping",
        ),
        ("services: {a: {build: .}}\nversion: '3'\n", "version", "is obsolete"),
        ('{"cluster": {"boss": ["a:1"]}, "task": {"type": "boss", "index": 0}}', "cluster.boss", "is no task of"),
        ('{"cluster": {"chief": ["a:1"]}, "task": {"type": "worker", "index": 0}}', "task.type", "not in the cluster"),
        ('{"cluster": {"chief": ["a:1"]}}', "task", "is missing"),
        ('{"cluster": {"chief": ["a:1", "a"]}, "task": {"type": "chief"}}', "cluster.chief[1]", "is not HOST:PORT"),
        (
            f"workerPoolSpecs: [{POOL.replace(': a', ': a, env: [{name: A, value: x}, {name: A, value: y}]')}]\n",
            "workerPoolSpecs[0].containerSpec.env[1].name",
            "'A' appears twice",
        ),
        ("#!/bin/bash\nsrun a\n", "", "nothing was checked: a script without #SBATCH lines"),
        ("trainingInput: {args: !!python/name:os.system x}\n", "trainingInput.args", "is not part of a job file"),
        ("trainingInput: {? [a] : b}\n", "trainingInput", "a key that is not text"),
        (
            "displayName: x\njobSpec: {}\nencryptionSpec: {kmsKeyName: k}\n",
            "encryptionSpec.kmsKeyName",
            "is not a Cloud KMS key",
        ),
        (
            "kind: List\napiVersion: v1\nitems: [{kind: Deployment, apiVersion: apps/v1}]\n",
            "items[0].kind",
            "nothing was",
        ),
    ],
)
def test_targets_and_shapes(text: str, field: str, message: str) -> None:
    assert any(m.field == field and message in m.message for m in lint(text, "f")), said(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (ECI.format("a,b,c,d,e"), "eci-use-specs"),
        (f"{TFJOB}  tfReplicaSpecs: {{Worker: {{replicas: 2}}, PS: {{replicas: 0}}}}\n", "replicas"),
        (f"{TFJOB}  tfReplicaSpecs: {{Chief: {{replicas: 1}}}}\n", "replicas"),
        (f"{TFJOB}  tfReplicaSpecs: {{Master: {{replicas: 1}}}}\n", "replicas"),
        ("services: {a: {image: b}}\n", "version"),
        ("displayName: x\njobSpec: {pscInterfaceConfig: {networkAttachment: a}}\n", "pscInterfaceConfig"),
        ("#!/bin/bash\n#SBATCH --time=10\nsrun a\n", ""),
        ("workerPoolSpecs: [{machineSpec: {machineType: ct5lp-hightpu-4t, tpuTopology: 2x2}}]\n", "machineType"),
    ],
)
def test_what_can_be_is_not_named(text: str, key: str) -> None:
    assert not any(finding.field.endswith(key) for finding in lint(text, "f"))


@pytest.mark.parametrize(
    ("scale", "is_named"), [(", scaleType: UNIT_LINEAR_SCALE", True), (", scaleType: NONE", False), ("", False)]
)
def test_only_numbers_have_a_scale(scale: str, *, is_named: bool) -> None:
    keys = f"parameterName: a, type: CATEGORICAL, categoricalValues: [b]{scale}"
    found = said(f"trainingInput: {{hyperparameters: {{goal: MAXIMIZE, params: [{{{keys}}}]}}}}\n")
    assert any("scaleType: does not go with a CATEGORICAL" in message for message in found) == is_named


@pytest.mark.parametrize(
    ("affinity", "is_whole"),
    [
        ("reservationAffinityType: SPECIFIC_RESERVATION, key: k, values: [v]", True),
        ("reservationAffinityType: SPECIFIC_RESERVATION, key: k", False),
        ("reservationAffinityType: SPECIFIC_RESERVATION, values: [v]", False),
        ("reservationAffinityType: ANY_RESERVATION, key: k, values: [v]", False),
        ("reservationAffinityType: ANY_RESERVATION", True),
    ],
)
def test_a_reservation_of_ones_own_has_key_and_values(affinity: str, *, is_whole: bool) -> None:
    machine = f"machineSpec: {{machineType: n1-standard-4, reservationAffinity: {{{affinity}}}}}"
    found = said(f"workerPoolSpecs: [{{replicaCount: 1, {machine}, containerSpec: {{imageUri: gcr.io/a/b}}}}]\n")
    assert is_whole == (not any("expected key and values" in message for message in found))


@pytest.mark.parametrize(
    ("types", "says"),
    [
        (None, "is not in the registry"),
        (("application/vnd.oci.image.layer.v1.tar+zstd",), "zstd"),
        (("application/vnd.oci.image.layer.v1.tar+gzip",), None),
    ],
)
def test_what_a_registry_has_of_an_image_is_a_warning(types: tuple[str, ...] | None, says: str | None) -> None:
    found = [m for m in lint(JOB, "f", layer_types=lambda _: types) if m.field == "trainingInput.masterConfig.imageUri"]
    assert [m.severity for m in found] == ([Severity.WARNING] if says else [])
    assert all(says in m.message for m in found if says)


def test_a_registry_is_not_asked_for_what_is_no_image() -> None:
    found = lint(JOB.replace("gcr.io/p/m", "gcr.io/P m"), "f", layer_types=lambda _: pytest.fail("asked"))
    assert ["'P m'" in item.message for item in found if item.field == "trainingInput.masterConfig.imageUri"] == [True]


@pytest.mark.parametrize(("trials", "parallel", "fits"), [("10", "2", True), ("2", "2", True), ("2", "3", False)])
def test_trials_at_once(trials: str, parallel: str, *, fits: bool) -> None:
    vertex = f"displayName: x\nmaxTrialCount: {trials}\nparallelTrialCount: {parallel}\ntrialJobSpec: {{}}\n"
    counts = f"maxTrials: {trials}, maxParallelTrials: {parallel}"
    for text in (vertex, f"trainingInput: {{hyperparameters: {{{counts}, goal: MAXIMIZE, params: []}}}}\n"):
        assert fits == (not any("at once" in message for message in said(text)))


@pytest.mark.parametrize(("job_id", "is_one"), [("a" * 128, True), ("a" * 129, False), ("a-b", False), ("1a", False)])
def test_names_of_jobs(job_id: str, *, is_one: bool) -> None:
    assert is_one == (not any(m.field == "jobId" for m in lint(JOB.replace("my_job", job_id), "f")))


def test_an_empty_pool_at_the_end_of_a_file_is_an_error() -> None:
    found = [m for m in lint(f"workerPoolSpecs: [{POOL}, {{}}]\n", "f") if "leave out the last pools" in m.message]
    assert [m.severity for m in found] == [Severity.ERROR]


@pytest.mark.parametrize("number", range(4))
def test_empty_pools(number: int) -> None:
    """In a file for gcloud."""
    pool = "{machineSpec: {machineType: n1-standard-4}, replicaCount: 1, containerSpec: {imageUri: a/b}}"
    pools = ", ".join("{}" if place == number else pool for place in range(3))
    found = [m for m in said(f"workerPoolSpecs: [{pools}]\n") if "is empty" in m]
    says = ("pool 0 is the chief", "gcloud refuses in a file", "leave out the last pools", None)[number]
    assert [f"workerPoolSpecs[{number}]" in m and says in m for m in found if says] == ([True] if says else [])
    assert bool(found) == bool(says)


def test_a_key_of_another_region() -> None:
    key = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
    text = f"displayName: x\njobSpec: {{}}\nencryptionSpec: {{kmsKeyName: {key}}}\n"
    for region, fits in (("europe-west4", True), ("us-central1", False), (None, True)):
        found = [m.message for m in lint(text, "f", region=region) if m.field == "encryptionSpec.kmsKeyName"]
        assert (found == []) is fits


@pytest.mark.parametrize(
    ("bucket", "can_be"),
    [("abc", True), ("9.my_data-1", True), ("a" * 222, True), ("a" * 223, False), ("ab", False)]
    + [(name, False) for name in ("Team", "-data", "data-", "my data", "dàta")],
)
def test_names_of_buckets(bucket: str, *, can_be: bool) -> None:
    job = f'trainingInput: {{jobDir: "gs://{bucket}/x"}}\n'
    assert can_be == (not any(m.field == "trainingInput.jobDir" for m in lint(job, "f")))


def test_machines_that_take_the_gpus_are_named() -> None:
    config = "{acceleratorConfig: {type: NVIDIA_TESLA_V100, count: 2}}"
    job = f"jobId: a\ntrainingInput: {{masterType: n1-standard-96, masterConfig: {config}}}\n"
    (finding,) = (m for m in lint(job, "f") if m.field.endswith("count"))
    assert (finding.hint or "").startswith("machines that take 2: n1-standard-4, n1-standard-8, ")
    for count in (1, 4):
        found = {m.field for m in lint(job.replace("count: 2", f"count: {count}"), "f") if "does not fit" in m.message}
        assert found == {"trainingInput.masterConfig.acceleratorConfig.count"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2\n", "config.yaml:2:1: not YAML"),
        ("a: b: c\n", "config.yaml:1:5: not YAML"),
        ("a: b\nc: \x07\n", r"config.yaml:2:4: not YAML: the character U\+0007 has no place"),
        ("a: " + "[" * 5000 + "\n", "nested too deeply|not YAML"),
        ("a: &x [1]\nb: [" + ",".join(["*x"] * 40000) + "]\n", "more than 50000 values"),
        ("x" * 1_000_001, "1000001 characters"),
    ],
)
def test_what_is_not_yaml(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        lint(text, "config.yaml")


def test_old_eci_annotations_are_warned_of() -> None:
    pod = """\
apiVersion: v1
kind: Pod
metadata:
  name: tensorflow
  annotations:
    k8s.aliyun.com/eci-gpu-type: "P4"
    k8s.aliyun.com/eci-image-cache: "true"
spec:
  containers:
  - name: tensorflow
    image: registry-vpc.cn-zhangjiakou.aliyuncs.com/eci/tensorflow:1.0
"""
    messages = lint(pod, "gpu_pod.yaml")
    assert [(m.line, m.severity.value) for m in messages] == [(6, "warning"), (7, "warning"), (11, "warning")]
    assert "k8s.aliyun.com/eci-use-specs" in messages[0].message


@pytest.mark.parametrize(
    ("annotations", "target"), [("{k8s.aliyun.com/eci-a: b}", "eci"), ("{a: b}", "pods"), ("{}", "pods"), ("a", "pods")]
)
def test_the_target_of_a_pod(annotations: str, target: str) -> None:
    text = f"kind: Pod\napiVersion: v1\nmetadata: {{annotations: {annotations}}}\n"
    found = find_target(yaml.safe_load(text))
    assert found is not None
    assert found.value == target


def test_the_damaged_indentation_of_an_old_page() -> None:
    text = "apiVersion: eci.alibabacloud.com/v1\nkind: ImageCache\nmetadata:\nname: t\nspec:\nimages:\n- r/t:1.0\n"
    fields = {message.field for message in lint(text, "imagecache.yaml")}
    assert {"metadata", "name", "spec", "images"} <= fields


def test_unknown_things_can_be_allowed() -> None:
    text = JOB.replace("2h", "7200s").replace("complex_model_m", "n9-standard-8").replace("args:", "argz:")
    assert {m.severity for m in lint(text, "f")} == {Severity.ERROR}
    assert {m.severity for m in lint(text, "f", allow_unknown=True)} == {Severity.WARNING}


def test_several_documents_keep_their_lines() -> None:
    text = text_of("eci-trio.eci").replace('kind: "Pod"', 'kind: "Pods"')
    lines = [message.line for message in lint(text, "f")]
    assert len(lines) == 4
    assert [text.splitlines()[line - 1] for line in lines] == ['kind: "Pods"'] * 4


OTHER_KINDS: list[Any] = [None, True, 0, -1, 2.5, 10**30, "", "x", [], {}, [None], {"a": []}, [[]], {"": None}, ["x"]]


def spots(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths = [path] if path else []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        paths += spots(value, (*path, key))
    return paths


def broken(data: Any, chance: random.Random) -> Any:
    """The data with one value replaced by one of another kind."""
    made = copy.deepcopy(data)
    *parents, last = chance.choice(spots(made))
    at = made
    for key in parents:
        at = at[key]
    at[last] = chance.choice(
        [None, True, 0, -1, 2.5, 10**30, "", "x", [], {}, [None], {"a": []}, [[]], {"": None}, ["x"]]
    )
    return made


@pytest.mark.parametrize("name", ["everything.ai-platform", "everything.vertex", "placed.jobset", "trio.compose"])
def test_nothing_makes_it_fail(name: str) -> None:
    import yaml

    chance = random.Random(name)
    for document in yaml.safe_load_all(text_of(name)):
        for _ in range(25):
            messages = lint(json.dumps(broken(document, chance)), "f", region="us-central1")
            assert all(isinstance(message, Message) for message in messages)
