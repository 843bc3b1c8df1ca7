"""The lock file: the text of a Lock, written so that a diff reads well, and read as strictly as it is written.

A lock lies beside its spec and has its name: `gpu.lock` belongs to `gpu.yaml`.

The file is TOML. It names wheels by file name, size and hash, and bases by digest; it holds no URL and no
index's host: where a file comes from is the machine's own setting, and the hash decides.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.errors import FieldError
from training_imgtool.lock.parse import LISTS, LOCK_VERSION, TEXTS, parse_lock, sum_text
from training_imgtool.plan import DebianPackage, Lock, LockedDebian, LockedVariant, Source, UnusedPath, Wheel
from training_imgtool.spec.load import SpecFile
from training_imgtool.spec.model import Accelerator, ImageSpec, Role
from training_imgtool.yamlfile.reader import read_bytes

_HEADER = "# Made by `imgtool lock` from the spec beside it. Commit it; do not edit it.\n"
_MAX_BYTES = 4 << 20
_text = json.JSONEncoder(ensure_ascii=False).encode  # a TOML basic string takes JSON's escapes


def dump_lock(lock: Lock) -> str:
    """Writes the lock's text: deterministic, one wheel per line, newline at the end."""
    inputs, platform = _text(lock.inputs), _text(lock.platform)
    head = f"{_HEADER}version = {LOCK_VERSION}\ninputs = {inputs}\nplatform = {platform}\n"
    rows = "".join(_variant_text(locked) for locked in lock.variants)
    return f"{head}sum = {_text(sum_text(head + rows))}\n{rows}"


def read_lock(path: Path) -> Lock:
    """Reads a lock; raises InputError that names the file, the place and what is wrong with it."""
    return parse_lock(read_bytes(path, _MAX_BYTES), str(path))


@dataclass(frozen=True, slots=True)
class LockIdentity:
    """Which lock a spec needs: the file's place, and the hash over what it depends on."""

    path: Path
    inputs: str


def lock_path(spec_file: SpecFile) -> Path:
    """Returns where a spec's lock lies; raises as `identify_lock`."""
    return identify_lock(spec_file).path


def identify_lock(spec_file: SpecFile) -> LockIdentity:
    """Says which lock a spec needs: `gpu.lock` beside `gpu.yaml` (or `.yml`); another name gets `.lock` added.

    A spec with values from `--set` that the lock depends on has a lock of its own: `gpu.tensorflow-2.16.2.lock`.
    Raises as `lock_inputs`.
    """
    path, plain, inputs = spec_file.path, spec_file.plain, lock_inputs(spec_file)
    changed = spec_file.values and (plain is None or lock_inputs(plain) != inputs)
    stem = path.stem if path.suffix in {".yaml", ".yml"} else path.name
    given = spec_file.values.items() if changed else ()
    values = (f".{key}-{re.sub(r'[^A-Za-z0-9._+-]', '-', value)}" for key, value in given)
    return LockIdentity(path.with_name(f"{stem}{''.join(values)}.lock"), inputs)


def lock_inputs(spec_file: SpecFile) -> str:
    """Hashes just what a lock depends on; needs neither the matrix nor the network.

    Raises FieldError, with its place, when a requirements file cannot be read.
    """
    from training_imgtool.spec.requirements import list_code, read_texts
    from training_imgtool.versions.matrix_file import matrix_version

    spec = spec_file.spec
    try:
        texts = read_texts(spec_file)
        if code := list_code(texts):
            from training_imgtool.lock.code import hash_code

            texts += hash_code(spec_file, code)
    except FieldError as error:
        raise spec_file.located(error) from error
    return inputs_hash(spec, texts, matrix_version())


