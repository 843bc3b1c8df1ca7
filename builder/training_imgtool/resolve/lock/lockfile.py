"""Writes lock files whose diffs are easy to read, and reads them strictly.

A lock is beside its spec and has the spec's name: `gpu.lock` belongs to `gpu.yaml`.

The file is TOML. It names wheels by file name, size and hash, and bases by digest. It contains no URL and no host of an
index, because each machine has its own settings for indexes, and the hash identifies a file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from training_imgtool.base.errors import FieldError
from training_imgtool.base.yamlfile.reader import read_bytes
from training_imgtool.model.load import SpecFile
from training_imgtool.model.lock import Lock, LockedVariant
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.resolve.lock.parse import LOCK_VERSION, parse_lock, sum_text

_HEADER = "# Made by `imgtool lock` from the spec beside it. Commit it; do not edit it.\n"
_MAX_BYTES = 4 << 20
_KEYS = ("python", "platform", "cuda_from", "sdists", "base", "trim")
_text = json.JSONEncoder(ensure_ascii=False).encode  # a TOML basic string allows JSON's escapes


def dump_lock(lock: Lock) -> str:
    """Formats a lock deterministically, with one wheel per line and a newline at the end."""
    inputs, platform = _text(lock.inputs), _text(lock.platform)
    head = f"{_HEADER}version = {LOCK_VERSION}\ninputs = {inputs}\nplatform = {platform}\n"
    rows = "".join(_variant_text(locked) for locked in lock.variants)
    return f"{head}sum = {_text(sum_text(head + rows))}\n{rows}"


def read_lock(path: Path) -> Lock:
    """Reads a lock; raises InputError that names the file, the place and the fault."""
    return parse_lock(read_bytes(path, _MAX_BYTES), str(path))


@dataclasses.dataclass(frozen=True, slots=True)
class LockIdentity:
    """Identifies the lock of a spec: the file's path, and the hash of the lock's inputs."""

    path: Path
    inputs: str


def lock_path(spec_file: SpecFile) -> Path:
    """Returns the path of a spec's lock; raises what `identify_lock` raises."""
    return identify_lock(spec_file).path


def identify_lock(spec_file: SpecFile) -> LockIdentity:
    """Identifies the lock of a spec: `gpu.lock` for `gpu.yaml` or `gpu.yml`, `NAME.lock` for a spec with another NAME.

    If the lock depends on values from `--set`, the spec with these values has its own lock, such as
    `gpu.tensorflow-2.16.2.lock`.
    Raises what `lock_inputs` raises.
    """
    path, plain, inputs = spec_file.path, spec_file.plain, lock_inputs(spec_file)
    changed = spec_file.values and (plain is None or lock_inputs(plain) != inputs)
    stem = path.stem if path.suffix in {".yaml", ".yml"} else path.name
    given = spec_file.values.items() if changed else ()
    values = (f".{key}-{re.sub(r'[^A-Za-z0-9._+-]', '-', value)}" for key, value in given)
    return LockIdentity(path.with_name(f"{stem}{''.join(values)}.lock"), inputs)


def lock_inputs(spec_file: SpecFile) -> str:
    """Hashes the inputs of a lock; needs neither the matrix nor the network.

    Raises FieldError with a place if a requirements file cannot be read.
    """
    from training_imgtool.model.requirement_files import read_locked, read_texts
    from training_imgtool.model.requirements import list_code
    from training_imgtool.resolve.versions.matrix_file import matrix_version

    spec = spec_file.spec
    try:
        texts = read_texts(spec_file) + read_locked(spec_file)
        if code := list_code(texts):
            from training_imgtool.resolve.lock.code import hash_code

            texts += hash_code(spec_file, code)
    except FieldError as error:
        raise spec_file.located(error) from error
    return inputs_hash(spec, texts, matrix_version())


def inputs_hash(spec: ImageSpec, texts: Iterable[tuple[str, str]], matrix_version: str) -> str:
    """Hashes the inputs of a lock. The result lists `NAME=HASH` per input, so that imgtool can name changed inputs.

    Args:
        spec: the user's choices.
        texts: names and texts of the requirements file and of the files that it includes, then the hashes of the
            folders that they name.
        matrix_version: the version of the matrix.
    """
    document: dict[str, object] = {
        "imgtool": [LOCK_VERSION, matrix_version],
        spec.framework.key: spec.release,
        **{name: getattr(spec, name) for name in _KEYS},
        **({"cuda": spec.cuda} if spec.cuda else {}),
        **{f"roles.{role}": _role_inputs(spec, role) for role in sorted(spec.roles)},
        "system_packages": sorted(set(spec.system_packages)),
        **{quote(name, safe="/.-_"): [text, number] for number, (name, text) in enumerate(texts)},
    }
    return " ".join(f"{name}={_hash(value)}" for name, value in document.items())


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def list_changed(old: str, new: str) -> tuple[str, ...]:
    """Names the inputs that differ between two results of `inputs_hash`, such as `requirements.txt`."""
    was, now = (dict(part.partition("=")[::2] for part in text.split()) for text in (old, new))
    return tuple(unquote(name) for name in {**now, **was} if was.get(name) != now.get(name))


def _role_inputs(spec: ImageSpec, role: Role) -> list[str | None]:
    """Returns a role's inputs to resolving and to the rules; a changed GPU, for example, needs a new check."""
    of_role, accelerator = spec.roles[role], spec.accelerator_of(role)
    inputs: list[str | None] = [str(accelerator), of_role.base]
    if accelerator is Accelerator.GPU:
        path = {**spec.env, **of_role.env}.get("LD_LIBRARY_PATH")
        inputs += [of_role.gpus.type if of_role.gpus else None, path, spec.env.get("XLA_FLAGS")]
    inputs += spec.framework.choose_packages({**spec.env, **of_role.env})
    if of_role.tpu:
        inputs += [of_role.tpu.type, of_role.tpu.tf_version, str(spec.job.target)]
    return inputs


def _variant_text(locked: LockedVariant) -> str:
    wheels = tuple(sorted(locked.wheels, key=lambda wheel: wheel.name))
    pairs = (*_list_pairs(locked.variant), *_list_pairs(dataclasses.replace(locked, wheels=wheels)))
    return "\n".join(["\n[[variant]]", *(f"{name} = {text}" for name, text in pairs), ""])


def _list_pairs(row: Any) -> Iterator[tuple[str, str]]:
    """Yields the names and texts of a dataclass's values, except None and empty values, which are the defaults."""
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if value is not None and field.name != "variant" and (value or value != field.default):
            yield field.name, _value_text(value)


def _value_text(value: Any) -> str:
    if dataclasses.is_dataclass(value):
        return f"{{ {', '.join(f'{name} = {text}' for name, text in _list_pairs(value))} }}"
    if isinstance(value, tuple):
        texts = [_value_text(item) for item in value]
        if value and dataclasses.is_dataclass(value[0]):
            return "\n".join(["[", *(f"  {text}," for text in texts), "]"])
        return f"[{', '.join(texts)}]"
    return str(value) if isinstance(value, int) else _text(value)
