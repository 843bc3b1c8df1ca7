"""The rows of the targets: the keys that they name exist, and each has its module."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from training_imgtool.jobs import module_of
from training_imgtool.model.job import JobSpec, Scheduling
from training_imgtool.model.spec import RoleSpec
from training_imgtool.model.targets import Target

DOCS = Path(__file__).resolve().parents[2] / "docs" / "jobs"


@pytest.mark.parametrize("target", Target)
def test_a_row_names_keys_that_exist(target: Target) -> None:
    row = target.row
    for named, kind in ((row.job, JobSpec), (row.role, RoleSpec), (row.scheduling, Scheduling)):
        assert named <= {item.name for item in fields(kind)}
    assert not row.scheduling or "scheduling" in row.job


@pytest.mark.parametrize("target", Target)
def test_every_target_has_its_module_and_its_page(target: Target) -> None:
    module = module_of(target)
    assert all(hasattr(module, name) for name in ("check", "make", *(["judge"] if target.row.kinds else [])))
    assert f"`{target}`" in (DOCS / "README.md").read_text()


def test_every_module_has_its_row() -> None:
    import training_imgtool.jobs.targets as folder

    modules = {path.stem for path in Path(str(folder.__file__)).parent.glob("*.py")} - {"__init__"}
    assert modules == {target.replace("-", "_") for target in Target}


def test_no_kind_and_no_sign_has_two_targets() -> None:
    for of in ("kinds", "signs"):
        named = [name for target in Target for name in getattr(target.row, of)]
        assert len(named) == len(set(named))
