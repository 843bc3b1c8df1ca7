"""Code that cannot start is refused before anything is built, with file and line."""

from __future__ import annotations

import argparse
import ast
import asyncio.base_events
import inspect
import re
import subprocess
import sys
import typing
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests import plans
from tests.faults.project import SPEC, Project
from training_imgtool.base.context.python_source import read_source
from training_imgtool.base.errors import FieldListError
from training_imgtool.base.json_cache import write_cached
from training_imgtool.base.progress import Event, Note
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.make.trainer_check import check_trainer
from training_imgtool.model.load import load
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import Inputs, prepare
from training_imgtool.plan.project_files import SpecChoice


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def _settings(project: Project) -> Settings:
    return from_environment(project.env)


def _inputs(project: Project) -> Inputs:
    return prepare(load(project.folder / "image.yaml"), Machine.open(_settings(project)), SpecChoice(locked=True))


def _notes(project: Project, inputs: Inputs | None = None) -> list[str]:
    texts: list[str] = []

    def progress(event: Event) -> None:
        texts.extend([event.text] if isinstance(event, Note) else [])

    check_trainer(inputs or _inputs(project), Machine.open(_settings(project), progress))
    return texts


def _errors(project: Project, inputs: Inputs | None = None) -> list[str]:
    with pytest.raises(FieldListError) as caught:
        _notes(project, inputs)
    return [str(error) for error in caught.value.errors]


@pytest.mark.parametrize(
    "code",
    [
        "import os, json.decoder\nimport numpy as np\nfrom tensorflow.keras import layers\n",
        "from . import util\nfrom .util import x\nfrom trainer.util import x\nimport trainer.util\n",
        "try:\n    import horovod\nexcept ImportError:\n    horovod = None\n",
        "from __future__ import annotations\nimport sys\nif sys.platform == 'win32':\n    import winthing\n",
        "from google.protobuf import message\n",
        "\ufeffx = 'ü'\n",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import horovod\n",
        "import sys\nsys.path.append('/app/trainer')\nimport util\n",
        "import trainer.paths\nimport util\n",
        "import trainer.native, trainer.linked.deep\nfrom trainer import linked\n",
        "from trainer.native import fast\nfrom .native import slow\n",
        "import __main__, distutils, cgi, tomllib\n",
        "\tx = 1\n".lstrip() + "if x:\n\ty = 2\n",
        "print(f'{1!r:>{10}}')\n",
        "try:\n    from . import util\nexcept ImportError:\n    import util\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import horovod\n",
        "if __name__ == '__main__':\n    try:\n        import horovod\n    except ImportError:\n        pass\n",
    ],
)
def test_what_can_start_passes(project: Project, code: str) -> None:
    project.write("trainer/util.py", "x = 1\n")
    project.write("trainer/paths.py", "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n")
    project.write("trainer/native.cpython-311-x86_64-linux-gnu.so", "\x7fELF")
    project.write("trainer/other/deep.py", "")
    (project.folder / "trainer/linked").symlink_to("other")
    project.write("trainer/task.py", code)
    inputs = _inputs(project)
    before = inputs.images[0].locked
    protobuf = replace(before.wheels[0], name="protobuf", file="protobuf-1.0-py3-none-any.whl", sha256="0" * 64)
    locked = replace(before, wheels=(*before.wheels, protobuf))
    changed = plans.with_locked(inputs, locked)
    assert _notes(project, changed) == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def broken(:\n", "trainer/task.py:1:12: Python 3.11 cannot parse it: invalid syntax"),
        ("x = 1\nimport pandas\n", "trainer/task.py:2:1: no locked wheel provides pandas"),
        ("import trainer.utils\n", "trainer/task.py:1:1: the trainer has no module trainer.utils"),
        ("from . import a\nfrom .missing import x\n", "trainer/task.py:2:1: the trainer has no module trainer.missing"),
        ("from ...far import x\n", "trainer/task.py:1:1: a relative import outside a package"),
        ("if __name__ == '__main__':\n    import pandas\n", "trainer/task.py:2:1: no locked wheel provides pandas"),
        ("x = '\0'\n", "trainer/task.py:1:1: Python 3.11 cannot parse it"),
        ("import os\nif True:\nprint()\n", "trainer/task.py:3:1: Python 3.11 cannot parse it: expected an indented"),
        ("import numpy as np, torch\n", "trainer/task.py:1:1: no locked wheel provides torch"),
        ("import os\n!pip install pandas\n", "trainer/task.py:2:1: '!pip install pandas' is a command of a notebook"),
        ("%%time\nprint()\n", "trainer/task.py:1:1: '%%time' is a command of a notebook"),
        ("import zoneinfo, asyncore, binhex\n", "trainer/task.py:1:1: no locked wheel provides binhex"),
        ("import tensorflow_cpu\n", "trainer/task.py:1:1: no locked wheel provides tensorflow_cpu"),
        (
            "import pandas\nimport subprocess\nsubprocess.run([])\n",
            "trainer/task.py:1:1: no locked wheel provides pandas",
        ),
    ],
)
def test_what_cannot_start_is_refused_with_its_place(project: Project, code: str, says: str) -> None:
    project.write("trainer/a.py", "")
    project.write("trainer/task.py", code)
    assert [says in error for error in _errors(project)] == [True]


