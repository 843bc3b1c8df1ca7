"""Reads pip's requirements files as far as the lock and the rules need them; uv reads them completely.

The functions return the texts of a requirements file and its includes (`-r`, `-c`), which are inputs of the lock, and
the requirements that they name. The format is pip's:
https://pip.pypa.io/en/stable/reference/requirements-file-format/.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import FieldError
from training_imgtool.spec.source_requirements import SourceRequirement, parse_source

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from training_imgtool.spec.load import SpecFile

FIELD = "requirements"
PACKAGES = "python_packages"
PYTHON_LIMIT = "# requires-python "  # begins the line that a project's limit becomes in the text that a lock depends on
_INCLUDE = r"(?:-r|--requirement|-c|--constraint)(?:\s+|=|(?=[^-\s]))(?P<file>\S.*)"
_OPTION_ON_REQUIREMENT = r"\s+--(?:hash|config-settings?|global-option)\b.*"
_HUGE_NUMBER = r"\d{101}"  # no version has one, and Python refuses to read those of thousands of digits
_COMMENT = r"(?:^|\s+)#.*$"
_LOGIN = r"://[^/\s@:]+:(?!\$\{[A-Z0-9_]+\}@)[^/\s@]+@"  # a variable in place of the password tells nobody anything
_FILE = r"[\w.+-]+://|(?:git|hg|svn|bzr)\+|\.{0,2}/|[^@]*\.(?:whl|tar\.gz|zip)(?:$|\s)"
_ELSEWHERE = rf"{_FILE}|[\w.-]+\s*(?:\[[^\]]*\])?\s*@"
_EDITABLE = r"(?:-e|--editable)[\s=]"
_LOCAL_WHEEL = r"(?P<path>[^\s:@;\[]+\.whl)(?:\[[^\]]*\])?(?:\s+--hash\S*)*(?:\s*;.*)?$"
_FIND_LINKS = r"(?:-f|--find-links)(?:\s+|=|(?=[^-\s]))[\"']?(?P<place>[^\s\"']+)"
_FREEZE = "write NAME==VERSION; `pip list --format=freeze` prints such lines"
_OWN_WHEEL = "run `pip wheel --no-deps -w wheels {}` once, and write ./wheels/NAME.whl: the lock pins its hash"
_INDEX_OPTION = r"(?:-i|-f|--index-url|--extra-index-url|--find-links|--no-index)(?:[\s=]|$)|-[if]\S"
_TROUBLES = (  # a pattern of lines that a lock cannot hold, why, and what to do; the first that matches counts
    (
        _LOGIN,
        "a URL with a password, in a file that everyone with the code can read",
        "give the login to uv or pip (UV_INDEX_URL, pip.conf, a keyring), and change the password",
    ),
    (r"\bhttps?://[^/\s@]*@", "a URL with a login", "give Git the login: a credential helper, netrc or git+ssh://"),
    (r"\bgit\+", "no Git address that imgtool reads", "write git+https://HOST/PATH@COMMIT, or git+ssh://"),
    (r"\b(?:hg|svn|bzr)\+", "a repository of another kind than Git", _OWN_WHEEL.format("URL")),
    (r"@\s*file:/.*(?:feedstock|conda|/croot/)", "a path of conda's, on the machine that made the list", _FREEZE),
    (r"\bfile:/|@\s*/|^(?:(?:-e|--editable)[\s=]+)?[/~$]", "a path of this machine", "write it relative: ./FOLDER"),
    (r"://", "a URL, which is no release on an index", "download the file beside the spec, and write ./FILE"),
    (r"\.whl\b", "a wheel outside the spec's folder", "copy it into a folder beside the spec"),
    (r"", "no release, folder, archive or Git address", "write NAME, ./FOLDER or git+https://HOST/PATH@COMMIT"),
)
_REMOTE = (r"--?(?:[rc]|requirement|constraint)[\s=]*[\"']?\w+://", "a file at a URL", "download it, and name the FILE")
_NO_WHEELS = (r"--no-binary\b(?![\s=]+:none:)", "it refuses wheels, and images are made of them", "leave it out")
_OPTION_TROUBLES = (_TROUBLES[0], _REMOTE, _NO_WHEELS)  # the same for options
_PYPROJECT = "pyproject.toml"
_SETUP = ("setup.py", "setup.cfg")
_STEERING = r"(?:override|constraint|exclude)-dependencies|dependency-metadata|resolution|prerelease|exclude-newer"
_MAX_FILES = 50
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Named:
    """A requirement and its place, such as `requirements.txt:3`."""

    requirement: Requirement
    place: str


def read_requirement_files(
    folder: Path, name: str, *, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()
) -> tuple[tuple[str, str], ...]:
    """Reads the file `name` below `folder` and every file that it includes, each once: (name as included, text).

    A pyproject.toml counts as the requirements that it names, with those of `extras` and `groups`; a setup.py or a
    setup.cfg names its project. Raises FieldError for a file that is missing, outside `folder` or not text, and for
    more than 50 files.
    """
    file = PurePosixPath(name).name
    if file == _PYPROJECT:
        return ((name, read_dependencies(_read(folder, name), name, extras=extras, groups=groups)),)
    if groups or (extras and file not in _SETUP):
        key = "groups" if groups else "extras"
        raise FieldError(f"{name} has no {key}", field=key, hint=f"only a {_PYPROJECT} has them")
    if file in _SETUP:
        limit = re.search(r"python_requires\s*=\s*[\"']?([^\"'\n]+)", _read(folder, name))
        head = f"{PYTHON_LIMIT}{limit[1].strip()}\n" if limit else ""
        return ((name, f"{head}{project_line(extras)}\n"),)
    texts: dict[str, str] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop(0)
        if current in texts:
            continue
        if len(texts) == _MAX_FILES:
            raise FieldError(f"more than {_MAX_FILES} files include each other", field=FIELD)
        texts[current] = _read(folder, current)
        for line in _lines(texts[current]):
            match = line[1].startswith("-") and re.match(_INCLUDE, line[1])
            if match and "://" not in match["file"]:
                waiting.append(_join(current, match["file"].strip("'\"")))
    return tuple(texts.items())


def read_texts(spec_file: SpecFile) -> tuple[tuple[str, str], ...]:
    """Reads the requirements that a spec names; raises as `read_requirement_files`."""
    spec = spec_file.spec
    lines = ((PACKAGES, "".join(f"{line}\n" for line in spec.python_packages)),) if spec.python_packages else ()
    if spec.requirements is None:
        return lines
    files = read_requirement_files(spec_file.folder, spec.requirements, extras=spec.extras, groups=spec.groups)
    return (*files, *lines)


def parse_requirements(texts: tuple[tuple[str, str], ...]) -> tuple[Named, ...]:
    """Returns the named requirements, without URLs, paths and options; raises FieldError for any other line."""
    from packaging.requirements import InvalidRequirement, Requirement

    requirements = []
    for name, text in texts:
        for number, line in _lines(text):
            if line.startswith("-") or re.match(_FILE, line) or parse_source(name, "", line):
                continue
            if name.endswith((".yml", ".yaml")):
                raise FieldError(f"{name} is no requirements file of pip", field=FIELD, hint=_FREEZE)
            if re.search(_HUGE_NUMBER, line):
                raise FieldError(f"{_place(name, number)}: a number of over 100 digits", field=FIELD)
            try:
                requirement = Requirement(re.sub(_OPTION_ON_REQUIREMENT, "", line))
            except InvalidRequirement as error:
                raise FieldError(
                    f"{_place(name, number)}: {line[:60]!r} is not a requirement: {str(error).splitlines()[0]}",
                    field=FIELD,
                    hint="write the value: a lock does not depend on a machine's variables" if "${" in line else None,
                ) from None
            requirements.append(Named(requirement, _place(name, number)))
    return tuple(requirements)


def find_unlockable_lines(texts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str, str], ...]:
    """Returns lines that a lock cannot hold: (`requirements.txt:3`, reason, cure).

    Their text is not in the result: it may be secret.
    """
    lines = []
    for name, text in texts:
        for number, line in _lines(text):
            if trouble := _trouble(name, line):
                lines.append((_place(name, number), *trouble))
    return tuple(lines)


def _trouble(name: str, line: str) -> tuple[str, str] | None:
    """Says why a lock cannot hold a line, and what to do; None for a line that it can."""
    is_option = line.startswith("-") and not re.match(_EDITABLE, line)
    is_elsewhere = re.match(_ELSEWHERE, line) or re.match(_EDITABLE, line)
    is_release = is_option or not is_elsewhere or _local_wheel(name, line) or parse_source(name, "", line)
    for pattern, reason, cure in _OPTION_TROUBLES if is_option else _TROUBLES[:2] if is_release else _TROUBLES:
        if re.search(pattern, line):
            return reason, cure
    return None


def resolver_lines(folder: Path, texts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the requirements and the constraints of all files, with absolute paths: what a resolver reads."""
    constraint_files = _constraint_files(texts)
    lines: list[str] = []
    constraints: list[str] = []
    for name, text in texts:
        for _, line in _lines(text):
            include = re.match(_INCLUDE, line)
            if include and "://" not in include["file"]:
                continue  # its lines are here, too
            if parse_source(name, "", line):
                continue  # `list_code` has it
            (constraints if name in constraint_files else lines).append(_absolute(folder, name, line))
    return tuple(lines), tuple(constraints)


