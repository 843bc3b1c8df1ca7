"""Builds the code of others into a pure-Python wheel with `uv build`, and writes that wheel anew.

The build runs as the user does, like one of pip or uv, and with their network: in a copy of its own, without the
machine's secrets in its variables, with an end. The wheel gets sorted names, one date, two modes and no compression.
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
import zipfile
from collections.abc import Mapping
from pathlib import Path

from training_imgtool.core.errors import CredentialsError, ImgtoolError, InputError, TemporaryError
from training_imgtool.core.sanitize import sanitize_line
from training_imgtool.wheels.index.credentials import add_login
from training_imgtool.wheels.interpreters import find_interpreter
from training_imgtool.wheels.uv import Indexes, explain_failure, find_program

_VERSION_VARIABLES = (
    "SETUPTOOLS_SCM_PRETEND_VERSION",
    "PDM_BUILD_SCM_VERSION",
)  # hatch-vcs and flit-scm read the first
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold
_EPOCH = "315532800"  # the same in seconds
_SECONDS = 600
_MOST_BYTES = 4 << 30
_LAST_LINES = 20
_FAILS = "its build fails"
_LEGACY = (  # for archives without a build-system, the second where a build with the first fails
    "setuptools<81\n",  # 81 no longer has pkg_resources
    "setuptools<58\nwheel<0.38\n",  # later ones have no use_2to3, and refuse versions and extras that no standard knows
)
_PASSED = re.compile(
    r"PATH|HOME|XDG_\w+|NETRC|SSL_CERT_(?:FILE|DIR)|UV_(?:CACHE_DIR|HTTP_\w+|KEYRING_PROVIDER|NATIVE_TLS|SYSTEM_CERTS)"
)
_COMPILER = re.compile(
    r"[Cc]ommand '?\[?'?[^']*(?:cc|g\+\+|clang|false)'.*(?:failed|non-zero)"
    r"|(?i:unable to find .*compiler|no .*compiler|compiler .*not)"
    r"|\bCMake\b|\bcmake\b|\bmake: |'(?:make|rustc|cargo|bazel|gfortran)'|\brustc\b|\bcargo\b"
)
_NO_HISTORY = re.compile(
    r"(?i)setuptools.scm was unable to detect version|no version is set|cannot find.*version.*\bgit\b"
)
_REASONS = (
    (_NO_HISTORY, "its version comes from Git tags, which its build does not see"),
    (_COMPILER, "it needs a compiler"),
)
_UVS_OWN = re.compile(r"(?m)^error: Failed to build ")  # what follows is uv's, what precedes is the backend's
_NO_REQUIREMENTS = re.compile(r"Failed to (?:resolve|install) requirements")
_NO_SOLUTION = re.compile(r"No solution found when resolving: ")  # uv says so, too, where an index does not answer


class SourceBuildError(InputError):
    """The archive does not become a pure-Python wheel; the message says why, `details` are the build's last lines."""


def build_wheel(
    archive: Path, python: str, output: Path, *, indexes: Indexes, environ: Mapping[str, str], version: str = ""
) -> Path:
    """Builds the wheel of a source archive into the folder `output` and returns its path.

    Args:
        archive: a .tar, .tar.gz or .zip with one folder in it.
        python: the minor version that the backend runs on.
        output: where the wheel goes.
        indexes: where uv looks for the build requirements.
        environ: the machine's environment for uv; the build gets a few of its variables.
        version: what backends take that read the version from a Git tag; empty if no tag names the archive.

    Raises:
        SourceBuildError: the archive needs a compiler, its build fails, or this machine lacks the Python.
        CredentialsError, TemporaryError: an index refuses, or does not answer for the build requirements.
    """
    interpreter = find_interpreter(python, environ)
    if interpreter is None:
        raise SourceBuildError(
            f"building it needs Python {python}, which this machine lacks (uv python install {python})"
        )
    with tempfile.TemporaryDirectory(prefix="imgtool-build-") as temporary:
        work = Path(temporary).resolve()
        source = _unpack(archive, work / "source")
        _write_settings(work / "uv.toml", indexes, environ)
        command = (
            *(find_program(), "build", "--wheel", "--color=never", "--no-sources", "--no-python-downloads"),
            *(f"--config-file={work}/uv.toml", f"--build-constraints={work}/constraints.txt"),
            *(f"--python={interpreter.path}", f"--out-dir={work}/out", str(source)),
        )
        own = _make_environment(environ, version)
        constraints = ("",) if _names_backend(source) else _LEGACY
        _run_one((*_find_isolation(own), *command), own, work, constraints)
        return _normalise(next((work / "out").glob("*.whl")), output)


