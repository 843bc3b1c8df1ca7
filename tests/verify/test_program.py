"""The program that is sent into images: it runs on old Pythons, alone, and tells how it ended."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.verify.smoke import program_of

TEXT = program_of(TENSORFLOW)


def _run(module: str, folder: Path, libraries: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    request = {"module": module, "libraries": libraries, "env": {}, "framework": "tensorflow"}
    done = subprocess.run(
        [sys.executable, "-c", f"{TEXT}\nrun(json.loads({json.dumps(request)!r}))\n"],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(folder / "lib"), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _parts(told: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["part"]: one for one in told}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib/tensorflow").mkdir(parents=True)
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/__init__.py").write_text("")
    return tmp_path


def test_it_is_python_3_7_and_the_standard_library() -> None:
    tree = ast.parse(TEXT, feature_version=(3, 7))
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names
    assert len(TEXT) < 100_000  # one argument of a program holds 128 KiB (execve(2))


def test_libraries_are_opened_apart_from_what_is_imported(folder: Path) -> None:
    (folder / "lib/tensorflow/__init__.py").write_text(
        "__version__ = open('/proc/self/maps').read().count('libanl.')\n"
    )
    (folder / "trainer/task.py").write_text("")
    parts = _parts(_run("trainer.task", folder, libraries=("libanl.so.1", "libnowhere.so.1")))
    assert ["error" in row for row in parts["libraries"]["libraries"]] == [False, True]
    assert parts["tensorflow"]["version"] == "0"


def test_prints_of_what_is_imported_do_not_reach_the_answer(folder: Path) -> None:
    (folder / "lib/tensorflow/__init__.py").write_text("print('{\"part\": \"tensorflow\"}')\n__version__ = '9'\n")
    (folder / "trainer/task.py").write_text("print('hello')\n")
    told = _run("trainer.task", folder)
    assert [one["part"] for one in told] == [
        "libraries",
        "modules",
        "tensorflow",
        "compute",
        "trainer",
        "end",
    ]
    assert _parts(told)["tensorflow"]["version"] == "9"
    assert _parts(told)["compute"]["error"] == "AttributeError"
    assert _parts(told)["trainer"]["file"] == str(folder / "trainer/task.py")


COMPUTES = """\
from contextlib import nullcontext
from types import SimpleNamespace as N
__version__ = "2.15.1"
config = N(list_physical_devices=lambda kind: [N(name=f"{{kind}} {{number}}") for number in range({gpus})])
device, executing_eagerly = nullcontext, lambda: {eager}
product = N(tolist=lambda: [[17.0], [{last}]])
matmul = lambda left, right: N(numpy=lambda: product) if {eager} else product
compat = N(v1=N(Session=lambda: N(run=lambda tensor: tensor)))
"""


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize(("gpus", "used"), [(0, ["/CPU:0"]), (2, ["/GPU:0", "/GPU:1"])])
def test_a_product_on_each_gpu(folder: Path, gpus: int, used: list[str], *, eager: bool) -> None:
    (folder / "trainer/task.py").write_text("")
    for last in (39.0, 38.0):
        text = COMPUTES.format(gpus=gpus, eager=eager, last=last)
        (folder / "lib/tensorflow/__init__.py").write_text(text)
        parts = _parts(_run("trainer.task", folder))
        if last == 39.0:
            assert parts["compute"] == {"part": "compute", "gpus": [f"GPU {n}" for n in range(gpus)], "used": used}
        else:
            assert parts["compute"]["message"].startswith(f"{used[0]}: a product of matrices is wrong")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import nowhere\n", {"error": "ModuleNotFoundError", "message": "No module named 'nowhere'"}),
        ("def f(:\n", {"error": "SyntaxError"}),
        ("raise SystemExit(3)\n", {"left": "3"}),
        ("if __name__ == '__main__':\n    raise ValueError\n", {}),
    ],
)
def test_the_trainer(folder: Path, source: str, told: dict[str, str]) -> None:
    (folder / "trainer/task.py").write_text(source)
    found = _parts(_run("trainer.task", folder))["trainer"]
    assert told.items() <= found.items()
    assert ("error" in found) == ("error" in told)


def test_a_script_finds_the_modules_beside_it(folder: Path) -> None:
    (folder / "trainer/beside.py").write_text("")
    (folder / "trainer/task.py").write_text("import beside\n")
    found = _parts(_run("trainer/task.py", folder))["trainer"]
    assert found == {"part": "trainer", "file": "trainer/task.py"}
    assert _parts(_run("trainer.task", folder))["trainer"]["message"] == "No module named 'beside'"


def test_a_package_is_run_by_its_main(folder: Path) -> None:
    found = _parts(_run("trainer", folder))["trainer"]
    assert found["message"] == "No module named 'trainer.__main__'"
    absent = _parts(_run("absent", folder))["trainer"]
    assert (absent["error"], absent["message"]) == ("ModuleNotFoundError", "No module named 'absent'")
    (folder / "trainer/__main__.py").write_text("")
    assert _parts(_run("trainer", folder))["trainer"]["file"].endswith("__main__.py")


def test_a_crash_is_told_with_what_came_before(folder: Path) -> None:
    (folder / "lib/tensorflow/__init__.py").write_text("__version__ = '9'\n")
    (folder / "trainer/task.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    parts = _parts(_run("trainer.task", folder))
    assert parts["tensorflow"]["version"] == "9"
    assert "trainer" not in parts
    assert parts["end"] == {"part": "end", "signal": 11}
