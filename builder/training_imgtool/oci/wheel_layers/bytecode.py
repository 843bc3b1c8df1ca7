"""Compiles bytecode like `compileall --invalidation-mode unchecked-hash` or `checked-hash`, without running the image.

Any interpreter with the same magic number makes bytecode that the image's interpreter accepts. But earlier compilations
in the same process can change the bytes: of 6 920 files of a TensorFlow stack, compiled forwards and backwards, 130 to
152 files differ with Python 3.8 to 3.10, 2 or 3 with 3.12 and 3.13, and none with 3.11. So imgtool compiles each batch
of files in a new process, which loads only the modules that Python loads when it starts, and interns `*`: Python itself
does so only if the standard library has bytecode files (distroless images have none), and bytecode files record it. The
wheels alone decide which files a batch contains, and therefore the bytes of the bytecode. (18 files differ
between 3.11.2 and 3.11.7, whose compilers differ.) PEP 552 defines the format of bytecode files.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import IO, cast

from training_imgtool.base.errors import LocalFileError
from training_imgtool.base.interpreters import Interpreter

_BATCH = 4 << 20  # bytes of source for one process, which compiles them in 0.3 s and takes 15 ms to start
_PORTION = 1 << 18  # bytes of source to pass to the process at once
_COMPILE = """
import sys, marshal, _imp
sys.intern("*")
magic, flags = bytes.fromhex(sys.argv[1]), bytes((int(sys.argv[2]), 0, 0, 0))
raw = int.from_bytes(magic, "little")
take, give = sys.stdin.buffer.read, sys.stdout.buffer.write
number = lambda: int.from_bytes(take(4), "little")
while True:
    count = number()
    if not count:
        break
    sources = [(take(number()).decode("utf-8", "surrogateescape"), take(number())) for _ in range(count)]
    for path, source in sources:
        try:
            code = compile(source, path, "exec", dont_inherit=True, optimize=-1)
            data = magic + flags + _imp.source_hash(raw, source) + marshal.dumps(code)
            del code
        except Exception:
            data = b""
        give(len(data).to_bytes(4, "little") + data)
    sys.stdout.buffer.flush()
"""

Source = tuple[str, bytes]  # an absolute path in the image, and the content


def compile_sources(
    interpreter: Interpreter,
    sources: Iterable[Source],
    pool: Executor,
    *,
    size: int,
    ahead: int,
    checked: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """Compiles sources in order; like compileall, it omits sources that do not compile.

    Args:
        interpreter: the interpreter that compiles.
        sources: absolute paths in the image, which tracebacks show, and contents.
        pool: runs one process per batch.
        size: the size of all sources in bytes.
        ahead: the number of batches in progress at once, which limits the memory.
        checked: whether Python compares the hash of the source at each import.

    Raises:
        LocalFileError: the interpreter does not start, or fails.
    """
    waiting: deque[Future[list[tuple[str, bytes]]]] = deque()
    for batch in _group_sources(sources, _share(size)):
        waiting.append(pool.submit(_compile_batch, interpreter, batch, checked=checked))
        if len(waiting) > ahead:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()


def _share(size: int) -> int:
    """Returns the size of a batch. An even number of equal batches keeps two cores busy equally long."""
    return max(_PORTION, math.ceil(size / (2 * math.ceil((size or 1) / (2 * _BATCH)))))


def _group_sources(sources: Iterable[Source], least: int) -> Iterator[deque[Source]]:
    """Yields batches of sources, each of at least `least` bytes except the last."""
    batch: deque[Source] = deque()
    size = 0
    for path, data in sources:
        batch.append((path, data))
        size += len(data)
        if size >= least:
            yield batch
            batch, size = deque(), 0
    if batch:
        yield batch


def _compile_batch(interpreter: Interpreter, batch: deque[Source], *, checked: bool) -> list[tuple[str, bytes]]:
    """Compiles a batch in a new process; removes each source from the batch after use, to free memory."""
    flags = "3" if checked else "1"  # PEP 552
    command = [interpreter.path, "-s", "-S", "-B", "-W", "ignore", "-c", _COMPILE, interpreter.magic, flags]
    results: list[tuple[str, bytes]] = []
    left = (batch.popleft() for _ in range(len(batch)))
    with _open_errors() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd="/",
                env={"PYTHONHASHSEED": "0"},
            )  # fmt: skip
        except OSError as error:
            raise LocalFileError(f"{interpreter.path} cannot be run to compile bytecode: {error.strerror}") from error
        broken = False
        try:
            with process:
                for portion in _group_sources(left, _PORTION):
                    results += _compile_portion(
                        cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout), portion
                    )
        except (EOFError, BrokenPipeError):
            broken = True
        if broken or process.returncode:
            errors.seek(0)
            raise LocalFileError(
                f"{Path(interpreter.path).name} ended with exit code {process.returncode} while compiling bytecode",
                details=tuple(errors.read().decode(errors="replace").splitlines()[-5:]),
            )
    return results


def _open_errors() -> IO[bytes]:
    """Opens a temporary file for a process's error output, so that a full pipe cannot block the process."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise LocalFileError(
            f"cannot make a temporary file to compile bytecode: {error.strerror}", hint="TMPDIR chooses another folder"
        ) from error


def _compile_portion(give: IO[bytes], take: IO[bytes], portion: deque[Source]) -> list[tuple[str, bytes]]:
    """Passes sources to a process, which reads all of them before it answers; raises EOFError if it does not answer."""
    frames = [_number(len(portion))]
    for path, data in portion:
        name = path.encode("utf-8", "surrogateescape")
        frames += [_number(len(name)), name, _number(len(data)), data]
    give.write(b"".join(frames))
    give.flush()
    results = [_read(take, int.from_bytes(_read(take, 4), "little")) for _ in portion]
    return [(path, data) for (path, _), data in zip(portion, results, strict=True) if data]


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError
    return data
