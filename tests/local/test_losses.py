"""The losses that programs print."""

from __future__ import annotations

import pytest

from training_imgtool.base.progress import Event, LogLine, Note, Step
from training_imgtool.local.losses import LossReader, add_point, find_losses


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("epoch 1/10 loss 1.6876", [("loss", 1.6876)]),
        (
            "12/100 [==>....] - ETA: 3s - loss: 0.1234 - accuracy: 0.98 - val_loss: 2e-3",
            [("loss", 0.1234), ("val_loss", 0.002)],
        ),
        ("INFO:tensorflow:loss = 0.5, step = 100 (1.2 sec)", [("loss", 0.5)]),
        ("{'loss': 0.25, 'train_loss': 0.5}", [("loss", 0.25), ("train_loss", 0.5)]),
        ("step 100: Loss=-1.5e+2.", [("loss", -150.0)]),
        ("validation loss of 3", [("validation loss", 3.0)]),
        ("d_loss1: 0.3", []),
        ("glossary: 3, lossless 4, packet-loss 5, loss/3, loss 1/3, loss 4%", []),
        ("loss: nan", []),
        ("compiled with loss mse", []),
    ],
)
def test_lines_with_losses(line: str, found: list[tuple[str, float]]) -> None:
    assert find_losses(line) == found


def test_events_are_passed_on_and_read() -> None:
    passed: list[Event] = []

    def take(event: Event) -> None:
        passed.append(event)

    reader = LossReader()
    reader.after = take
    events: list[Event] = [
        Step("run", "2 replicas"),
        LogLine("master", "loss: 1"),
        LogLine("worker-0", "loss: 3"),
        Note("loss: 4"),
    ]
    for event in events:
        reader(event)
    reader(LogLine("master", "loss: 0.5"))
    assert passed[:4] == events
    curves = {curve.name: [value for _, value in curve.points] for curve in reader.curves()}
    assert curves == {"master loss": [1.0, 0.5], "worker-0 loss": [3.0]}


def test_a_long_curve_keeps_its_ends() -> None:
    points: list[tuple[float, float]] = []
    for number in range(10_000):
        add_point(points, (number, number))
    assert len(points) <= 2000
    assert (points[0], points[-1]) == ((0, 0), (9999, 9999))
    assert points == sorted(points)
