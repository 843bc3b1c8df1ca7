"""Projects that train with another framework than TensorFlow: JAX or PyTorch, alone or below Keras 3."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgtool_project_reader.knowledge import Knowledge, Release
from imgtool_project_reader.proposal import propose
from training_imgtool.app import init_knowledge
from training_imgtool.app.init import write_starter
from training_imgtool.app.init_knowledge import make_knowledge
from training_imgtool.base.errors import InputError
from training_imgtool.model.load import load
from training_imgtool.resolve.versions.matrix import load_matrix

KERAS = "import keras\nif __name__ == '__main__':\n    keras.Sequential().fit()\n"
BACKEND = "import os\nos.environ['KERAS_BACKEND'] = '{}'\n" + KERAS
MIXED = "import jax\nimport tensorflow as tf\ntf.fit()\n"
FLAX = (
    "import jax\nfrom flax import nnx\nimport tensorflow as tf\n"
    "if __name__ == '__main__':\n    jax.value_and_grad(f)()\n"
)


def proposed(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).write_text(text)
    write_starter(folder, name="m")
    load(folder / "image.yaml")
    return (folder / "image.yaml").read_text()


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"train.py": BACKEND.format("jax")}, 'jax: "0.10.2"  # a guess: no file names a release'),
        ({"train.py": KERAS, "README.md": "Run `KERAS_BACKEND=jax python train.py`.\n"}, 'jax: "0.10.2"  # a guess'),
        ({"train.py": KERAS, "Dockerfile": "FROM x\nENV KERAS_BACKEND=jax\n"}, 'jax: "0.10.2"  # a guess'),
        (
            {"train.py": KERAS, "requirements.txt": "keras\njax[cuda12]==0.6.2\n"},
            'jax: "0.6.2"  # from requirements.txt:2',
        ),
        ({"train.py": FLAX, "requirements.txt": "flax\njaxlib==0.5.0\n"}, 'jax: "0.5.0"  # from requirements.txt:2'),
        ({"train.py": BACKEND.format("tensorflow"), "README.md": "KERAS_BACKEND=jax\n"}, 'tensorflow: "'),
        ({"train.py": KERAS, "README.md": "KERAS_BACKEND=jax\nKERAS_BACKEND=torch\n"}, 'tensorflow: "'),
        ({"train.py": KERAS, "requirements.txt": "jax\ntensorflow==2.16.1\n"}, 'tensorflow: "2.16.1"'),
        ({"train.py": MIXED, "requirements.txt": "tensorflow\n"}, 'tensorflow: "'),
    ],
)
def test_what_tells_of_jax(tmp_path: Path, files: dict[str, str], line: str) -> None:
    text = proposed(tmp_path, files)
    assert f"\n{line}" in text
    assert ("TF_CPP_MIN_LOG_LEVEL" in text) is line.startswith("tensorflow")


def test_what_jax_does_not_bring_is_added(tmp_path: Path) -> None:
    text = proposed(tmp_path, {"train.py": f"import numpy, scipy\n{FLAX}", "requirements.txt": "jax[tpu]>=0.9\n"})
    assert "flax" in text
    assert "tensorflow-cpu" in text
    assert '"scipy' not in text
    assert "accelerator: tpu  # from requirements.txt:1: jax[tpu]>=0.9" in text
    assert "target: jobset" in text


LOCKS = {
    "uv.lock": '[[package]]\nname = "jax"\nversion = "0.6.1"\n',
    "poetry.lock": '[[package]]\nname = "jax"\nversion = "0.6.1"\n',
    "Pipfile.lock": '{"default": {"jax": {"version": "==0.6.1"}, "own": {"path": "."}}}',
    "requirements.lock": "-e file:.\njax==0.6.1\n    # via own\n",
    "requirements.txt": "jax==0.6.1\n",
}
PYPROJECT = (
    '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.10,<3.11"\ndependencies = ["jax>=0.5", "flax"]\n'
)


@pytest.mark.parametrize("lock", LOCKS)
def test_the_release_in_a_lock_is_that_of_the_image(tmp_path: Path, lock: str) -> None:
    text = proposed(tmp_path, {"train.py": FLAX, "pyproject.toml": PYPROJECT, lock: LOCKS[lock]})
    assert f'\njax: "0.6.1"  # from {lock}' in text


def test_the_newest_release_for_the_projects_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pythons = {"0.4.30": ("3.9", "3.10"), "0.6.2": ("3.10", "3.11"), "0.10.2": ("3.11", "3.12"), "0.12.0": ("3.12",)}
    releases = {version: Release(pythons=minors, requires={}) for version, minors in pythons.items()}
    known = init_knowledge.make_knowledge

    def knowledge(*arguments: Any) -> Knowledge:
        return replace(known(*arguments), list_releases=lambda key: releases if key == "jax" else {})

    monkeypatch.setattr("training_imgtool.app.init.make_knowledge", knowledge)
    assert 'jax: "0.6.2"  # from pyproject.toml:5' in proposed(
        tmp_path, {"train.py": FLAX, "pyproject.toml": PYPROJECT}
    )


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"train.py": "import os\nimport torch\nloss.backward()\n"}, "train.py:2 imports torch"),
        (
            {"t.py": "import lightning as L\nif __name__ == '__main__':\n    L.Trainer().fit(m)\n"},
            "t.py:1 imports lightning",
        ),
        ({"t.py": "from transformers import Trainer\nTrainer().train()\n"}, "t.py:1 imports transformers.Trainer"),
        ({"pyproject.toml": PYPROJECT.replace("jax>=0.5", "torch>=2")}, "pyproject.toml:5 lists torch"),
        ({"t.py": BACKEND.format("torch")}, "t.py:2 sets KERAS_BACKEND to torch"),
    ],
)
def test_what_tells_of_pytorch(tmp_path: Path, files: dict[str, str], place: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    evidence = propose(tmp_path, make_knowledge(load_matrix())).evidence
    assert f"{evidence.statement and evidence.statement.place} {evidence.says}" == place
    assert '\ntorch: "' in proposed(tmp_path, files)


def test_pytorch_beside_tensorflow_is_no_reason(tmp_path: Path) -> None:
    assert "tensorflow:" in proposed(
        tmp_path, {"train.py": f"import torch\n{MIXED[11:]}", "requirements.txt": "torch\n"}
    )


PIPFILE = (
    '[[source]]\nname = "pypi"\nurl = "https://one/"\n[[source]]\nname = "team"\nurl = "https://two/"\n[packages]\n'
)


def test_a_package_of_one_index_is_refused_where_a_spec_cannot_say_so(tmp_path: Path) -> None:
    files = {"train.py": KERAS, "Pipfile": PIPFILE + 'ours = {version = "*", index = "team"}\n'}
    with pytest.raises(InputError, match="Pipfile:8: ours comes from the index team alone"):
        proposed(tmp_path, files)
    assert '"six' in proposed(tmp_path, {"Pipfile": PIPFILE + 'six = {version = "*", index = "pypi"}\n'})


def test_a_first_project_of_jax(tmp_path: Path) -> None:
    write_starter(tmp_path, name="m", framework="jax", release="0.6.2")
    assert load(tmp_path / "image.yaml").spec.jax == "0.6.2"
    assert "import tensorflow" not in (tmp_path / "trainer/task.py").read_text()
