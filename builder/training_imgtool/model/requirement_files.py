"""Reads an image's requirements from files of several kinds, as texts in the format of pip's requirements files."""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from training_imgtool.base.errors import FieldError
from training_imgtool.base.toml import parse_toml
from training_imgtool.model.requirements import (
    FIELD,
    INCLUDE,
    PACKAGES,
    PYPROJECT,
    SETUP,
    Binding,
    join_path,
    list_lines,
    normalise_name,
)

if TYPE_CHECKING:
    from training_imgtool.model.load import SpecFile

_STEERING = r"(?:override|constraint|exclude)-dependencies|dependency-metadata|resolution|prerelease|exclude-newer"
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")
_PYLOCK = re.compile(r"pylock(?:\.[^.]+)?\.toml")  # PEP 751
_SCRIPT = re.compile(r"(?m)^# /// script$\s(?P<toml>(?:^#(?:| .*)$\s)+)^# ///$")  # PEP 723
_LOCKED = r'(?m)^\[\[packages?\]\]\r?\nname = "([^"\s=]+)"\r?\nversion = "([^"\s=]+)"'
_POETRYS_USUAL = "pypi"  # the name of the index that no file of Poetry has to define
_MAX_FILES = 50
_MAX_BYTES = 1 << 20
PYTHON_LIMIT = "# requires-python "  # the start of the line for a project's limit in the text on which a lock depends


def read_requirement_files(
    folder: Path, name: str, *, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()
) -> tuple[tuple[str, str], ...]:
    """Reads the file `name` below `folder` and every file that it includes, once each; returns pairs (name, text).

    The text from a pyproject.toml contains its requirements and those of `extras` and `groups`. The text from a program
    or a pylock.toml contains that file's requirements. The text from a setup.py or setup.cfg names the project. Raises
    FieldError for a file that is missing, outside `folder` or not text, and for more than 50 files.
    """
    if (text := _read_project(folder, name, extras, groups)) is not None:
        return ((name, text),)
    texts: dict[str, str] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop(0)
        if current in texts:
            continue
        if len(texts) == _MAX_FILES:
            raise FieldError(f"-r and -c include more than {_MAX_FILES} files", field=FIELD)
        texts[current] = _read(folder, current)
        for line in list_lines(texts[current]):
            match = line[1].startswith("-") and re.match(INCLUDE, line[1])
            if match and "://" not in match["file"]:
                waiting.append(join_path(current, match["file"].strip("'\"")))
    return tuple(texts.items())


def _read_project(folder: Path, name: str, extras: tuple[str, ...], groups: tuple[str, ...]) -> str | None:
    """Converts a file of another kind to the text of a requirements file; None if the file is one already."""
    file = PurePosixPath(name).name
    if file == PYPROJECT:
        place = (folder / name).parent
        return read_dependencies(_read(folder, name), name, extras=extras, groups=groups, folder=place)
    if groups or (extras and file not in SETUP):
        key = "groups" if groups else "extras"
        raise FieldError(f"{name} has no {key}", field=key, hint=f"only a {PYPROJECT} has {key}")
    if file in SETUP:
        limit = re.search(r"python_requires\s*=\s*[\"']?([^\"'\n]+)", _read(folder, name))
        head = f"{PYTHON_LIMIT}{limit[1].strip()}\n" if limit else ""
        return f"{head}{project_line(extras)}\n"
    if file.endswith(".py"):
        return _read_script(_read(folder, name), name)
    if _PYLOCK.fullmatch(file):
        try:
            return _read_pylock(parse_toml(_read(folder, name)), name)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise FieldError(f"{name} is not a valid lock file (PEP 751): {error!r}", field=FIELD) from error
    return None


def read_texts(spec_file: SpecFile) -> tuple[tuple[str, str], ...]:
    """Reads the requirements that a spec names; raises as `read_requirement_files`."""
    spec = spec_file.spec
    lines = ((PACKAGES, "".join(f"{line}\n" for line in spec.python_packages)),) if spec.python_packages else ()
    if spec.requirements is None:
        return lines
    files = read_requirement_files(spec_file.folder, spec.requirements, extras=spec.extras, groups=spec.groups)
    return (*files, *lines)


def read_locked(spec_file: SpecFile) -> tuple[tuple[str, str], ...]:
    """Reads the lock file that another tool wrote for the project; returns its name and lines NAME==VERSION, or ().

    The lines omit packages of which the lock file has several versions, for different machines.
    """
    name = spec_file.spec.requirements or ""
    path = spec_file.folder / name
    places = [path.with_name(f"{path.name}.lock")] if path.suffix == ".py" and path.name not in SETUP else []
    if path.name == PYPROJECT:
        root = _find_workspace(path.parent.absolute())[0]
        places = [folder / lock for folder in filter(None, (path.parent, root)) for lock in _LOCKS]
    for place in places:
        file = place.name
        try:
            text = place.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        found = re.findall(_LOCKED, text)
        counts = Counter(package for package, _ in found)
        return ((file, "".join(f"{package}=={version}\n" for package, version in found if counts[package] == 1)),)
    return ()


