"""Finds out whether a project trains with JAX, directly or through Keras 3, and which release the files require."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from imgtool_project_reader.listings import Listing
from imgtool_project_reader.programs import Reached
from imgtool_project_reader.read import Project
from imgtool_project_reader.statement import TENSORFLOW, Certainty, Fact, Statement

JAX = frozenset({"jax", "jaxlib"})
_LIBRARIES = frozenset({"equinox", "flax", "haiku", "optax"})
_BACKEND = re.compile(  # os.environ["KERAS_BACKEND"] = "jax", KERAS_BACKEND: jax, and phrases in a README
    r"""KERAS_BACKEND["'\]`\s]*(?:[=:,]|(?:environment variable )?to\b)\s*["'`]?(?P<name>[a-z]+)"""
)
_TELLS = re.compile(r"(?i).*\.(?:md|rst|sh|ya?ml|env|toml)|(?:.*/)?(?:dockerfile.*|\.env|makefile)")


def find_jax(project: Project, listings: tuple[Listing, ...], reached: Reached | None) -> Statement | None:
    """Returns a statement that the program trains with JAX, with the releases that a file requires; else None.

    The backend of Keras that the code chooses decides first; then the imports, the listed packages, and other texts.
    """
    said = _find_evidence(project, listings, reached) if reached else None
    if said is None:
        return None
    listed = (item for listing in listings for item in listing.packages)
    pinned = (item for rows in project.statements.values() for item in rows if item.fact is Fact.PINNED)
    named = [item for item in (*listed, *pinned) if item.package in JAX and item.requirement.specifier]
    best = next((item for item in named if item.package == "jax"), next(iter(named), None))
    return said if best is None else replace(best, fact=Fact.JAX, value=str(best.requirement.specifier))


def find_accelerator(listings: tuple[Listing, ...]) -> tuple[str, str] | None:
    """Returns the accelerator (gpu or tpu) that the extras of a listed JAX name, and the place of this requirement."""
    for item in (item for listing in listings[:1] for item in listing.packages if item.package == "jax"):
        for extra in item.requirement.extras:
            if extra == "tpu" or extra.startswith("cuda"):
                return "tpu" if extra == "tpu" else "gpu", f"{item.place}: {item.value}"
    return None


def _find_evidence(project: Project, listings: tuple[Listing, ...], reached: Reached) -> Statement | None:
    imports = {item.module.partition(".")[0]: (source.path, item.line) for item, source, _ in reversed(reached.foreign)}
    in_code = [*_find_backends(project, (source.path for source in reached.sources))]
    if "keras" in imports and in_code:
        name, path, line = in_code[0]
        return Statement(Fact.JAX, "", path, line, Certainty.HINT) if name == "jax" else None
    packages = {item.package: item for listing in listings[:1] for item in listing.packages}
    has_tensorflow = bool(packages.keys() & TENSORFLOW)
    for name in imports if imports.keys() & _LIBRARIES or not (has_tensorflow and "tensorflow" in imports) else ():
        if name == "jax" or name in _LIBRARIES:
            return Statement(Fact.JAX, "", *imports[name], Certainty.HINT)
    if "keras" not in imports or "tensorflow" in imports:
        return None
    listed = next((packages[name] for name in sorted(JAX & packages.keys()) if not has_tensorflow), None)
    if listed:
        return replace(listed, fact=Fact.JAX, value="")
    told = [*_find_backends(project, filter(_TELLS.fullmatch, project.files))]
    if {name for name, *_ in told} == {"jax"}:
        return Statement(Fact.JAX, "", told[0][1], told[0][2], Certainty.GUESS)
    return None


def _find_backends(project: Project, files: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Yields each Keras backend that one of the files names, with the file and the line."""
    for file in files:
        for number, line in enumerate(project.read(file).splitlines(), 1):
            if match := _BACKEND.search(line):
                yield match["name"], file, number
