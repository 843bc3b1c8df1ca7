"""Looks up names of imports, conda's packages and TensorFlow's companions in one data file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from imgtool_project_reader.frameworks import TENSORFLOW

_FILE = Path(__file__).with_name("names.toml")


@cache
def load_tables() -> dict[str, Any]:
    """Reads the data file once per process."""
    document: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    alike = document.pop("alike")["names"].split()
    document["imports"] = {name: name.replace("_", "-") for name in alike} | document["imports"]
    document["debian"]["runs"] = re.compile("|".join(document["debian"]["runs"].split()))
    document["debian"]["builds"] = re.compile("|".join(document["debian"]["builds"].split()))
    document["not_python"] = re.compile("|".join(document["not_python"]["patterns"].split()), re.IGNORECASE)
    return document


def find_distribution(module: str) -> str | None:
    """Returns the distribution that contains a module, by the longest known prefix of its name; None if unknown."""
    table: dict[str, str] = load_tables()["imports"]
    parts = module.split(".")
    return next((found for end in range(len(parts), 0, -1) if (found := table.get(".".join(parts[:end])))), None)


def translate_conda(name: str) -> tuple[str, str]:
    """Returns the distribution and the Debian package for a conda package; an empty text if there is none."""
    tables = load_tables()
    lower = name.lower()
    debian = tables["other_system"].get(lower, "")
    if debian and lower != "graphviz":
        return "", debian
    if lower not in tables["conda"] and tables["not_python"].fullmatch(lower):
        return "", ""
    return tables["conda"].get(lower, lower), debian


def is_distribution(pin: str) -> bool:
    """Tells whether a pin in prose is about a Python package, because it has `==` or a known name.

    In prose, people also limit other programs, as in `Bazel >= 0.26` and `Ubuntu >= 18.04`.
    """
    name = canonicalize_name(re.split(r"[\s=<>~]", pin, maxsplit=1)[0])
    return is_known(name) or ("==" in pin and load_tables()["not_python"].fullmatch(name) is None)


def is_known(name: str) -> bool:
    """Tells whether a table contains a Python package of this name."""
    tables, plain = load_tables(), canonicalize_name(name)
    return plain in _list_known() or plain.startswith("tensorflow") or plain in tables["companion_rows"]


@cache
def _list_known() -> frozenset[str]:
    tables = load_tables()
    names = {*tables["imports"].values(), *tables["conda"].values(), *tables["renamed"].values(), *TENSORFLOW.brings}
    names |= {*tables["companions"], "jupyter", "jupyterlab", "notebook", "ipykernel", "pylint", "sphinx", "flake8"}
    return frozenset(canonicalize_name(name) for name in names if name)


def find_named(name: str) -> str | None:
    """Returns the distribution for a name in prose, which may be that of a library or an import; None if unknown."""
    tables, lower = load_tables(), name.lower()
    known = {canonicalize_name(value): value for value in (*tables["imports"].values(), "keras") if "://" not in value}
    found = tables["conda"].get(lower) or tables["renamed"].get(lower) or known.get(canonicalize_name(name))
    return found or next((value for key, value in tables["imports"].items() if key.lower() == lower), None)


def translate_debian(name: str) -> str:
    """Returns the package that a running program needs in place of `name`; empty if only builds need it."""
    table = load_tables()["debian"]
    if name in table["named"]:
        return str(table["named"][name])
    return name if table["runs"].fullmatch(name) and not table["builds"].fullmatch(name) else ""


def find_libraries(wanted: Mapping[str, Requirement]) -> tuple[str, ...]:
    """Returns the Debian packages that the wheels of these requirements need."""
    table: dict[str, list[str]] = load_tables()["libraries"]
    rows = ((Requirement(text), packages) for text, packages in table.items())
    return tuple(sorted({name for row, packages in rows if _is_meant(row, wanted.get(row.name)) for name in packages}))


def _is_meant(row: Requirement, wanted: Requirement | None) -> bool:
    """Tells whether a project requires the package of a row, in one of the row's releases if the row names releases."""
    if wanted is None or not row.specifier:
        return wanted is not None
    return any(
        part.operator in {"==", "~=", "<="} and part.version.removesuffix(".*") in row.specifier
        for part in wanted.specifier
    )


def limit_by_companion(requirement: Requirement) -> str | None:
    """Returns the TensorFlow releases that a companion's requirement implies, such as ==2.15.* for tf-keras 2.15."""
    name, tables = canonicalize_name(requirement.name), load_tables()
    bounds = [part for part in requirement.specifier if part.operator != "!="]
    since: str | None = tables["companions_since"].get(name)
    if not bounds or (since and name not in tables["companions"]):
        return since if not requirement.specifier or bounds else None
    if tables["companions"].get(name) == "minor":
        best = next((part for part in bounds if part.operator in {"==", "~=", "==="}), None)
        if best is None:
            lower = next((part for part in bounds if part.operator in {">=", ">"}), None)
            return f">={'.'.join(lower.version.split('.')[:2])}" if lower else None
        parts = best.version.removesuffix(".*").split(".")[:2]
        return f"=={'.'.join(parts)}.*" if len(parts) == 2 else None
    rows = tables["companion_rows"].get(name, ())
    fits = [SpecifierSet(limit) for version, limit in rows if _may_be(requirement.specifier, version)]
    low, high = _span(fits)
    if not any(part.operator != ">=" for part in bounds):
        return low or None
    return ",".join(filter(None, (low, high))) or None


def _may_be(specifier: SpecifierSet, minor: str) -> bool:
    """Tells whether any release of the minor version can satisfy the specifier."""
    return any(specifier.contains(f"{minor}.{patch}", prereleases=True) for patch in (*range(10), 99))


def _span(limits: list[SpecifierSet]) -> tuple[str, str]:
    """Returns the range that covers several limits, as a lower and an upper limit; empty where a limit is open."""
    lows, highs = [], []
    for limit in limits:
        starts = [Version(part.version.removesuffix(".*")) for part in limit if part.operator in {">=", "=="}]
        ends = [Version(part.version) for part in limit if part.operator == "<"]
        ends += [Version(f"{start.major}.{start.minor + 1}") for start in starts if "==" in str(limit)]
        lows.append(max(starts, default=None))
        highs.append(min(ends, default=None))
    low = min(lows, default=None, key=lambda version: version or Version("0"))
    high = max(highs, default=None, key=lambda version: version or Version("99"))
    return f">={low.major}.{low.minor}" if low else "", f"<{high.major}.{high.minor}" if high else ""
