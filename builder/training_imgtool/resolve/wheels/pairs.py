"""Knows packages that do not import beside others, although no metadata says so."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache

from packaging.requirements import Requirement

from training_imgtool.base.resources import data_file


@cache
def _read_pairs() -> tuple[tuple[Requirement, Requirement, str], ...]:
    rows = tomllib.loads(data_file("pairs.toml").read_text(encoding="utf-8"))["pairs"]
    return tuple((Requirement(row["package"]), Requirement(row["beside"]), row["take"]) for row in rows)


def find_pairs(versions: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields a constraint for each pair among these versions that does not import, and the pair for people."""
    for package, beside, take in _read_pairs():
        if _is_in(versions, package) and _is_in(versions, beside):
            names = (f"{row.name} {versions[row.name]}" for row in (package, beside))
            yield take, " does not import beside ".join(names)


def _is_in(versions: Mapping[str, str], row: Requirement) -> bool:
    return row.name in versions and row.specifier.contains(versions[row.name], prereleases=True)
