"""What a preemption shows: the program's disposition, the counts in its output, and what was trained twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training_imgtool.base.progress import LogLine, silent
from training_imgtool.local.checkpoints import Checkpoint
from training_imgtool.local.preemption import Disposition, Handling, Preemption, read_disposition, read_step
from training_imgtool.local.steps import Count, StepReader, find_counts, split_counts

SAVED = Checkpoint(path="ckpt-1", written=5.0)
CAUGHT, IGNORED, DEFAULT = Disposition.CAUGHT, Disposition.IGNORED, Disposition.DEFAULT
SEEN = Preemption(grace=30.0, disposition=CAUGHT, ended_after=1.0, killed=False, saved=SAVED)


def status(name: str, pid: int, parent: int, *, caught: int = 0, ignored: int = 0) -> str:
    return (
        f"Name:\t{name}\nState:\tS (sleeping)\nPid:\t{pid}\nPPid:\t{parent}\nSigBlk:\t0\n"
        f"SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n\n"
    )


@pytest.mark.parametrize(
    ("statuses", "disposition"),
    [
        (status("dumb-init", 1, 0, caught=0x4000) + status("python", 7, 1), DEFAULT),
        (status("dumb-init", 1, 0) + status("python", 7, 1, caught=0x4002), CAUGHT),
        (status("python", 9, 7, caught=0x4000) + status("python", 7, 1) + status("dumb-init", 1, 0), DEFAULT),
        (status("sh", 1, 0, ignored=0x4000) + status("cat", 8, 0), IGNORED),
        (status("sh", 1, 0, caught=0x4000), CAUGHT),
        (status("sh", 1, 0).replace("SigBlk:\t0", "SigBlk:\t4000"), None),
        ("", None),
        ("Name:\tsh\nPid:\t1\n", None),
    ],
)
def test_the_program_below_the_init_is_asked(statuses: str, disposition: Disposition | None) -> None:
    assert read_disposition(statuses) is disposition


@pytest.mark.parametrize(
    ("changes", "handling"),
    [
        ({}, Handling.SAVES),
        ({"saved": None}, Handling.UNSAVED),
        ({"killed": True}, Handling.TOO_SLOW),
        ({"disposition": IGNORED}, Handling.IGNORES),  # it saved when it liked
        ({"disposition": DEFAULT}, Handling.NO_HANDLER),  # what another replica saved is not its own
        ({"disposition": None, "saved": None}, Handling.UNKNOWN),
    ],
)
def test_handling(changes: dict[str, object], handling: Handling) -> None:
    assert replace(SEEN, **changes).handling is handling  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"unit": "step", "last": 170, "checkpoint_step": 150, "next": 160}, 20),  # the checkpoint's own word first
        ({"unit": "step", "last": 170, "checkpoint_step": 171}, 0),
        ({"unit": "epoch", "last": 4, "checkpoint_step": 150, "next": 3}, 2),
        ({"unit": "epoch", "last": 4, "next": 5}, 0),
        ({"unit": "step", "last": 170}, None),
        ({"next": 1}, None),
    ],
)
def test_lost_steps(changes: dict[str, object], lost: int | None) -> None:
    assert replace(SEEN, **changes).lost == lost  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("INFO:tensorflow:loss = 0.5, step = 100 (0.301 sec)", [("step", 100)]),
        ("Epoch 3/10", [("epoch", 3)]),
        ("epoch: 2, iteration 57: loss 0.1", [("epoch", 2), ("step", 57)]),
        ('{"step": 12, "loss": 1}', [("step", 12)]),
        ("global_step 7", [("step", 7)]),
        ("Epoch: [3][10/100]", [("epoch", 3)]),
        ("resumed after epoch 25", []),
        ("steps: 1000, num_step=5, global_step/sec: 300, step 0.5s, 12 steps, final step: 3.25", []),
    ],
)
def test_counts_in_lines(line: str, counts: list[tuple[str, int]]) -> None:
    assert find_counts(line) == counts


def test_epochs_count_where_steps_begin_again_with_each() -> None:
    reader = StepReader(silent)
    for line in ("epoch 1 step 50", "epoch 1 step 99", "epoch 2 step 50", "nothing"):
        reader(LogLine("worker-0", line))
    before = reader.counts_of("worker-0")
    after = (Count(1e18, "step", 50), Count(1e18, "epoch", 2))
    last, first = split_counts((*before, *after), 1e18)
    assert last is not None
    assert first is not None
    assert (last.unit, last.number, first.number) == ("epoch", 2, 2)
    assert split_counts((Count(1, "step", 3), Count(2, "step", 7), Count(9, "step", 5)), 4) == (
        Count(2, "step", 7), Count(9, "step", 5),
    )  # fmt: skip
    assert split_counts((), 4) == (None, None)


def test_the_step_program_answers_last() -> None:
    assert read_step(b'2026 warning: {x}\n{"step": 12}\n') == 12
    assert read_step(b'{"step": null}\n') is None
    assert read_step(b"Traceback\n") is None