def list_code(texts: tuple[tuple[str, str], ...]) -> tuple[SourceRequirement, ...]:
    """Returns the requirements that name code: folders, source archives and Git repositories."""
    lines = ((name, number, line) for name, text in texts for number, line in _lines(text))
    parsed = (parse_source(name, _place(name, number), line) for name, number, line in lines)
    return tuple(requirement for requirement in parsed if requirement)


def index_options(folder: Path, texts: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Returns what the files say about where wheels are, as options: indexes, and folders by their absolute path.

    A local wheel counts as --find-links of its folder.
    """
    options = []
    for name, text in texts:
        for _, line in _lines(text):
            if re.match(_INDEX_OPTION, line):
                options.append(_absolute(folder, name, line))
            elif wheel := _local_wheel(name, line):
                options.append(f"--find-links {folder.resolve() / posixpath.dirname(wheel)}")
    return tuple(dict.fromkeys(options))


def _absolute(folder: Path, name: str, line: str) -> str:
    links = re.match(_FIND_LINKS, line)
    if links and _is_relative(links["place"]):
        return f"--find-links {folder.resolve() / _join(name, links['place'])}"
    wheel = _local_wheel(name, line)
    if wheel is None:
        return line
    extras, bracket, rest = line.partition(".whl")[2].rpartition("]")
    package = posixpath.basename(wheel).partition("-")[0]
    return f"{package}{extras}{bracket} @ {(folder.resolve() / wheel).as_uri()}{rest}"


def _local_wheel(name: str, line: str) -> str | None:
    """Returns the path of a wheel that a line names, relative to the spec's folder; None if it lies elsewhere."""
    match = re.match(_LOCAL_WHEEL, line)
    path = _join(name, match["path"]) if match else ".."
    return None if path.startswith(("..", "/")) else path


def _is_relative(place: str) -> bool:
    return "://" not in place and not place.startswith(("/", "~", "$", "file:"))


def normalise_name(name: str) -> str:
    """Returns a package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_hashes(texts: tuple[tuple[str, str], ...]) -> dict[str, frozenset[str]]:
    """Returns the sha256 values of `--hash` options, by normalised name."""
    allowed: dict[str, frozenset[str]] = {}
    for _, text in texts:
        for _, line in _lines(text):
            hashes = frozenset(re.findall(r"--hash[= ]sha256:([0-9a-f]{64})", line))
            match = re.match(r"[A-Za-z0-9._-]+", line)
            if hashes and match and not line.startswith("-"):
                name = normalise_name(match[0])
                allowed[name] = allowed.get(name, frozenset()) | hashes
    return allowed


def _constraint_files(texts: tuple[tuple[str, str], ...]) -> frozenset[str]:
    options = ((name, line) for name, text in texts for _, line in _lines(text) if line.startswith(("-c", "--con")))
    matches = ((name, re.match(_INCLUDE, line)) for name, line in options)
    return frozenset(_join(name, match["file"].strip("'\"")) for name, match in matches if match)


def _lines(text: str) -> list[tuple[int, str]]:
    """Returns logical lines with their numbers, without comments and empty lines."""
    lines: list[tuple[int, str]] = []
    held, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start if held else number
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            held += raw[:-1]
            continue
        line, held = held + raw, ""
        if "#" in line:
            line = re.sub(_COMMENT, "", line)
        line = line.strip()
        if line:
            lines.append((start, line))
    if held.strip():
        lines.append((start, held.strip()))
    return lines


def _place(name: str, number: int) -> str:
    """Returns where a message says that a line is: only the texts of requirements files have their file's lines."""
    if name == PACKAGES:
        return f"{PACKAGES}[{number - 1}]"
    return name if PurePosixPath(name).name in {_PYPROJECT, *_SETUP} else f"{name}:{number}"


def _join(current: str, file: str) -> str:
    return posixpath.normpath(PurePosixPath(current).parent / file)


def _read(folder: Path, name: str) -> str:
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise FieldError(
                f"{name} is outside the spec's folder {folder}",
                field=FIELD,
                hint="copy it there: the lock depends on its text",
            )
        data = path.read_bytes()
        if len(data) > _MAX_BYTES:
            raise FieldError(f"{name} is larger than {_MAX_BYTES} bytes", field=FIELD)
        return data.decode("utf-8-sig")
    except (OSError, RuntimeError) as error:
        raise FieldError(f"{name}: {getattr(error, 'strerror', None) or error}", field=FIELD) from error
    except UnicodeDecodeError as error:
        raise FieldError(f"{name} is not UTF-8 text", field=FIELD) from error


def read_dependencies(text: str, name: str, *, extras: tuple[str, ...], groups: tuple[str, ...]) -> str:
    """Returns the project's dependencies as the text of a requirements file, with those of `extras` and `groups`.

    A project whose build computes its dependencies, such as one of setuptools or Poetry, stands for itself: the text
    names its folder. Raises FieldError for a file that is not TOML or says nothing of a project, or lacks an extra or
    a group.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
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
    sources = _by_name(uv.get("sources"))
    lines = [_add_source(line, sources, name) for line in dict.fromkeys(lines)]
    limit = " ".join(str(project.get("requires-python", "")).split())
    head = (f"{PYTHON_LIMIT}{limit}",) if limit else ()
    return "".join(f"{line}\n" for line in (*head, *_list_uv_options(uv, name), *lines))


def _list_uv_options(uv: dict[str, Any], name: str) -> Iterator[str]:
    """Yields uv's settings about indexes as options of a requirements file; raises FieldError for one about versions.

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
    """Adds the place that `tool.uv.sources` gives a package; raises FieldError for a place of another kind.

    Source: https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources
    """
    from packaging.requirements import InvalidRequirement, Requirement  # 8 ms, which a push without them saves

    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return line  # refused later, with its line
    source = sources.get(normalise_name(requirement.name))
    if source is None or requirement.url or (isinstance(source, dict) and "index" in source):
        return line
    place = _uv_place(source) if isinstance(source, dict) else None
    if place is None:
        kind = next(iter(source)) if isinstance(source, dict) and source else "a list"
        raise FieldError(
            f"{name}: tool.uv.sources.{requirement.name}: imgtool does not follow {kind}",
            field=FIELD,
            hint='write { path = "FOLDER" } or { git = "URL", rev = "COMMIT" }',
        )
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    is_wheel = place.endswith(".whl")
    return f"{place}{extras}{marker}" if is_wheel else f"{requirement.name}{extras} @ {place}{marker}"


def _uv_place(source: dict[str, Any]) -> str | None:
    """Translates a source for a requirements file; None for one of another kind than a path and Git."""
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
    """Yields the lines of an extra; one that names other extras of the same project stands for theirs."""
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
    """Reads a table of the file by normalised name."""
    return {normalise_name(key): value for key, value in table.items()} if isinstance(table, dict) else {}


def _texts(values: object, place: str) -> Iterator[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) and "\n" not in value for value in values):
        raise FieldError(f"{place}: expected a list of requirements", field=FIELD)
    yield from values


def _offer(table: dict[str, Any]) -> str:
    return f"it has {', '.join(sorted(table))}" if table else "it has none"
