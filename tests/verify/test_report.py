"""The report: disjoint largest folders, equal lines once, one line per mismatch."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from training_imgtool.spec.model import Role
from training_imgtool.verify import report
from training_imgtool.verify.facts import Finding, Layer, Status
from training_imgtool.verify.interesting_paths import sum_folders
from training_imgtool.verify.report import ImageReport, find_largest

OK = Finding(check="python", role=Role.MASTER, status=Status.OK, found="3.11.2", expected="3.11")
BAD = Finding(check="tensorflow", role=Role.WORKER, status=Status.MISMATCH, found="2.14.0", expected="2.15.1")


def _report(role: Role, *findings: Finding, **changes: Any) -> ImageReport:
    values: dict[str, Any] = {
        "role": role,
        "image": f"host/x@sha256:{hashlib.sha256(role.encode()).hexdigest()}",
        "findings": tuple(replace(one, role=role) for one in findings),
        "layers": (),
        "directories": (("/opt", 5_000_000),),
        "complete": True,
    }
    return ImageReport(**(values | changes))


def test_large_folders_give_way_to_what_is_in_them() -> None:
    own = {"opt/venv/tf": 600, "opt/venv/tf/include": 90, "opt/venv/np": 100, "usr/lib": 50, "usr/bin": 30, "etc": 10}
    found = find_largest(sum_folders(own))
    assert found == (
        ("/opt/venv/tf/*", 600),
        ("/opt/venv/np", 100),
        ("/opt/venv/tf/include", 90),
        ("/usr/lib", 50),
        ("/usr/bin", 30),
        ("/etc", 10),
    )
    assert sum(size for _, size in found) == sum(own.values())


@pytest.mark.parametrize(("own", "found"), [({}, ()), ({"": 7}, (("/", 7),)), ({"a": 1}, (("/a", 1),))])
def test_small_trees(own: dict[str, int], found: tuple[tuple[str, int], ...]) -> None:
    assert find_largest(sum_folders(own)) == found


def test_what_roles_share_stands_once() -> None:
    text = report.as_text((_report(Role.MASTER, OK), _report(Role.WORKER, OK, BAD)))
    lines = text.splitlines()
    assert lines[0].split() == ["CHECK", "ROLE", "RESULT", "FOUND", "(EXPECTED)"]
    assert lines[1].split() == ["python", "all", "ok", "3.11.2", "(3.11)"]
    assert lines[2].split() == ["tensorflow", "worker", "MISMATCH", "2.14.0", "(2.15.1)"]
    assert lines[4:] == ["all: largest folders", "        5.0 MB  /opt"]


def test_an_index_of_two_platforms_names_the_role_once() -> None:
    reports = (_report(Role.MASTER, OK), _report(Role.MASTER, OK), _report(Role.WORKER, BAD))
    (row,) = (line.split() for line in report.as_text(reports).splitlines() if " ok " in line)
    assert row[1] == "master"


def test_one_line_per_mismatch_and_data_to_match() -> None:
    layers = (Layer(digest="", size=5, own=True, history="COPY a\n/a"),)
    reports = (_report(Role.MASTER, OK, layers=layers), _report(Role.WORKER, OK, BAD))
    assert report.list_mismatches(reports) == ("worker: tensorflow: found 2.14.0; expected 2.15.1",)
    data = report.as_data(reports)
    assert data[0] | {"checks": []} == {
        "role": "master",
        "image": reports[0].image,
        "ok": True,
        "checks": [],
        "layers": [{"digest": None, "bytes": 5, "of_base": False, "made_by": "COPY a /a"}],
        "directories": [{"path": "/opt", "bytes": 5_000_000}],
        "directories_complete": True,
    }
    assert [one["ok"] for one in data] == [True, False]
    assert data[1]["checks"][1] == {
        "check": "tensorflow",
        "status": "MISMATCH",
        "found": "2.14.0",
        "expected": "2.15.1",
    }
