"""Sound images of every kind that imgtool makes pass `verify`, by the registry and in an engine: no false alarm.

The wheels are the real ones; in an engine, `verify` imports TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run
from tests.sampling import campaign
from tests.servers.registry_process import list_tags

pytestmark = [pytest.mark.registry, pytest.mark.network, pytest.mark.slow, pytest.mark.long]
SPEC: dict[str, Any] = {
    "tensorflow": "2.15.1",
    "python": "3.11",
    "trainer": {"source": "trainer", "module": "trainer.task"},
    "roles": {"master": {}},
    "job": {"target": "compose"},
}
CUDA = "nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04"
TEMPLATE = '{{% extends "master.Dockerfile.j2" %}}\n{{% block before_code %}}\n{}\n{{% endblock %}}\n'


@dataclass(frozen=True)
class Kind:
    """A spec beside SPEC, with further files; what it needs of this machine, and how it is pushed and verified.

    Attributes:
        spec: keys in place of SPEC's.
        files: by their paths.
        base: what the registry must have.
        push: further options of `push`.
        engine: whether only an engine makes it.
        apart: whether a machine that has nothing of the first one's verifies it.
    """

    spec: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    base: str = "library/python:3.11-slim-bookworm"
    push: tuple[str, ...] = ()
    engine: bool = False
    apart: bool = False


def _template(text: str) -> Mapping[str, str]:
    return {"own.j2": TEMPLATE.format(text)}


KINDS = {
    "plain": Kind(),
    "another machine": Kind(apart=True),
    "arguments and variables": Kind({"args": ["--epochs=2", "--name=a b"], "env": {"A": "$HOME", "B": "c d"}}),
    "user": Kind({"user": "1000:1000"}),
    "excluded": Kind({"exclude": ["tensorflow/include"]}),
    "not trimmed": Kind({"trim": False}),
    "gzip": Kind({"compression": "gzip"}),
    "zstd": Kind({"compression": "zstd"}),
    "no attestations": Kind({"attestations": False}),
    "debian": Kind({"system_packages": ["libgomp1"]}),
    "debian with dependencies": Kind({"system_packages": ["git", "libgl1"]}),
    "source archive": Kind({"python_packages": ["promise==2.3"]}),
    "more packages": Kind({"python_packages": ["pandas<2.2", "scikit-learn", "pillow"]}),
    "template": Kind({"template": "own.j2"}, _template("ENV OWN=1\nCOPY trainer/data.txt /srv/data.txt")),
    "template with RUN": Kind({"template": "own.j2"}, _template("RUN echo made > /srv/made"), engine=True),
    "by an engine": Kind(push=("--engine", "docker"), engine=True),
    "one file": Kind({"trainer": "main.py"}, {"main.py": "import tensorflow\n"}),
    "code elsewhere": Kind(
        {"trainer": {**SPEC["trainer"], "include": ["common"]}}, {"common/__init__.py": "", "common/names.txt": "é\n"}
    ),
    "workdir": Kind({"trainer": {**SPEC["trainer"], "workdir": "trainer"}}),
    "three roles": Kind({"roles": {"master": {}, "worker": {"args": ["--w"]}, "ps": {"env": {"PS": "1"}}}}),
    "full base": Kind({"base": "python:3.11-bookworm"}, base="library/python:3.11-bookworm"),
    "python 3.7": Kind({"tensorflow": "2.11.0", "python": "3.7"}, base="library/python:3.7-slim-bookworm"),
    "python 3.12": Kind(
        {"tensorflow": "2.16.2", "python": "3.12", "base": "python:3.12-bookworm"}, base="library/python:3.12-bookworm"
    ),
    "python 3.13": Kind(
        {"tensorflow": "2.20.0", "python": "3.13", "base": "python:3.13-bookworm"}, base="library/python:3.13-bookworm"
    ),
    "gpu": Kind({"python": "3.10", "accelerator": "gpu"}, base=CUDA),
}
SAMPLE = ("another machine", "debian", "template with RUN", "python 3.12")  # records, packages, engines, a newer base


@pytest.mark.parametrize("way", ["direct", pytest.param("docker", marks=pytest.mark.engine)])
@pytest.mark.parametrize("name", campaign(KINDS, SAMPLE))
def test_a_sound_image_passes(name: str, way: str, registry_address: str, imgtool: Run, tmp_path: Path) -> None:
    kind = KINDS[name]
    repository, _, tag = kind.base.partition(":")
    if tag not in list_tags(registry_address, repository):
        pytest.skip(f"no {kind.base} in {registry_address} (scripts/services up all)")
    if way == "docker" and name == "zstd":
        pytest.skip("Docker Engine reads zstd since 23.0")
    folder = tmp_path / "project"
    files = {"trainer/__init__.py": "", "trainer/task.py": "import tensorflow\n", "trainer/data.txt": "x", **kind.files}
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    spec = {"name": "sound", **SPEC, **kind.spec}
    (folder / "image.yaml").write_text(json.dumps(spec))
    env = {"IMGTOOL_REGISTRY": f"{registry_address}/test/sound"}  # kept from run to run: most layers are the same
    imgtool("push", *kind.push, folder, env=env, timeout=1500)
    if kind.apart:
        env |= {"IMGTOOL_CACHE": str(tmp_path / "apart"), "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    done = imgtool("verify", "--engine", way, "--locked", folder, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISMATCH" not in done.stdout
    assert "not proven" not in done.stdout
