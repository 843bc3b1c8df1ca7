"""images/torch-digits as ranks that find each other below both launchers, and what comes of a lost one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.conftest import CHECKOUT, Run

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.long]
SPEC = CHECKOUT / "images/torch-digits"
SMALL = ("--", "--epochs=3", "--images=1536")


def test_every_number_of_processes_sees_the_same_falling_loss(imgtool: Run, tmp_path: Path) -> None:
    imgtool("push", SPEC)
    curves = set()
    for words, ranks in ((("--workers=0",), 1), (("--workers=2",), 3), (("--workers=1", "--processes=2"), 4)):
        folder = tmp_path / str(ranks)
        done = imgtool("run", SPEC, "--as", "local", *words, "--job-dir", folder, "--json", *SMALL, timeout=300)
        assert json.loads(done.stdout)["ok"]
        assert len(re.findall(rf"rank \d of {ranks} on cpu", done.stderr)) == ranks
        curves.add(tuple(round(float(loss), 2) for loss in re.findall(r"epoch \d: loss ([0-9.]+)", done.stderr)))
    (losses,) = curves
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("death", ["--kill", "--preempt"])
def test_a_lost_worker_is_no_permanent_failure(imgtool: Run, tmp_path: Path, processes: int, death: str) -> None:
    imgtool("push", SPEC)
    words = ("--workers=1", f"--processes={processes}", death, "worker:0@6s", "--job-dir", tmp_path, "--json")
    result = json.loads(imgtool("run", SPEC, *words, *SMALL, timeout=300).stdout)
    assert result["ok"]
    assert [replica["restarts"] for replica in result["replicas"]] == [1, 1]
