"""Reads the requirements of a pyproject.toml: its dependencies, extras (PEP 621) and dependency groups (PEP 735)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from training_imgtool.core.errors import FieldError

FILE = "pyproject.toml"
_FIELD = "requirements"


def read_dependencies(text: str, name: str, *, extras: tuple[str, ...], groups: tuple[str, ...]) -> str:
    """Returns the project's dependencies as the text of a requirements file, with those of `extras` and `groups`.

    A project whose build computes its dependencies, such as one of setuptools or Poetry, stands for itself: the text
    names its folder. Raises FieldError for a file that is not TOML or says nothing of a project, or lacks an extra or
    a group.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FieldError(f"{name}: not TOML: {error}", field=_FIELD) from None
    project = document.get("project")
    if isinstance(project, dict):
        is_computed = bool({"dependencies", "optional-dependencies"} & {*project.get("dynamic", [])})
    else:
        is_computed = "build-system" in document
    if not isinstance(project, dict) and not groups and not is_computed:
        raise FieldError(
            f"{name} has neither a [project] nor a [build-system] table",
            field=_FIELD,
            hint="name the file with the requirements, such as requirements.txt",
        )
    project = project if isinstance(project, dict) else {}
    if is_computed:
        lines = [project_line(extras)]
    else:
        lines = [*_texts(project.get("dependencies", []), f"{name}: project.dependencies")]
        for extra in extras:
            lines += _extra(project, canonicalize_name(extra), name, ())
    for group in groups:
        lines += _group(document.get("dependency-groups"), canonicalize_name(group), name, ())
    sources = _by_name(_uv(document).get("sources"))
    return "".join(f"{_add_source(line, sources, name)}\n" for line in dict.fromkeys(lines))


def _uv(document: dict[str, Any]) -> dict[str, Any]:
    tool = document.get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    return uv if isinstance(uv, dict) else {}


def _add_source(line: str, sources: dict[str, Any], name: str) -> str:
    """The line with the place that `tool.uv.sources` gives its package; raises FieldError for a place of another kind.

    Source: https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources
    """
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return line  # refused later, with its line
    source = sources.get(canonicalize_name(requirement.name))
    if source is None or requirement.url or (isinstance(source, dict) and "index" in source):
        return line
    place = _place(source) if isinstance(source, dict) else None
    if place is None:
        kind = next(iter(source)) if isinstance(source, dict) and source else "a list"
        raise FieldError(
            f"{name}: tool.uv.sources.{requirement.name}: imgtool does not follow {kind}",
            field=_FIELD,
            hint='write { path = "FOLDER" } or { git = "URL", rev = "COMMIT" }',
        )
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    is_wheel = place.endswith(".whl")
    return f"{place}{extras}{marker}" if is_wheel else f"{requirement.name}{extras} @ {place}{marker}"


def _place(source: dict[str, Any]) -> str | None:
    """Where a source is, as a requirements file writes it; None for one of another kind than a path and Git."""
    texts = {key: value for key, value in source.items() if isinstance(value, str)}
    if "path" in texts:
        path = texts["path"]
        return path if path.startswith((".", "/")) else f"./{path}"
    if "git" not in texts:
        return None
    revision = next((f"@{texts[key]}" for key in ("rev", "tag", "branch") if key in texts), "")
    subdirectory = f"#subdirectory={texts['subdirectory']}" if "subdirectory" in texts else ""
    return f"git+{texts['git']}{revision}{subdirectory}"


def project_line(extras: tuple[str, ...]) -> str:
    """Returns the line of a requirements file that names the project beside it."""
    return f"-e .[{','.join(extras)}]" if extras else "-e ."


def _extra(project: dict[str, Any], extra: str, name: str, above: tuple[str, ...]) -> Iterator[str]:
    """The lines of an extra; one that names other extras of the same project stands for theirs."""
    table = _by_name(project.get("optional-dependencies"))
    if extra not in table:
        raise FieldError(f"{name} has no extra {extra}", field="extras", hint=_offer(table))
    own = canonicalize_name(str(project.get("name", "")))
    for line in _texts(table[extra], f"{name}: project.optional-dependencies.{extra}"):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            requirement = None
        if requirement is None or canonicalize_name(requirement.name) != own:
            yield line
        elif extra not in above:
            for other in sorted(requirement.extras):
                yield from _extra(project, canonicalize_name(other), name, (*above, extra))


def _group(groups: object, group: str, name: str, above: tuple[str, ...]) -> Iterator[str]:
    table = _by_name(groups)
    if group not in table:
        raise FieldError(f"{name} has no dependency group {group}", field="groups", hint=_offer(table))
    if group in above:
        raise FieldError(f"{name}: the dependency group {group} includes itself", field="groups")
    for item in table[group] if isinstance(table[group], list) else []:
        if isinstance(item, dict) and isinstance(item.get("include-group"), str):
            yield from _group(groups, canonicalize_name(item["include-group"]), name, (*above, group))
        else:
            yield from _texts([item], f"{name}: dependency-groups.{group}")


def _by_name(table: object) -> dict[str, Any]:
    """A table of the file by normalised name."""
    return {canonicalize_name(key): value for key, value in table.items()} if isinstance(table, dict) else {}


def _texts(values: object, where: str) -> Iterator[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) and "\n" not in value for value in values):
        raise FieldError(f"{where}: expected a list of requirements", field=_FIELD)
    yield from values


def _offer(table: dict[str, Any]) -> str:
    return f"it has {', '.join(sorted(table))}" if table else "it has none"