def _run_one(command: tuple[str, ...], environ: Mapping[str, str], work: Path, constraints: tuple[str, ...]) -> None:
    """Runs a build with the first of the constraints that it succeeds with; raises as it fails with the first."""
    (work / "constraints.txt").write_text(constraints[0], encoding="utf-8")
    try:
        _run(command, environ, work)
    except SourceBuildError as error:
        if not constraints[1:] or not error.message.startswith(_FAILS):
            raise
        try:
            _run_one(command, environ, work, constraints[1:])
        except SourceBuildError:
            raise error from None


def _write_settings(path: Path, indexes: Indexes, environ: Mapping[str, str]) -> None:
    """Writes a uv.toml: logins and proxies lie in a file that this user alone reads, and not in variables."""
    proxies = {name: environ.get(name.upper()) or environ.get(name) for name in ("http_proxy", "https_proxy")}
    without = environ.get("NO_PROXY") or environ.get("no_proxy")
    settings = {
        "no-index": not indexes.urls,
        "index-strategy": environ.get("UV_INDEX_STRATEGY"),
        "find-links": [place if "://" in place else str(Path(place).resolve()) for place in indexes.find_links],
        "allow-insecure-host": environ.get("UV_INSECURE_HOST", "").split(),
        "no-proxy": without.split(",") if without else None,
        **{name.replace("_", "-"): url for name, url in proxies.items()},
    }
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items() if value]
    for number, url in enumerate(indexes.urls, 1):
        default = json.dumps(number == len(indexes.urls))
        lines.append(f"[[index]]\nurl = {json.dumps(add_login(url, environ))}\ndefault = {default}\n")
    path.touch(0o600)
    path.write_text("".join(lines), encoding="utf-8")


def _names_backend(source: Path) -> bool:
    try:
        return "[build-system]" in (source / "pyproject.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _make_environment(environ: Mapping[str, str], version: str) -> dict[str, str]:
    return {
        **{name: value for name, value in environ.items() if _PASSED.fullmatch(name)},
        **(dict.fromkeys(_VERSION_VARIABLES, version) if version else {}),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": _EPOCH,
        "CC": "/bin/false",  # a compiler here would make a wheel for this machine
        "CXX": "/bin/false",
        "RUSTC": "/bin/false",
    }


def _find_isolation(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns what gives a command processes of its own: it signals no other, and what it leaves behind ends with it.

    Empty where the kernel gives users no namespaces; then the process group alone is killed.
    """
    command = ("unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--")
    try:
        done = subprocess.run((*command, "true"), env=dict(environ), capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return command if done.returncode == 0 else ()


def _run(command: tuple[str, ...], environ: Mapping[str, str], work: Path) -> None:
    log = work / "log"  # a file: what the build leaves running would hold a pipe open
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o022,
        )
        try:
            code = process.wait(timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise SourceBuildError(f"its build takes more than {_SECONDS} seconds") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what it started and left running
            process.wait()
    if code:
        raise _explain_failure(code, log.read_text(encoding="utf-8", errors="replace"), str(work))


def _explain_failure(code: int, output: str, work: str) -> ImgtoolError:
    if _NO_REQUIREMENTS.search(output):
        error = explain_failure(_NO_SOLUTION.sub("", output), work)
        if isinstance(error, CredentialsError | TemporaryError):
            return error
        return SourceBuildError("the index has no wheels for its build requirements", details=error.details)
    printed = _UVS_OWN.split(output)[0].replace(work, "")
    lines = tuple(sanitize_line(line) for line in printed.splitlines() if line.strip())[-_LAST_LINES:]
    for pattern, reason in _REASONS:
        if pattern.search(printed):
            return SourceBuildError(reason, details=lines)
    return SourceBuildError(f"{_FAILS}: {lines[-1] if lines else f'exit status {code}'}", details=lines)


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpacks an archive; returns the one folder in it."""
    folder.mkdir()
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as opened:
                _check_size(sum(member.file_size for member in opened.infolist()))
                opened.extractall(folder)  # noqa: S202 - a zip file's names stay below the folder
        else:
            with tarfile.open(archive) as tar:
                _check_size(sum(member.size for member in tar))
                tar.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise SourceBuildError(f"the archive cannot be unpacked: {error}") from error
    roots = [path for path in folder.iterdir() if path.is_dir()]
    if len(roots) != 1:
        raise SourceBuildError("the archive does not contain exactly one folder")
    return roots[0]


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise SourceBuildError(f"the archive unpacks to more than {_MOST_BYTES >> 30} GiB")


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
            if name.endswith(".dist-info/WHEEL"):  # else each release of a backend makes another wheel
                content = re.sub(rb"(?m)^Generator: .*$", b"Generator: imgtool", content)
            if name.endswith(".dist-info/METADATA"):  # `>=3.`, which setuptools let pass once and uv does not read
                content = re.sub(rb"(?m)^(Requires-Dist: .*?[=<>]\s*\d[\w.]*?)\.(?=[,;)\s]|$)", rb"\1", content)
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
