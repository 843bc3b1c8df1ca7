"""The losses that programs print, and those in event files, which are written here byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from training_imgtool.cluster.losses import LossReader, add_point, find_losses, read_events
from training_imgtool.core.progress import Event, LogLine, Note, Step


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


def _field(number: int, kind: int, content: bytes) -> bytes:
    size = bytes([len(content)]) if kind == 2 else b""
    return bytes([number << 3 | kind]) + size + content


def _event(seconds: float, *values: bytes) -> bytes:
    summary = b"".join(_field(1, 2, value) for value in values)
    message = _field(1, 1, struct.pack("<d", seconds)) + _field(2, 0, b"\x96\x01") + _field(5, 2, summary)
    return struct.pack("<QI", len(message), 0) + message + b"\0\0\0\0"


def test_event_files_of_both_kinds_of_tensorflow(tmp_path: Path) -> None:
    one = _field(1, 2, b"epoch_loss") + _field(2, 5, struct.pack("<f", 0.5))
    tensor = _field(1, 0, b"\x01") + _field(4, 2, struct.pack("<f", 0.25))
    two = _field(1, 2, b"epoch_loss") + _field(8, 2, tensor)
    other = _field(1, 2, b"accuracy") + _field(2, 5, struct.pack("<f", 0.9))
    version = _field(1, 1, struct.pack("<d", 99.0)) + _field(3, 2, b"brain.Event:2")
    head = struct.pack("<QI", len(version), 0) + version + b"\0\0\0\0"
    name = "logs/train/events.out.tfevents.1.host"
    (tmp_path / "logs/train").mkdir(parents=True)
    whole = head + _event(101.0, one, other) + _event(103.0, two)
    (tmp_path / name).write_bytes(whole)
    (curve,) = read_events(tmp_path, [name, "logs/other.txt", "logs/events.out.tfevents.gone"], 100.0)
    assert (curve.name, curve.points) == ("logs/train epoch_loss", ((1.0, 0.5), (3.0, 0.25)))
    for end in range(len(whole)):  # whatever is cut off
        (tmp_path / name).write_bytes(whole[:end])
        read_events(tmp_path, [name], 100.0)
    (tmp_path / name).write_bytes(head + struct.pack("<QI", 40, 0) + b"\xff" * 60)
    assert read_events(tmp_path, [name], 100.0) == ()
