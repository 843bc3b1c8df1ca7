"""Reads pip's requirements files as far as the lock and the rules need them; uv reads them completely.

The functions return the texts of a requirements file and its includes (`-r`, `-c`), which are inputs of the lock, and
the requirements that they name. The format is pip's:
https://pip.pypa.io/en/stable/reference/requirements-file-format/.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from training_imgtool.core.errors import FieldError

FIELD = "requirements"
_INCLUDE = r"(?:-r|--requirement|-c|--constraint)(?:\s+|=|(?=[^-\s]))(?P<file>\S.*)"
_OPTION_ON_REQUIREMENT = r"\s+--(?:hash|config-settings?|global-option)\b.*"
_COMMENT = r"(?:^|\s+)#.*$"
_LOGIN = r"://[^/\s@]+:[^/\s@]+@"
_FILE = r"[\w.+-]+://|\.{0,2}/|[^@]*\.(?:whl|tar\.gz|zip)(?:$|\s)"
_ELSEWHERE = rf"{_FILE}|[\w.-]+\s*(?:\[[^\]]*\])?\s*@"
_MAX_FILES = 50
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Named:
    """A requirement and its place, such as `requirements.txt:3`."""

    requirement: Requirement
    where: str
    is_constraint: bool


def read_requirement_files(folder: Path, name: str) -> tuple[tuple[str, str], ...]:
    """Reads the file `name` below `folder` and every file that it includes, each once: (name as included, text).

    Raises FieldError for a file that is missing, outside `folder` or not text, and for more than 50 files.
    """
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


def parse_requirements(texts: tuple[tuple[str, str], ...]) -> tuple[Named, ...]:
    """Returns the named requirements, without URLs, paths and options; raises FieldError for any other line."""
    constraints = _constraint_files(texts)
    requirements = []
    for name, text in texts:
        for number, line in _lines(text):
            if line.startswith("-") or re.match(_FILE, line):
                continue
            try:
                requirement = Requirement(re.sub(_OPTION_ON_REQUIREMENT, "", line))
            except InvalidRequirement as error:
                raise FieldError(
                    f"{name}:{number}: {line[:60]!r} is not a requirement: {str(error).splitlines()[0]}", field=FIELD
                ) from None
            requirements.append(Named(requirement, f"{name}:{number}", name in constraints))
    return tuple(requirements)


def find_unlockable_lines(texts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Returns lines that a lock cannot hold: (`requirements.txt:3`, reason), without their text: it may be secret."""
    lines = []
    for name, text in texts:
        for number, line in _lines(text):
            where = f"{name}:{number}"
            if re.search(_LOGIN, line):
                lines.append((where, "a URL with a password, in a file that everyone with the code can read"))
            elif line.startswith(("-e", "--editable")):
                lines.append((where, "an editable install"))
            elif not line.startswith("-") and re.match(_ELSEWHERE, line):
                lines.append((where, "a URL or a path, which is not a release on an index"))
    return tuple(lines)


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
    files = set()
    for name, text in texts:
        for _, line in _lines(text):
            match = re.match(_INCLUDE, line)
            if match and line.startswith(("-c", "--constraint")):
                files.add(_join(name, match["file"].strip("'\"")))
    return frozenset(files)


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