def test_a_module_that_the_program_may_make_gives_a_note(project: Project) -> None:
    project.write("trainer/task.py", "import pathlib\npathlib.Path('made.py').write_text('x = 1')\nimport made\n")
    (note,) = _notes(project)
    assert note.startswith("trainer/task.py:3:1: no locked wheel provides made, unless")


def test_a_licence_makes_no_module(project: Project) -> None:
    licence = '"""You may copy it,\nand pip install it. exec("x")"""\n# or copytree it: sys.path\n'
    project.write("trainer/task.py", f"{licence}print('started')  # copy\nimport made\n")
    assert [error.partition("made")[0] for error in _errors(project)] == [
        "trainer/task.py:5:1: no locked wheel provides "
    ]


@pytest.mark.parametrize(
    ("code", "is_refused"),
    [
        ("import trainer.model\n", True),
        ("from .model import build\n", True),
        ("if __name__ == '__main__':\n    from trainer.deep import via\n", True),
        ("from . import model\n", True),
        ("from .names import model\n", False),  # which may be another one
        ("from .plain import inner\n", True),
        ("try:\n    import trainer.model\nexcept ImportError:\n    pass\n", False),
        ("import sys\nsys.path.insert(0, '/data')\nimport trainer.model\n", False),
    ],
)
def test_what_the_program_imports_has_to_load_too(project: Project, *, code: str, is_refused: bool) -> None:
    project.write("trainer/model.py", "import numpy\nimport seaborn\ndef build(): pass\n")
    project.write("trainer/deep/via.py", "")
    project.write("trainer/deep/__init__.py", "from trainer import util\nfrom ..model import build\n")
    project.write("trainer/util.py", "")
    project.write("trainer/names/__init__.py", "from os import path as model\n")
    project.write("trainer/names/model.py", "import seaborn\n")
    project.write("trainer/plain/inner.py", "from ..model import build\n")
    project.write("trainer/task.py", code)
    if is_refused:
        (error,) = _errors(project)
        assert error.startswith("trainer/model.py:2:1: no locked wheel provides seaborn")
    else:
        assert _notes(project) == []


@pytest.mark.parametrize("code", ["from . import model\n", "def late():\n    import trainer.model\n"])
def test_what_the_program_may_import_has_to_parse(project: Project, code: str) -> None:
    project.write("trainer/model.py", "def build(:\n")
    project.write("trainer/unused.py", "print 'of another time'\n")
    project.write("trainer/task.py", code)
    assert [error.partition(": ")[0] for error in _errors(project)] == ["trainer/model.py:1:11"]


