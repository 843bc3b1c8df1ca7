"""Lint of files that someone else wrote: places, targets, YAML's traps, and that nothing makes it fail."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
import yaml

from tests.jobs.specs import text_of
from training_imgtool.base.errors import InputError
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.rules.lint import Message, find_target, lint

JOB = """\
# a job as people write it
displayName: my_job
jobSpec:
  workerPoolSpecs:
  - machineSpec: {{machineType: n1-standard-4}}
    replicaCount: 1
    containerSpec:
      imageUri: gcr.io/p/m@sha256:{digest}
      args: [--rate, 1e-4, --flag, y, --zip, 0755]
  scheduling: {{timeout: 2h}}
""".format(digest="a" * 64)
POOL = "{machineSpec: {machineType: n1-standard-4}, replicaCount: 1, containerSpec: {imageUri: a}}"
TFJOB = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec:\n"
ECI = (
    "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{k8s.aliyun.com/eci-use-specs: '{}'}}}}\n"
    "spec: {{containers: [{{name: a, image: b}}]}}\n"
)


def said(text: str, **options: Any) -> list[str]:
    return [str(message) for message in lint(text, "config.yaml", **options)]


ARGS = "jobSpec.workerPoolSpecs[0].containerSpec.args"


def test_each_finding_has_its_place_in_the_order_of_the_file() -> None:
    messages = lint(JOB, "config.yaml")
    assert [(m.line, m.column, m.field) for m in messages] == [
        (9, 22, f"{ARGS}[1]"),
        (9, 36, f"{ARGS}[3]"),
        (9, 46, f"{ARGS}[5]"),
        (10, 25, "jobSpec.scheduling.timeout"),
    ]
    assert str(messages[3]) == (
        "config.yaml:10:25: error: jobSpec.scheduling.timeout: '2h' is not a duration: "
        "expected seconds and an s, such as 3600s [aiplatform.v1 API, revision 20261106]"
    )
    assert messages[3].hint == "write 7200s"


def test_bare_scalars_are_judged_as_gcloud_reads_them() -> None:
    by_field = {message.field: message for message in lint(JOB, "c")}
    assert by_field[f"{ARGS}[1]"].message == "found 0.0001: expected text"
    assert by_field[f"{ARGS}[3]"].message == "found true: expected text"
    assert by_field[f"{ARGS}[5]"].message == "found 493: expected text"
    assert 'write "1e-4"' in str(by_field[f"{ARGS}[1]"].hint)


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("trainingInput: {scaleTier: BASIC}\n", "AI Platform Training closed"),
        ('{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}', "the program checks TF_CONFIG"),
    ],
)
def test_what_other_programs_check_is_left_to_them(text: str, who: str) -> None:
    (message,) = lint(text, "f")
    assert (message.severity, "nothing was checked" in message.message, who in message.message) == (
        Severity.ERROR,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("hello: world\n", "", "is not a job file that imgtool recognizes"),
        ("- a\n- b\n", "", "expected a mapping at the top"),
        ("", "", "is empty: expected a job file"),
        (
            "kind: Deployment\napiVersion: apps/v1\n",
            "kind",
            "nothing was checked: imgtool has no schema",
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
        (
            f"workerPoolSpecs: [{POOL.replace(': a', ': a, env: [{name: A, value: x}, {name: A, value: y}]')}]\n",
            "workerPoolSpecs[0].containerSpec.env[1].name",
            "'A' appears twice",
        ),
        ("displayName: !!python/name:os.system x\njobSpec: {}\n", "displayName", "a job file cannot contain the tag"),
        ("jobSpec: {? [a] : b}\n", "jobSpec", "a key that is not text"),
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
        ("displayName: x\njobSpec: {pscInterfaceConfig: {networkAttachment: a}}\n", "pscInterfaceConfig"),
        ("workerPoolSpecs: [{machineSpec: {machineType: ct5lp-hightpu-4t, tpuTopology: 2x2}}]\n", "machineType"),
    ],
)
def test_what_can_be_is_not_named(text: str, key: str) -> None:
    assert not any(finding.field.endswith(key) for finding in lint(text, "f"))


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


@pytest.mark.parametrize(("trials", "parallel", "fits"), [("10", "2", True), ("2", "2", True), ("2", "3", False)])
def test_trials_at_once(trials: str, parallel: str, *, fits: bool) -> None:
    text = f"displayName: x\nmaxTrialCount: {trials}\nparallelTrialCount: {parallel}\ntrialJobSpec: {{}}\n"
    assert fits == (not any("parallel trials" in message for message in said(text)))


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
    place = "baseOutputDirectory"
    job = f'workerPoolSpecs: [{POOL}]\n{place}: {{outputUriPrefix: "gs://{bucket}/x"}}\n'
    assert can_be == (not any(m.field == f"{place}.outputUriPrefix" for m in lint(job, "f")))


def test_machines_that_take_the_gpus_are_named() -> None:
    gpus = "machineType: n1-standard-96, acceleratorType: NVIDIA_TESLA_V100, acceleratorCount: 2"
    (finding,) = (
        m
        for m in lint(f"workerPoolSpecs: [{POOL.replace('machineType: n1-standard-4', gpus)}]\n", "f")
        if m.field.endswith("acceleratorCount")
    )
    assert (finding.hint or "").startswith("machines with 2: n1-standard-4, n1-standard-8, ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2\n", "config.yaml:2:1: not YAML"),
        ("a: b: c\n", "config.yaml:1:5: not YAML"),
        ("a: b\nc: \x07\n", r"config.yaml:2:4: not YAML: YAML does not allow the character U\+0007"),
        ("a: " + "[" * 100 + "\n", "nested deeper than 50 levels"),
        ("a: &a [*a]\n", "inside its own anchor"),
        ("a: é\nb: \x01\n", r":2:4: not YAML: YAML does not allow the character U\+0001"),
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
    text = (
        JOB.replace("2h", "7200s")
        .replace("scheduling:", "schedulin:")
        .replace("args: [--rate, 1e-4, --flag, y, --zip, 0755]", "argz: [a]")
    )
    assert {m.severity for m in lint(text, "f")} == {Severity.ERROR}
    assert {m.severity for m in lint(text, "f", allow_unknown=True)} == {Severity.WARNING}


def test_several_documents_keep_their_lines() -> None:
    text = text_of("eci-trio.eci").replace('kind: "Pod"', 'kind: "Pods"')
    lines = [message.line for message in lint(text, "f")]
    assert len(lines) == 4
    assert [text.splitlines()[line - 1] for line in lines] == ['kind: "Pods"'] * 4


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


@pytest.mark.parametrize("name", ["everything.vertex", "placed.jobset", "kept.compose", "mounts.skypilot"])
def test_nothing_makes_it_fail(name: str) -> None:
    import yaml

    chance = random.Random(name)
    for document in yaml.safe_load_all(text_of(name)):
        for _ in range(25):
            messages = lint(json.dumps(broken(document, chance)), "f", region="us-central1")
            assert all(isinstance(message, Message) for message in messages)
