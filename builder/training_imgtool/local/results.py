"""Lists the files that a run wrote: files in the job directory, and files that are lost with the run's containers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from training_imgtool.base.context.own_files import JOB_MARK

_SHOWN = 3
_OTHERS = re.compile(  # never a program's result: the system's files, and files that libraries fetch
    r"\A/(?:var/(?:log|cache)|run|proc|sys|dev|etc)(?:/|\Z)|\A/(?:tmp|root)\Z|\.py[co]\Z"
    r"|/(?:__pycache__|(?:site|dist)-packages|tensorflow_datasets|nltk_data|scikit_learn_data|tfhub_modules)(?:/|\Z)"
    r"|/\.(?:cache|config|keras|local|nv)(?:/|\Z)"
)
_PASSING = re.compile(  # temporary files, unless they are a model: an Estimator's model is in /tmp/tmp…
    r"\A/(?:tmp/(?:tmp|pip-|matplotlib|hypertune|pymp-|torchelastic_|torchinductor_)[^/]*|var/(?:tmp|lib))(?:/|\Z)|/\.[^/]+(?:/|\Z)|/core\Z"
)


class Kind(IntEnum):
    """The kind of a file, according to its name. A larger value means a worse loss."""

    LOG = 0
    OTHER = 1
    DATA = 2  # numbers in formats that may also contain weights
    CHECKPOINT = 3
    MODEL = 4


_SAVED_MODEL = re.compile(r"(?:\A|/)saved_model\.pb(?:txt)?\Z")
_KINDS = {
    Kind.LOG: re.compile(
        r"(?:\A|/)(?:events\.out\.tfevents\.|graph\.pbtxt\Z|plugins/profile/)"
        r"|\.(?:log|csv|tsv|jsonl?|txt|ya?ml|html|png|jpe?g|svg|pdf)\Z"
    ),
    Kind.MODEL: re.compile(rf"{_SAVED_MODEL.pattern}|(?<!weights)\.(?:keras|h5|hdf5|tflite|onnx)\Z"),
    Kind.CHECKPOINT: re.compile(
        r"(?:\A|/)checkpoint\Z|\.(?:ckpt|index|meta|data-\d{5}-of-\d{5})\Z|weights\.(?:h5|hdf5)\Z"
    ),
    Kind.DATA: re.compile(r"\.(?:npz|npy|pkl|pickle|joblib|pt|pth|safetensors|msgpack|flax|eqx|bin|pb)\Z"),
}


def kind_of(path: str) -> Kind:
    """Returns the kind of a file with this name."""
    return next((kind for kind, names in _KINDS.items() if names.search(path)), Kind.OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that a run wrote to the job directory: its path there, and its size in bytes."""

    path: str
    size: int


Snapshot = Mapping[str, tuple[int, int]]


def take_snapshot(folder: Path) -> Snapshot:
    """Maps the path of each file below `folder` to its time (nanoseconds) and size (bytes); skips unreadable files."""
    found: dict[str, tuple[int, int]] = {}
    for where, _, files in os.walk(folder):
        for name in files:
            path = Path(where, name)
            try:
                state = path.lstat()
            except OSError:
                continue
            found[path.relative_to(folder).as_posix()] = (state.st_mtime_ns, state.st_size)
    return found


def list_written(before: Snapshot, after: Snapshot) -> tuple[WrittenFile, ...]:
    """Lists new or changed files, the largest first."""
    new = [WrittenFile(path=path, size=state[1]) for path, state in after.items() if before.get(path) != state]
    return tuple(sorted((file for file in new if file.path != JOB_MARK), key=lambda file: (-file.size, file.path)))


def choose_lost(changed: Iterable[str], mounts: Iterable[str]) -> tuple[str, ...]:
    """Chooses the paths that a container changed and whose loss may matter to the user.

    Args:
        changed: files and folders, as the engine lists them.
        mounts: paths where folders of this machine are mounted; the files in them stay.
    """
    paths = {*changed}
    above = {str(parent) for path in paths for parent in Path(path).parents} | {*mounts}
    return tuple(sorted(path for path in paths - above if _may_be_meant(path)))


def _may_be_meant(path: str) -> bool:
    return not _OTHERS.search(path) and (kind_of(path) >= Kind.CHECKPOINT or not _PASSING.search(path))


def describe_names(names: Iterable[str]) -> str:
    """Lists up to three names, models and checkpoints first, and says how many more there are."""
    listed = sorted(names, key=kind_of, reverse=True)
    folders = tuple(path.rpartition("saved_model.")[0] for path in listed if _SAVED_MODEL.search(path))
    listed.sort(key=lambda path: path.startswith(folders) and not _SAVED_MODEL.search(path))  # of a SavedModel
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{', '.join(listed[:_SHOWN])}{more}"
