"""Names what differs between the inputs of two images of a role, and says each difference once.

What only follows from another difference is left out: labels that repeat the base or the code, wheels of the same
version for another Python, the step that installs the Debian packages that were named already.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training_imgtool.changes.inputs import Attested, File, ImageInputs
from training_imgtool.dockerfile.render import BASE_DIGEST, BASE_NAME
from training_imgtool.plan import KEY_LABEL, REVISION, ROLE_LABEL, TENSORFLOW_LABEL
from training_imgtool.spec.model import APP

_REPEATED = {BASE_DIGEST, BASE_NAME, KEY_LABEL, REVISION, ROLE_LABEL, TENSORFLOW_LABEL}
_FOLDER, _LINK = "5", "2"
_KINDS = {"0": "a file", _LINK: "a link", _FOLDER: "a folder"}
_NAMES = {"User": "user", "WorkingDir": "working folder", "Entrypoint": "entry point", "Cmd": "command"}
_APT = "apt-get install --yes --no-install-recommends"
_MOST_PAIRS = 4_000_000  # lines of both files multiplied, that are compared in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One input that differs.

    Attributes:
        kind: such as `file`, `package` or `env`.
        name: of the path, package, variable.
        was: in the earlier image; None where it had none.
        now: None where there is none any more.
        text: one line for people.
    """

    kind: str
    name: str
    was: str | None
    now: str | None
    text: str


def compare(was: ImageInputs, now: ImageInputs) -> tuple[Difference, ...]:
    """Lists the differences between the inputs of two images of a role; none where their keys are the same."""
    if was.key == now.key:
        return ()
    found = [*_compare_base(was.base, now.base), *_compare_settings(was, now), *_compare_files(was, now)]
    if was.attested and now.attested:
        found = [*_compare_attested(was.attested, now.attested), *found]
    found += _compare_steps(was, now, only_runs=True)
    if not found:
        found += _compare_steps(was, now, only_runs=False)
    if was.attested and now.attested:
        found += _compare_stages(was.attested, now.attested, found)
    return tuple(found)


def _change(kind: str, name: str, was: str | None, now: str | None, label: str = "") -> Difference:
    """Writes a value that appeared, went or changed."""
    label = label or f"{kind} {name}"
    if was is None:
        text = f"{label} added: {now}"
    elif now is None:
        text = f"{label} removed, was {was}"
    else:
        text = f"{label} {was} → {now}"
    return Difference(kind=kind, name=name, was=was, now=now, text=text)


def _compare_base(was: str, now: str) -> Iterator[Difference]:
    if was == now:
        return
    texts = [text.removeprefix("docker.io/").removeprefix("library/") for text in (was, now)]
    names, digests = zip(*(text.rpartition("@")[::2] for text in texts), strict=True)
    if names[0] == names[1]:
        shown = [digest[:19] + "…" for digest in digests]
        text = f"base {names[0]}: {shown[0]} → {shown[1]}"
        yield Difference(kind="base", name="base", was=was, now=now, text=text)
    else:
        yield _change("base", "base", names[0], names[1], "base")


def _compare_attested(was: Attested, now: Attested) -> Iterator[Difference]:
    packages = list(_compare_packages(was, now))
    named = {difference.name for difference in packages}
    for name in sorted({*was.parameters, *now.parameters}):
        before, after = was.parameters.get(name), now.parameters.get(name)
        repeated = name == "tensorflow" and any(package.startswith("tensorflow") for package in named)
        if before != after and before is not None and after is not None and not repeated:
            yield _change(name, name, before, after, name)
    yield from packages
    for name in sorted(was.system ^ now.system):
        added = name in now.system
        text = f"system package {name} {'added' if added else 'removed'}"
        yield Difference(kind="system", name=name, was=None if added else name, now=name if added else None, text=text)
    for path in sorted(was.left_out ^ now.left_out):
        out = path in now.left_out
        text = f"{path} of a package is {'left out' if out else 'no longer left out'}"
        yield Difference(
            kind="trim", name=path, was="there" if out else "left out", now="left out" if out else "there", text=text
        )


