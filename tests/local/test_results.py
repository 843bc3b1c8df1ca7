"""What a run wrote, and which of the files in its containers a program meant to keep."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_imgtool.base.context.own_files import JOB_MARK
from training_imgtool.local.results import (
    Kind,
    WrittenFile,
    choose_lost,
    describe_names,
    kind_of,
    list_written,
    take_snapshot,
)


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
        (("/tmp/tmpx1/model.ckpt-3.index", "/tmp/tmpx1/graph.pbtxt"), ("/tmp/tmpx1/model.ckpt-3.index",)),
        (("/app/core/model.keras", "/app/core", "/app/.best/m.h5"), ("/app/.best/m.h5", "/app/core/model.keras")),
        (("/home/me/.cache/hub/m.safetensors", "/tmp/tfhub_modules/1/saved_model.pb", "/opt/v/site-packages/x.h5"), ()),
        (("/tmp/torchinductor_me", "/tmp/torchelastic_x1/none_y/attempt_0/0"), ()),
    ],
)
def test_what_is_lost_with_a_container(changed: tuple[str, ...], lost: tuple[str, ...]) -> None:
    assert choose_lost(changed, ("/job", "/mnt/nfs")) == lost


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (Kind.MODEL, "m/saved_model.pb model.keras /app/best.h5 net.hdf5 m.tflite"),
        (Kind.CHECKPOINT, "checkpoint cp.ckpt.index model.ckpt-3.meta c-1.data-00000-of-00001 m.weights.h5 m.ckpt"),
        (Kind.DATA, "weights.npz w.pkl clf.joblib frozen.pb m/fingerprint.pb"),
        (Kind.LOG, "events.out.tfevents.17.host.1.0.v2 log.csv t/graph.pbtxt plugins/profile/x/h.xplane.pb run.json"),
        (Kind.OTHER, "weights model data.tfrecord my.checkpointed"),
    ],
)
def test_kinds_of_files(kind: Kind, paths: str) -> None:
    assert {path: kind_of(path) for path in paths.split()} == dict.fromkeys(paths.split(), kind)


def test_what_was_trained_is_named_first() -> None:
    rest = [f"/a/export/variables/variables.{end}" for end in ("index", "data-00000-of-00001")]
    logs = [f"/a/{number}.csv" for number in range(9)]
    names = [*logs, "/a/export/fingerprint.pb", *rest, "/a/export/saved_model.pb", "/b/w.npz", "/b/checkpoint"]
    assert describe_names(names) == "/a/export/saved_model.pb, /b/checkpoint, /b/w.npz and 12 more"
