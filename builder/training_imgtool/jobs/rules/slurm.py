"""Checks Slurm batch scripts: the #SBATCH options, with the table `slurm.yaml`, and the names of pyxis' images.

Source: the manual page of sbatch (Slurm 22.05 to 25.05), the errors that sbatch prints, and the pages of pyxis and
enroot.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache

from training_imgtool.jobs.model import Finding, Severity
from training_imgtool.jobs.rules.images import image_findings
from training_imgtool.jobs.rules.secrets import line_secrets
from training_imgtool.jobs.rules.shapes import key_hint
from training_imgtool.jobs.rules.slurm_ranks import script_ranks
from training_imgtool.jobs.yamlio import read_table

_SOURCE = "sbatch manual"
_MARK = "#SBATCH"
_IMAGE = re.compile(r"--container-image[= ]['\"]?([^\s'\"]+)")
_SUCH_AS = {"time": "such as 90 (minutes), 1:30:00 or 2-12", "size": "such as 32G: a whole number, K, M, G or T"}
_MEMORIES = {"mem", "mem-per-cpu", "mem-per-gpu"}
Placed = tuple[int, Finding]


def is_script(text: str) -> bool:
    """Tells whether a file is a batch script."""
    return text.startswith("#!") or re.search(rf"(?m)^{_MARK}\s", text) is not None


def script_findings(text: str) -> Iterator[Placed]:
    """Finds options that sbatch refuses, and images that pyxis cannot read, each with its line."""
    lines = text.splitlines()
    if not text.startswith("#!"):
        yield 0, _error("the first line of a batch script names its shell: expected #!/bin/bash")
    head = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    given: dict[str, int] = {}
    for index, line in enumerate(lines):
        if not re.match(rf"{_MARK}\s", line) or "{{" in line:  # a line of a template is not an option yet
            continue
        if index > head:
            message = "sbatch reads no options below the first command"
            yield index, replace(_error(message), severity=Severity.WARNING)
            continue
        for name, finding in _options(line.removeprefix(_MARK)):
            given[name] = index
            yield from [(index, finding)] if finding else []
    if len(both := sorted(_MEMORIES & given.keys())) > 1:
        yield given[both[1]], _error(f"--{both[1]} does not go with --{both[0]}: expected one of them")
    for index, line in enumerate(lines):
        for name in () if line.startswith(_MARK) else _IMAGE.findall(line):
            yield from ((index, finding) for finding in _image_findings(name.rstrip("\\").replace("\\#", "#")))
    yield from script_ranks(lines)
    yield from line_secrets(lines)


def _error(message: str, hint: str | None = None) -> Finding:
    return Finding(path=(), message=message, hint=hint, source=_SOURCE)


def _options(text: str) -> Iterator[tuple[str, Finding | None]]:
    """Reads the options of a line as getopt does, each with its fault or None."""
    text = text.rstrip()
    text = text[:-1] if (len(text) - len(text.rstrip("\\"))) % 2 else text
    try:
        words, uncut = ([word for word in shlex.split(text, comments=ends) if word.strip()] for ends in (True, False))
    except ValueError:
        yield "", _error(f"{text.strip()!r}: a quote has no end")
        return
    if words != uncut[: len(words)]:
        message = f"sbatch ends {uncut[len(words) - 1]!r} at the #, where a comment begins"
        yield "", _warning(message, "write \\#", _SOURCE)
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            yield "", _error(f"{word!r} is not an option: expected -X or --NAME, values with spaces in quotes")
            continue
        long = word.startswith("--")
        given, equals, value = word[2:].partition("=") if long else (word[1], "=" if word[2:] else "", word[2:])
        found = _find(given, long=long)
        if len(found) != 1:
            yield given, _unknown(word, found, key_hint(given, _table()[0]) if long else "see man sbatch")
            words = words if equals else []  # the next word may or may not be the option's value
            continue
        ((name, kind),) = found.items()
        if not equals and kind != "flag" and not kind.endswith("?"):
            equals, value = "=", words.pop(0) if words else ""
        if kind == "flag" and not long and value:  # -Qv means -Q -v
            words.insert(0, f"-{value}")
            equals = ""
        yield name, _value_finding(name, kind, value if equals else None)
        yield from ((name, found) for found in (_image_findings(value) if name == "container-image" else ()))


def _find(given: str, *, long: bool) -> dict[str, str]:
    """Maps the option with this name or letter, or else every option with this prefix, to its kind of value."""
    kinds = {name: kind for name, (kind, short) in _table()[0].items() if long or short == given}
    return {given: kinds[given]} if given in kinds else {
        name: kind for name, kind in kinds.items() if not long or name.startswith(given)
    }  # fmt: skip


def _unknown(word: str, found: Collection[str], hint: str | None) -> Finding:
    if found:
        return _error(f"{word!r} is ambiguous: it may be --{', --'.join(found)}")
    if hint:
        return _error(f"{word!r} is not an option of sbatch", hint)
    message = f"{word!r} is not an option of sbatch: a cluster without a plugin for it refuses the script"
    return replace(_error(message), severity=Severity.WARNING)


def _value_finding(name: str, kind: str, value: str | None) -> Finding | None:
    if kind == "flag":
        return _error(f"--{name} takes no value, found {value!r}") if value is not None else None
    if value is None:
        return None
    pattern = _table()[1].get(kind.removesuffix("?"), kind)
    ends = re.findall(r"(\d+)-(\d+)", value) if kind in {"nodes", "array"} else []
    if re.fullmatch(pattern, value, re.IGNORECASE) and all(int(low) <= int(high) for low, high in ends):
        return None
    if not value:
        return _error(f"--{name} needs a value")
    return _error(f"--{name}: {value!r} is not a value that sbatch reads", _SUCH_AS.get(kind))


@cache
def _table() -> tuple[dict[str, tuple[str, str | None]], dict[str, str]]:
    table = read_table("slurm.yaml", "jobs/rules")
    rows = {name: words.partition(" ") for name, words in table["options"].items()}
    return {name: (kind, short or None) for name, (kind, _, short) in rows.items()}, table["kinds"]


def _image_findings(value: str) -> Iterator[Finding]:
    """Warns about image names that pyxis or enroot misreads, and about tags."""
    scheme, _, rest = value.rpartition("://")
    if "$" in value or value.startswith(("/", "./")):
        what = "a placeholder" if "$" in value else "a file"
        yield replace(_warning(f"{value} is {what}: imgtool does not check the image"), severity=Severity.HINT)
        return
    registry, mark, image = rest.rpartition("#")
    first, slash, _ = image.partition("/")
    if value.endswith(".sqsh"):
        message = f"{value}: pyxis reads this as an image of Docker Hub: expected ./{value}"
        yield replace(_warning(message), is_unpinned=True)
    elif not mark and slash and ("." in first or ":" in first) and scheme in {"", "docker"}:
        message = f"{value}: pyxis reads {first} as a folder of Docker Hub: expected {first}#{image[len(first) + 1 :]}"
        yield replace(_warning(message), is_unpinned="@" not in image)
    elif "@" in image and ":" in image.partition("@")[0]:
        yield _warning(f"{value}: enroot 3 cannot read a tag and a digest together: expected one of them")
    else:
        yield from image_findings(f"{registry}/{image}" if mark else image, ())


def _warning(message: str, hint: str | None = None, source: str = "pyxis and enroot") -> Finding:
    return replace(_error(message, hint), severity=Severity.WARNING, source=source)