def _compare_packages(was: Attested, now: Attested) -> Iterator[Difference]:
    same_python = was.parameters.get("python") == now.parameters.get("python")
    same_place = same_python and was.parameters.get("platform") == now.parameters.get("platform")
    for name in sorted({*was.packages, *now.packages}):
        before, after = was.packages.get(name), now.packages.get(name)
        if before == after:
            continue
        if before and after and before[0] == after[0]:
            if same_place and before[1] and after[1]:
                files = [f"sha256:{each[1][:12]}…" for each in (before, after)]
                text = f"{name} {after[0]}: another file of this version, {files[0]} → {files[1]}"
                yield Difference(kind="package", name=name, was=before[1], now=after[1], text=text)
            continue
        versions = (before[0] if before else None, after[0] if after else None)
        if before and after:
            yield _change("package", name, *versions, name)
        else:
            text = f"{name} {versions[0] or versions[1]} {'added' if after else 'removed'}"
            yield Difference(kind="package", name=name, was=versions[0], now=versions[1], text=text)


def _compare_settings(was: ImageInputs, now: ImageInputs) -> Iterator[Difference]:
    by_engine = bool(was.unclear)
    unclear = now.unclear if by_engine else frozenset()
    for kind, field in (("env", "Env"), ("label", "Labels")):
        before, after = was.settings.get(field) or {}, now.settings.get(field) or {}
        for name in sorted({*before, *after} - _REPEATED):
            if before.get(name) != after.get(name) and name not in unclear:
                yield _change(kind, name, before.get(name), after.get(name))
    fields = {*was.settings, *now.settings} - {"Env", "Labels"}
    for field in sorted(fields & {*_NAMES} if by_engine else fields):
        old, new = (_write(each.settings.get(field)) for each in (was, now))
        if old != new:
            label = _NAMES.get(field, field)
            yield _change(label, label, old, new, label)


