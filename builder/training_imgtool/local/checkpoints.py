"""Finds checkpoints in a job directory, as evidence that a restarted trainer could resume.

TensorFlow writes a state file beside its checkpoints. Keras writes files in its own formats, without a state file.
Orbax, which JAX programs use, makes a folder for each step, and Flax a file. Other programs pickle or save arrays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.local.results import Kind, kind_of

_STATE = "checkpoint"  # tf.train.CheckpointState as text, which every CheckpointManager keeps beside its files
_LATEST = re.compile(r'^model_checkpoint_path: "([^"\n]{1,400})"', re.MULTILINE)
_KERAS = (".keras", ".h5")  # models and weights: https://keras.io/api/callbacks/model_checkpoint/
_ORBAX = "_CHECKPOINT_METADATA"  # in each checkpoint's folder, whose name is the step
_UNFINISHED = ".orbax-checkpoint-tmp"  # in the folder's name while Orbax writes
_NAMED = re.compile(  # what a program calls a checkpoint
    r"(?:checkpoint|ckpt)[^/]*(?:/[^/]+)?\Z|(?:step|epoch|weights|params|model|snapshot|latest|best)[^/]*\Z",
    re.IGNORECASE,
)
_FLAX = re.compile(r"checkpoint_\d+\Z")  # flax.training.checkpoints
_DEEPEST = 3  # folders below the job directory
_MOST = 2000  # folders that are searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The newest checkpoint below a folder: its path below the folder, and its time (seconds since 1970)."""

    path: str
    written: float


def latest(folder: Path) -> Checkpoint | None:
    """Returns the newest checkpoint below `folder`, or None; skips folders that imgtool cannot read."""
    checkpoints = [checkpoint for file in _files(folder) if (checkpoint := _read(file, folder)) is not None]
    return max(checkpoints, key=lambda checkpoint: checkpoint.written, default=None)


def _files(folder: Path) -> Iterator[Path]:
    for number, (where, folders, files) in enumerate(os.walk(folder)):
        if number == _MOST:
            return
        if len(Path(where).relative_to(folder).parts) >= _DEEPEST:
            folders.clear()
        yield from (Path(where, name) for name in files if _may_be(Path(where, name).relative_to(folder)))


def _may_be(path: Path) -> bool:
    name = path.name
    if name in {_STATE, _ORBAX} or name.endswith(_KERAS) or _FLAX.match(name):
        return _UNFINISHED not in str(path)
    return kind_of(name) is Kind.DATA and _NAMED.search(path.as_posix()) is not None


def _read(file: Path, folder: Path) -> Checkpoint | None:
    try:
        written = file.stat().st_mtime
        if file.name != _STATE:
            path = file.parent if file.name == _ORBAX else file
            return Checkpoint(path=str(path.relative_to(folder)), written=written)
        text = file.read_text(errors="replace")[:10_000]
    except OSError:
        return None
    match = _LATEST.search(text)
    if match is None:
        return None
    place = file.parent.relative_to(folder)
    return Checkpoint(path=str(place / Path(match[1]).name), written=written)