def inputs_hash(spec: ImageSpec, texts: Iterable[tuple[str, str]], matrix_version: str) -> str:
    """Hashes versions, bases, requirements, platform and the matrix's version; returns hexadecimal digits.

    Args:
        spec: the user's choices.
        texts: the requirements file and those it includes: their names as written, and their text; then the hashes of
            the folders that they name.
        matrix_version: which matrix chose.
    """
    document = {
        "lock": LOCK_VERSION,
        "matrix": matrix_version,
        "tensorflow": spec.tensorflow,
        "python": spec.python,
        "platform": spec.platform,
        "cuda_from": spec.cuda_from,
        "sdists": spec.sdists,
        "base": spec.base,
        "roles": {str(role): _role_inputs(spec, role) for role in sorted(spec.roles)},
        "requirements": list(texts),
    }
    if spec.system_packages:
        document["system_packages"] = sorted(set(spec.system_packages))
    if Accelerator.GPU in map(spec.accelerator_of, spec.roles) and spec.cuda_from == "base":
        document["debian"] = 1  # its Python comes from Debian packages, which older locks do not have
    if spec.trim is not None:  # locks from before this key stay current
        document["trim"] = spec.trim
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _role_inputs(spec: ImageSpec, role: Role) -> list[str | None]:
    """Returns what a role's variant depends on, and what the rules look at: a changed GPU must be checked again."""
    of_role, accelerator = spec.roles[role], spec.accelerator_of(role)
    inputs: list[str | None] = [str(accelerator), of_role.base]
    if accelerator is Accelerator.GPU:
        driver = spec.job.eci.driver if spec.job.eci else None
        path = {**spec.env, **of_role.env}.get("LD_LIBRARY_PATH")
        inputs += [of_role.gpus.type if of_role.gpus else None, driver, path, spec.env.get("XLA_FLAGS")]
    if of_role.tpu:
        inputs += [of_role.tpu.type, of_role.tpu.tf_version, str(spec.job.target)]
    return inputs


def differences(old: Lock, new: Lock) -> tuple[str, ...]:
    """Lists what changed, a line each, such as `cpu: numpy 1.26.3 -> 1.26.4`; empty when only the inputs' hash did."""
    lines = []
    if old.platform != new.platform:
        lines.append(f"platform {old.platform} -> {new.platform}")
    before = {locked.variant.name: locked for locked in old.variants}
    after = {locked.variant.name: locked for locked in new.variants}
    lines += [f"- variant {name}" for name in before if name not in after]
    for name, locked in after.items():
        if name not in before:
            lines.append(f"+ variant {name} ({locked.variant.base}, {len(locked.wheels)} wheels)")
        else:
            lines += [f"{name}: {line}" for line in _variant_differences(before[name], locked)]
    return tuple(lines)


def _variant_differences(old: LockedVariant, new: LockedVariant) -> list[str]:
    lines = []
    for label in ("roles", "package", "tensorflow", "python", "cuda", "cudnn", "base", "python_from", "apt"):
        was, now = getattr(old.variant, label), getattr(new.variant, label)
        if was != now:
            lines.append(f"{label} {_format_value(was)} -> {_format_value(now)}")
    if old.base_digest != new.base_digest:
        lines.append(f"base digest {old.base_digest[:19]} -> {new.base_digest[:19]}")
    if old.installer != new.installer:
        lines.append(f"installer {_format_change(old.installer, new.installer)}")
    was_unused, unused = ({path.path for path in locked.unused} for locked in (old, new))
    lines += [f"unused + {path}" for path in sorted(unused - was_unused)]
    lines += [f"unused - {path}" for path in sorted(was_unused - unused)]
    was_needed, needed = (set(locked.needed_libraries or ()) for locked in (old, new))
    lines += [f"needed library + {name}" for name in sorted(needed - was_needed)]
    lines += [f"needed library - {name}" for name in sorted(was_needed - needed)]
    before = {wheel.name: wheel for wheel in old.wheels}
    after = {wheel.name: wheel for wheel in new.wheels}
    for name in sorted(before.keys() | after.keys()):
        was_wheel, wheel = before.get(name), after.get(name)
        if was_wheel is None and wheel is not None:
            lines.append(f"+ {name} {wheel.version}")
        elif wheel is None and was_wheel is not None:
            lines.append(f"- {name} {was_wheel.version}")
        elif was_wheel is not None and wheel is not None and was_wheel != wheel:
            lines.append(_format_change(was_wheel, wheel))
    return lines + _debian_differences(old.debian, new.debian)


