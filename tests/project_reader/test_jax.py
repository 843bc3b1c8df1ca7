"""Projects that train with JAX, alone or below Keras 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.app.init import write_starter
from training_imgtool.model.load import load

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
