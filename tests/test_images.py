"""The examples: their specs are valid, and their trainer reads every service's cluster."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from training_imgtool.model.load import load
from training_imgtool.model.spec import Role

IMAGES = Path(__file__).resolve().parent.parent / "images"
SPECS = sorted(path for path in IMAGES.glob("*/*.yaml") if path.name != "config.yaml")


@pytest.fixture(scope="module")
def cluster() -> ModuleType:
    """The example's module that reads the environment; it needs no TensorFlow."""
    spec = importlib.util.spec_from_file_location("mnist_cluster", IMAGES / "mnist/trainer/cluster.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_spec_is_valid_and_named_like_its_file(path: Path) -> None:
    spec = load(path).spec
    assert spec.name == (path.parent.name if path.stem == "image" else f"{path.parent.name}-{path.stem}")
    assert Role.MASTER in spec.roles
    assert (path.parent / spec.trainer.source).is_dir()
    assert spec.requirements
    assert (path.parent / spec.requirements).is_file()


HOSTS = {"worker": ["w0:2222", "w1:2222"], "ps": ["p0:2222"]}


@pytest.mark.parametrize(
    ("variable", "said", "task", "index"),
    [
        pytest.param("TF_CONFIG", {"cluster": {"chief": ["c:2222"], **HOSTS}}, ("chief", 0), ("chief", 0), id="chief"),
        pytest.param(
            "TF_CONFIG", {"cluster": {"master": ["c:2222"], **HOSTS}}, ("master", 0), ("chief", 0), id="master"
        ),
        pytest.param(
            "TF_CONFIG", {"cluster": {"chief": ["c:2222"], **HOSTS}}, ("worker", 1), ("worker", 1), id="worker"
        ),
        pytest.param("TF_CONFIG", {"cluster": {"chief": ["c:2222"], **HOSTS}}, ("ps", 0), ("ps", 0), id="ps"),
        pytest.param(
            "TF_CONFIG",
            {"cluster": {"chief": ["c:2222"], **HOSTS, "evaluator": ["e:2222"]}, "environment": "cloud"},
            ("evaluator", 0),
            ("evaluator", 0),
            id="kubeflow-evaluator",
        ),
        pytest.param(
            "CLUSTER_SPEC",
            {"cluster": {"workerpool0": ["c:2222"], "workerpool1": HOSTS["worker"], "workerpool2": HOSTS["ps"]}},
            ("workerpool1", 0),
            ("worker", 0),
            id="vertex-workerpool",
        ),
    ],
)
def test_every_services_words_mean_the_same_cluster(
    cluster: ModuleType, variable: str, said: dict[str, Any], task: tuple[str, int], index: tuple[str, int]
) -> None:
    text = json.dumps({**said, "task": {"type": task[0], "index": task[1]}})
    found = cluster.from_environment({variable: text})
    assert (found.task, found.index) == index
    assert found.hosts == {"chief": ("c:2222",), "worker": ("w0:2222", "w1:2222"), "ps": ("p0:2222",)}
    assert found.distributed
    assert found.lacks is None


def test_tf_config_wins_and_blank_is_nothing(cluster: ModuleType) -> None:
    chief = json.dumps({"cluster": {"chief": ["c:1"]}, "task": {"type": "chief", "index": 0}})
    pool = json.dumps({"cluster": {"workerpool0": ["x:1"]}, "task": {"type": "workerpool0", "index": 0}})
    assert cluster.from_environment({"TF_CONFIG": chief, "CLUSTER_SPEC": pool}).chief == "c:1"
    assert cluster.from_environment({"TF_CONFIG": " ", "CLUSTER_SPEC": pool}).chief == "x:1"
    assert cluster.from_environment({"TF_CONFIG": ""}) is None


def test_a_master_alone_is_no_distributed_cluster(cluster: ModuleType) -> None:
    text = json.dumps({"cluster": {"master": ["c:1"]}, "task": {"type": "master", "index": 0}})
    assert not cluster.from_environment({"TF_CONFIG": text}).distributed


def test_what_is_missing_is_named(cluster: ModuleType) -> None:
    text = json.dumps({"cluster": {"chief": ["c:1"], "worker": ["w:1"]}, "task": {"type": "chief", "index": 0}})
    assert cluster.from_environment({"TF_CONFIG": text}).lacks == "ps"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not understood"),
        ("[]", "not understood"),
        ('{"cluster": {}}', "not understood"),
        ('{"cluster": {}, "task": {"type": "boss", "index": 0}}', "none of chief, master"),
        ('{"cluster": {"chief": ["c:1"], "worker": ["w:1"]}, "task": {"type": "worker", "index": 1}}', "no worker 1"),
        ('{"cluster": {"worker": ["w:1"]}, "task": {"type": "worker", "index": 0}}', "no chief or master"),
    ],
)
def test_a_broken_cluster_is_refused(cluster: ModuleType, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        cluster.from_environment({"TF_CONFIG": text})
    assert str(caught.value).startswith("TF_CONFIG")