def test_a_namespace_has_only_what_wheels_put_into_it(project: Project) -> None:
    inputs = _inputs(project)
    before = inputs.images[0].locked
    storage = replace(before.wheels[0], name="vendor-cloud-storage", file="x-1.0-py3-none-any.whl", sha256="0" * 64)
    locked = replace(before, wheels=(*before.wheels, storage))
    write_cached(_settings(project).cache / "imports" / f"{'0' * 64}.json", ["vendor.cloud.storage"])
    project.write("trainer/task.py", "from vendor.cloud import storage\nimport vendor.cloud.storage.blob\n")
    assert _notes(project, plans.with_locked(_inputs(project), locked)) == []
    project.write("trainer/task.py", "import vendor.cloud.bigquery\n")
    says = "trainer/task.py:1:1: no locked wheel provides vendor.cloud.bigquery"
    assert _errors(project, plans.with_locked(_inputs(project), locked)) == [says]


def test_a_package_may_change_the_search_path_for_its_program(project: Project) -> None:
    project.write("trainer/__init__.py", "import sys\nsys.path.append('/mnt')\n")
    project.write("trainer/task.py", "import mounted\n")
    assert len(_notes(project)) == 1


def test_newer_syntax_than_the_images_python(project: Project) -> None:
    project.write("trainer/task.py", "match x:\n    case 1: pass\n")
    inputs = _inputs(project)
    locked = inputs.images[0].locked
    older = replace(locked, variant=replace(locked.variant, python="3.9"))
    changed = plans.with_locked(inputs, older)
    assert "Python 3.9 cannot parse it" in _errors(project, changed)[0]


def test_code_that_changes_the_search_path_is_not_refused(project: Project) -> None:
    project.write("trainer/task.py", "import sys\nsys.path.append('/mnt/code')\nimport mounted\n")
    says = "no locked wheel provides mounted, unless code, PYTHONPATH, `run` or a template adds it"
    assert _notes(project) == [f"trainer/task.py:3:1: {says}"]
    project.write("trainer/task.py", "import mounted\n")
    project.spec(SPEC + "env: {PYTHONPATH: /mnt/code}\n")
    assert _notes(project) == [f"trainer/task.py:1:1: {says}"]


def test_a_script_that_changes_the_search_path_excuses_no_other(project: Project) -> None:
    project.write("trainer/unrelated.py", "import sys\nsys.path.append('..')\n")
    project.write("trainer/task.py", "import pandas\n")
    assert "no locked wheel provides pandas" in _errors(project)[0]


def test_a_module_in_another_folder_is_shown(project: Project) -> None:
    project.write("trainer/deep/helper.py", "")
    project.write("trainer/task.py", "import helper\n")
    with pytest.raises(FieldListError) as caught:
        _notes(project)
    assert "it is in trainer/deep, where Python does not look: env: {PYTHONPATH: /app/trainer/deep}" in str(
        caught.value.errors[0].hint
    )


@pytest.mark.parametrize(
    ("ignored", "code", "pattern"),
    [
        ("data*", "from datasets.mine import load\n", "datasets/**"),
        ("**/mine.py", "import datasets.mine\n", "datasets/mine.py"),
        ("**/lone.py", "import alone.lone\n", "alone/**"),
        ("helper.py", "import helper\n", "helper.py"),
    ],
)
def test_a_module_that_dockerignore_leaves_out(project: Project, ignored: str, code: str, pattern: str) -> None:
    project.write("trainer/task.py", code)
    project.write("datasets/mine.py", "")
    project.write("datasets/other.py", "")
    project.write("alone/lone.py", "")
    project.write("helper.py", "")
    project.write(".dockerignore", ignored)
    project.spec(SPEC.replace("source: trainer,", "source: .,"))
    with pytest.raises(FieldListError) as caught:
        _notes(project)
    (error,) = caught.value.errors
    assert (error.hint or "").startswith(f".dockerignore leaves it out: write !{pattern} at its end")
    project.write(".dockerignore", f"{ignored}\n!{pattern}\n")
    assert _notes(project) == []


