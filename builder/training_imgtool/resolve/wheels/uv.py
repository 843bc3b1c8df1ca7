"""Resolves requirements for an image's Python with uv, and finds the indexes that this machine uses.

uv runs as a program, and never executes code from an archive. Either uv uses only wheels, or each process that uv
starts for a build ends at once, and `ArchiveNeededError` names the archive that uv needs. uv uses its own settings for
the indexes, including netrc and keyring. The result for a lock contains no URL and no credential.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from training_imgtool.base.errors import CredentialsError, ImgtoolError, InputError, LocalFileError, TemporaryError
from training_imgtool.model.requirements import Binding
from training_imgtool.resolve.versions.closure import Package, list_readable
from training_imgtool.resolve.versions.markers import full_version
from training_imgtool.resolve.wheels.index.bound import write_bound
from training_imgtool.resolve.wheels.index.page import IndexedFile, write_index
from training_imgtool.resolve.wheels.wheel_tags import choose_wheel, name_uv_platform

_SECONDS = 600
_OWN_WHEEL = (
    "take a version that has one; or build the wheel beside the spec (pip wheel --no-deps -w wheels NAME) and require "
    "./wheels/FILE.whl, or put its folder into UV_FIND_LINKS"
)
_TRUE = frozenset({"1", "true", "yes", "on"})  # uv has no variable of its own for --no-index
_SYSCONFIG = threading.Lock()
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")  # the form of variables in requirements files of pip and uv
_LOGIN = re.compile(r"\bhttps?://(?P<login>[^/\s@]*)@(?P<host>[\w.:\[\]-]+)(?=[/\s]|$)")
_ALLOWED = "IMGTOOL_INDEX_VARIABLES"
_CREDENTIALS = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]+@", re.IGNORECASE)
_ARCHIVE = re.compile(r"Failed to (?:download and )?build `([^`=\s]+)==([^`\s]+)`")
_WANTED_BY = re.compile(r"was included because `([^`]+)` \(v([^)]+)\) depends on")
_YANKED = re.compile(r"warning: `([^`=\s]+)==([^`]+)` is yanked(?: \(reason: \"(.*)\"\))?")
_UNREADABLE = re.compile(r"Metadata for `([^`]+)` \(v([^)]+)\) could not be parsed")
_NO_WHEEL = re.compile(r"Wheels are required for `([^`]+)`")
_REFUSED = re.compile(r"\b(?:401|403)\b|[Uu]nauthori[sz]ed|Missing credentials|Failed to (?:fetch )?credentials")
_LOCKED_OUT = re.compile(r"could not be queried due to a lack of valid authentication")  # uv: as if it had no package
_DISK = re.compile(
    r"initialize cache|acquire lock|Permission denied|Read-only file system|No space left on device|Disk quota exceeded"
)
_CAUSE = re.compile(r"([A-Z][\w -]+) \(os error \d+\)")
_UNKNOWN = re.compile(r"\b([\w.-]+) was not found in the (?:package registry|provided package locations)")
_NO_VERSION = re.compile(r"there is no version of ([\w.-]+)")
_QUOTED_PATH = re.compile(r"[`\"](/[^`\"]+)[`\"]")
_UNREACHABLE = re.compile(
    r"error sending request|Failed to fetch|Request failed|Connection|timed out|dns error|status server error|\b429\b"
)


class ArchiveNeededError(InputError):
    """A resolution needs a release that has no wheel here, only a source archive.

    Args:
        name: the package.
        version: the version of the release.
        wanted_by: name and version of the first package that requires this one; None if the requirements name it.
    """

    def __init__(self, name: str, version: str, wanted_by: tuple[str, str] | None) -> None:
        super().__init__(f"{name} {version} has no wheel that fits, only a source archive")
        self.name, self.version, self.wanted_by = name, version, wanted_by


class UnknownPackageError(InputError):
    """The index has no package with this name.

    Args:
        name: the name in the requirements, or in another package's requirements.
        details: uv's output.
    """

    def __init__(self, name: str, details: tuple[str, ...]) -> None:
        hint = "correct the name; a private package needs its index (UV_INDEX, or pip.conf)"
        super().__init__(f"the package index has no {name}", hint=hint, details=details)
        self.name = name


class UnreadableMetadataError(InputError):
    """A release contains a requirement in an old form that pip accepts and uv refuses, such as `pytz (>=2011k)`.

    Args:
        name: the package.
        version: the version of the release.
        error: uv's output.
    """

    def __init__(self, name: str, version: str, error: InputError) -> None:
        super().__init__(error.message, hint=error.hint, details=error.details)
        self.name, self.version = name, version


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedWheel:
    """One resolved wheel, and its URL for this machine.

    `size` is None if the index does not state the size. `url` may be a `file:` URL, and is valid only on this machine.
    `yanked` is the reason why the publishers withdrew the release, possibly empty; None if they did not withdraw it.
    """

    name: str
    version: str
    file: str
    sha256: str
    size: int | None
    url: str
    yanked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a resolution: `python` such as 3.11, `platform` such as linux/amd64, `glibc` such as 2.36."""

    python: str
    platform: str
    glibc: str


