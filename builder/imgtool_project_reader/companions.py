"""Finds the fitting releases of companions: packages with a release for each TensorFlow, such as Keras."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from imgtool_project_reader.frameworks import TENSORFLOW
from imgtool_project_reader.knowledge import Variant
from imgtool_project_reader.tables import load_tables

NEEDED_BY_TENSORFLOW = frozenset(  # and by its Keras
    """absl-py astor gast google-pasta grpcio h5py keras keras-applications keras-preprocessing markdown numpy
    opt-einsum protobuf six tensorboard tensorflow-estimator termcolor werkzeug wheel wrapt bleach html5lib""".split()  # noqa: SIM905
)
_KERAS_BEFORE = (  # by the start of the minor: TensorFlow before 2.6 depends on no Keras, and Keras 2.4 needs 2.2
    ("1.", "keras>=2.2.4,<2.4"),
    ("2.0", "keras>=2.3,<2.4"),
    ("2.1", "keras>=2.3,<2.4"),
    ("2.", "keras>=2.3,<2.5"),
)


def brings_keras(variant: Variant) -> bool:
    """Tells whether TensorFlow requires the Keras release with the same minor version."""
    numbers = variant.release.split(".")
    return variant.framework is TENSORFLOW and (int(numbers[0]), int(numbers[1])) >= (2, 6)


def find_release(requirement: Requirement, variant: Variant) -> str | None:
    """Returns the requirement for a companion that the project does not pin and TensorFlow does not install."""
    name = canonicalize_name(requirement.name)
    needed = NEEDED_BY_TENSORFLOW if brings_keras(variant) else NEEDED_BY_TENSORFLOW - {"keras"}
    is_brought = TENSORFLOW.is_own(name) or name in needed
    operators = {part.operator for part in requirement.specifier}
    is_open = operators <= {">=", ">", "!=", "<", "<="}
    if not is_open or requirement.url or is_brought:
        return None
    release = Requirement(add_release(name, variant))
    if not release.specifier or (requirement.specifier and not _overlaps(requirement, release)):
        return None
    return f"{release.name}{requirement.specifier & release.specifier}"


def _overlaps(requirement: Requirement, release: Requirement) -> bool:
    """Tells whether a companion's release for the image's TensorFlow may satisfy the project's requirement."""
    start = next(part.version.removesuffix(".*") for part in release.specifier if part.operator in {"==", ">="})
    versions = [Version(f"{start}.{patch}") for patch in range(10)] + [Version("2.3.1"), Version("2.4.3")]
    return any(version in release.specifier and version in requirement.specifier for version in versions)


def add_release(name: str, variant: Variant) -> str:
    """Returns the requirement for a companion, limited to the versions for the image's TensorFlow."""
    tables = load_tables()
    if variant.framework is not TENSORFLOW:
        return variant.framework.beside.get(name, name)
    minor = ".".join(variant.release.split(".")[:2])
    if name == "keras":
        return name if brings_keras(variant) else next(text for start, text in _KERAS_BEFORE if minor.startswith(start))
    if tables["companions"].get(name) == "minor":
        return f"{name}=={minor}.*"
    for version, limit in tables["companion_rows"].get(name, ()):
        if Requirement(f"tensorflow{limit}").specifier.contains(variant.release):
            return f"{name}=={version}.*"
    return name


def list_also(wanted: Mapping[str, Requirement], variant: Variant) -> Iterator[tuple[str, str]]:
    """Yields requirements that wanted packages need but do not declare with all limits, each with the reason."""
    for key, value in load_tables()["also"].items():
        by, needed = Requirement(key), Requirement(value)
        there, mine = wanted.get(by.name), wanted.get(needed.name)
        is_meant = by.name in wanted and (not by.specifier or (there and _is_inside(there.specifier, by.specifier)))
        if is_meant and not (mine and (not needed.specifier or _is_inside(mine.specifier, needed.specifier))):
            extras = with_extras(mine) if mine else ""
            text = f"{needed.name}{extras}{needed.specifier}" if needed.specifier else add_release(needed.name, variant)
            yield text, f"{by.name} needs it"


def _is_inside(specifier: SpecifierSet, limit: SpecifierSet) -> bool:
    """Tells whether the newest release that a specifier allows is within a limit; False without an upper limit."""
    last = [part for part in specifier if part.operator in {"==", "~=", "<", "<="}]
    versions = [part.version.removesuffix(".*") for part in last]
    before = [Version(version) for part, version in zip(last, versions, strict=True) if part.operator == "<"]
    ends = [Version(part.version) for part in limit if part.operator == "<"]
    return bool(last) and (any(map(limit.contains, versions)) or any(end >= one for end in ends for one in before))


def is_needed(requirement: Requirement) -> bool:
    """Tells whether a requirement for a dependency of TensorFlow 1 allows only releases that TensorFlow 1 accepts."""
    needed = SpecifierSet(load_tables()["needed_by_first"].get(canonicalize_name(requirement.name), "<0"))
    return all(needed.contains(part.version.removesuffix(".*")) for part in requirement.specifier)


def with_extras(requirement: Requirement) -> str:
    """Returns the extras of a requirement, as the text `[A,B]` that follows the name."""
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def is_in_python(name: str, variant: Variant) -> bool:
    """Tells whether a package is only a backport of a module that this Python includes."""
    since = load_tables()["backports"].get(name)
    if since is None:
        return name in sys.stdlib_module_names  # such as logging, which people list although no index has it
    return Version(variant.python) >= Version(since)
