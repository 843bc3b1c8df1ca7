"""Finds the files of a lock's wheels that nothing in the image can open, so that images leave them out.

A rule contains a pattern of paths, and texts that occur in files which may open such paths: a library's name in an ELF
file (the NEEDED entries of the dynamic section and the arguments of dlopen are strings in the file), a function of the
library that a program may look up with dlsym, or a spelling in source code. NVIDIA's own runtime images
(`nvidia/cuda:*-runtime`) contain no headers and no static archives, so a training image does not need them either.

The result depends on the content of every wheel, so the lock stores the result. Every machine leaves out the same
files, and the Dockerfile lists them. `data/wheel_contents.json` contains the facts about the usual TensorFlow and CUDA
wheels, by hash. imgtool downloads and reads any other wheel once, and stores the facts about the wheel on this machine.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.progress import Done, Outcome, Progress, Step
from training_imgtool.base.resources import data_file
from training_imgtool.base.threads import run_all
from training_imgtool.model.frameworks import FRAMEWORKS
from training_imgtool.model.lock import UnusedPath, Wheel

if TYPE_CHECKING:
    from training_imgtool.resolve.wheels.store import WheelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimRule:
    """A rule for one kind of file, which images leave out if no other file names it.

    Attributes:
        name: the rule's name in the lock and in messages.
        paths: matches the start of a path below site-packages; images leave out the whole matched file or folder.
        source: matches source code that may open the files.
        hints: texts, one of which every match of `source` contains; imgtool searches for them first, which is faster.
        words: texts, one of which each ELF file contains that may open the files.
        calls: the name of a function in the library; an ELF file that contains it may look the function up.
        inside: a text in the library itself; an ELF file with this text and `calls` contains the library.
        owners: packages whose mention of the files does not keep them; a name with a hyphen at its end is a prefix.
    """

    name: str
    paths: str
    source: bytes
    hints: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    calls: bytes = b""
    inside: bytes = b""
    owners: tuple[str, ...] = ()

    def is_named_by(self, tokens: frozenset[bytes]) -> bool:
        """Returns whether an ELF file may open the rule's files if it contains no rule's tokens except `tokens`."""
        return bool(tokens.intersection(self.words)) or (self.calls in tokens and self.inside not in tokens)


def _library(name: str, package: str, word: str = "", *, calls: bytes = b"", inside: bytes = b"") -> TrimRule:
    """Makes the rule for a shared library in one of NVIDIA's packages."""
    spellings = [f"lib{name}", rf"find_library\(\s*[\"']{name}"]
    if name == package:  # a program that imports the package also names the library
        spellings.append(rf"nvidia[./]{name}\b")
    return TrimRule(
        name=name,
        paths=rf"nvidia/{package}/lib/lib{name}\.so[.\d]*\Z",
        source="|".join(spellings).encode(),
        hints=(name.encode(),),
        words=((word or f"lib{name}").encode(),),
        calls=calls,
        inside=inside,
    )


TRIM_RULES = (
    # libnccl-net-NAME.so is NCCL's own plug-in. TensorFlow up to 2.17 contains NCCL's code, and so this name.
    _library("nccl", "nccl", "libnccl.so", calls=b"ncclCommInit", inside=b"libnccl-net"),
    _library("curand", "curand", calls=b"curandCreateGenerator"),
    _library("cusolverMg", "cusolver", calls=b"cusolverMgCreate"),
    _library("nvblas", "cublas"),
    _library("cufftw", "cufft"),
    TrimRule(
        name="libclang",  # TensorFlow requires the package for a script of its own build
        paths=r"clang(?=/)",
        source=rb"libclang[.\"']|\b(?:import|from)\s+clang\b|\bclang\.cindex\b",
        hints=(b"clang",),
        words=(b"libclang",),
        owners=("libclang",),
    ),
    *(
        TrimRule(
            name=f"headers of {row.title}",
            paths=rf"{row.headers.folder}(?=/)",
            source=row.headers.source,
            hints=row.headers.hints,
            owners=(*row.packages, *row.own),
        )
        for row in FRAMEWORKS.values()
        if row.headers
    ),
    TrimRule(
        name="headers of CUDA",
        paths=r"nvidia/(?:\w+/)+?include(?=/)|nvidia/[\w./+-]+\.a\Z",
        source=rb"\bnvrtc\b|\bnvcc\b|\bCUDA_HOME\b|nvidia[./][\w./]*include",
        hints=(b"nvrtc", b"nvcc", b"CUDA_HOME", b"nvidia"),
        words=(b"libnvrtc", b"nvrtcCompileProgram"),
        owners=("nvidia-", *(name for row in FRAMEWORKS.values() if row.headers for name in (*row.packages, *row.own))),
    ),
)
RULES = 2
"""Raise this number when the result for a wheel changes; machines ignore remembered results of other numbers."""