def test_a_package_in_a_wheel_wins_over_a_plain_folder(project: Project) -> None:
    project.write("trainer/numpy/plain.py", "")
    project.write("trainer/task.py", "from numpy import array\nimport numpy.linalg\n")
    project.spec(SPEC + "env: {PYTHONPATH: /app/trainer}\n")
    assert _notes(project) == []


def test_a_function_runs_nothing_below_the_main_guard(project: Project) -> None:
    project.write("trainer/task.py", "def run(): pass\nif __name__ == '__main__':\n    import pandas\n")
    project.spec(SPEC.replace("module: trainer.task", "module: trainer.task, function: run"))
    assert _notes(project) == []


def test_a_function_that_the_module_does_not_define(project: Project) -> None:
    project.write("trainer/task.py", "def run(): pass\n")
    project.spec(SPEC.replace("module: trainer.task", "module: trainer.task, function: rnu"))
    (error,) = _errors(project)
    assert re.search(r"image\.yaml:\d+:\d+: trainer\.function: trainer/task\.py does not define rnu", error)


@pytest.mark.parametrize(
    ("python", "code", "refused"),
    [
        ("3.9", "import tomllib\n", "tomllib"),
        ("3.9", "import distutils, imp, cgi\n", ""),
        ("3.12", "import imp\n", "imp"),
        ("3.13", "import cgi\n", "cgi"),
        ("3.12", "import cgi, tomllib, zoneinfo\n", ""),
    ],
)
def test_the_standard_library_is_that_of_the_images_python(
    project: Project, python: str, code: str, refused: str
) -> None:
    project.write("trainer/task.py", code)
    inputs = _inputs(project)
    locked = inputs.images[0].locked
    other = replace(locked, variant=replace(locked.variant, python=python))
    inputs = plans.with_locked(inputs, other)
    if refused:
        assert _errors(project, inputs) == [f"trainer/task.py:1:1: no locked wheel provides {refused}"]
    else:
        assert _notes(project, inputs) == []


def test_a_module_that_exists_nowhere(project: Project) -> None:
    project.spec(SPEC.replace("trainer.task", "dist_mnist"))
    errors = _errors(project)
    assert "image.yaml:4:36: trainer.module: no module dist_mnist in trainer/" in errors[0]


def test_a_folder_on_pythonpath_is_looked_into(project: Project) -> None:
    project.write("trainer/dist_mnist.py", "import helper\n")
    project.write("trainer/helper.py", "")
    project.spec(SPEC.replace("trainer.task", "dist_mnist") + "env: {PYTHONPATH: /app/trainer}\n")
    assert _notes(project) == []


@pytest.mark.parametrize(
    ("file", "beside"),
    [
        ("dist_mnist.py", "other.py"),
        ("dist_mnist/__main__.py", "dist_mnist/other.py"),
        ("dist_mnist/__main__.py", "dist_mnist/__init__.py"),
    ],
)
def test_a_program_that_only_pythonpath_leads_to_is_checked(project: Project, file: str, beside: str) -> None:
    project.write(f"trainer/lib/{file}", "import pandas\n")
    project.write(f"trainer/lib/{beside}", "")
    project.spec(SPEC.replace("trainer.task", "dist_mnist") + "env: {PYTHONPATH: /app/trainer/lib}\n")
    assert _errors(project) == [f"trainer/lib/{file}:1:1: no locked wheel provides pandas"]


def test_a_module_of_a_locked_wheel(project: Project) -> None:
    project.spec(SPEC.replace("trainer.task", "numpy.training"))
    assert _notes(project) == []


def test_lines_may_install_more(project: Project) -> None:
    project.write("trainer/task.py", "import matplotlib\n")
    project.spec(SPEC + "run_after_packages: [pip install matplotlib]\n")
    says = (
        "trainer/task.py:1:1: no locked wheel provides matplotlib, unless code, PYTHONPATH, `run` or a template adds it"
    )
    assert _notes(project) == [says]
    assert _notes(project) == [says], "also from the cache"


