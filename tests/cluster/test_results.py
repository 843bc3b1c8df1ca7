"""What a run wrote, and which of the files in its containers a program meant to keep."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_imgtool.cluster.results import WrittenFile, choose_lost, list_written, take_snapshot
from training_imgtool.context.own_files import JOB_MARK


def test_what_is_new_or_changed_in_the_job_directory(tmp_path: Path) -> None:
    for name, text in {"old.txt": "x", "log/events": "a", JOB_MARK: ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = take_snapshot(tmp_path)
    (tmp_path / "log/events").write_text("ab")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/weights").write_bytes(b"1234")
    (tmp_path / JOB_MARK).touch()
    os.utime(tmp_path / JOB_MARK, (1, 1))
    assert list_written(before, take_snapshot(tmp_path)) == (
        WrittenFile(path="model/weights", size=4),
        WrittenFile(path="log/events", size=2),
    )


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        (("/app", "/app/model.h5", "/app/logs", "/app/logs/run"), ("/app/logs/run", "/app/model.h5")),
        (("/root", "/root/.keras", "/root/.keras/datasets/mnist.npz", "/tmp", "/tmp/tmpab1/x", "/job", "/mnt/nfs"), ()),
        (("/tmp", "/tmp/model.h5", "/tmp/.cache/x"), ("/tmp/model.h5",)),
        (("/app/__pycache__/x.cpython-311.pyc", "/etc/hosts", "/root/tensorflow_datasets/mnist", "/run"), ()),
        (("/root", "/root/best.keras"), ("/root/best.keras",)),
        (("/tmpfiles/a",), ("/tmpfiles/a",)),
    ],
)
def test_what_is_lost_with_a_container(changed: tuple[str, ...], lost: tuple[str, ...]) -> None:
    assert choose_lost(changed, ("/job", "/mnt/nfs")) == lost