_TOKENS = tuple({token for rule in TRIM_RULES for token in (*rule.words, rule.calls, rule.inside) if token})
ELF = b"\x7fELF"
ALWAYS = ""
"""The rule of files that no other rule covers; they stay."""
_SOURCES = (".py", ".pyx", ".pth")
_SCRIPT = re.compile(r"[^/]+\.data/scripts/")
_INSTALLED = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")
_BLOCK = 1 << 20
_OVERLAP = max(map(len, _TOKENS)) - 1
_LARGEST_SOURCE = 64 << 20  # bytes; the rest of a longer file is ignored
_AT_ONCE = 2  # wheels that are read in parallel


def find_rule(path: str) -> tuple[str, str] | None:
    """Returns the name of the rule for a path below site-packages, and the file or folder that images may leave out."""
    for rule in TRIM_RULES:
        if match := re.match(rule.paths, path):
            return rule.name, match.group()
    return None


def names_in_source(text: bytes) -> frozenset[str]:
    """Returns the names of the rules whose files the source code in `text` may open."""
    return frozenset(
        rule.name for rule in TRIM_RULES if any(hint in text for hint in rule.hints) and re.search(rule.source, text)
    )


def names_in_elf(blocks: Iterable[bytes]) -> frozenset[str]:
    """Returns the names of the rules whose files may be opened by an ELF file, or by a setting that names a library."""
    present: set[bytes] = set()
    window = b""
    for block in blocks:
        window = window[-_OVERLAP:] + block
        present |= {token for token in _TOKENS if token not in present and token in window}
    return frozenset(rule.name for rule in TRIM_RULES if rule.is_named_by(frozenset(present)))