def _write(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(map(str, value))
    return json.dumps(value, sort_keys=True)


def _compare_files(was: ImageInputs, now: ImageInputs) -> Iterator[Difference]:
    if was.unread:
        text = f"{was.unread / 1e6:.0f} MB of files in the image are not read, so files are not compared"
        yield Difference(kind="file", name="", was=None, now=None, text=text)
        return
    gone = {path: was.files[path] for path in sorted({*was.files} - {*now.files})}
    new = {path: now.files[path] for path in sorted({*now.files} - {*was.files})}
    for path, other in _find_moved(gone, new):
        text = f"{show_path(path)} is {show_path(other)} now"
        yield Difference(kind="file", name=show_path(other), was=show_path(path), now=show_path(other), text=text)
        del gone[path], new[other]
    for path in sorted({*was.files, *now.files}):
        name = show_path(path)
        if path in gone and _tells(path, gone):
            yield Difference(kind="file", name=name, was=gone[path].content, now=None, text=f"{name} removed")
        elif path in new and _tells(path, new):
            text = f"{name} added{_count_added(new[path])}"
            yield Difference(kind="file", name=name, was=None, now=new[path].content, text=text)
        elif path in was.files and path in now.files:
            yield from _compare_file(name, was.files[path], now.files[path])


def _find_moved(gone: Mapping[str, File], new: Mapping[str, File]) -> list[tuple[str, str]]:
    """Pairs files that went with files of the same content that appeared, where there is one of each."""
    contents = [{path: file for path, file in part.items() if file.kind == "0" and file.size} for part in (gone, new)]
    counts = [Counter(file.content for file in part.values()) for part in contents]
    return [
        (path, other)
        for path, file in contents[0].items()
        for other, copy in contents[1].items()
        if file == copy and counts[0][file.content] == counts[1][file.content] == 1
    ]


def _tells(path: str, paths: Mapping[str, File]) -> bool:
    """Returns whether a path is worth a line: a folder is not if a path in it has one."""
    return paths[path].kind != _FOLDER or not any(other.startswith(f"{path}/") for other in paths)


def _count_added(file: File) -> str:
    if file.kind != "0":
        return f", {_KINDS.get(file.kind, 'neither file, link nor folder')}" + (
            f" to {file.content}" if file.kind == _LINK else ""
        )
    if file.text is None:
        return f", {file.size} bytes"
    count = len(_split(file.text))
    return f", {count} line{'' if count == 1 else 's'}"


def _compare_file(name: str, was: File, now: File) -> Iterator[Difference]:
    if was.kind != now.kind:
        text = f"{name} was {_KINDS.get(was.kind, was.kind)} and is {_KINDS.get(now.kind, now.kind)}"
        yield Difference(kind="file", name=name, was=was.content, now=now.content, text=text)
        return
    if was.content != now.content:
        for text in _compare_contents(name, was, now):
            yield Difference(kind="file", name=name, was=was.content, now=now.content, text=text)
    if was.mode != now.mode and was.kind != _LINK:
        text = f"mode of {name} {was.mode:o} → {now.mode:o}"
        yield Difference(kind="mode", name=name, was=f"{was.mode:o}", now=f"{now.mode:o}", text=text)
    if was.owner != now.owner:
        text = f"owner of {name} {was.owner} → {now.owner}"
        yield Difference(kind="owner", name=name, was=was.owner, now=now.owner, text=text)


def _compare_contents(name: str, was: File, now: File) -> Iterator[str]:
    if was.kind == _LINK:
        yield f"link {name}: {was.content} → {now.content}"
    elif was.text is None or now.text is None:
        yield f"{name} changed, {was.size} → {now.size} bytes"
    else:
        ends = [_name_ends(text) for text in (was.text, now.text)]
        if ends[0] != ends[1]:
            yield f"line endings of {name}: {ends[0]} → {ends[1]}"
        old, new = (_split(text.replace("\r\n", "\n") if ends[0] != ends[1] else text) for text in (was.text, now.text))
        if old != new:
            added, removed = count_lines(old, new)
            yield f"{name} {added} line{'' if added == 1 else 's'} added, {removed} removed"


def _name_ends(text: str) -> str:
    windows, every = text.count("\r\n"), text.count("\n")
    return "LF" if not windows else "CRLF" if windows == every else "mixed"


def _split(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def count_lines(was: Sequence[str], now: Sequence[str]) -> tuple[int, int]:
    """Counts the lines that were added and removed; of very long files without their order."""
    start = _count_same(was, now)
    was, now = was[start:], now[start:]
    end = _count_same(was[::-1], now[::-1])
    was, now = was[: len(was) - end], now[: len(now) - end]
    if len(was) * len(now) > _MOST_PAIRS:
        same = (Counter(was) & Counter(now)).total()
    else:
        matcher = difflib.SequenceMatcher(None, was, now, autojunk=False)
        same = sum(block.size for block in matcher.get_matching_blocks())
    return len(now) - same, len(was) - same


def _count_same(was: Sequence[str], now: Sequence[str]) -> int:
    """Counts the lines that both begin with."""
    differs = (number for number, (old, new) in enumerate(zip(was, now, strict=False)) if old != new)
    return next(differs, min(len(was), len(now)))


def _compare_steps(was: ImageInputs, now: ImageInputs, *, only_runs: bool) -> Iterator[Difference]:
    """Compares instructions by their texts; what they copied is compared file by file, unless nothing else differs."""
    words = ("RUN ",) if only_runs else ("",)
    sides = [[text for text in each.steps if text.startswith(words)] for each in (was, now)]
    if was.unclear and not only_runs:
        return  # an engine writes COPY in its own words
    known = was.attested is not None and was.attested.system != (now.attested or was.attested).system
    old, new = [[text for text in side if not (known and _APT in text)] for side in sides]
    for mark, text in ((line[0], line[2:]) for line in difflib.ndiff(old, new)):
        if mark in "+-":
            added = mark == "+"
            shown = text if len(text) <= 100 else f"{text[:100]}…"
            yield Difference(
                kind="step",
                name=text.partition(" ")[0],
                was=None if added else text,
                now=text if added else None,
                text=f"step {'added' if added else 'removed'}: {shown}",
            )


def _compare_stages(was: Attested, now: Attested, found: list[Difference]) -> Iterator[Difference]:
    """Names a stage below the code whose key differs although nothing that it is made from is known to."""
    explained = {"base", "package", "system", "trim", "python", "platform", "compression", "tensorflow", "step"}
    if explained & {difference.kind for difference in found}:
        return
    names = [name for name in now.stages if was.stages.get(name, now.stages[name]) != now.stages[name]]
    if names and (len(now.stages) > 1 and names[0] != [*now.stages][-1]):
        keys = [f"{side.stages[names[0]][:12]}…" for side in (was, now)]
        text = f"stage {names[0]} {keys[0]} → {keys[1]}: pip, or how this version of imgtool installs"
        yield Difference(kind="stage", name=names[0], was=was.stages[names[0]], now=now.stages[names[0]], text=text)
    elif not found:
        text = "how this version of imgtool makes the image: nothing that it is made from differs"
        yield Difference(kind="imgtool", name="imgtool", was=None, now=None, text=text)


def show_path(path: str) -> str:
    """Shows a path of the image as the project has it: /app is the folder of the code."""
    return path.removeprefix(f"{APP}/") if path.startswith(f"{APP}/") else path
