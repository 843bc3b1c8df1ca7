"""Compiled bytecode as `compileall --invalidation-mode unchecked-hash` makes it, without an image to run it in.

Any interpreter with the same magic number makes bytecode that the image's interpreter takes. What was compiled
before in the same process can show: over 6 920 files of a TensorFlow stack, forwards and backwards differ in 130 to
152 files with 3.8 to 3.10, in 2 or 3 with 3.12 and 3.13, in none with 3.11. So every process is a fresh one, loads
nothing but the standard modules of start-up, and compiles a batch whose content depends on the wheels alone; then its
bytes do too. (18 files differ between 3.11.2 and 3.11.7, whose compilers differ.) The format is PEP 552's.
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
_PORTION = 1 << 18  # bytes of source that it is handed at once
_COMPILE = """
import sys, marshal, _imp
magic = bytes.fromhex(sys.argv[1])
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
            data = magic + b"\\1\\0\\0\\0" + _imp.source_hash(raw, source) + marshal.dumps(code)
            del code
        except Exception:
            data = b""
        give(len(data).to_bytes(4, "little") + data)
    sys.stdout.buffer.flush()
"""

Source = tuple[str, bytes]  # an absolute path in the image, and the content


def compile_sources(
    interpreter: Interpreter, sources: Iterable[Source], pool: Executor, *, size: int, ahead: int
) -> Iterator[tuple[str, bytes]]:
    """Compiles sources, in order; leaves out what does not compile, as compileall does.

    Args:
        interpreter: what compiles.
        sources: absolute paths in the image, which tracebacks show, and contents.
        pool: runs one process per batch.
        size: bytes of all sources.
        ahead: how many batches are under way at once, which bounds the memory.

    Raises:
        LocalFileError: the interpreter cannot be run or breaks off.
    """
    waiting: deque[Future[list[tuple[str, bytes]]]] = deque()
    for batch in _group_sources(sources, _share(size)):
        waiting.append(pool.submit(_compile_batch, interpreter, batch))
        if len(waiting) > ahead:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()


def _share(size: int) -> int:
    """Sizes the batches: equal parts and an even number of them, so that at the end no core is left alone."""
    return max(_PORTION, math.ceil(size / (2 * math.ceil((size or 1) / (2 * _BATCH)))))


def _group_sources(sources: Iterable[Source], least: int) -> Iterator[deque[Source]]:
    """Sources by and by, at least that many bytes at once, the last time aside."""
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


def _compile_batch(interpreter: Interpreter, batch: deque[Source]) -> list[tuple[str, bytes]]:
    """Compiles a batch in a process of its own; takes the sources out of it as they go, so that they are not kept."""
    command = [interpreter.path, "-s", "-S", "-B", "-W", "ignore", "-c", _COMPILE, interpreter.magic]
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
                f"{Path(interpreter.path).name} ended with {process.returncode} while compiling bytecode",
                details=tuple(errors.read().decode(errors="replace").splitlines()[-5:]),
            )
    return results


def _open_errors() -> IO[bytes]:
    """Opens where a process's last words go, so that they cannot keep it from going on."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise LocalFileError(
            f"compiling bytecode needs a temporary file: {error.strerror}", hint="TMPDIR chooses another folder"
        ) from error


def _compile_portion(give: IO[bytes], take: IO[bytes], portion: deque[Source]) -> list[tuple[str, bytes]]:
    """Hands sources to a process, which takes all before it answers; raises EOFError when it does not."""
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