def _read(folder: Path, name: str) -> str:
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise FieldError(
                f"{name} is outside the spec's folder {folder}",
                field=FIELD,
                hint="copy the file into the spec's folder, because the lock depends on its text",
            )
        data = path.read_bytes()
        if len(data) > _MAX_BYTES:
            raise FieldError(f"{name} is larger than {_MAX_BYTES} bytes", field=FIELD)
        text = data.decode("utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
        return text.replace("\r\n", "\n")  # so that a lock does not depend on a system's line ends
    except (OSError, RuntimeError) as error:
        raise FieldError(f"{name}: {getattr(error, 'strerror', None) or error}", field=FIELD) from error
    except UnicodeDecodeError as error:
        raise FieldError(f"{name} is not UTF-8 text", field=FIELD, hint="save it as UTF-8") from error


def _read_script(text: str, name: str) -> str:
    """Reads the requirements in the `# /// script` block of a program; raises FieldError unless it has one block."""
    blocks = _SCRIPT.findall(text)
    if len(blocks) != 1:
        hint = "write one (PEP 723), such as `uv add --script` does, or name a requirements file"
        raise FieldError(f"{name} has {len(blocks) or 'no'} `# /// script` blocks", field=FIELD, hint=hint)
    block = re.sub(r"(?m)^# ?", "", blocks[0])
    return read_dependencies(f"[project]\n{block}", name, extras=(), groups=())


def _read_pylock(document: dict[str, Any], name: str) -> str:
    """Converts a pylock.toml to lines with versions and hashes; raises FieldError for an entry without such a line."""
    lines = [f"{PYTHON_LIMIT}{document['requires-python']}"] if "requires-python" in document else []
    for row in document["packages"]:
        marker, vcs = f" ; {row['marker']}" if "marker" in row else "", row.get("vcs", {})
        if re.search(r"\b(?:extras|dependency_groups)\b", marker):
            hint = "export the file again, with only the extras and groups that the image needs"
            raise FieldError(f"{name}: only an extra or a group requires {row['name']}", field=FIELD, hint=hint)
        files = (*row.get("wheels", ()), row.get("sdist", {}))
        hashes = "".join(f" --hash=sha256:{one['hashes']['sha256']}" for one in files if one)
        source = row.get("directory") or row.get("archive") or {"git": vcs.get("url"), "rev": vcs.get("commit-id")}
        place = _uv_place({**source, **{key: vcs[key] for key in vcs if key == "subdirectory"}})
        if place is None and (vcs or "version" not in row or "archive" in row):
            raise FieldError(f"{name}: {row['name']} has no version, path or Git address", field=FIELD)
        plain = f"{row['name']} @ {place}{marker}" if place else f"{row['name']}=={row['version']}{marker}{hashes}"
        lines.append("-e ." if place == "./." else plain)
    return "".join(f"{line}\n" for line in lines)


def _find_workspace(folder: Path) -> tuple[Path | None, dict[str, Any], dict[str, Any]]:
    """Finds the uv workspace that contains a folder: its root, its members as sources, and the root's other sources.

    Source: https://docs.astral.sh/uv/concepts/projects/workspaces/
    """
    for root in (folder, *folder.parents):
        try:
            uv = parse_toml((root / PYPROJECT).read_text(encoding="utf-8"))["tool"]["uv"]
            found = [
                path for pattern in uv["workspace"].get("members", []) for path in root.glob(f"{pattern}/{PYPROJECT}")
            ]
            names = {path.parent: parse_toml(path.read_text(encoding="utf-8"))["project"]["name"] for path in found}
            sources = _by_name(uv.get("sources"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
        members = {name: {"path": os.path.relpath(path, folder)} for path, name in names.items()}
        rows = ((key, row, row.get("path")) for key, row in sources.items() if isinstance(row, dict))
        shared = {key: {**row, **({"path": os.path.relpath(root / at, folder)} if at else {})} for key, row, at in rows}
        return root, _by_name(members), shared
    return None, {}, {}


def read_dependencies(
    text: str, name: str, *, extras: tuple[str, ...], groups: tuple[str, ...], folder: Path | None = None
) -> str:
    """Returns the dependencies of a project and of its `extras` and `groups`, as the text of a requirements file.

    If only the project's build knows the dependencies, as with setuptools or Poetry, the text names the folder
    instead. Raises FieldError if the file is not TOML, does not describe a project, or lacks an extra or a group.
    """
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise FieldError(f"{name}: not TOML: {error}", field=FIELD) from None
    project = document.get("project")
    if isinstance(project, dict):
        is_computed = bool({"dependencies", "optional-dependencies"} & {*project.get("dynamic", [])})
    else:
        is_computed = "build-system" in document
    if not isinstance(project, dict) and not groups and not is_computed:
        raise FieldError(
            f"{name} has neither a [project] nor a [build-system] table",
            field=FIELD,
            hint="name the file with the requirements, such as requirements.txt",
        )
    project = project if isinstance(project, dict) else {}
    if is_computed:
        lines = [project_line(extras)]
    else:
        lines = [*_texts(project.get("dependencies", []), f"{name}: project.dependencies")]
        for extra in extras:
            lines += _extra(project, normalise_name(extra), name, ())
    for group in groups:
        lines += _group(document.get("dependency-groups"), normalise_name(group), name, ())
    tool = document.get("tool")
    uv = found if isinstance(tool, dict) and isinstance(found := tool.get("uv"), dict) else {}
    _, members, shared = _find_workspace(folder.absolute()) if folder else (None, {}, {})
    sources = {**shared, **_by_name(uv.get("sources"))}
    sources |= {key: row for key, row in members.items() if "workspace" in sources.get(key, ())}
    bound = [*_bind(lines, sources, uv.get("index"), f"{name}: tool.uv.sources")]
    if is_computed and isinstance(tool, dict):
        bound += _bind_otherwise(tool, name)
    lines = [_add_source(line, sources, name) for line in dict.fromkeys(lines)]
    limit = " ".join(str(project.get("requires-python", "")).split())
    head = (f"{PYTHON_LIMIT}{limit}",) if limit else ()
    return "".join(f"{line}\n" for line in (*head, *_list_uv_options(uv, name), *map(str, bound), *lines))


def _list_uv_options(uv: dict[str, Any], name: str) -> Iterator[str]:
    """Converts uv's settings of indexes to options of a requirements file; raises FieldError for a limit of versions.

    Source: https://docs.astral.sh/uv/reference/settings/
    """
    own = uv.get("pip")
    settings = {**uv, **(own if isinstance(own, dict) else {})}
    if steering := [key for key in settings if re.fullmatch(_STEERING, key)]:
        hint = "write the versions into a requirements file, such as NAME==VERSION or -c FILE"
        raise FieldError(f"{name}: imgtool does not read tool.uv.{steering[0]}", field=FIELD, hint=hint)
    rows = [row for row in settings.get("index", []) if isinstance(row, dict) and not row.get("explicit")]
    default = {settings.get("index-url"), *(row.get("url") for row in rows if row.get("default"))}
    for url in (*(row.get("url") for row in rows), *settings.get("extra-index-url", []), settings.get("index-url")):
        if url:
            yield f"{'--index-url' if url in default else '--extra-index-url'} {url}"
    yield from (f"--find-links {place}" for place in settings.get("find-links", []))


def _add_source(line: str, sources: dict[str, Any], name: str) -> str:
    """Adds the package's source in `tool.uv.sources` to its line; raises FieldError for an unsupported kind of source.

    Source: https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources
    """
    from packaging.requirements import InvalidRequirement, Requirement  # 8 ms, which a push without them saves

    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return line  # the reader of requirements refuses it later, with its line
    source = sources.get(normalise_name(requirement.name))
    if source is None or requirement.url or all("index" in row for row in _rows(source)):
        return line  # `_bind` binds the package to the index
    place = _uv_place(source) if isinstance(source, dict) else None
    if place is None:
        kind = next(iter(source)) if isinstance(source, dict) and source else "a list"
        raise FieldError(
            f"{name}: tool.uv.sources.{requirement.name}: imgtool does not support the source {kind}",
            field=FIELD,
            hint='write { path = "FOLDER" } or { git = "URL", rev = "COMMIT" }',
        )
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    is_wheel = place.endswith(".whl")
    return f"{place}{extras}{marker}" if is_wheel else f"{requirement.name}{extras} @ {place}{marker}"


def _bind(lines: Iterable[str], sources: dict[str, Any], indexes: object, place: str) -> Iterator[Binding]:
    """Yields a binding for each requirement whose source is an index; raises FieldError for one that is unknown.

    Source: https://docs.astral.sh/uv/concepts/indexes/#pinning-a-package-to-an-index
    """
    urls = {row.get("name"): row.get("url") for row in _rows(indexes)}
    names = {normalise_name(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in lines}
    for name in sorted(names & sources.keys()):
        for row in (row for row in _rows(sources[name]) if "index" in row):
            index, url = row["index"], urls.get(row["index"])
            if not isinstance(url, str) or " " in url or row.keys() - {"index", "marker"}:
                message = f"{place}.{name}: imgtool cannot follow {name} to the index {index}"
                hint = "give the index a name and a url in the same file; a source has no extra and no group"
                raise FieldError(message, field=FIELD, hint=hint)
            yield Binding(name, url, str(row.get("marker", "")))


def _bind_otherwise(tool: dict[str, Any], name: str) -> Iterator[Binding]:
    """Yields the bindings in a file of Poetry; raises FieldError for those that depend on an extra, and for PDM's.

    Sources: https://python-poetry.org/docs/repositories/, https://pdm-project.org/latest/usage/config/
    """
    poetry = found if isinstance(found := tool.get("poetry"), dict) else {}
    rows = {key: _rows(row) for key, row in _by_name(poetry.get("dependencies")).items()}
    bound = {
        key: [row for row in of_package if str(row.get("source", _POETRYS_USUAL)).lower() != _POETRYS_USUAL]
        for key, of_package in rows.items()
    }
    for key, of_package in bound.items():
        if any(row.get("optional") for row in of_package):
            hint = "write the package and `--index-url` into a requirements file, or install it always"
            raise FieldError(
                f"{name}: imgtool cannot follow {key}, which is optional, to its source", field=FIELD, hint=hint
            )
    sources = {key: [{"index": row["source"]} for row in of_package] for key, of_package in bound.items() if of_package}
    yield from _bind(sources, sources, poetry.get("source"), f"{name}: tool.poetry.dependencies")
    for row in _rows(_by_name(tool.get("pdm")).get("source")):
        if patterns := row.get("include_packages"):
            message = f"{name}: imgtool cannot follow {', '.join(map(str, patterns))} to PDM's source {row.get('name')}"
            raise FieldError(message, field=FIELD, hint="name the index of each package in tool.uv.sources, as for uv")


def _rows(value: object) -> list[dict[str, Any]]:
    """Returns the tables in a list, or the table that stands in place of a list."""
    return [row for row in (value if isinstance(value, list) else [value]) if isinstance(row, dict)]


def _uv_place(source: dict[str, Any]) -> str | None:
    """Converts a source of uv to the form of a requirements file; None if the source is neither a path nor Git."""
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
    """Returns the line with which a requirements file requires the project in its folder."""
    return f"-e .[{','.join(extras)}]" if extras else "-e ."


def _extra(project: dict[str, Any], extra: str, name: str, above: tuple[str, ...]) -> Iterator[str]:
    """Yields the requirements of an extra, and those of other extras of the same project that this extra names."""
    from packaging.requirements import InvalidRequirement, Requirement  # 8 ms, which a push without them saves

    table = _by_name(project.get("optional-dependencies"))
    if extra not in table:
        raise FieldError(f"{name} has no extra {extra}", field="extras", hint=_offer(table))
    own = normalise_name(str(project.get("name", "")))
    for line in _texts(table[extra], f"{name}: project.optional-dependencies.{extra}"):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            requirement = None
        if requirement is None or normalise_name(requirement.name) != own:
            yield line
        elif extra not in above:
            for other in sorted(requirement.extras):
                yield from _extra(project, normalise_name(other), name, (*above, extra))


def _group(groups: object, group: str, name: str, above: tuple[str, ...]) -> Iterator[str]:
    table = _by_name(groups)
    if group not in table:
        raise FieldError(f"{name} has no dependency group {group}", field="groups", hint=_offer(table))
    if group in above:
        raise FieldError(f"{name}: the dependency group {group} includes itself", field="groups")
    for item in table[group] if isinstance(table[group], list) else []:
        if isinstance(item, dict) and isinstance(item.get("include-group"), str):
            yield from _group(groups, normalise_name(item["include-group"]), name, (*above, group))
        else:
            yield from _texts([item], f"{name}: dependency-groups.{group}")


def _by_name(table: object) -> dict[str, Any]:
    """Returns a table with normalised package names as its keys."""
    return {normalise_name(key): value for key, value in table.items()} if isinstance(table, dict) else {}


def _texts(values: object, place: str) -> Iterator[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) and "\n" not in value for value in values):
        raise FieldError(f"{place}: expected a list of requirements", field=FIELD)
    yield from values


def _offer(table: dict[str, Any]) -> str:
    return f"it has {', '.join(sorted(table))}" if table else "it has none"
