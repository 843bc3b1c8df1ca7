"""The example of the package's README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import imgtool_project_reader

README = Path(imgtool_project_reader.__file__).with_name("README.md")


def test_the_example_proposes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "my-project/src"
    project.mkdir(parents=True)
    (project / "train.py").write_text("import tensorflow as tf\ntf.keras.Sequential().fit([1])\n")
    (tmp_path / "my-project/requirements.txt").write_text("tensorflow==2.14.*\n")
    monkeypatch.chdir(tmp_path)
    names: dict[str, imgtool_project_reader.Proposal] = {}
    (example,) = re.findall(r"```python\n(.+?)```", README.read_text(), re.DOTALL)
    exec(example, names)
    proposal = names["proposal"]
    assert (proposal.choice.release, proposal.python) == ("2.14.1", "3.11")
    assert proposal.program is not None
    assert proposal.program.path == "src/train.py"
