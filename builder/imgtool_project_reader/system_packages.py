"""Chooses, from the Debian packages that the project tells people to install, those that a running program needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement

from imgtool_project_reader.listings import Listing
from imgtool_project_reader.programs import Reached
from imgtool_project_reader.read import Project
from imgtool_project_reader.statement import Certainty, Fact, Statement, is_dockerfile
from imgtool_project_reader.tables import find_libraries, load_tables, translate_debian


def choose_system(
    project: Project,
    listings: tuple[Listing, ...],
    wanted: Mapping[str, Requirement],
    folder: str,
    reached: Reached | None,
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns the needed packages, each with the reason, and names of packages that only builds or people need.

    Args:
        project: the files and statements.
        listings: the listings, with the chosen one first.
        wanted: the wheels by name, which may open libraries.
        folder: the program's folder, whose README and Dockerfile count beside those of the top folder.
        reached: the program's files, which may start other programs.
    """
    stated = {item: None for item in (listings[0].statements if listings else ()) if item.fact is Fact.SYSTEM}
    stated |= {item: None for rows in project.statements.values() for item in rows if _counts(item, {".", folder})}
    chosen, left = _translate(stated)
    table: dict[str, str] = load_tables()["programs"]
    started = {
        table[name]: f"{source.path} starts {name}"
        for source in (reached.sources if reached else ())
        for name in sorted(source.programs & table.keys())
    }
    return {**dict.fromkeys(find_libraries(wanted), "the wheels need it"), **started, **chosen}, left


def _counts(item: Statement, folders: set[str]) -> bool:
    """Tells whether a statement comes from a README or a Dockerfile for this program."""
    folder, _, name = item.file.rpartition("/")
    is_read = is_dockerfile(name) or name.lower().startswith(("readme", "install"))
    is_near = (folder or ".") in folders or (is_dockerfile(name) and folder in {"docker", ".devcontainer"})
    return item.fact is Fact.SYSTEM and item.certainty is Certainty.HINT and is_read and is_near


def _translate(stated: Iterable[Statement]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    chosen: dict[str, str] = {}
    left: dict[str, None] = {}
    for item in stated:
        name = item.value if item.certainty is Certainty.STATED else translate_debian(item.value)
        if name:
            chosen.setdefault(name, item.place)
        elif is_dockerfile(item.file):  # prose may follow a command
            left[item.value] = None
    return chosen, tuple(left)
