"""Bytecode as the layers of wheels hold it: made by another Python, in several processes, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from training_imgtool.base.errors import LocalFileError
from training_imgtool.base.interpreters import Interpreter
from training_imgtool.oci.wheel_layers.bytecode import compile_sources
from training_imgtool.resolve.wheels.interpreters import find_interpreter


@pytest.fixture
def interpreter() -> Interpreter:
    found = find_interpreter("3.11", {"PATH": os.environ["PATH"]})
    if found is None:
        pytest.skip("no Python 3.11 on this machine, whose bytecode these tests compare")
    return found


def test_bytecode_is_what_compileall_writes(tmp_path: Path, interpreter: Interpreter) -> None:
    from concurrent.futures import ThreadPoolExecutor

    sources = {"a.py": b"x = {1, 2, 'three'}\n", "b.py": b"\xff", "c.py": "# é\nprint('é')\n".encode(), "d.py": b""}
    for name, data in sources.items():
        (tmp_path / name).write_bytes(data)
    command = [interpreter.path, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(tmp_path)]
    subprocess.run(command, check=False, capture_output=True)
    expected = {path.name: path.read_bytes() for path in (tmp_path / "__pycache__").iterdir()}
    with ThreadPoolExecutor(2) as pool:
        named = ((str(tmp_path / name), data) for name, data in sources.items())
        made = dict(compile_sources(interpreter, named, pool, size=sum(map(len, sources.values())), ahead=2))
    assert {Path(interpreter.cached(path)).name: data for path, data in made.items()} == expected
    assert sys.version_info[:2] == (3, 11)


def test_bytecode_of_many_sources_in_several_processes(interpreter: Interpreter) -> None:
    from concurrent.futures import ThreadPoolExecutor

    sources = {f"/{n}.py": b"x = %d\n" % n + b"#" * 240_000 for n in range(40)}  # 9.6 MB: four batches
    sources["/none.py"] = b"("
    with ThreadPoolExecutor(2) as pool:
        size = sum(map(len, sources.values()))
        made = list(compile_sources(interpreter, iter(sources.items()), pool, size=size, ahead=2))
    assert [path for path, _ in made] == [path for path in sources if path != "/none.py"]
    with ThreadPoolExecutor(1) as pool:
        for path, data in made[::13]:
            [alone] = compile_sources(interpreter, [(path, sources[path])], pool, size=1, ahead=0)
            assert alone == (path, data)


def test_bytecode_is_the_same_without_bytecode_of_the_standard_library(
    tmp_path: Path, interpreter: Interpreter
) -> None:
    """As in a distroless image: start-up then compiles `encodings`, whose constants are not interned."""
    from concurrent.futures import ThreadPoolExecutor

    bare = tmp_path / "python3.11"
    bare.write_text(f'#!/bin/sh\nPYTHONPYCACHEPREFIX=/nonexistent exec {interpreter.path} "$@"\n')
    bare.chmod(0o755)
    source = b"".join(b"x%d = %a\n" % (n, chr(n)) for n in range(128))
    with ThreadPoolExecutor(1) as pool:
        usual, same = (
            [*compile_sources(one, [("/a.py", source)], pool, size=len(source), ahead=0)]
            for one in (interpreter, replace(interpreter, path=str(bare)))
        )
    assert usual == same


@pytest.mark.parametrize("program", ["exit 3", "head -c 100000 >/dev/null; echo no >&2; exit 4", "printf ab"])
def test_a_compiler_that_breaks_off(tmp_path: Path, interpreter: Interpreter, program: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = tmp_path / "python3.11"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    sources = [(f"/{n}.py", b"x = 1\n" * 50_000) for n in range(4)]
    with ThreadPoolExecutor(1) as pool, pytest.raises(LocalFileError, match="while compiling") as caught:
        list(compile_sources(replace(interpreter, path=str(path)), sources, pool, size=1_200_000, ahead=1))
    assert caught.value.details == (("no",) if "no" in program.split() else ())


def test_no_room_for_what_a_compiler_says(
    tmp_path: Path, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with ThreadPoolExecutor(1) as pool, pytest.raises(LocalFileError, match="temporary file") as caught:
        list(compile_sources(interpreter, [("/a.py", b"x = 1\n")], pool, size=6, ahead=1))
    assert caught.value.hint == "TMPDIR chooses another folder"
