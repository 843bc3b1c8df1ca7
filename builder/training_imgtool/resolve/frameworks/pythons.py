"""What the names and versions of wheels say, for frameworks without a table: Pythons, glibc, releases, CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from training_imgtool.base.errors import FieldError
from training_imgtool.model.lock import Variant
from training_imgtool.model.requirements import FIELD
from training_imgtool.resolve.versions.matrix import version_key
from training_imgtool.resolve.wheels.index.index import Index

MACHINES = ("x86_64", "aarch64")
MOST_LISTED = 12
_CUDA_WHEELS = ("nvidia-cuda-runtime", "nvidia-cudnn")
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_")


def list_pythons(files: Iterable[str], version: str, machine: str) -> tuple[str, ...]:
    """Lists the Python versions, oldest first, that the wheels of `version` support on Linux and `machine`."""
    found = set()
    for file in files:
        try:
            _, of_file, _, tags = parse_wheel_filename(file)
        except ValueError:
            continue
        if of_file == Version(version):
            found |= {
                f"{tag.interpreter[2]}.{tag.interpreter[3:]}"
                for tag in tags
                if tag.interpreter.startswith("cp3") and "linux" in tag.platform and tag.platform.endswith(machine)
            }
    return tuple(sorted(found, key=version_key))


def oldest_glibc(files: Iterable[str], default: str) -> str:
    """Returns the oldest glibc for which some of the wheels are built; `default` if no name says so."""
    found = [(int(match[1]), int(match[2])) for file in files if (match := _GLIBC.search(file))]
    return ".".join(map(str, min(found))) if found else default


def is_version(text: str) -> bool:
    """Returns whether a text is a version of PEP 440."""
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False


def list_releases(index: Index, package: str, built: str) -> list[dict[str, Any]]:
    """Lists a package's newest releases, the newest first, each with the Pythons that the wheels of `built` support."""
    names = [tuple(file.file for file in index.files(name)) for name in (package, built)]
    versions = {file.split("-")[1].partition("+")[0] for file in names[0] if file.endswith(".whl")}
    newest = sorted(filter(is_version, versions), key=Version, reverse=True)[:MOST_LISTED]
    keys = dict(zip(("python", "python_arm64"), MACHINES, strict=True))
    return [
        {"release": version} | {key: [*list_pythons(names[1], version, machine)] for key, machine in keys.items()}
        for version in newest
    ]


def format_releases(rows: list[dict[str, Any]]) -> str:
    """Formats the rows of `list_releases` as a table for people."""
    texts = ((row["release"], *(", ".join(row[key]) or "none" for key in ("python", "python_arm64"))) for row in rows)
    return "".join(f"{version:10}  x86-64: {pythons}  aarch64: {arm}\n" for version, pythons, arm in texts)


def refuse_others(title: str, others: Iterable[str], versions: dict[str, str], named: frozenset[str]) -> None:
    """Raises FieldError for a package among `others`, those of another framework, that no requirement names."""
    for name in others:
        if name in versions and name not in named:
            message = f"another requirement brings {name} {versions[name]}, which {title} does not need"
            hint = f"name {name} in the requirements if the program imports it; if not, remove the one that needs it"
            raise FieldError(message, field=FIELD, hint=hint)


def with_cuda(variant: Variant, versions: dict[str, str]) -> Variant:
    """Returns the variant with the CUDA and cuDNN that are among the wheels; `versions` are theirs, by name."""
    if variant.cuda is None:
        return variant
    found = {word: next((v for n, v in versions.items() if n.startswith(word)), None) for word in _CUDA_WHEELS}
    runtime, cudnn = (".".join(version.split(".")[:3]) if version else None for version in found.values())
    return replace(variant, cuda=runtime or variant.cuda, cudnn=cudnn or variant.cudnn)
