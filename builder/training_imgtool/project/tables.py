"""The names that one file of data translates: imports, conda's packages, TensorFlow's companions."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from training_imgtool.core.resources import data_file

WITH_TENSORFLOW = frozenset(  # import names of what each release depends on
    """absl astunparse flatbuffers gast google google_pasta grpc h5py libclang ml_dtypes numpy opt_einsum packaging
    requests setuptools pkg_resources six tensorboard tensorflow tensorflow_estimator termcolor typing_extensions
    urllib3 werkzeug wrapt""".split()  # noqa: SIM905 - a table of words reads best so
)


@cache
def load_tables() -> dict[str, Any]:
    """Reads the file once per process."""
    document: dict[str, Any] = tomllib.loads(data_file("project_names.toml").read_text(encoding="utf-8"))
    alike = document.pop("alike")["names"].split()
    document["imports"] = {name: name.replace("_", "-") for name in alike} | document["imports"]
    document["not_python"] = re.compile("|".join(document["not_python"]["patterns"].split()), re.IGNORECASE)
    return document


def find_distribution(module: str) -> str | None:
    """Returns the distribution of an imported module, its longest known beginning first; None for unknown ones."""
    table: dict[str, str] = load_tables()["imports"]
    parts = module.split(".")
    return next((found for end in range(len(parts), 0, -1) if (found := table.get(".".join(parts[:end])))), None)


def translate_conda(name: str) -> tuple[str, str]:
    """Returns the distribution and the Debian package of a package of conda; empty for none."""
    tables = load_tables()
    lower = name.lower()
    debian = tables["other_system"].get(lower, "")
    if debian and lower != "graphviz":
        return "", debian
    if lower not in tables["conda"] and tables["not_python"].fullmatch(lower):
        return "", ""
    return tables["conda"].get(lower, lower), debian


def find_limit(module: str, names: tuple[str, ...]) -> str | None:
    """Returns the requirement that still has what code takes from a module; None where every release has it."""
    row = load_tables()["limits"].get(module)
    if row is None:
        return None
    removed, requirement = row
    return str(requirement) if removed == "*" or set(names) & set(removed.split()) else None


def find_libraries(names: frozenset[str]) -> tuple[str, ...]:
    """Returns the Debian packages that the wheels of these names need."""
    table: dict[str, list[str]] = load_tables()["libraries"]
    return tuple(sorted({package for name in names for package in table.get(name, ())}))


def limit_by_companion(requirement: Requirement) -> str | None:
    """Returns the TensorFlow that a requirement of one of its companions means, such as ==2.15.* for tf-keras 2.15."""
    name, tables = canonicalize_name(requirement.name), load_tables()
    bounds = [part for part in requirement.specifier if part.operator in {"==", "~=", "===", "<=", ">=", ">"}]
    if not bounds:
        since: str | None = None if requirement.specifier else tables["companions_since"].get(name)
        return since
    if tables["companions"].get(name) == "minor":
        best = next((part for part in bounds if part.operator in {"==", "~=", "==="}), None)
        if best is None:
            lower = next((part for part in bounds if part.operator in {">=", ">"}), None)
            return f">={'.'.join(lower.version.split('.')[:2])}" if lower else None
        parts = best.version.removesuffix(".*").split(".")[:2]
        return f"=={'.'.join(parts)}.*" if len(parts) == 2 else None
    rows = tables["companion_rows"].get(name, ())
    fits = [str(limit) for version, limit in rows if _may_be(requirement.specifier, version)]
    if not fits:
        return None
    return fits[0] if any(part.operator != ">=" for part in bounds) else _at_least(fits[-1])


def _may_be(specifier: SpecifierSet, minor: str) -> bool:
    """Says whether a release of the minor may satisfy the specifier."""
    return any(specifier.contains(f"{minor}.{patch}", prereleases=True) for patch in (*range(10), 99))


def _at_least(limit: str) -> str | None:
    match = re.search(r"(?:==|>=)(\d+\.\d+)", limit)
    return f">={match[1]}" if match else None
