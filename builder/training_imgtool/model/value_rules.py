"""Rules for single values of a spec. `rule="NAME"` at a key in `model.spec` refers to a rule here.

A rule gets the text and the spec's folder, and returns the value or raises InputError. The reader of the spec adds the
key's path and line to the message.
"""

from __future__ import annotations

import difflib
import itertools
import os
import posixpath
import re
import stat
import tomllib
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from training_imgtool.base.errors import InputError
from training_imgtool.base.hidden import hide_secrets, remember_secret
from training_imgtool.base.image_limits import find_mount_fault, find_path_fault, find_user_fault
from training_imgtool.base.reference import DOCKER_HUB, parse_reference, parse_repository
from training_imgtool.base.resources import data_file
from training_imgtool.base.system import list_names

MAX_ENV = 1000
_LONGEST_SHOWN = 60
ENV_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_ARTIFACT_REGISTRY = re.compile(r"(?:.+[.-])?docker\.pkg\.dev\Z", re.IGNORECASE)
_ARTIFACT_REGISTRY_HOST = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*-docker\.pkg\.dev\Z")
# Variables that the images or the services set. A value from the spec would break programs that depend on them.
OWNED_ENV = {
    "TF_CONFIG": "the service sets it, differently in every replica",
    "CLUSTER_SPEC": "the service sets it, differently in every replica",
    "PATH": "the image puts /opt/venv/bin first in it",
    "LD_LIBRARY_PATH": "the image sets it so that CUDA's libraries are found, and checks that at build time",
}
_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def quote(text: str) -> str:
    """Returns the first 60 characters of `text`, quoted and escaped, for a message."""
    text = hide_secrets(text)  # a part of a secret would not be known any more
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}…"