@dataclass(frozen=True, slots=True)
class Indexes:
    """The places where uv looks: simple indexes, the default one last, and find-links. URLs may contain credentials."""

    urls: tuple[str, ...]
    find_links: tuple[str, ...]


def find_indexes(environ: Mapping[str, str], options: tuple[str, ...] = ()) -> Indexes:
    """Finds the indexes of this machine as uv does: from variables, the user's files, and uv's own default.

    Args:
        environ: the machine's environment for uv; its values replace `${NAME}` in options if it allows that.
        options: lines of a requirements file, such as `--extra-index-url URL`.
    """
    lines = "".join(f"{option}\n" for option in options)
    with tempfile.TemporaryDirectory(prefix="imgtool-uv-") as temporary:
        text = _run(("--emit-index-url", "--emit-find-links"), lines, Path(temporary), environ=environ).stdout
    text = _VARIABLE.sub(lambda variable: environ.get(variable[1], variable[0]), text)
    values: dict[str, list[str]] = {"--index-url": [], "--extra-index-url": [], "--find-links": []}
    for line in text.splitlines():
        option, _, value = line.partition(" ")
        if option in values:
            values[option].append(value.strip())
    return Indexes((*values["--extra-index-url"], *values["--index-url"]), tuple(values["--find-links"]))


