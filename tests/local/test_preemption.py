"""What a preemption shows: the program's disposition, the counts in its output, and what was trained twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training_imgtool.base.progress import LogLine, silent
from training_imgtool.local.checkpoints import Checkpoint
from training_imgtool.local.preemption import Disposition, Handling, Preemption, read_disposition, read_step
from training_imgtool.local.steps import Count, StepReader, begins_again, find_counts, split_counts, widest_gap

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
        ({"alone": False}, Handling.MAY_SAVE),
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
        ({"unit": "step", "last": 170, "checkpoint_step": 150, "next": 150, "every": 1}, 20),
        ({"unit": "step", "last": 170, "checkpoint_step": 150, "next": 1, "every": 1}, 170),  # it did not restore
        ({"unit": "step", "last": 400, "checkpoint_step": 423, "next": 0, "every": 100}, 424),
        ({"unit": "step", "last": 1700, "next": 100, "every": 100}, 1700),
        ({"unit": "step", "last": 170, "checkpoint_step": 40, "next": 161, "every": 1}, 10),  # another unit
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
        ("tf_epoch =     20  elapsed = 00:04", [("epoch", 20)]),
        ("Ep. 7 - Loss: 1.5 - Acc: 0.50", [("epoch", 7)]),
        ("I1128 12:00:01.2 1 logging_writer.py:48] [300] accuracy=0.5, loss=1.25", [("step", 300)]),
        ("50/1200: loss = 0.5, PSNR = 11.2 (3.10s)", [("step", 50)]),
        ("140/892 (epoch 0), train_loss = 2.1, time/batch = 0.1", [("epoch", 0), ("step", 140)]),
        ("100/100 - 1s - loss: 2.30 - accuracy: 0.10", []),
        ("train | step:  35000 | training until step 60000...", [("step", 35000)]),
        ("Starting training from step 0...", []),
        ("[process=0][thread=save_finalize][step=50] CheckpointManager Save Finalize is syncing", []),
        ("Deleted step 50.", []),
        ("Epoch 3: val_loss improved, saving model to /job/checkpoints/3.keras", [("epoch", 3)]),
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
    was, then = split_counts((*before, *after), 1e18)
    assert ([count.number for count in was], [count.number for count in then]) == ([1, 1, 2], [2])
    steps = (Count(1, "step", 3), Count(2, "step", 7), Count(9, "step", 5))
    assert split_counts(steps, 4) == ([*steps[:2]], [steps[2]])
    assert widest_gap(steps[:2], steps[2:]) == 4
    same = [Count(n, unit, number) for n in (1, 2) for unit, number in (("epoch", n), ("step", 9))]
    assert split_counts(same, 4) == ([same[0], same[2]], [])
    assert split_counts((), 4) == ([], [])
    assert widest_gap([], steps[:1]) is None


def test_training_that_begins_again() -> None:
    def again(*numbers: int) -> bool:
        return begins_again([Count(at, "step", number) for at, number in enumerate(numbers)], back=2)

    assert again(10, 40, 10)
    assert not again(10, 40, 30)
    assert not again(10, 40)
    assert not again(10, 10, 10)


def test_the_step_program_answers_last() -> None:
    assert read_step(b'2026 warning: {x}\n{"step": 12}\n') == 12
    assert read_step(b'{"step": null}\n') is None
    assert read_step(b"Traceback\n") is None
