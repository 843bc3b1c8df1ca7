"""Every cure that a message of the spec's reader names is taken by that reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training_imgtool.core.errors import FieldListError
from training_imgtool.spec.load import load

SPEC = """\
name: demo
tensorflow: "2.15.1"
trainer: task.py
roles: {master: {}, worker: {gpus: {type: NVIDIA_TESLA_V100, count: 1}}}
"""


def _load(folder: Path, line: str) -> str | None:
    """The hint of the only error of a spec with one line more; None without an error."""
    (folder / "task.py").touch()
    path = folder / "image.yaml"
    path.write_text(SPEC + line + "\n")
    try:
        load(path)
    except FieldListError as errors:
        (error,) = errors.errors
        return str(error.hint)
    return None


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("platform: linux/x86_64", "did you mean linux/amd64?"),
        ("platform: x86_64", "did you mean linux/amd64?"),
        ("platform: linux/aarch64", "did you mean linux/arm64?"),
        ("platform: linux/amd46", "did you mean linux/amd64?"),
        ("python_packages: pandas, numpy", "write ['pandas', 'numpy']"),
        ("python_packages: pandas>=2,<3", "write ['pandas>=2,<3']"),
        ("python_packages: pandas,numpy", "write ['pandas', 'numpy']"),
        ("python_packages: pandas", "write ['pandas']"),
        ("system_packages: git curl", "write ['git', 'curl']"),
        ("system_packages: git,curl", "write ['git', 'curl']"),
        ("args: --epochs=10 --batch=2", "write ['--epochs=10', '--batch=2']"),
        ("accelerator: cuda", "did you mean gpu?"),
        ("job: {target: kubernetes}", "did you mean jobset?"),
        ("job: {target: k8s}", "did you mean jobset?"),
        ("job: {target: docker-compose}", "did you mean compose?"),
        ("job: {target: vertx}", "did you mean vertex?"),
        ("trim: yes", "write true"),
        ("acelerator: gpu", "did you mean accelerator?"),
    ],
)
def test_a_cure_is_taken(tmp_path: Path, line: str, cure: str) -> None:
    assert _load(tmp_path, line) == cure
    word = re.fullmatch(r"(?:did you mean|write) (.+?)\??", cure)
    assert word
    key, _, value = line.partition(": ")
    if line == "acelerator: gpu":
        cured = f"{word[1]}: {value}"
    elif value.startswith("{"):
        cured = f"{key}: {{target: {word[1]}}}"
    else:
        cured = f"{key}: {word[1]}"
    assert _load(tmp_path, cured) is None


def test_a_key_that_others_know_by_another_name(tmp_path: Path) -> None:
    assert _load(tmp_path, "job: {target: vertex, spot: true}") == "write scheduling: {strategy: SPOT}"
    assert _load(tmp_path, "job: {target: vertex, scheduling: {strategy: SPOT}}") is None


@pytest.mark.parametrize("key", ["name", "job_id", "jobId"])
def test_a_jobs_name(tmp_path: Path, key: str) -> None:
    assert _load(tmp_path, f"job: {{target: vertex, {key}: digits}}") == "did you mean id?"
    assert _load(tmp_path, "job: {target: vertex, id: digits}") is None


def test_what_no_list_can_hold_has_no_cure(tmp_path: Path) -> None:
    assert _load(tmp_path, "system_packages: 'Git!'") == "None"
