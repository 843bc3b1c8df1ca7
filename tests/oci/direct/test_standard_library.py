"""The layer with the standard library's bytecode: which modules it has, of which layers, and how Python reads it."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import plans
from training_imgtool.base.interpreters import Interpreter, NoInterpreterError
from training_imgtool.oci.layers.codecs import decompress
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools, LibraryFiles
from training_imgtool.oci.wheel_layers.standard_library import make_library_layer
from training_imgtool.resolve.wheels.interpreters import find_interpreter

VARIANT = plans.locked().variant
LIBRARY = "usr/local/lib/python3.11"
FILES = {"os.py": "x = 1\n", "json/__init__.py": "y = 2\n", "bad.py": "(", "test/x.py": "", "site-packages/a.py": ""}
MODULES = ["json/__pycache__/__init__.cpython-311.pyc", "__pycache__/os.cpython-311.pyc"]


def _layer(files: dict[str, str], folder: str = LIBRARY) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name if name.startswith("./") else f"{folder}/{name}")
            info.size, info.mode = len(text), 0o755 if name == "os.py" else 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


class Maker:
    """Makes the layer of a base with some layers, the lowest first, and counts how often it opens one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.opened = folder, 0
        found = find_interpreter("3.11", {"PATH": os.environ["PATH"]})
        if found is None:
            pytest.skip("no Python 3.11 on this machine")
        self.interpreter: Interpreter | None = found

    def __call__(self, *layers: bytes, executable: str = "/usr/local/bin/python3.11") -> LayerSource | None:
        def opened() -> Iterator[Iterator[bytes]]:
            for layer in reversed(layers):
                self.opened += 1
                yield iter((layer,))

        tools = LayerTools(
            cache=LayerCache(self.folder), wheel_path=lambda _: Path(), find_interpreter=lambda _: self.interpreter
        )
        files = LibraryFiles(digest=str(hash(layers)), layers=opened)
        made = make_library_layer(replace(VARIANT, python_executable=executable), files, tools)
        return made[0] if made else None


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "cache")


def _unpack(layer: LayerSource | None, folder: Path) -> list[str]:
    if layer is None:
        return []
    with tarfile.open(fileobj=io.BytesIO(b"".join(decompress(layer.open())))) as tar:
        tar.extractall(folder, filter="tar")
        return [member.name for member in tar if member.isfile()]


def test_the_layer_has_what_compileall_writes(make: Maker, tmp_path: Path) -> None:
    layer = make(_layer({"etc/x.py": ""}, "etc"), _layer(FILES), _layer({"./etc/motd": "hi"}))
    assert make.opened == 2  # down to the library
    assert sorted(_unpack(layer, tmp_path / "made")) == sorted(f"{LIBRARY}/{name}" for name in MODULES)
    assert layer is not None
    assert layer.is_bytecode
    for name, text in FILES.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert make.interpreter is not None
    options = ["-q", "--invalidation-mode", "checked-hash", "-s", "own", "-p", f"/{LIBRARY}"]
    command = [make.interpreter.path, "-m", "compileall", *options, "own"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    for name in MODULES:
        assert (tmp_path / "made" / LIBRARY / name).read_bytes() == (tmp_path / "own" / name).read_bytes()
    assert (tmp_path / "made" / LIBRARY / MODULES[1]).stat().st_mode & 0o777 == 0o644


def test_the_library_is_read_once_and_equal_ones_share_a_layer(make: Maker) -> None:
    first = make(_layer(FILES))
    again, patched = make(_layer(FILES)), make(_layer({"./etc/patched": "1"}), _layer(FILES))
    assert make.opened == 1 + 0 + 1
    assert first is not None
    assert again is not None
    assert patched is not None
    assert {first.descriptor, again.descriptor} == {patched.descriptor}
    make.interpreter = None
    with pytest.raises(NoInterpreterError, match=r"no Python 3\.11"):
        make(_layer({"os.py": "other = 1\n"}))


def test_modules_that_have_bytecode_are_left_alone(make: Maker, tmp_path: Path) -> None:
    assert make(_layer(FILES), _layer(dict.fromkeys(MODULES, ""))) is None
    partly = make(_layer({**FILES, MODULES[0]: ""}))
    assert _unpack(partly, tmp_path) == [f"{LIBRARY}/{MODULES[1]}"]
    assert make(_layer({"os.py": ""}, "opt/lib/python3.11")) is None


def test_a_higher_layer_changes_and_removes_modules(make: Maker, tmp_path: Path) -> None:
    library = _layer({**FILES, "gone.py": "", "old/x.py": "", "links.py": ""})
    changed = {"json/__init__.py": "z = 3\n", ".wh.gone.py": "", "old/.wh..wh..opq": ""}
    names = _unpack(make(library, _layer(changed)), tmp_path / "a")
    assert sorted(Path(name).name.partition(".")[0] for name in names) == ["__init__", "links", "os"]
    assert (tmp_path / "a" / LIBRARY / MODULES[0]).read_bytes() != b""
    found = _unpack(make(library, _layer({"python3.11": ""}, "usr/local/lib/.wh.")), tmp_path / "b")
    assert len(found) == 5


def test_debians_library_is_beside_a_link_to_its_python(make: Maker, tmp_path: Path) -> None:
    names = _unpack(make(_layer(FILES, "usr/lib/python3.11")), tmp_path)
    assert sorted(names) == sorted(f"usr/lib/python3.11/{name}" for name in MODULES)
    assert make(_layer(FILES, "usr/lib/python3.11"), executable="/usr/bin/python3.11") is not None


def test_python_compiles_a_changed_module_again(make: Maker, tmp_path: Path) -> None:
    _unpack(make(_layer({**FILES, "word.py": "word = 'old'\n"})), tmp_path)
    folder = tmp_path / LIBRARY
    (folder / "word.py").write_text("word = 'new'\n")
    assert make.interpreter is not None
    command = [make.interpreter.path, "-B", "-c", "import word; print(word.word, word.__cached__)"]
    said = subprocess.run(command, env={"PYTHONPATH": str(folder)}, cwd="/", capture_output=True, text=True, check=True)
    assert said.stdout.startswith("new ")