def find_nearest(text: str, options: Iterable[str]) -> str | None:
    """Returns the option that the user probably meant when they wrote `text`, or None."""
    folded = {option.lower().replace("-", "_"): option for option in options}
    other = find_word("values", text.lower())
    if other in folded.values():
        return other
    matches = difflib.get_close_matches(text.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def find_word(table: str, word: str) -> str | None:
    """Returns imgtool's word for a word that people use elsewhere, from a table in words.toml, or None."""
    meant: str | None = _read_words()[table].get(word)
    return meant


def find_cure(table: str, word: str) -> str | None:
    """Returns what to do instead of a verb or an option that other programs have, from words.toml, or None."""
    return next((cure for cure, words in _read_words()[table].items() if word in words), None)


@cache
def _read_words() -> dict[str, dict[str, Any]]:
    return tomllib.loads(data_file("words.toml").read_text(encoding="utf-8"))


def check_text(text: str, *, lines: bool = False) -> None:
    """Raises InputError for invisible characters and for line breaks, which would add instructions to a Dockerfile.

    `lines` allows line feeds and tabs, for values that do not go into a Dockerfile unchanged, such as arguments.
    """
    for place, character in enumerate(text, start=1):
        if lines and character in "\n\t":
            continue
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in _BIDI:
            hint = "write the value on one line; `|` and `>` keep line breaks" if character in "\r\n" else None
            raise InputError(
                f"the character U+{ord(character):04X} is not allowed in a value (character {place})", hint=hint
            )


def check_env_name(name: str) -> None:
    """Raises InputError for an invalid name of a variable, and for a variable that images or services set."""
    if not re.fullmatch(ENV_NAME, name):
        raise InputError(
            f"{quote(name)} is not the name of an environment variable: expected letters, digits and '_', "
            "and no digit at the start"
        )
    if name in OWNED_ENV:
        raise InputError(f"a spec cannot set {name}: {OWNED_ENV[name]}", hint="remove it")


def check_registry(text: str, folder: Path | None = None) -> str:
    """Returns `text` if it is `HOST[:PORT][/PATH]` or a user of Docker Hub; raises InputError for other texts."""
    del folder
    if "@" in text:
        remember_secret(text.rpartition("@")[0], text.rpartition("@")[0].rpartition(":")[2])
        raise InputError(
            "expected HOST/PATH without a user name or password; the value is not shown",
            hint="log in with `docker login HOST`, and write only HOST/PATH",
        )
    if "://" in text:
        raise InputError(f"expected HOST/PATH, found {quote(text)}", hint=f"remove {text.partition('://')[0]}://")
    if not text or text != text.strip("/"):
        raise InputError(f"expected HOST/PATH without a '/' at either end, found {quote(text)}")
    host, _, path = text.partition("/")
    if ":" in path:
        hint = f"write {text.rpartition(':')[0]}; imgtool push --tag {text.rpartition(':')[2]} tags the images"
        raise InputError(f"expected HOST/PATH without a tag, found {quote(text)}", hint=hint)
    if _ARTIFACT_REGISTRY.match(host) and not (_ARTIFACT_REGISTRY_HOST.match(host) and path.count("/") >= 1):
        raise InputError(
            f"expected LOCATION-docker.pkg.dev/PROJECT/REPO, found {quote(text)}",
            hint="such as us-central1-docker.pkg.dev/my-project/training; the key `name` gives the image's name",
        )
    if host in {DOCKER_HUB, "index.docker.io", "registry-1.docker.io"} and not path:
        raise InputError(f"expected docker.io/USER, found {quote(text)}")
    if (host == "gcr.io" or host.endswith(".gcr.io")) and not path:
        raise InputError(f"expected {host}/PROJECT, found {quote(text)}")
    parse_repository(f"{text}/image")
    return text


def _limit(find_fault: Callable[[str], str | None]) -> Callable[[str, Path], str]:
    """Returns a rule that refuses a text with a fault."""

    def check(text: str, folder: Path) -> str:
        del folder
        if fault := find_fault(text):
            raise InputError(f"{quote(text)}: {fault}")
        return text

    return check


def _reference(text: str, folder: Path) -> str:
    del folder
    parse_reference(text)
    return text


def _file(text: str, folder: Path) -> str:
    path = _inside(text, folder)
    mode = (folder / path).stat().st_mode
    if not stat.S_ISREG(mode):
        raise InputError(f"expected a file, found {_kind(mode)}: {quote(path)}")
    return path


def _code(text: str, folder: Path) -> str:
    try:
        path = _in_repository(text, folder)
    except InputError as error:
        files = sorted(file for pattern in ("[!_]*.py", "*/[!_]*.py") for file in folder.glob(pattern))
        example = files[0].relative_to(folder).as_posix() if files else "src/train.py"
        choice = f"name the folder or the file with the code, such as `trainer: {example}`"
        raise InputError(error.message, hint=error.hint or choice) from error
    mode = (folder / path).lstat().st_mode
    if not stat.S_ISDIR(mode) and not (stat.S_ISREG(mode) and path.endswith(".py")):
        raise InputError(f"expected a folder or a Python file, found {_kind(mode)}: {quote(path)}")
    return path


def _shared_code(text: str, folder: Path) -> str:
    path = _in_repository(text, folder)
    mode = (folder / path).lstat().st_mode
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise InputError(f"expected a folder or a file, found {_kind(mode)}: {quote(path)}")
    return path


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISREG, "a file"), (stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a symbolic link"))
    return next((name for test, name in kinds if test(mode)), "neither a file nor a folder")


def _inside(text: str, folder: Path) -> str:
    """Returns `text` as a normalised relative path; raises InputError if there is no such path inside `folder`."""
    if not text:
        raise InputError("expected a path relative to the spec, found nothing")
    if text.startswith("/") or ".." in text.split("/"):
        raise InputError(
            f"expected a path inside the spec's folder, found {quote(text)}",
            hint="copy the file there; absolute paths and `..` are different on every machine",
        )
    path = posixpath.normpath(text)
    try:
        _expect_names(path, folder)
        real, root = os.path.realpath(folder / path, strict=True), os.path.realpath(folder, strict=True)
    except OSError as error:
        raise InputError(f"{quote(path)}: {(error.strerror or str(error)).lower()}") from error
    if real != root and not real.startswith(f"{root.rstrip('/')}/"):
        raise InputError(
            f"{quote(path)} is a symbolic link that leads out of the spec's folder", hint="copy the link's target"
        )
    return path


def _in_repository(text: str, folder: Path) -> str:
    """Checks a path as `_inside` does, but allows `..` up to the root of the Git repository; raises InputError."""
    path = posixpath.normpath(text) if text else ""
    if text.startswith("/") or path.split("/")[0] != "..":
        return _inside(path, folder)
    own = os.path.realpath(folder)
    target = posixpath.normpath(posixpath.join(own, path))
    roots = [parent for parent in (Path(own), *Path(own).parents) if (parent / ".git").exists()]
    if target == "/" or (roots and not Path(target).is_relative_to(roots[-1])):
        raise InputError(f"{quote(path)} is outside the Git repository", hint="copy it into the spec's repository")
    start = "/".join(itertools.takewhile(lambda part: part == "..", path.split("/")))
    _expect_names(posixpath.relpath(path, start), Path(own, start).resolve(), start=start)
    if os.path.realpath(target) != target:
        raise InputError(f"{quote(path)} contains a symbolic link", hint="write the path of the link's target")
    return path


def _expect_names(path: str, folder: Path, *, start: str = "") -> None:
    """Raises InputError for the first part of `path` that does not exist, with the closest existing name as a hint.

    `start` is the path of `folder` relative to the spec's folder.
    """
    parent = folder
    for part in path.split("/"):
        missing = not os.path.lexists(parent / part)
        names = list_names(parent) if parent.is_dir() and (missing or os.access(parent, os.R_OK)) else []
        if missing or (names and part not in {".", *names}):  # a Mac's file system ignores case
            close = find_nearest(part, names)
            inside = posixpath.normpath(posixpath.join(start, parent.relative_to(folder)))
            where = "next to the spec" if inside == "." else f"in {inside}/"
            raise InputError(f"there is no {quote(part)} {where}", hint=f"did you mean {close}?" if close else None)
        parent /= part


RULES: dict[str, Callable[[str, Path], str]] = {
    "registry": check_registry,
    "reference": _reference,
    "file": _file,
    "code": _code,
    "shared": _shared_code,
    "target": _limit(find_path_fault),
    "mount": _limit(find_mount_fault),
    "user": _limit(find_user_fault),
}
