"""images/mnist as a real cluster in containers, and what comes of killed replicas; `test_main_job` kills none."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Mnist, Run

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.long]
SPEC = "images/mnist"


def accuracy(done: subprocess.CompletedProcess[str]) -> float:
    found = re.search(r"master   \| accuracy ([0-9.]+) after", done.stderr)
    assert found, done.stderr
    return float(found[1])


def rehearsed(imgtool: Run, mnist: Mnist, job: Path, kill: str, epochs: int) -> tuple[dict[str, Any], str]:
    """The summary and the output of a run in which something is killed."""
    arguments = ("run", SPEC, "--job-dir", job, "--kill", kill, "--json", "--", f"--epochs={epochs}")
    done = imgtool(*arguments, env=mnist.env, timeout=400, check=False)  # 10 when the run ends before the kill is due
    assert accuracy(done) > 0.9
    assert (job / "model/saved_model.pb").is_file()
    return json.loads(done.stdout), done.stderr


def test_training_goes_on_when_a_worker_is_killed(imgtool: Run, mnist: Mnist, tmp_path: Path) -> None:
    summary, _ = rehearsed(imgtool, mnist, tmp_path, "worker:0@5s", 20)
    (death,) = summary["deaths"]
    assert death["replica"] == "worker-0"
    assert death["exit_code"] == 137
    assert death["action"] == "restart"
    assert death["documented"]
    assert death["went_on"]
    assert {one["name"]: one["restarts"] for one in summary["replicas"]} == {
        "master": 0, "worker-0": 1, "worker-1": 0, "ps-0": 0,
    }  # fmt: skip
    assert summary["checkpoint"] == "checkpoints/ckpt-20"


def test_a_killed_master_resumes_from_its_checkpoint(imgtool: Run, mnist: Mnist, tmp_path: Path) -> None:
    early, late = 0.0, 0.0  # when there was no checkpoint yet, when the run had ended: as fast as the machine is
    for _ in range(8):
        seconds = round((early + late) / 2 if late else max(10, early * 1.6), 1)
        summary, said = rehearsed(imgtool, mnist, tmp_path / str(seconds), f"master@{seconds}s", 40)
        if not summary["deaths"]:
            late = seconds
            continue
        (death,) = summary["deaths"]
        assert death["replica"] == "master"
        assert death["action"] == "restart"
        assert death["went_on"]
        if death["checkpoint_then"]:
            break
        early = seconds
    else:
        pytest.fail(f"no kill came between the first checkpoint, after {early} s, and the end, before {late} s")
    epoch = int(death["checkpoint_then"].rpartition("-")[2])
    resumed = re.search(r"resumed after epoch (\d+)", said)
    assert resumed, said
    assert epoch <= int(resumed[1]) <= epoch + 1
    assert summary["checkpoint"] == "checkpoints/ckpt-40"
