"""images/keras-jax as three processes that find each other, what comes of a killed one, and the images themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.conftest import CHECKOUT, Run

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.long]
SPEC = CHECKOUT / "images/keras-jax"


@pytest.mark.parametrize("service", ["local", "vertex"])
def test_three_processes_see_the_same_falling_loss(imgtool: Run, tmp_path: Path, service: str) -> None:
    imgtool("push", SPEC)
    done = imgtool("run", SPEC, "--as", service, "--job-dir", tmp_path, "--json", "--", "--epochs=3", timeout=300)
    losses: dict[str, dict[str, float]] = {}
    for name, epoch, loss in re.findall(r"^(\S+) +\| epoch (\d+): loss ([0-9.]+)$", done.stderr, re.MULTILINE):
        losses.setdefault(epoch, {})[name] = float(loss)
    assert [len(of_epoch) for of_epoch in losses.values()] == [3, 3, 3]
    first, second, third = ({*of_epoch.values()} for of_epoch in losses.values())
    assert len(first) == len(second) == len(third) == 1
    assert min(first) > min(second) > min(third)
    assert json.loads(done.stdout)["ok"]


def test_all_end_when_one_is_killed(imgtool: Run, tmp_path: Path) -> None:
    imgtool("push", SPEC)
    arguments = ("run", SPEC, "--as", "local", "--job-dir", tmp_path, "--json", "--kill", "worker:0@12s")
    done = imgtool(*arguments, "--", "--epochs=2000", timeout=300, check=False)
    assert done.returncode == 10
    assert {one["name"] for one in json.loads(done.stdout)["replicas"]} == {"master", "worker-0", "worker-1"}


def test_the_images_are_what_the_lock_says_and_multiply(imgtool: Run) -> None:
    imgtool("push", SPEC)
    images = json.loads(imgtool("verify", SPEC, "--smoke", "--json").stdout)["images"]
    checks = [check for image in images for check in image["checks"]]
    assert {"jax", "compute", "trainer"} <= {check["check"] for check in checks}
    assert {check["status"] for check in checks} == {"ok"}
