"""TensorFlow's checkpoints in a job directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_imgtool.local.checkpoints import latest


def state(folder: Path, name: str, when: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "checkpoint"
    path.write_text(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "older-1"\n')
    os.utime(path, (when, when))


def test_the_newest_of_several(tmp_path: Path) -> None:
    state(tmp_path / "a", "ckpt-9", 100)
    state(tmp_path / "b/c", "/job/b/c/ckpt-3", 200)
    found = latest(tmp_path)
    assert found is not None
    assert (found.path, found.written) == ("b/c/ckpt-3", 200)


def test_one_in_the_folder_itself(tmp_path: Path) -> None:
    state(tmp_path, "model.ckpt-120", 100)
    found = latest(tmp_path)
    assert found is not None
    assert found.path == "model.ckpt-120"


def test_those_of_keras(tmp_path: Path) -> None:
    state(tmp_path / "a", "ckpt-9", 100)
    for number, name in enumerate(("model.weights.h5", "epoch-2.keras", "notes.txt")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (200 + number, 200 + number))
    newest = latest(tmp_path)
    assert newest is not None
    assert (newest.path, newest.written) == ("epoch-2.keras", 201)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("checkpoints/step_000500.pkl", "checkpoints/step_000500.pkl"),
        ("best_model.flax", "best_model.flax"),
        ("train_state/checkpoint_50", "train_state/checkpoint_50"),  # Flax
        ("ckpt/50/_CHECKPOINT_METADATA", "ckpt/50"),  # Orbax
        ("ckpt/60.orbax-checkpoint-tmp-1/_CHECKPOINT_METADATA", None),
        ("save/config.pkl", None),
        ("checkpoints/notes.json", None),
    ],
)
def test_those_of_others(tmp_path: Path, name: str, found: str | None) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    newest = latest(tmp_path)
    assert (newest and newest.path) == found


def test_none(tmp_path: Path) -> None:
    assert latest(tmp_path / "missing") is None
    assert latest(tmp_path) is None
    (tmp_path / "checkpoint").write_bytes(b"\xff\x00 something else")
    assert latest(tmp_path) is None
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "checkpoint").mkdir()
    assert latest(tmp_path) is None
    state(tmp_path / "1/2/3/4/5", "too-deep-1", 100)
    assert latest(tmp_path) is None
