"""Reads the files that name a project's packages. Each reader gets the text of a file and yields statements.

The readers do not run any code. For a file that a reader cannot parse, the reader yields no statements.
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from imgtool_project_reader.statement import Certainty, Fact, Statement, caret, parse_requirement, parse_specifier
from imgtool_project_reader.tables import is_known, translate_conda

Reader = Callable[[str, str], Iterator[Statement]]

_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*[\"']?(?P<file>[^\s\"']+)")
_EGG = re.compile(r"[#&]egg=(?P<name>[\w.-]+)")
_LINK = re.compile(r"(?:(?:-e|--editable)[\s=]+)?(?P<link>git\+|https?://)")
_WHEEL = re.compile(  # the release without the local part, because no index has local versions
    r"/[\w.]+-(\d[\w.!]*)(?:\+[\w.]+)?(?:-\d\w*)?-(?:cp3(?P<python>\d+)-(?!abi3|none)|[\w.]+-)[\w.-]+\.whl(?:#|$)"
)
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""  # of a key in TOML
_LONG_KEY = re.compile(rf"""(?<![\w"'-]){_PART}(?:\.[ \t]*+{_PART}){{20}}""")
_OWN_FOLDER = re.compile(r"(?:-e\s+|--editable[\s=])?(?:\.|file:\.)(?:\[[\w,\s-]*\])?")
_LISTED = re.compile(r"(?P<name>[\w.-]+)\s+v?(?P<version>\d+(?:\.\d+)+\w*)(?:\s+/\S*)?")  # a row of `pip list`
_EXPORTED = re.compile(r"(?m)^[\w.-]+=[\w.]+=\w+\s*$")
_OPTION = re.compile(r"(?:-[if]|--index-url|--extra-index-url|--find-links)(?:[\s=]|(?=\w+:))")
_LONGEST = 1000  # characters of a line that may name a build
_SCRIPT = re.compile(r"(?m)^# /// script$\s((?:^#(?:| .*)$\s)+)^# ///$")
_TORCH_INDEX = "://download.pytorch.org/whl"
_BUILD = re.compile(  # a page of PyTorch's index, a local version, an image, a package of conda
    r"download\.pytorch\.org/whl/(?:nightly/|test/)?(?P<index>cpu|cu\d{3})\b|\btorch==[\w.]+\+(?P<local>cpu|cu\d{3})\b"
    r"|\bpytorch/pytorch:[\w.]+-cuda(?P<image>\d\d\.\d)|\bnvidia/pytorch:(?P<some>\d)"
    r"|\bpytorch-cuda\s*=+\s*(?P<conda>\d\d\.\d)|^\s*-\s*(?:pytorch::)?(?P<only>cpu)only\b"
)


def harmless(read: Reader) -> Reader:
    """Makes a reader yield no statements, instead of an error, for a file in another format."""

    @wraps(read)
    def reader(text: str, file: str) -> Iterator[Statement]:
        try:
            yield from read(text, file)
        except (
            ValueError,
            SyntaxError,
            TypeError,
            AttributeError,
            KeyError,
            RecursionError,
            MemoryError,
            configparser.Error,
        ):
            return

    return reader


def read_pip(text: str, file: str) -> Iterator[Statement]:
    """Reads a requirements file of pip, which may also contain output of `conda list --export` or `pip list`.

    Of places with wheels, it leaves out PyTorch's own, from which imgtool takes the build of each role.
    """
    if len(_EXPORTED.findall(text)) > 3:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.startswith("#"):
                yield from read_conda_row(line, file, number, Fact.PINNED)
        return
    for number, raw in enumerate(re.sub(r"\\\r?\n", "", text).splitlines(), 1):
        line = re.sub(r"(?:^|\s+)#(?!egg=).*$", "", raw).strip()
        if match := _INCLUDE.match(line):
            yield Statement(Fact.INCLUDE, match["file"], file, number)
        elif _OPTION.match(line):
            yield from () if _TORCH_INDEX in line else [Statement(Fact.OPTION, line, file, number)]
        elif _OWN_FOLDER.fullmatch(line):
            yield Statement(Fact.INSTALL, ".", file, number)
        elif match := _LISTED.fullmatch(line):
            yield from read_conda_row(f"{match['name']}={match['version']}", file, number)
        else:
            yield from _read_plain_line(line, file, number)


def read_builds(text: str, file: str) -> Iterator[Statement]:
    """Yields the builds of PyTorch that a file names in any form."""
    if "torch" not in text and "cpuonly" not in text:
        return
    certainty = Certainty.STATED if re.search(r"\.(?:txt|in|toml|ya?ml|pip)$|Pipfile$", file) else Certainty.HINT
    for number, line in enumerate(text.splitlines(), 1):
        for match in _BUILD.finditer(line[:_LONGEST]):
            value = next(filter(None, match.groups())).replace(".", "")
            is_other = "/nightly/" in match[0] or "/test/" in match[0]  # no page of a release
            build = value if value.startswith("c") else "cu" if match["some"] else f"cu{value}"
            yield Statement(Fact.BUILD, build[:2] if is_other and build != "cpu" else build, file, number, certainty)


def _read_plain_line(line: str, file: str, number: int) -> Iterator[Statement]:
    if requirement := _read_pip_line(line):
        wheel = _WHEEL.search(unquote(requirement.url or ""))
        if wheel and wheel["python"]:
            yield Statement(Fact.PYTHON, f"==3.{wheel['python']}.*", file, number)
        plain = f"{requirement.name}=={wheel[1]}" if wheel else str(requirement)
        yield Statement(Fact.PACKAGE, plain, file, number)
    elif re.match(r"[A-Za-z][\w.-]*\s*[=<>!~]", line):
        yield Statement(Fact.UNREAD, line, file, number)


def _read_pip_line(line: str) -> Requirement | None:
    if match := _LINK.match(line):
        return read_link(line[match.start("link") :])
    return None if line.startswith("-") else parse_requirement(line)


def read_link(link: str) -> Requirement | None:
    """Parses a URL that pip installs; the name of the package is the value of `#egg=` or the last part of the URL."""
    egg = _EGG.search(link)
    last = link.rpartition("/")[2].partition("#")[0]
    if last.endswith((".whl", ".tar.gz", ".zip")):
        last = re.sub(r"-\d.*$|\.(?:whl|tar\.gz|zip)$", "", last)  # the archive's name without its version
    name = egg["name"] if egg else re.sub(r"(?:\.git)?(?:@.*)?$", "", last)
    return parse_requirement(f"{name} @ {link}")


def _parse_toml(text: str) -> dict[str, Any]:
    """Parses TOML; raises ValueError for a key of many parts, for which tomllib needs time with their square."""
    if _LONG_KEY.search(text):
        raise ValueError("a key has more than 20 parts")
    return tomllib.loads(text)


@harmless
def read_pyproject(text: str, file: str) -> Iterator[Statement]:
    """Reads a pyproject.toml: PEP 621 and 735, Poetry, setuptools' dynamic dependencies."""
    document = _parse_toml(text)
    project, tool = document.get("project", {}), document.get("tool", {})
    line = line_finder(text)
    if name := project.get("name"):
        yield Statement(Fact.NAME, name, file, line(name))
    if limit := project.get("requires-python"):
        yield Statement(Fact.PYTHON, limit, file, line("requires-python"))
    groups = {f"extra {key}": lines for key, lines in project.get("optional-dependencies", {}).items()}
    groups |= {f"group {key}": lines for key, lines in document.get("dependency-groups", {}).items()}
    for group, lines in {"": project.get("dependencies", []), **groups}.items():
        for item in lines:
            if isinstance(item, str) and parse_requirement(item):
                yield Statement(Fact.PACKAGE, item, file, line(item), group=group)
    for name, target in project.get("scripts", {}).items():
        yield Statement(Fact.SCRIPT, f"{name}={target}", file, line(target))
    own = {row.get("name") for row in tool.get("uv", {}).get("index", ()) if _TORCH_INDEX in row.get("url", "")}
    for name, rows in tool.get("uv", {}).get("sources", {}).items():
        for row in (
            row for row in (rows if isinstance(rows, list) else [rows]) if row.get("index") not in {None, *own}
        ):
            yield Statement(Fact.BOUND, f"{name} {row['index']}", file, line(f"\n{name} ") or line(name))
    dynamic = tool.get("setuptools", {}).get("dynamic", {}).get("dependencies", {})
    included = dynamic.get("file", []) if isinstance(dynamic, dict) else []
    for path in [included] if isinstance(included, str) else included:
        yield Statement(Fact.INCLUDE, path, file, line(path))
    yield from _read_poetry(tool.get("poetry", {}), file, line)


def _read_poetry(poetry: Mapping[str, Any], file: str, line: Callable[[str], int]) -> Iterator[Statement]:
    if name := poetry.get("name"):
        yield Statement(Fact.NAME, name, file, line(name))
    for name, target in poetry.get("scripts", {}).items():
        if isinstance(target, str):
            yield Statement(Fact.SCRIPT, f"{name}={target}", file, line(target))
    own = {row.get("name") for row in poetry.get("source", ()) if _TORCH_INDEX in row.get("url", "")}
    groups = {"": poetry.get("dependencies", {})}
    groups |= {key: row.get("dependencies", {}) for key, row in poetry.get("group", {}).items()}
    groups |= {"dev": poetry["dev-dependencies"]} if "dev-dependencies" in poetry else {}
    extras = {canonicalize_name(item): name for name, items in poetry.get("extras", {}).items() for item in items}
    for group, rows in groups.items():
        for name, value in rows.items():
            at = line(f"\n{name} ") or line(f'\n"{name}" ') or line(f"\n{name}=")
            optional = isinstance(value, dict) and value.get("optional")
            within = f"extra {extras.get(canonicalize_name(name), name)}" if optional else f"group {group}"
            for item in value if isinstance(value, list) else [value]:
                row = {"version": item} if not isinstance(item, dict) else item
                row = row | ({"source": "pypi"} if row.get("source") in own else {})
                yield from _read_poetry_row(name, row, file, at, within if optional or group else "")


def _read_poetry_row(name: str, table: dict[str, Any], file: str, at: int, group: str) -> Iterator[Statement]:
    wheel = _WHEEL.search(unquote(str(table.get("url", ""))))
    limit = f"=={wheel[1]}" if wheel else caret(str(table.get("version", "*")))
    if name == "python":
        yield Statement(Fact.PYTHON, limit, file, at)
    elif "path" not in table:
        extras = f"[{','.join(table['extras'])}]" if table.get("extras") else ""
        marker = f" ; {table['markers']}" if table.get("markers") else ""
        if table.get("python"):
            limits = [part.strip() for part in caret(table["python"]).split(",")]
            rules = [re.sub(r"^([<>=!~]+)(.*)$", r'python_version \1 "\2"', part) for part in limits]
            marker = f" ; {' and '.join(rules)}"
        if str(table.get("source", "pypi")).lower() != "pypi":  # Poetry's name for the usual index
            yield Statement(Fact.BOUND, f"{name} {table['source']}", file, at)
        place = _place_in_git(table) or limit
        if requirement := parse_requirement(f"{name}{extras}{place}{marker}"):
            yield Statement(Fact.PACKAGE, str(requirement), file, at, group=group)


def _place_in_git(table: Mapping[str, Any]) -> str:
    """Returns the ` @ git+URL` of a package from Git, with the commit, tag or branch; empty for other packages."""
    commit = next((table[key] for key in ("rev", "ref", "tag", "branch") if table.get(key)), "")
    return f" @ git+{table['git']}{'@' if commit else ''}{commit}" if "git" in table else ""


@harmless
def read_pipfile(text: str, file: str) -> Iterator[Statement]:
    """Reads a Pipfile."""
    document, line = _parse_toml(text), line_finder(text)
    for key in ("python_version", "python_full_version"):
        if version := document.get("requires", {}).get(key):
            yield Statement(Fact.PYTHON, f"=={'.'.join(version.split('.')[:2])}.*", file, line(key))
    usual = [source.get("name") for source in document.get("source", ())][:1]
    usual += [source.get("name") for source in document.get("source", ()) if _TORCH_INDEX in source.get("url", "")]
    for name, value in document.get("packages", {}).items():
        table = value if isinstance(value, dict) else {"version": value}
        at = line(f"\n{name} ") or line(f'\n"{name}"')
        if table.get("index") not in {None, *usual}:
            yield Statement(Fact.BOUND, f"{name} {table['index']}", file, at)
        place = _place_in_git(table) or caret(str(table.get("version", "*")))
        extras = f"[{','.join(table['extras'])}]" if table.get("extras") else ""
        if "path" not in table and (requirement := parse_requirement(f"{name}{extras}{place}")):
            yield Statement(Fact.PACKAGE, str(requirement), file, at)
    for command in document.get("scripts", {}).values():
        yield Statement(Fact.COMMAND, str(command), file, line(str(command)))


@harmless
def read_script(text: str, file: str) -> Iterator[Statement]:
    """Reads the `# /// script` block of a program (PEP 723)."""
    (block,) = _SCRIPT.findall(text)
    document, line = _parse_toml(re.sub(r"(?m)^# ?", "", block)), line_finder(text)
    if limit := document.get("requires-python"):
        yield Statement(Fact.PYTHON, limit, file, line("requires-python"))
    for item in document.get("dependencies", []):
        if parse_requirement(item):
            yield Statement(Fact.PACKAGE, item, file, line(item))


@harmless
def read_pylock(text: str, file: str) -> Iterator[Statement]:
    """Reads a pylock.toml (PEP 751), which is both a list of packages and a lock."""
    document, line = _parse_toml(text), line_finder(text)
    if limit := document.get("requires-python"):
        yield Statement(Fact.PYTHON, limit, file, line("requires-python"))
    for row in (row for row in document["packages"] if "version" in row):
        marker = f" ; {row['marker']}" if "marker" in row else ""
        if parse_requirement(item := f"{row['name']}=={row['version']}{marker}"):
            yield Statement(Fact.PACKAGE, item, file, line(f'name = "{row["name"]}"'))
    yield from read_toml_lock(text, file)


@harmless
def read_toml_lock(text: str, file: str) -> Iterator[Statement]:
    """Reads the versions in a lock of Poetry, uv, PDM or PEP 751; leaves out packages with several versions."""
    document = _parse_toml(text)
    rows = [row for row in (*document.get("package", ()), *document.get("packages", ())) if "version" in row]
    plain = {(row["name"], row["version"].partition("+")[0]): row for row in rows}  # one of a release's builds
    names = Counter(name for name, _ in plain)
    for (_, version), row in plain.items():
        source = row.get("source")
        is_local = isinstance(source, dict) and {"editable", "virtual", "directory"} & {*source, source.get("type", "")}
        if names[row["name"]] == 1 and not is_local:
            yield Statement(Fact.PINNED, f"{row['name']}=={version}", file)


@harmless
def read_pipfile_lock(text: str, file: str) -> Iterator[Statement]:
    """Reads the versions in a Pipfile.lock."""
    for name, row in json.loads(text)["default"].items():
        if requirement := parse_requirement(f"{name}{row['version']}") if "version" in row else None:
            yield Statement(Fact.PINNED, str(requirement), file)


def read_pip_lock(text: str, file: str) -> Iterator[Statement]:
    """Reads a requirements.lock, such as rye's, which is a requirements file with every version."""
    for item in read_pip(text, file):
        if item.fact is Fact.PACKAGE and "==" in item.value:
            yield replace(item, fact=Fact.PINNED)


def read_conda(text: str, file: str, read_yaml: Callable[[str], object]) -> Iterator[Statement]:
    """Reads an environment.yml: translates conda's names to wheels or Debian packages, drops unknown names.

    In an export, where each row names a build, conda's packages are PINNED, because the file lists the whole
    environment.
    """
    try:
        document = read_yaml(text)
    except ValueError:
        return
    items = document.get("dependencies") if isinstance(document, dict) else None
    items, line = items if isinstance(items, list) else [], line_finder(text)
    rows = [item for item in items if isinstance(item, str)]
    wheels = [item.get("pip") or [] for item in items if isinstance(item, dict)]
    is_export = sum(row.count("=") == 2 and "==" not in row for row in rows) > 3
    for row, is_wheel in (*((row, False) for row in rows), *((str(row), True) for part in wheels for row in part)):
        at = line(f"- {row}") or line(row)
        for found in read_pip(row, file) if is_wheel else read_conda_row(row, file, at):
            fact = Fact.PINNED if is_export and found.fact is Fact.PACKAGE else found.fact
            yield replace(found, fact=fact, line=at)


def read_conda_row(text: str, file: str, line: int, fact: Fact = Fact.PACKAGE) -> Iterator[Statement]:
    """Reads one package of conda, such as `conda-forge::numpy=1.18=py37h_0`."""
    match = re.match(
        r"(?:[\w./-]+::)?(?P<name>[\w.-]+)\s*(?P<limit>(?:={1,3}|[<>!~]=?)\s*[^\s=]+)?", text.strip("\"' ")
    )
    if match is None:
        return
    name, limit = match["name"].lower(), re.sub(r"^=+", "==", (match["limit"] or "").replace(" ", ""))
    exact = limit.startswith("==") and not limit.endswith("*")
    if name == "python":
        version = ".".join(limit.lstrip("=").split(".")[:2])
        yield Statement(Fact.PYTHON, f"=={version}.*" if exact else limit, file, line)
        return
    if name.startswith(("cudatoolkit", "cudnn", "tensorflow-gpu")):
        yield Statement(Fact.GPU, name, file, line)
    wheel, debian = translate_conda(name)
    if debian:
        yield Statement(Fact.SYSTEM, debian, file, line)
    if wheel:
        numbers = limit.removeprefix("==")
        is_whole = exact and numbers.count(".") >= 2 and wheel.replace("_", "-") == name.replace("_", "-")
        if exact and not is_whole:
            limit = f"=={'.'.join(numbers.split('.')[:3])}.*"
        if parse_specifier(limit) is None or (requirement := parse_requirement(f"{wheel}{limit}")) is None:
            return
        certainty = Certainty.STATED if is_known(wheel) else Certainty.GUESS  # it may not be a Python package at all
        yield Statement(fact, str(requirement), file, line, certainty)


def line_finder(text: str) -> Callable[[str], int]:
    """Returns a function that finds the line of the first place of a part of `text`; 0 if there is none."""

    def find(part: str) -> int:
        at = text.find(part)
        return 0 if at < 0 else text.count("\n", 0, at) + 1 + part.startswith("\n")

    return find
