"""images/torch-digits as ranks that find each other below both launchers; what comes of a lost one, and of a save."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import CHECKOUT, Run
from tests.local.watch_project import Watching
from tests.make.engines.support import wait_for

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.long]
SPEC = CHECKOUT / "images/torch-digits"
SMALL = ("--", "--epochs=3", "--images=1536")
LONG = ("--", "--epochs=100000", "--images=1536")
LAUNCHERS = pytest.mark.parametrize("processes", [1, 2])


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


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the example."""
    ignored = shutil.ignore_patterns("job", "__pycache__")
    return Path(shutil.copytree(SPEC, tmp_path / "torch-digits", ignore=ignored))


@pytest.fixture
def resuming(example: Path) -> Path:
    """The example with a program that ends soon if it finds a checkpoint when it starts, and never otherwise."""
    task = example / "trainer/task.py"
    *before, loop, after = re.split(r"(    for epoch in range.+\n)", task.read_text())
    assert "options.epochs" in loop
    first = "    first = _restore(folder, model, optimizer, device)\n"
    loop = "    for epoch in range(first, first + 5 if first else 10**6):\n"
    task.write_text("".join((*before, first, loop, after)))
    return example


@pytest.fixture
def strike(imgtool: Run, resuming: Path, tmp_path: Path) -> Callable[..., Any]:
    """Runs the resuming program with a rehearsed death of a replica that surely trains then, and returns the result."""

    def run(option: str, replica: str, *words: str) -> Any:
        imgtool("push", SPEC)
        words = (*words, "--json", "--job-dir")
        alone = imgtool("run", SPEC, *words, str(tmp_path / "first"), "--", "--epochs=1", "--images=1536")
        seconds = 5 + 2 * json.loads(alone.stdout)["seconds"]
        imgtool("push", resuming)
        words = (*words, str(tmp_path / "job"), option, f"{replica}@{seconds:.0f}s", "--", "--images=1536")
        return json.loads(imgtool("run", resuming, *words).stdout)

    return run


@LAUNCHERS
@pytest.mark.parametrize("death", ["--kill", "--preempt"])
def test_a_lost_worker_is_no_permanent_failure(strike: Callable[..., Any], processes: int, death: str) -> None:
    """The other replica fails, or ends with 143, at the same time as the lost one, and often before it."""
    result = strike(death, "worker:0", "--workers=1", f"--processes={processes}")
    assert result["ok"]
    assert [replica["restarts"] for replica in result["replicas"]] == [1, 1]
    (lost,) = result["deaths"]
    assert (lost["replica"], lost["action"], lost["went_on"]) == ("worker-0", "restart the job", True)
    if death == "--preempt":
        told = lost["preemption"]
        assert (lost["exit_code"], told["handling"], told["lost"]) == (143, "a replica saves", 0)


@LAUNCHERS
def test_a_replica_that_is_alone_saves(strike: Callable[..., Any], processes: int) -> None:
    result = strike("--preempt", "master", "--workers=0", f"--processes={processes}")
    assert result["ok"]
    assert [death["preemption"]["handling"] for death in result["deaths"]] == ["saves"]


@LAUNCHERS
@pytest.mark.parametrize("service", ["local", "vertex"])
def test_a_save_restarts_every_rank_warm(
    imgtool: Run, services_env: dict[str, str], example: Path, processes: int, service: str
) -> None:
    imgtool("push", example)
    task, ranks = example / "trainer/task.py", 2 * processes
    words = ("--as", service, "--workers=1", f"--processes={processes}", *LONG)
    running = Watching(example, example / "job", services_env, *words)

    def count(word: str) -> int:
        return len(re.findall(rf"{word} \d of {ranks} on cpu", "".join(running.lines)))

    try:
        text = task.read_text()
        for before, word in (("rank", "second"), ("second", "third")):
            assert wait_for(partial(lambda word: count(word) == ranks, before), 120), "".join(running.lines)
            time.sleep(15)  # to import the modules of the program that runs
            task.write_text(text.replace('f"rank {rank}', f'f"{word} {{rank}}'))
        began = time.monotonic()
        assert wait_for(lambda: count("third") == ranks, 60), "".join(running.lines)
        assert time.monotonic() - began < 10
        assert not any("starts cold" in line for line in running.lines)
        assert (count("rank"), count("second")) == (ranks, ranks)
        running.lines.clear()
        assert wait_for(lambda: sum("epoch" in line for line in running.lines) > 2, 60)
        epochs = [int(number) for number in re.findall(r"epoch (\d+):", "".join(running.lines))]
        assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))  # no rank 0 of an older program is left
    finally:
        assert running.end() == 130