def _debian_differences(old: LockedDebian | None, new: LockedDebian | None) -> list[str]:
    before = {package.name: package for package in old.packages} if old else {}
    after = {package.name: package for package in new.packages} if new else {}
    lines = [f"- {name} (Debian)" for name in before if name not in after]
    lines += [f"+ {name} {package.version} (Debian)" for name, package in after.items() if name not in before]
    for name, package in after.items():
        was = before.get(name, package)
        if was != package:
            what = package.version if was.version != package.version else "another file"
            lines.append(f"{name} {was.version} -> {what} (Debian)")
    if (old.engine if old else "") != (new.engine if new else "") and new is not None:
        lines.append(f"Debian packages: {'by an engine' if new.engine else 'without an engine'}")
    return lines


def _format_change(was: Wheel, now: Wheel) -> str:
    """Formats one package's change: of version, or of the file for the same version."""
    return f"{now.name} {was.version} -> {now.version if was.version != now.version else f'another file, {now.file}'}"


def _format_value(value: object) -> str:
    return ", ".join(str(part) for part in value) or "none" if isinstance(value, tuple) else str(value or "none")


def _variant_text(locked: LockedVariant) -> str:
    variant = locked.variant
    lines = ["\n[[variant]]"]
    for field in TEXTS:
        value = getattr(variant, field.rstrip("?"))
        if value is not None:
            lines.append(f"{field.rstrip('?')} = {_text(value)}")
        if field == "name":
            lines.append(f"roles = [{', '.join(_text(str(role)) for role in variant.roles)}]")
            lines.append(f"accelerator = {_text(str(variant.accelerator))}")
        if field == "base":
            lines.append(f"base_digest = {_text(locked.base_digest)}")
    for field in LISTS:
        values = getattr(variant, field.rstrip("?"))
        if values or not field.endswith("?"):
            lines.append(f"{field.rstrip('?')} = [{', '.join(map(_text, values))}]")
    lines.append(f"installer = {_wheel_text(locked.installer)}")
    lines.append("wheels = [")
    lines += [f"  {_wheel_text(wheel)}," for wheel in sorted(locked.wheels, key=lambda wheel: wheel.name)]
    lines.append("]")
    if locked.unused:
        lines += ["unused = [", *(f"  {_unused_text(unused)}," for unused in locked.unused), "]"]
    if locked.needed_libraries is not None:
        lines.append(f"needed_libraries = [{', '.join(map(_text, locked.needed_libraries))}]")
    if locked.debian is not None:
        lines += _debian_lines(locked.debian)
    return "\n".join([*lines, ""])


def _debian_lines(debian: LockedDebian) -> list[str]:
    requested = f"debian_requested = [{', '.join(map(_text, debian.requested))}]"
    if debian.engine:
        return [requested, f"debian_engine = {_text(debian.engine)}"]
    return [requested, "debian = [", *(f"  {_package_text(package)}," for package in debian.packages), "]"]


def _package_text(package: DebianPackage) -> str:
    return (
        f"{{ name = {_text(package.name)}, version = {_text(package.version)}, "
        f"architecture = {_text(package.architecture)}, size = {package.size}, sha256 = {_text(package.sha256)}, "
        f"file = {_text(package.file)} }}"
    )


def _unused_text(unused: UnusedPath) -> str:
    return f"{{ path = {_text(unused.path)}, size = {unused.size}, rule = {_text(unused.rule)} }}"


def _wheel_text(wheel: Wheel) -> str:
    source = "" if wheel.source is None else f", source = {_source_text(wheel.source)}"
    return (
        f"{{ name = {_text(wheel.name)}, version = {_text(wheel.version)}, size = {wheel.size}, "
        f"sha256 = {_text(wheel.sha256)}, file = {_text(wheel.file)}{source} }}"
    )


def _source_text(source: Source) -> str:
    origin = f", origin = {_text(source.origin)}" if source.origin else ""
    commit = f", commit = {_text(source.commit)}" if source.commit else ""
    archive, python = _wheel_text(source.archive), _text(source.python)
    return f"{{ archive = {archive}, python = {python}{origin}{commit} }}"
