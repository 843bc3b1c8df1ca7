"""Layouts with real TensorFlow, from the lock to containers: code above the spec, and a console script of a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import Run

pytestmark = [pytest.mark.registry, pytest.mark.engine, pytest.mark.network, pytest.mark.long]

_SPEC = """\
name: {name}
tensorflow: "2.15.1"
python: "3.11"
trainer: {trainer}
args: [--steps=3]
roles:
  master: {{machine: n1-standard-4}}
job: {{target: vertex, region: us-central1}}
"""
_INCLUDED: dict[str, str] = {
    "team/train.py": "import sys\nimport io_tools\nfrom shared.names import GREETING\nprint(GREETING, *sys.argv[1:])\n",
    "common/shared/names.py": "GREETING = 'shared code'\n",
    "common/pyproject.toml": "[project]\nname = 'shared'\nversion = '1'\n",
    "tools/io_tools.py": "",
}
_ABOVE: dict[str, str] = {
    "code/reader/__init__.py": "",
    "code/reader/train.py": "import sys\nfrom reader import names\nprint(names.GREETING, *sys.argv[1:])\n",
    "code/reader/names.py": "GREETING = 'source above'\n",
}
_SCRIPT: dict[str, str] = {
    "team/setup.cfg": "[metadata]\nname = reader\n[options]\npackage_dir =\n    =src\n"
    "[options.entry_points]\nconsole_scripts =\n    read-it = reader.cli:App.main\n",
    "team/src/reader/__init__.py": "",
    "team/src/reader/table.csv": "a console script",
    "team/src/reader/cli.py": "import sys\nfrom pathlib import Path\nclass App:\n    @staticmethod\n    def main():\n"
    "        print(Path(__file__).with_name('table.csv').read_text(), *sys.argv[1:])\n",
}
_LAYOUTS = {
    "included": ("{source: train.py, include: [../common, ../tools]}", _INCLUDED, "shared code --steps=3"),
    "above": ("{source: ../code, module: reader.train}", _ABOVE, "source above --steps=3"),
    "script": ("{source: ., script: read-it}", _SCRIPT, "a console script --steps=3"),
}


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_it_starts_and_passes_verify(layout: str, tmp_path: Path, imgtool: Run) -> None:
    trainer, files, prints = _LAYOUTS[layout]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    spec = tmp_path / "team/image.yaml"
    spec.parent.mkdir(exist_ok=True)
    spec.write_text(_SPEC.format(name=f"starts-{layout}", trainer=trainer))
    imgtool("lock", spec)
    imgtool("push", spec)
    assert prints in imgtool("run", spec).stderr
    imgtool("verify", "--smoke", spec)
