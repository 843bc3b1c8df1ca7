"""Builds a pure-Python source archive into a wheel: the same bytes on every machine, and nothing of this one in them.

The build backend (PEP 517) runs in `build_child`, confined by the kernel: it has the build requirements, the archive, a
folder of its own, the system's folders to read, and no network. The wheel it makes is written anew, with sorted names,
one date, two modes and no compression.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training_imgtool.core.errors import InputError
from training_imgtool.core.sanitize import sanitize_line
from training_imgtool.wheels.sources import build_child

_VERSION_VARIABLES = (
    "SETUPTOOLS_SCM_PRETEND_VERSION",
    "PDM_BUILD_SCM_VERSION",
)  # hatch-vcs and flit-scm read the first
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold
_EPOCH = "315532800"  # the same in seconds
_SECONDS = 600
_MOST_BYTES = 4 << 30
_LAST_LINES = 20
_LEGACY = ("setuptools<81", "wheel")  # PEP 517 for archives without a build-system; 81 no longer has pkg_resources
_NATIVE = (".pyx", ".rs", ".f90", "/CMakeLists.txt", "/meson.build", "/Cargo.toml")
_COMPILER = re.compile(
    r"command '[^']*(?:cc|g\+\+|clang|false)[^']*' failed|(?i:unable to find .*compiler|no .*compiler|compiler .*not)"
    r"|\bCMake\b|\bcmake\b|\bmake: |'(?:make|rustc|cargo|bazel|gfortran)'|\brustc\b|\bcargo\b"
)
_NO_NETWORK = re.compile(r"URLError|ConnectionError|PermissionError: \[Errno 1\]|socket.*\[Errno 1\]")
_NO_HISTORY = re.compile(
    r"(?i)setuptools.scm was unable to detect version|no version is set|cannot find.*version.*\bgit\b"
)
_REASONS = (
    (_NO_HISTORY, "its version comes from Git tags, which its build does not see"),
    (_COMPILER, "it needs a compiler"),
    (_NO_NETWORK, "its build opens a network connection, which imgtool does not allow"),
)


class SourceBuildError(InputError):
    """The archive does not become a pure-Python wheel; the message says why, `details` are the build's last lines."""


@dataclass(frozen=True, slots=True)
class BuildSystem:
    """What pyproject.toml says of the build (PEP 518), or its default."""

    requires: tuple[str, ...]
    backend: str
    backend_path: tuple[str, ...]
    version: str = ""  # of the Git tag, for backends that read it there


def build_wheel(
    archive: Path,
    python: Path,
    requirements: Callable[[tuple[str, ...]], Iterable[Path]],
    output: Path,
    *,
    version: str = "",
) -> Path:
    """Builds the wheel of a source archive into the folder `output` and returns its path.

    Args:
        archive: a .tar.gz or .zip with one folder in it.
        python: the interpreter that the backend runs on.
        requirements: gives the wheels of the build requirements; called again with those that the backend adds.
        output: where the wheel goes.
        version: what backends take that read the version from a Git tag; empty if no tag names the archive.

    Raises:
        SourceBuildError: the archive needs a compiler, its build fails, or this machine cannot confine it.
    """
    with tempfile.TemporaryDirectory(prefix="imgtool-build-") as temporary:
        work = Path(temporary).resolve()
        source = _unpack(archive, work / "source")
        system = replace(read_build_system(source), version=version)
        environment = work / "env"
        _install(requirements(system.requires), environment)
        (work / "out").mkdir()
        added = _call_hook(work, source, system, python, "get_requires_for_build_wheel", {})
        if added:
            _install(requirements((*system.requires, *map(str, added))), environment)
        name = str(_call_hook(work, source, system, python, "build_wheel", str(work / "out"), {}, None))
        return _normalise(work / "out" / Path(name).name, output)