def compile_requirements(
    requirements: str,
    target: Target,
    *,
    environ: Mapping[str, str],
    constraints: tuple[str, ...] = (),
    find_links: tuple[Path, ...] = (),
    hashes: Mapping[str, frozenset[str]] | None = None,
    preferred: Mapping[str, str] | None = None,
    wheels_only: frozenset[str] | None = None,
    metadata: Iterable[Package] = (),
    pages: Mapping[str, tuple[IndexedFile, ...]] | None = None,
    bound: tuple[Binding, ...] = (),
) -> tuple[ResolvedWheel, ...]:
    """Resolves `requirements` to one wheel per package, sorted by name.

    Args:
        requirements: the text of a requirements file; a `-r` in it names an absolute path.
        target: the image's Python, platform and C library.
        environ: the machine's environment for uv.
        constraints: lines of a constraints file.
        find_links: folders with wheels that no index has.
        hashes: the allowed sha256 values per package, if the user's file has some.
        preferred: the version to choose per package, if it fits.
        wheels_only: the packages whose source archives uv ignores; None for all packages.
        metadata: metadata that replaces the releases' own.
        pages: the files of packages, by name, from which uv chooses before it looks on any index.
        bound: the packages that come from one index only.

    Raises:
        UnreadableMetadataError: uv cannot read a release's own metadata, and `metadata` has none for it.
        ArchiveNeededError: uv needs a source archive.
        InputError: the requirements conflict, or a package has no fitting wheel; `details` has uv's output.
        CredentialsError: an index refuses.
        TemporaryError: an index does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="imgtool-uv-") as temporary:
        work = Path(temporary)
        (work / "constraints.txt").write_text("".join(f"{line}\n" for line in constraints), encoding="utf-8")
        output = work / "pylock.toml"
        if preferred:
            output.write_text(_write_pylock(preferred), encoding="utf-8")
        options = (
            f"--output-file={output}",  # uv prefers the versions in this file
            "--format=pylock.toml",
            f"--constraints={work}/constraints.txt",
            f"--python-version={full_version(target.python)}",
            f"--python-platform={name_uv_platform(target.platform, target.glibc)}",
            *_list_archive_options(wheels_only),
            *([write_bound(bound, environ, work)] if bound else []),
        )
        # As an option, --find-links would replace the places of the user's variable.
        places = ",".join(filter(None, (environ.get("UV_FIND_LINKS"), *map(str, find_links))))
        environ = {**environ, "UV_FIND_LINKS": places} if places else environ
        environ = _add_metadata(_without_builds(environ, work), metadata, work)
        if pages:
            own = write_index(pages, work / "index")
            environ = {**environ, "UV_INDEX": f"{own} {environ.get('UV_INDEX', '')}".strip()}
        said = _run(options, requirements, work, environ=environ).stderr
        yanked = {(name, version): why for name, version, why in _YANKED.findall(said)}
        packages = tomllib.loads(output.read_text(encoding="utf-8")).get("packages", [])
        resolved = [_choose(package, target, hashes or {}, work) for package in packages]
        resolved = [replace(row, yanked=yanked.get((row.name, row.version))) for row in resolved]
    return tuple(sorted(resolved, key=lambda wheel: wheel.name))


def _list_archive_options(wheels_only: frozenset[str] | None) -> tuple[str, ...]:
    if wheels_only is None:
        return ("--only-binary=:all:",)
    return ("--no-build-isolation", *(f"--only-binary={name}" for name in sorted(wheels_only)))


def _without_builds(environ: Mapping[str, str], work: Path) -> dict[str, str]:
    """Makes an environment in which each Python that uv starts for a build ends before it runs code of an archive."""
    trap = work / "trap"
    trap.mkdir()
    (trap / "sitecustomize.py").write_text("import os\nos._exit(1)\n", encoding="utf-8")
    return {**environ, "PYTHONPATH": str(trap)}


def _add_metadata(environ: Mapping[str, str], packages: Iterable[Package], work: Path) -> dict[str, str]:
    """Writes a uv.toml with the metadata of releases into `work`, and returns an environment in which uv reads it.

    Source: https://docs.astral.sh/uv/reference/settings/#dependency-metadata
    """
    rows = "".join(
        f"[[dependency-metadata]]\nname = {json.dumps(package.name)}\nversion = {json.dumps(package.version)}\n"
        f"requires-dist = {json.dumps([*list_readable(package)])}\n"
        for package in packages
    )
    own = environ.get("UV_CONFIG_FILE")
    settings = work / "uv.toml"
    settings.write_text(f"{Path(own).read_text('utf-8')}\n{rows}" if own and rows else rows, encoding="utf-8")
    if not rows or not (own or environ.get("UV_NO_CONFIG")):
        return {**environ}
    return {**environ, "UV_NO_CONFIG": "0", "UV_CONFIG_FILE": str(settings)}


def _write_pylock(versions: Mapping[str, str]) -> str:
    """Formats a pylock.toml (PEP 751) with exactly these versions."""
    rows = (
        f"[[packages]]\nname = {json.dumps(name)}\nversion = {json.dumps(version)}\n"
        for name, version in versions.items()
    )
    return 'lock-version = "1.0"\ncreated-by = "imgtool"\n' + "".join(rows)


def _choose(
    package: Mapping[str, object], target: Target, hashes: Mapping[str, frozenset[str]], work: Path
) -> ResolvedWheel:
    name, version = str(package["name"]), str(package.get("version", ""))
    candidates = _read_candidates(package, work)
    wanted = hashes.get(name)
    if wanted:
        candidates = {file: row for file, row in candidates.items() if row[0] in wanted}
    file = choose_wheel(candidates, target.python, target.platform, target.glibc)
    if file is None and not wanted and "sdist" in package:
        raise ArchiveNeededError(name, version, None)
    if file is None:
        why = " with one of the hashes in the requirements" if wanted else ""
        raise InputError(
            f"{name} {version} has no wheel{why} for Python {target.python}, {target.platform}, glibc {target.glibc}",
            hint=_OWN_WHEEL,
        )
    sha256, size, url = candidates[file]
    return ResolvedWheel(name=name, version=version, file=file, sha256=sha256, size=size, url=url)


def _read_candidates(package: Mapping[str, object], work: Path) -> dict[str, tuple[str, int | None, str]]:
    """Maps file names to hash, size and URL; a relative path starts at the folder of the pylock.toml."""
    rows = package.get("wheels") or ([package["archive"]] if "archive" in package else [])
    candidates = {}
    for row in rows if isinstance(rows, list) else []:
        url = str(row.get("url") or (work / str(row.get("path"))).resolve().as_uri())
        file = str(row.get("name") or unquote(urlsplit(url).path.rpartition("/")[2]))
        sha256 = row.get("hashes", {}).get("sha256")
        if sha256:
            candidates[file] = (str(sha256), row.get("size"), url)
    return candidates


def _run(
    options: tuple[str, ...], requirements: str, work: Path, *, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs `uv pip compile` and returns its result; `work` is a folder for the files of this run."""
    _check_variables(requirements, environ)
    (work / "spec.txt").write_text(requirements, encoding="utf-8")
    (work / "uv.toml").touch()  # so that uv looks for no uv.toml in parent folders; it still reads the user's own
    command = [
        find_program(),
        *("pip", "compile", str(work / "spec.txt"), "--no-header", "--no-annotate"),
        *("--color=never", "--no-python-downloads", f"--python={sys.executable}"),
        *(["--no-index"] if environ.get("UV_NO_INDEX", "").lower() in _TRUE else []),
        *options,
    ]
    try:
        done = subprocess.run(
            command, cwd=work, env=dict(environ), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TemporaryError(f"uv did not finish within {_SECONDS} seconds") from error
    if done.returncode:
        raise explain_failure(done.stderr, f"{work}/")
    return done


def _check_variables(requirements: str, environ: Mapping[str, str]) -> None:
    """Raises InputError for a `${NAME}` that the user has not allowed in the login of that host.

    Without this check, a project's file could send any environment variable of the machine to any host.
    """
    allowed = {part.strip() for part in environ.get(_ALLOWED, "").split(",")}
    for line in requirements.splitlines():
        login = _LOGIN.search(line)
        for variable in _VARIABLE.finditer(line):
            inside = login is not None and login.start("login") <= variable.start() < login.end("login")
            if login is None or not inside or f"{variable[1]}@{login['host']}" not in allowed:
                raise InputError(
                    f"the requirements use {variable[0]}, which you have not allowed them to read",
                    hint=f"to allow it as login of the index on HOST: export {_ALLOWED}={variable[1]}@HOST",
                )


def find_program() -> str:
    """Finds the uv program in uv's Python package."""
    from uv import find_uv_bin

    # One thread at a time, because `find_uv_bin` calls Python 3.11's sysconfig, which is not safe for threads.

    with _SYSCONFIG:
        return find_uv_bin()


def read_version() -> str:
    """Returns the output of `uv --version`, such as `uv 0.13.8 (x86_64-…)`; raises LocalFileError without uv."""
    try:
        done = subprocess.run([find_program(), "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalFileError(f"cannot run uv: {error}", hint="install imgtool again; uv comes with it") from error
    return done.stdout.strip()


def explain_failure(stderr: str, temporary: str) -> ImgtoolError:
    """Returns the error for uv's output, without logins and without the path of its temporary folder."""
    text = _CREDENTIALS.sub(r"\1", stderr).replace(temporary, "")
    lines = tuple(line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("warning:"))
    is_solved = "No solution" not in text
    if is_solved and _DISK.search(text) and not _UNREACHABLE.search(text):
        path, cause = _QUOTED_PATH.search(text), _CAUSE.search(text)
        message = f"{path[1] if path else 'its cache'}: uv cannot use it{f': {cause[1]}' if cause else ''}"
        return LocalFileError(message, hint="set IMGTOOL_CACHE to another folder, for uv too", details=lines)
    if fault := _explain_releases(text, lines):
        return fault
    if _LOCKED_OUT.search(text) or (_REFUSED.search(text) and is_solved):
        hint = "put user name and password into the index's URL, netrc or keyring, as for uv and pip"
        return CredentialsError("the package index refused the login (HTTP 401 or 403)", hint=hint, details=lines)
    if _UNREACHABLE.search(text) and is_solved:
        return TemporaryError("the package index does not answer", hint="try again later", details=lines)
    if unknown := _UNKNOWN.search(text):
        return UnknownPackageError(unknown[1], lines)
    hint = "loosen one of the requirements that uv names, or take another release of the framework"
    if missing := _NO_VERSION.search(text):
        hint = f"require a version of {missing[1]} that the index has for this Python"
    error = InputError("the requirements cannot be resolved together with the framework", hint=hint, details=lines)
    unreadable = _UNREADABLE.search(text)
    return UnreadableMetadataError(unreadable[1], unreadable[2], error) if unreadable else error


def _explain_releases(text: str, lines: tuple[str, ...]) -> InputError | None:
    """Returns the error for releases without a wheel; None if uv's output mentions no such release."""
    archive, wanted_by = _ARCHIVE.search(text), _WANTED_BY.search(text)
    if archive:
        return ArchiveNeededError(archive[1], archive[2], (wanted_by[1], wanted_by[2]) if wanted_by else None)
    names = ", ".join(sorted(set(_NO_WHEEL.findall(text))))
    return InputError(f"no wheel of {names} fits", hint=_OWN_WHEEL, details=lines) if names else None