def names_in_file(name: str, blocks: Iterable[bytes]) -> frozenset[str]:
    """Returns the names of the rules whose files an ELF file or a source file may open; empty for any other file."""
    stream = iter(blocks)
    first = next(stream, b"")
    if first.startswith(ELF):
        return names_in_elf(chain((first,), stream))
    if not name.endswith(_SOURCES) and not _SCRIPT.match(name):
        return frozenset()
    text = bytearray(first)
    for block in stream:
        if len(text) > _LARGEST_SOURCE:
            break
        text += block
    return names_in_source(bytes(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelContents:
    """What `list_unused` needs to know about one wheel.

    Attributes:
        paths: the size in bytes and the rule's name for each path below site-packages that a rule covers.
        names: the names of the rules whose files this wheel's files may open. The key is the rule that covers
            the wheel's file, or `ALWAYS` if no rule does.
    """

    paths: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Returns the facts as JSON data for `parse_contents`."""
        return {
            "paths": {path: [size, rule] for path, (size, rule) in sorted(self.paths.items())},
            "names": {rule: sorted(names) for rule, names in sorted(self.names.items())},
        }


def parse_contents(data: Any) -> WheelContents | None:
    """Reads the result of `as_data`; returns None for anything else."""
    try:
        paths = {str(path): (int(size), str(rule)) for path, (size, rule) in data["paths"].items()}
        names = {str(rule): frozenset(map(str, names)) for rule, names in data["names"].items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    return WheelContents(paths=paths, names=names)


def read_contents(path: Path, package: str) -> WheelContents:
    """Reads every ELF file and every Python source of a wheel.

    Args:
        path: the wheel.
        package: the package's normalised name.

    Raises VerificationError if the wheel is damaged.
    """
    paths: dict[str, tuple[int, str]] = {}
    names: dict[str, set[str]] = {}
    own = {rule.name for rule in TRIM_RULES if _is_owner(package, rule.owners)}
    with _opening(path) as archive:
        for member in archive.infolist():
            rule, top = find_rule(_INSTALLED.sub("", member.filename, count=1)) or (ALWAYS, "")
            if top:
                paths[top] = (paths.get(top, (0, rule))[0] + member.file_size, rule)
            with archive.open(member) as stream:
                names.setdefault(rule, set()).update(names_in_file(member.filename, _read_blocks(stream)) - own)
    return WheelContents(paths=paths, names={rule: frozenset(named) for rule, named in names.items() if named})


@contextmanager
def _opening(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens a wheel for a `with` block; raises VerificationError if the block finds that the wheel is damaged."""
    from training_imgtool.base.wheel_zip import ZIP_ERRORS  # late: each push loads this module

    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (*ZIP_ERRORS, OSError) as error:
        raise VerificationError(f"{path.name}: damaged wheel: {error}", hint=f"remove {path}, run again") from error


def _is_owner(package: str, owners: tuple[str, ...]) -> bool:
    return any(package == owner or (owner[-1] == "-" and package.startswith(owner)) for owner in owners)


def _read_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yields the blocks of a file; the first one is short, because imgtool needs only the start of most files."""
    yield stream.read(len(ELF))
    while block := stream.read(_BLOCK):
        yield block


def list_unused(contents: Iterable[WheelContents]) -> tuple[UnusedPath, ...]:
    """Lists, sorted, the paths that a rule covers and that no file left in the image names.

    A file that is itself left out keeps no other file in the image, so this repeats until the result is stable.
    """
    rows = tuple(contents)
    needed: set[str] = set()
    added = {ALWAYS}
    while added:
        added = {name for row in rows for rule in added for name in row.names.get(rule, ())} - needed
        needed |= added
    unused = [
        UnusedPath(path=path, size=size, rule=rule)
        for row in rows
        for path, (size, rule) in row.paths.items()
        if rule not in needed
    ]
    return tuple(sorted(unused, key=lambda row: row.path))


class WheelReader:
    """Reads the contents of wheels, and stores the results under the wheels' hashes.

    Args:
        store: downloads wheels that imgtool has not read before.
        path: the file that keeps the results between runs.
        progress: receives the downloads.
    """

    def __init__(self, store: WheelStore, path: Path, progress: Progress) -> None:
        self._store, self._path, self._progress = store, path, progress

    def list_unused(self, wheels: tuple[Wheel, ...]) -> tuple[UnusedPath, ...]:
        """Lists the paths that nothing in `wheels` can open, sorted.

        Raises what `WheelStore.fetch` raises, and VerificationError for a damaged wheel.
        """
        shipped, remembered = json.loads(data_file("wheel_contents.json").read_bytes()), self._read_remembered()
        contents = {
            wheel.sha256: parse_contents(shipped.get(wheel.sha256) or remembered.get(wheel.sha256)) for wheel in wheels
        }
        if missing := tuple(wheel for wheel in wheels if contents[wheel.sha256] is None):
            size = sum(wheel.size for wheel in missing) / 1e6
            self._progress(Step("trim", f"reading {len(missing)} wheels, {size:.1f} MB"))
            self._store.fetch(missing, self._progress)
            if not any(row.paths for row in contents.values() if row) and not any(map(self._has_paths, missing)):
                self._progress(Done("trim", Outcome.LOCKED, f"{len(missing)} wheels have nothing to leave out"))
                return ()
            read = run_all({wheel.sha256: partial(self._read, wheel) for wheel in missing}, most=_AT_ONCE)
            contents |= read
            new = {sha256: row.as_data() for sha256, row in read.items()}
            write_cached(self._path, {**self._read_remembered(), **new})
            self._progress(Done("trim", Outcome.LOCKED, f"{len(missing)} wheels"))
        return list_unused(filter(None, contents.values()))

    def _has_paths(self, wheel: Wheel) -> bool:
        """Returns whether any rule covers a file in a wheel; reads only the list of the files. Raises as `_read`."""
        path = self._store.require(wheel)
        with _opening(path) as archive:
            return any(find_rule(_INSTALLED.sub("", name, count=1)) for name in archive.namelist())

    def _read(self, wheel: Wheel) -> WheelContents:
        return read_contents(self._store.require(wheel), wheel.name)

    def _read_remembered(self) -> dict[str, Any]:
        value = read_cached(self._path)
        return value if isinstance(value, dict) else {}
