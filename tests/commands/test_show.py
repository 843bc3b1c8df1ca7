from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project

GPU = SPEC.replace('python: "3.11"', 'python: "3.10"\naccelerator: gpu').replace(
    "worker: {", "worker: {accelerator: cpu, "
)


@pytest.mark.parametrize(
    ("more", "advised"),
    [("", ["master"]), ("cuda_from: wheels\n", []), ("system_packages: [libgomp1]\n", [])],
    ids=["base", "wheels", "engine-anyway"],
)
def test_cuda_from_wheels_is_advised_where_it_saves_the_engine(tmp_path: Path, more: str, advised: list[str]) -> None:
    project = Project(tmp_path)
    project.spec(GPU + more)
    document = project.run("show", "--locked", "--json").document
    assert [role["role"] for role in document["roles"] if role["advice"]] == advised
    assert project.run("show", "--locked").out.count("  advice      cuda_from: wheels needs no") == len(advised)
