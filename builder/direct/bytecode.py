"""Compiled bytecode as `compileall --invalidation-mode unchecked-hash` makes it, without an image to run it in.

Any interpreter with the same magic number makes bytecode that the image's interpreter takes. Sources go
to fresh processes in batches and nothing but the standard modules of start-up is loaded there, so the
bytes do not depend on the order or on what was compiled before (measured over 6 380 files of a TensorFlow
stack: no difference forwards, backwards or under another hash seed; 18 files differ between 3.11.2 and
3.11.7, whose compilers differ). The format is PEP 552's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path

from builder.errors import LocalFileError
from builder.records import dataclass

_BATCH = 2 << 20  # bytes of source for one process: it starts in 15 ms and compiles this in 300
_ASK = """
import sys, importlib.util
print(sys.implementation.name, "%d.%d" % sys.version_info[:2], importlib.util.MAGIC_NUMBER.hex(),
      sys.implementation.cache_tag, sys.version.split()[0])
"""
_COMPILE = """
import sys, marshal, _imp
magic = bytes.fromhex(sys.argv[1])
raw = int.from_bytes(magic, "little")
take, give = sys.stdin.buffer.read, sys.stdout.buffer.write
while True:
    head = take(8)
    if not head:
        break
    path = take(int.from_bytes(head[:4], "little")).decode("utf-8", "surrogateescape")
    source = take(int.from_bytes(head[4:], "little"))
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=-1)
        data = magic + b"\\1\\0\\0\\0" + _imp.source_hash(raw, source) + marshal.dumps(code)
        del code
    except Exception:
        data = b""
    give(len(data).to_bytes(4, "little") + data)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A CPython on this machine.

    Attributes:
        python: the minor version, `3.11`.
        magic: the first four bytes of its bytecode files, in hexadecimal.
        tag: what stands in their names, `cpython-311`.
        version: the full version, `3.11.7`.
    """

    path: str
    python: str
    magic: str
    tag: str
    version: str

    def cached(self, path: str) -> str:
        """Where the bytecode of the source at `path` belongs (PEP 3147)."""
        folder, _, name = path.rpartition("/")
        return f"{folder}/__pycache__/{name.removesuffix('.py')}.{self.tag}.pyc"


def find_interpreter(python: str, environ: Mapping[str, str], release: str | None = None) -> Interpreter | None:
    """A CPython of the minor version `python`: this one, one on PATH, or one that uv knows; None without one.

    Args:
        python: the minor version, `3.11`.
        environ: says where to look.
        release: the full version that the image has, where known: taken when it is here, so that two machines that
            have it make the same bytes, and the same as an engine.
    """
    first = None
    asked: set[str] = set()
    for path in _candidates(python, environ, release):  # one after the other: to ask uv takes 0.1 s
        if path in asked:
            continue
        asked.add(path)
        found = _ask(path, environ)
        if found is None or found.python != python:
            continue
        if release in {None, found.version}:
            return found
        first = first or found
    return first


def _candidates(python: str, environ: Mapping[str, str], release: str | None) -> Iterator[str]:
    if sys.version_info[:2] == tuple(int(part) for part in python.split(".")[:2]):
        yield sys.executable
    for folder in environ.get("PATH", "").split(":"):
        if folder and (found := shutil.which(f"python{python}", path=folder)):
            yield found
    uv = shutil.which("uv", path=environ.get("PATH", ""))
    for version in filter(None, (release, python)) if uv else ():
        command = [str(uv), "python", "find", "--offline", "--no-python-downloads", "--no-project", "--system", version]
        try:
            asked = subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return
        if asked.returncode == 0 and asked.stdout.strip():
            yield asked.stdout.strip()


def _ask(path: str, environ: Mapping[str, str]) -> Interpreter | None:
    try:
        asked = subprocess.run(
            [path, "-I", "-S", "-c", _ASK], env=dict(environ), capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    answer = asked.stdout.split()
    if asked.returncode != 0 or len(answer) != 5 or answer[0] != "cpython":
        return None
    return Interpreter(path=path, python=answer[1], magic=answer[2], tag=answer[3], version=answer[4])


def compiled(
    interpreter: Interpreter, sources: Iterable[tuple[str, bytes]], pool: Executor, *, ahead: int
) -> Iterator[tuple[str, bytes]]:
    """Compiles sources, in order; leaves out what does not compile, as compileall does.

    Args:
        interpreter: what compiles.
        sources: absolute paths in the image, which tracebacks show, and contents.
        pool: runs one process per batch.
        ahead: how many batches are under way at once, which bounds the memory.

    Raises:
        LocalFileError: the interpreter cannot be run or breaks off.
    """
    waiting: deque[Future[list[tuple[str, bytes]]]] = deque()
    for batch in _batches(sources):
        waiting.append(pool.submit(_compile_batch, interpreter, batch))
        if len(waiting) > ahead:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()


def _batches(sources: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    batch: list[tuple[str, bytes]] = []
    size = 0
    for path, data in sources:
        batch.append((path, data))
        size += len(data)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compile_batch(interpreter: Interpreter, batch: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    frames = []
    for path, data in batch:
        name = path.encode("utf-8", "surrogateescape")
        frames += [len(name).to_bytes(4, "little"), len(data).to_bytes(4, "little"), name, data]
    command = [interpreter.path, "-s", "-S", "-B", "-W", "ignore", "-c", _COMPILE, interpreter.magic]
    try:
        done = subprocess.run(
            command, input=b"".join(frames), capture_output=True, check=False, cwd="/", env={"PYTHONHASHSEED": "0"}
        )
    except OSError as error:
        raise LocalFileError(f"{interpreter.path} cannot be run to compile bytecode: {error.strerror}") from error
    found = list(_frames(done.stdout))
    if done.returncode != 0 or len(found) != len(batch):
        raise LocalFileError(
            f"{Path(interpreter.path).name} ended with {done.returncode} while compiling bytecode",
            details=tuple(done.stderr.decode(errors="replace").splitlines()[-5:]),
        )
    return [(path, data) for (path, _), data in zip(batch, found, strict=True) if data]


def _frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            return
        yield data[at + 4 : at + 4 + size]
        at += 4 + size
