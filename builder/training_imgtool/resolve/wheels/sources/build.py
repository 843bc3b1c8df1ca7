"""Builds a pure-Python wheel from third-party code with `uv build`.

As with pip or uv, the build runs as the user, with access to the network. But imgtool hides the variables with the
machine's secrets from the build, and limits its time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from training_imgtool.base.errors import CredentialsError, ImgtoolError, InputError, TemporaryError
from training_imgtool.base.sanitize import sanitize_line
from training_imgtool.resolve.wheels.index.credentials import add_login
from training_imgtool.resolve.wheels.interpreters import find_interpreter
from training_imgtool.resolve.wheels.uv import Indexes, explain_failure, find_program

_VERSION_VARIABLES = (
    "SETUPTOOLS_SCM_PRETEND_VERSION",
    "PDM_BUILD_SCM_VERSION",
)  # hatch-vcs and flit-scm read the first of these variables
_EPOCH = "315532800"  # 1980, the first second that a zip file can express
_SECONDS = 600
_LAST_LINES = 20
_FAILS = "its build fails"
_CONSTRAINTS = (  # constraints for build requirements; each is tried if the build with the ones before fails
    "",
    "setuptools<81\n",  # setuptools 81 no longer has pkg_resources
    "setuptools<58\nwheel<0.38\n",  # later ones have no use_2to3, and refuse versions and extras that violate standards
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
_UVS_OWN = re.compile(r"(?m)^error: Failed to build ")  # uv's output follows, the backend's precedes
_UVS_HEAD = "Building wheel from source distribution...\n"
_NO_REQUIREMENTS = re.compile(r"Failed to (?:resolve|install) requirements")
_NO_SOLUTION = re.compile(r"No solution found when resolving: ")  # uv prints this also if an index does not answer


class SourceBuildError(InputError):
    """imgtool cannot build a pure-Python wheel from the archive; `details` contains the build's last lines."""


def build_wheel(
    source: Path, python: str, output: Path, *, indexes: Indexes, environ: Mapping[str, str], version: str = ""
) -> Path:
    """Builds the wheel of a folder or a source archive into the folder `output` and returns its path.

    Args:
        source: the folder, into which the build may write, or the archive.
        python: the minor version of Python for the backend.
        output: the folder for the wheel.
        indexes: the indexes for the build requirements.
        environ: the machine's environment for uv; the build gets a few of its variables.
        version: the version for backends that read it from a Git tag; empty if the code has no tag.

    Raises:
        SourceBuildError: the code needs a compiler, its build fails, or this machine lacks the Python.
        CredentialsError, TemporaryError: an index refuses, or does not answer for the build requirements.
    """
    interpreter = find_interpreter(python, environ)
    if interpreter is None:
        raise SourceBuildError(f"its build needs Python {python}: install it, with uv python install {python}")
    with tempfile.TemporaryDirectory(prefix="imgtool-build-") as temporary:
        work = Path(temporary).resolve()
        _write_settings(work / "uv.toml", indexes, environ)
        command = (
            *(find_program(), "build", "--wheel", "--color=never", "--no-sources", "--no-python-downloads"),
            *(f"--config-file={work}/uv.toml", f"--build-constraints={work}/constraints.txt"),
            *(f"--python={interpreter.path}", f"--out-dir={output}", str(source.resolve())),
        )
        _run_one(command, _make_environment(environ, version), work, _CONSTRAINTS)
    wheel = next(output.glob("*.whl"))
    if not wheel.name.endswith("-none-any.whl"):
        raise SourceBuildError("it needs a compiler: its wheel works only on machines like this one")
    return wheel


def _run_one(command: tuple[str, ...], environ: Mapping[str, str], work: Path, constraints: tuple[str, ...]) -> None:
    """Runs the build with each of the constraints until one run succeeds; if all fail, raises the first error."""
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
    """Writes the settings for uv to a file that only this user can read, to hide logins better than in variables."""
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


def _make_environment(environ: Mapping[str, str], version: str) -> dict[str, str]:
    return {
        **{name: value for name, value in environ.items() if _PASSED.fullmatch(name)},
        **(dict.fromkeys(_VERSION_VARIABLES, version) if version else {}),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": _EPOCH,
        "CC": "/bin/false",  # with a compiler, the build would make a wheel for this machine only
        "CXX": "/bin/false",
        "RUSTC": "/bin/false",
    }


def _run(command: tuple[str, ...], environ: Mapping[str, str], work: Path) -> None:
    log = work / "log"  # a file, because a process that the build leaves behind would keep a pipe open
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
                os.killpg(process.pid, signal.SIGKILL)  # also ends processes that the build left behind
            process.wait()
    if code:
        raise _explain_failure(code, log.read_text(encoding="utf-8", errors="replace"), str(work))


def _explain_failure(code: int, output: str, work: str) -> ImgtoolError:
    if _NO_REQUIREMENTS.search(output):
        error = explain_failure(_NO_SOLUTION.sub("", output), work)
        if isinstance(error, CredentialsError | TemporaryError):
            return error
        return SourceBuildError("the index has no wheels for its build requirements", details=error.details)
    printed = (_UVS_OWN.split(output)[0].replace(_UVS_HEAD, "") or output).replace(work, "")
    lines = tuple(sanitize_line(line) for line in printed.splitlines() if line.strip())[-_LAST_LINES:]
    for pattern, reason in _REASONS:
        if pattern.search(printed):
            return SourceBuildError(reason, details=lines)
    return SourceBuildError(f"{_FAILS}: {lines[-1] if lines else f'exit status {code}'}", details=lines)
