"""What the direct builder installs against what pip does, run by the very script that an engine runs."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.oci.direct import wheels
from tests.oci.direct.wheels import Node, make_wheel
from training_imgtool.model.lock import LockedVariant
from training_imgtool.model.recipe import install_step
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools
from training_imgtool.oci.wheel_layers.wheel_layers import make_packages_layers
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.wheels.interpreters import find_interpreter

pytestmark = pytest.mark.network

PIPS = [
    *(pytest.param(pip, marks=pytest.mark.long) for pip in ("pip==22.3.1", "pip==23.3.2", "pip==24.3.1", "pip==25.3")),
    "pip",
]
ENTRY_POINTS = """[console_scripts]
all-kinds = every.kind:main
with.extra = every.kind:Class.method [extra]
wrapped = every.kind:main

[gui_scripts]
window = every.kind:main

[other.group]
nothing = not a:script
"""
EASY = "[console_scripts]\neasy_install-3.8 = easy:a\neasy_install = easy:a\n"


def _every_kind(folder: Path) -> list[Path]:
    data = "every-1.0.data"
    files = {
        "every/__init__.py": b"",
        "every/kind.py": b"class Class:\n    def method(): 'x'\ndef main(): pass\n",
        "every/__pycache__/kind.cpython-311.pyc": b"shipped, and stale",
        "every/python2.py": b"print 'no'\n",
        "every/program": b"\x7fELF",
        "every.pth": b"import sys\n",
        "every/größe.txt": "größe".encode(),
        "every/" + "deep/" * 30 + "file.py": b"1\n",
        f"{data}/scripts/run": b"#!python -u\nprint(1)\n",
        f"{data}/scripts/runw": b"#!pythonw\r\nprint(1)\n",
        f"{data}/scripts/plain.sh": b"#!/bin/sh\n",
        f"{data}/scripts/wrapped": b"#!python\nreplaced by the entry point\n",
        f"{data}/scripts/wrapped-script.py": b"#!python\nthis too\n",
        f"{data}/data/share/man/man1/every.1": b"manual",
        f"{data}/data/etc/every.conf": b"",
        f"{data}/headers/every.h": b"#define X\n",
        f"{data}/purelib/every/pure.py": b"2\n",
        f"{data}/platlib/every/plat.py": b"3\n",
    }
    executable = ["every/program", f"{data}/scripts/run", f"{data}/scripts/plain.sh"]
    return [
        make_wheel(folder, "every", files, entry_points=ENTRY_POINTS, executable=executable, requires_python=">=3.8"),
        make_wheel(folder, "name_space_one", {"shared/one.py": b"1\n"}, stored=["shared/one.py"]),
        make_wheel(folder, "name_space_two", {"shared/two.py": b"2\n"}, zip64=True),
        make_wheel(folder, "easy", {"easy.py": b"1\n"}, entry_points=EASY),
    ]


@pytest.mark.parametrize("pip", PIPS)
def test_made_up_wheels_of_every_kind(pip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installer,) = wheels.download(tmp_path / "pip", pip)
    _compare(_every_kind(tmp_path), installer, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(
    ("python", "pip"),
    sorted(load_matrix().last_pip.items()),
)
def test_the_last_pip_of_an_old_python(python: str, pip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = find_interpreter(python, os.environ)
    if interpreter is None:
        pytest.skip(f"Python {python} is not on this machine")
    (installer,) = wheels.download(tmp_path / "pip", f"pip=={pip}")
    files = [
        make_wheel(tmp_path, "one", {"one.py": b"def main(): pass\n"}, entry_points="[console_scripts]\no = one:main\n")
    ]
    monkeypatch.setattr(install_step, "VENV", str(tmp_path / "venv"))
    monkeypatch.setattr(install_step, "WHEELS", str(tmp_path / "context"))
    lock = wheels.locked(files, installer, executable=str(interpreter.path), python=python)
    _run_script(lock, [*files, installer], tmp_path / "context")
    assert subprocess.run([tmp_path / "venv/bin/o"], check=False).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("more", [(), ("numpy==1.26.4",)], ids=["small", "all"])
def test_real_wheels(more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installer,) = wheels.download(tmp_path / "pip", "pip==24.3.1")
    real = ["ninja==1.11.1.1", "pybind11==2.13.6", "jupyter-core==5.7.2", "zope.interface==7.1.1"]
    _compare(wheels.download(tmp_path / "wheels", *real, *more), installer, tmp_path, monkeypatch)


def _compare(files: list[Path], installer: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways into a folder of this test instead of /opt/venv; script and builder take it from one place."""
    prefix = work / "venv"
    monkeypatch.setattr(install_step, "VENV", str(prefix))
    monkeypatch.setattr(install_step, "WHEELS", str(work / "context"))
    lock = wheels.locked(files, installer, executable=str(Path(sys.executable).resolve()))
    _run_script(lock, [*files, installer], work / "context")
    installed = wheels.tree(prefix)
    places = {file.name: file for file in [*files, installer]}
    tools = LayerTools(
        cache=LayerCache(work / "cache"),
        wheel_path=lambda wheel: places[wheel.file],
        find_interpreter=lambda python: find_interpreter(python, os.environ),
    )
    made: dict[str, Node] = {}
    for layer in make_packages_layers(lock, ("every/deep/deep/file.py", "numpy/core/include"), tools):
        data = subprocess.run(["gzip", "-dc"], input=b"".join(layer.open()), check=True, capture_output=True).stdout
        wheels.tar_tree(io.BytesIO(data), made)
    names = {*made, *installed}
    differing = [name for name in sorted(names) if _shown(made.get(name), name) != _shown(installed.get(name), name)]
    assert not differing, [(name, made.get(name), installed.get(name)) for name in differing[:10]]
    assert len(made) > 30
    same = sum(made[name] == installed[name] for name in names if name.endswith(".pyc"))
    assert same >= 0.99 * sum(name.endswith(".pyc") for name in names)


def _shown(node: Node | None, name: str) -> tuple[str, int, int, str] | None:
    """Bytecode may differ in its last details: in references that only the compiling process knew of."""
    if node is None:
        return None
    if name.endswith(".pyc"):
        return node.kind, node.mode, 0, ""
    return node.kind, node.mode, node.size, node.content


def _run_script(lock: LockedVariant, files: list[Path], context: Path) -> None:
    (context / "installer").mkdir(parents=True)
    for file in files:
        shutil.copy(file, context / ("installer" if file.name == lock.installer.file else "") / file.name)
    (context / install_step.REQUIREMENTS).write_text(install_step.requirements_text(lock))
    script = install_step.install_script(lock, ("every/deep/deep/file.py", "numpy/core/include"))
    subprocess.run(["sh", "-c", f"umask 022; {script}"], check=True, env={"PATH": "/usr/bin:/bin"})
