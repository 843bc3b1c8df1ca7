"""What this machine pushed last: the image of each role, and the inputs of each key, as notes in its cache.

A push compares with them without asking the registry; a machine that has none says nothing of what changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.reference import Repository
from training_imgtool.direct.registry.state import make_file_name

if TYPE_CHECKING:
    from training_imgtool.changes.inputs import ImageInputs

_MOST = 16 << 20  # bytes of one note, texts included
_PRIVATE = 0o600  # the texts are the user's code


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """The image of a role that this machine pushed or found last.

    Attributes:
        digest: of its manifest.
        key: its content key.
        blobs: the sizes of its config and layers, by digest; empty where an engine made it.
        before: the blobs of the image before it.
    """

    digest: str
    key: str
    blobs: Mapping[str, int]
    before: Mapping[str, int]


def find_pushed(cache: Path, repository: Repository, role: str, platform: str, variant: str = "") -> Pushed | None:
    """Returns what was pushed last for a role, of a variant by its `--set`; None where this machine has no note."""
    note = read_cached(_path_of(cache, repository, role, platform, variant))
    try:
        return Pushed(**note)
    except TypeError:
        return None


def note_pushed(
    cache: Path, repository: Repository, role: str, platform: str, variant: str = "", *, pushed: Pushed
) -> None:
    """Remembers what was pushed."""
    write_cached(_path_of(cache, repository, role, platform, variant), asdict(pushed))


def _path_of(cache: Path, repository: Repository, role: str, platform: str, variant: str) -> Path:
    return cache / "pushed" / make_file_name(f"{repository} {role} {platform} {variant}".rstrip())


def find_inputs(cache: Path, key: str) -> ImageInputs | None:
    """Returns the inputs of a key, if an image of this key was pushed here."""
    from training_imgtool.changes.inputs import Attested, File, ImageInputs

    note = read_cached(_inputs_path(cache, key), _MOST)
    try:
        values: dict[str, Any] = dict(note)
        attested = values["attested"]
        sets = {name: frozenset(attested[name]) for name in ("system", "left_out")}
        packages = {name: tuple(pair) for name, pair in attested["packages"].items()}
        return ImageInputs(
            **{
                **values,
                "files": {path: File(*row) for path, row in values["files"].items()},
                "steps": tuple(values["steps"]),
                "attested": Attested(**{**attested, **sets, "packages": packages}),
                "unclear": frozenset(values["unclear"]),
            }
        )
    except (TypeError, LookupError, ValueError, AttributeError):
        return None


def note_inputs(cache: Path, inputs: ImageInputs) -> None:
    """Remembers the inputs of a key."""
    values = {**asdict(inputs), "files": {path: list(asdict(file).values()) for path, file in inputs.files.items()}}
    document = json.loads(json.dumps(values, default=sorted))
    write_cached(_inputs_path(cache, inputs.key), document, _MOST, mode=_PRIVATE)


def has_inputs(cache: Path, key: str) -> bool:
    """Tells whether the inputs of a key are remembered."""
    return _inputs_path(cache, key).exists()


def _inputs_path(cache: Path, key: str) -> Path:
    return cache / "inputs" / f"{key}.json"
