"""What this machine pushed last: the image of each role, and the inputs of each key, as notes in its cache.

A push compares with them without asking the registry; a machine that has none says nothing of what changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.reference import Repository
from training_imgtool.direct.registry.stored_stages import make_file_name

if TYPE_CHECKING:
    from training_imgtool.changes.inputs import File, ImageInputs, Shared

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


def find_inputs(cache: Path, key: str, shared: Shared | None = None) -> ImageInputs | None:
    """Returns the inputs of a key, if an image of this key was pushed here."""
    from training_imgtool.changes.inputs import Attested, ImageInputs, Shared

    note = read_cached(_inputs_path(cache, key))
    try:
        values: dict[str, Any] = dict(note)
        attested = values["attested"]
        sets = {name: frozenset(attested[name]) for name in ("system", "left_out")}
        packages = {name: tuple(pair) for name, pair in attested["packages"].items()}
        return ImageInputs(
            **{
                **values,
                "files": _find_files(cache, values["files"], shared or Shared()),
                "steps": tuple(values["steps"]),
                "attested": Attested(**{**attested, **sets, "packages": packages}),
                "unclear": frozenset(values["unclear"]),
            }
        )
    except (TypeError, LookupError, ValueError, AttributeError):
        return None


def _find_files(cache: Path, digest: str, shared: Shared) -> Mapping[str, File]:
    from training_imgtool.changes.inputs import File

    if digest not in shared.noted:
        rows = read_cached(_inputs_path(cache, digest), _MOST)
        shared.noted[digest] = {path: File(*row) for path, row in dict(rows).items()}
    return shared.noted[digest]


def note_inputs(cache: Path, inputs: ImageInputs, shared: Shared | None = None) -> None:
    """Remembers the inputs of a key; roles of the same files have them in one note."""
    from training_imgtool.changes.inputs import Shared

    digest = _note_files(cache, inputs.files, shared or Shared())
    few = json.loads(json.dumps(replace(inputs, files={}), default=_simplify))
    write_cached(_inputs_path(cache, inputs.key), {**few, "files": digest}, mode=_PRIVATE)


def _simplify(value: Any) -> Any:
    """Makes JSON's types of a set or a dataclass; `asdict` would copy all that is in it first."""
    if isinstance(value, frozenset):
        return sorted(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _note_files(cache: Path, files: Mapping[str, File], shared: Shared) -> str:
    for digest, noted in shared.noted.items():
        if noted is files:
            return digest
    rows = {path: [getattr(file, name) for name in file.__slots__] for path, file in files.items()}
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    write_cached(_inputs_path(cache, digest), rows, _MOST, mode=_PRIVATE)
    shared.noted[digest] = files
    return digest


def _inputs_path(cache: Path, key: str) -> Path:
    return cache / "inputs" / f"{key}.json"