@pytest.mark.parametrize("verb", [("show",), ("lock", "--locked"), ("build", "--push", "--dry-run")])
def test_each_verb_refuses_and_no_check_does_not(project: Project, verb: tuple[str, ...]) -> None:
    project.write("trainer/task.py", "import pandas\n")
    project.env["IMGTOOL_REGISTRY"] = "127.0.0.1:9/x"
    project.refused(*verb, code=3, says=["trainer/task.py:1:1: no locked wheel provides pandas", "--no-check"])
    ended = project.run(*verb, "--no-check")
    assert "pandas" not in ended.err


def test_a_file_in_another_encoding(project: Project) -> None:
    (project.folder / "trainer/task.py").write_bytes("# -*- coding: latin-1 -*-\nx = 'ü'\n".encode("latin-1"))
    assert _notes(project) == []
    (project.folder / "trainer/task.py").write_bytes("x = 'ü'\n".encode("latin-1"))
    # The column and the words are the running Python's.
    assert re.match(
        r"trainer/task\.py:1:[68]: Python 3\.11 cannot parse it: .*utf-8", _errors(project)[0], re.IGNORECASE
    )


def test_an_index_that_does_not_answer_is_no_reason_to_refuse(project: Project) -> None:
    project.write("trainer/task.py", "import odd_name\n")
    inputs = _inputs(project)
    before = inputs.images[0].locked
    absent = replace(before.wheels[0], name="odd", file="odd-1.0-py3-none-any.whl", sha256="0" * 64)
    locked = replace(before, wheels=(*before.wheels, absent))
    changed = plans.with_locked(inputs, locked)
    assert _notes(project, changed) == ["trainer/task.py:1:1: no wheel that imgtool can read provides odd_name"]


EVERY_BLOCK = """
if first:
    import a
elif second:
    import b
else:
    import c
for item in items:
    import d
else:
    import e
while more():
    import f
else:
    import g
try:
    import h
except OSError:
    import i
else:
    import j
finally:
    import k
with opened():
    import l
match value:
    case 1:
        import m
class Model:
    import n
    async def call(self):
        async with opened():
            from . import o
"""


def test_an_import_is_found_in_every_block() -> None:
    found = read_source(EVERY_BLOCK.encode(), "task.py", (3, 10)).all_imports
    assert sorted(name for item in found for name in item.names or [item.module]) == list("abcdefghijklmno")


@pytest.mark.parametrize("module", [argparse, asyncio.base_events, inspect, subprocess, typing])
def test_the_imports_found_are_those_of_the_whole_tree(module: ModuleType) -> None:
    code = Path(module.__file__ or "").read_bytes()
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = [node.lineno for node in nodes for _ in (node.names if isinstance(node, ast.Import) else [node])]
    assert [item.line for item in read_source(code, "task.py", sys.version_info[:2]).all_imports] == lines


WITH_ONE = (
    "with (open('a') if 1 else\n      open('b')):\n    pass\nasync def f(lock):\n    async with(lock):\n        pass\n"
)


@pytest.mark.parametrize("code", [WITH_ONE, "with (open('a')) as a, (open('b')):\n    pass\n"])
def test_parentheses_that_every_python_reads(code: str) -> None:
    assert read_source(code.encode(), "task.py", (3, 7)).all_imports == ()


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("def main():\n    import far.off\n\nmain()\n", "trainer/task.py:2"),
        ("def main():\n    from trainer.data import load\n\nmain()\n", "trainer/data.py:1"),
    ],
)
def test_an_import_in_a_function_gives_a_note(project: Project, code: str, place: str) -> None:
    project.write("trainer/task.py", code)
    project.write("trainer/data.py", "import far\nload = far.load\n")
    (note,) = _notes(project)
    assert f"{place}:1: no locked wheel provides far, which the program imports if a function runs" in note


def test_an_import_that_a_function_need_not_run_gives_no_note(project: Project) -> None:
    project.write(
        "trainer/task.py",
        "def main(a):\n    if a:\n        import far\n    try:\n        import x\n    except E: pass\n",
    )
    assert not _notes(project)
