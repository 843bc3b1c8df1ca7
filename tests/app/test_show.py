from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project

GPU = SPEC.replace('python: "3.11"', 'python: "3.10"\naccelerator: gpu').replace(
    "worker: {", "worker: {accelerator: cpu, "
)


@pytest.mark.parametrize(
    ("more", "advised", "words"),
    [
        ("", ["master"], "cuda_from: wheels needs no Docker Engine and makes a smaller image"),
        ("system_packages: [libgomp1]\n", ["master"], "cuda_from: wheels makes a smaller image"),
        ("cuda_from: wheels\n", [], "cuda_from: wheels"),
        ("template: own.j2\n", [], "cuda_from: wheels"),
    ],
    ids=["engine", "size", "wheels", "template"],
)
def test_cuda_from_wheels_is_advised_where_it_is_better(
    tmp_path: Path, more: str, advised: list[str], words: str
) -> None:
    project = Project(tmp_path)
    project.write("own.j2", '{% extends "base.Dockerfile.j2" %}\n')
    project.spec(GPU + more)
    document = project.run("show", "--locked", "--json").document
    assert [role["role"] for role in document["roles"] if role["advice"]] == advised
    assert project.run("show", "--locked").out.count(f"  advice      {words}") == len(advised)