def read_build_system(source: Path) -> BuildSystem:
    """Reads `build-system` of a source folder's pyproject.toml; raises SourceBuildError for one that is malformed."""
    default = "setuptools.build_meta:__legacy__"
    try:
        table: Any = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8")).get("build-system")
    except FileNotFoundError:
        table = None
    except (OSError, ValueError) as error:
        raise SourceBuildError(f"its pyproject.toml cannot be read: {error}") from error
    if not isinstance(table, dict) or not isinstance(table.get("requires"), list):
        return BuildSystem(_LEGACY, default, ())
    requires = tuple(map(str, table["requires"]))
    if "build-backend" not in table:
        return BuildSystem((*requires, *_LEGACY), default, ())
    folders = [source / str(part) for part in table.get("backend-path", [])]
    if not all(folder.resolve().is_relative_to(source) for folder in folders):
        raise SourceBuildError("its backend-path leaves the archive")
    return BuildSystem(requires, str(table["build-backend"]), tuple(map(str, folders)))


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpacks an archive; returns the one folder in it."""
    folder.mkdir()
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as opened:
                names = opened.namelist()
                _check_members(names, sum(member.file_size for member in opened.infolist()))
                opened.extractall(folder)  # noqa: S202 - a zip file's names stay below the folder
        else:
            with tarfile.open(archive) as tar:
                names = tar.getnames()
                _check_members(names, sum(member.size for member in tar))
                tar.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise SourceBuildError(f"the archive cannot be unpacked: {error}") from error
    roots = [path for path in folder.iterdir() if path.is_dir()]
    if len(roots) != 1:
        raise SourceBuildError("the archive does not contain exactly one folder")
    return roots[0]


def _check_members(names: list[str], size: int) -> None:
    if size > _MOST_BYTES:
        raise SourceBuildError(f"the archive unpacks to more than {_MOST_BYTES >> 30} GiB")
    native = [name for name in names if name.endswith(_NATIVE) and "/test" not in name and "/doc" not in name]
    if native:
        raise SourceBuildError(f"it needs a compiler, for {native[0].partition('/')[2]}")


def _install(wheels: Iterable[Path], folder: Path) -> None:
    """Unpacks wheels side by side: what backends and their requirements need is importable files."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(folder)  # noqa: S202 - a zip file's names stay below the folder
    folder.mkdir(exist_ok=True)


def _call_hook(work: Path, source: Path, system: BuildSystem, python: Path, hook: str, *arguments: object) -> Any:
    """Calls a hook of the backend in a confined process and returns its answer."""
    for name in ("home", "tmp"):
        (work / name).mkdir(exist_ok=True)
    job = {
        "work": str(work),
        "source": str(source),
        "env": str(work / "env"),
        "variables": {"PYTHONPATH": str(work / "env"), **_make_version_variables(system.version)},
        "backend": system.backend,
        "backend_path": system.backend_path,
        "hook": hook,
        "arguments": arguments,
    }
    (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
    command = [str(python), "-s", "-S", build_child.__file__, str(work / "job.json")]
    with subprocess.Popen(
        command,
        cwd=work,
        env=_make_environment(work, python),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        umask=0o022,
    ) as process:
        try:
            output, _ = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise SourceBuildError(f"its build takes more than {_SECONDS} seconds") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what it started and left running
    if process.returncode:
        raise _explain_failure(process.returncode, output.decode(errors="replace"), str(work))
    return json.loads((work / "result.json").read_bytes())


def _make_environment(work: Path, python: Path) -> dict[str, str]:
    return {
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(work / "home"),
        "TMPDIR": str(work / "tmp"),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",  # so not -I, which ignores it
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": _EPOCH,
        "CC": "/bin/false",  # a compiler here would make a wheel for this machine
        "CXX": "/bin/false",
    }


def _make_version_variables(version: str) -> dict[str, str]:
    return dict.fromkeys(_VERSION_VARIABLES, version) if version else {}


def _explain_failure(code: int, output: str, work: str) -> SourceBuildError:
    printed = [line.replace(work, "") for line in output.splitlines() if line.strip()]
    lines = tuple(map(sanitize_line, printed[-_LAST_LINES:]))
    if code == build_child.NOT_CONFINED:
        why = "this machine cannot confine its build: that needs Linux 5.13 with Landlock"
        return SourceBuildError(why, details=lines)
    for pattern, reason in _REASONS:
        if pattern.search(output):
            return SourceBuildError(reason, details=lines)
    return SourceBuildError(f"its build fails: {lines[-1] if lines else f'exit status {code}'}", details=lines)


def _normalise(wheel: Path, output: Path) -> Path:
    """Writes a wheel anew into `output`; raises SourceBuildError for one that is not pure Python."""
    if not wheel.name.endswith("-none-any.whl"):
        raise SourceBuildError("it needs a compiler: its wheel is for this machine only")
    target = output / wheel.name
    rows: list[tuple[str, str, str]] = []
    with zipfile.ZipFile(wheel) as opened, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as written:
        members = {member.filename: member for member in opened.infolist() if not member.is_dir()}
        own = next((name for name in members if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)), None)
        if own is None or any(name.endswith((".so", ".a", ".dylib")) for name in members):
            raise SourceBuildError("it needs a compiler: its wheel holds libraries")
        for name in sorted(members.keys() - {own}):
            content = opened.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append((name, f"sha256={digest}", str(len(content))))
            _add(written, name, content, executable=bool(members[name].external_attr >> 16 & 0o111))
        record = io.StringIO()
        csv.writer(record, lineterminator="\n").writerows([*rows, (own, "", "")])
        _add(written, own, record.getvalue().encode(), executable=False)
    return target


def _add(archive: zipfile.ZipFile, name: str, content: bytes, *, executable: bool) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    entry.create_system = 3
    archive.writestr(entry, content)
