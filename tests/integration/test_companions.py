"""TensorFlow's companions, which need source archives: built once, and taken from the registry by another machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.network, pytest.mark.slow, pytest.mark.long]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
MODULES = ("keras_cv", "tensorflow_datasets", "hydra", "apache_beam", "tf_agents")
SPEC = """\
name: companions
tensorflow: "2.15.1"
python: "3.11"
trainer: train.py
python_packages: [keras-cv, tensorflow-datasets, hydra-core, "apache-beam[gcp]", tf-agents, "tensorflow-metadata<1.16"]
roles: {master: {}}
job: {target: compose}
"""
BUILT = re.compile(r"^\[wheel ([^]]+)\] building", re.MULTILINE)


def test_the_second_machine_builds_no_archive_and_the_modules_import(imgtool: Run, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "image.yaml").write_text(SPEC)
    program = "".join(f"import {module}\nprint({module}.__name__, 'is there')\n" for module in MODULES)
    (project / "train.py").write_text(program)
    first = {"IMGTOOL_CACHE": str(tmp_path / "first")}
    imgtool("lock", cwd=project, env=first, timeout=1500)
    lock = (project / "image.lock").read_text()
    archives = re.findall(r"source = \{ archive = \{ name = \"([^\"]+)\"", lock)
    assert {"promise", "antlr4-python3-runtime", "gym"} <= set(archives)
    images = imgtool("build", "--push", "--locked", cwd=project, env=first, timeout=1500).stdout
    second = {"IMGTOOL_CACHE": str(tmp_path / "second")}
    arguments = ("build", "--push", "--locked", "--no-cache")
    done = imgtool(*arguments, cwd=project, env=second, timeout=1500)
    assert BUILT.findall(done.stderr) == []
    assert done.stdout == images
    kept = {path.name for path in (tmp_path / "second/wheels").rglob("*.whl")}
    assert {"promise-2.3-py3-none-any.whl"} <= kept
    ran = imgtool("run", cwd=project, env=second, timeout=900)
    assert [module for module in MODULES if f"{module} is there" not in ran.stderr] == []
