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
        (
            {"train.py": "import torch\nloss.backward()\n", "old.py": f"import tensorflow\n{KERAS}"},
            "train.py:1 imports torch",
        ),
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


LOOP = "import torch\nimport torchvision\nif __name__ == '__main__':\n    loss.backward()\n"
WHL = "https://download.pytorch.org/whl"


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        (
            {"requirements.txt": f"--index-url {WHL}/cu126\ntorch==2.8.0\ntorchvision\n"},
            [
                'torch: "2.8.0"  # from requirements.txt:2',
                'cuda: "12.6"  # from requirements.txt:1',
                '  - "torchvision"',
            ],
        ),
        (
            {"requirements.txt": f"--extra-index-url {WHL}/cpu\n-i https://team/simple\ntorch==2.8.0+cpu\nsix\n"},
            ['torch: "2.8.0"  # from', "accelerator: cpu  # from requirements.txt:1", '  - "six"'],
        ),
        (
            {"requirements.txt": "torch==2.4.0\nnvidia-cublas-cu12==12.1.3.1\nnvidia-ml-py==12.0\ntriton==3.0.0\n"},
            [
                '  - "nvidia-ml-py==12.0"',
                "# left out a limit: triton==3.0.0 (requirements.txt:4) left out: the build of",
            ],
        ),
        ({"requirements.txt": "torchvision==0.17.1+cu118\n"}, ['torch: "2.2.1"  # from requirements.txt:1']),
        ({"requirements.txt": "torchvision==0.15.2\ntorch>=1.13\n"}, ['torch: "2.0.1"  # from requirements.txt:1']),
        (
            {
                "pyproject.toml": '[project]\nname = "p"\nversion = "1"\ndependencies = ["torch>=2", "torchvision"]\n'
                '[tool.uv.sources]\ntorchvision = [{ index = "cpu", extra = "cpu" }]\n'
                f'[[tool.uv.index]]\nname = "cpu"\nurl = "{WHL}/cpu"\nexplicit = true\n',
                "uv.lock": "".join(
                    f'[[package]]\nname = "torch"\nversion = "2.9.1{build}"\n' for build in ("", "+cpu", "+cu128")
                ),
            },
            ['torch: "2.9.1"  # from uv.lock', "accelerator: cpu  # from pyproject.toml:9"],
        ),
        (
            {"Dockerfile": "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel\nCMD torchrun --standalone train.py -x"},
            ["accelerator: gpu  # from Dockerfile:1", 'args: ["-x"]  # from Dockerfile:2'],
        ),
        (
            {"README.md": "    A=1 torchrun --nnodes 3 --nproc_per_node 8 --rdzv_id=1 train.py --epochs 2\n"},
            [
                '# args: ["--epochs", "2"]',
                "accelerator: gpu  # from README.md:1: torchrun",
                "  # README.md:1: torchrun",
                "  worker: {machine: a2-highgpu-8g, gpus: {type: NVIDIA_TESLA_A100, count: 8}, count: 2}",
            ],
        ),
        (
            {"train.py": f"from torch.utils.tensorboard import SummaryWriter\n{LOOP}"},
            ['  - "tensorboard"  # a guess: called in train.py:1'],
        ),
        (
            {"requirements.txt": f"-f {WHL}/cpu\ntorch\n", "run.sh": "torchrun --nproc-per-node=2 train.py\n"},
            ["  master: {machine: n1-standard-4, processes: 2}"],
        ),
        (
            {"run.slurm": "srun accelerate launch --multi_gpu --num_processes 4 train.py --epochs 2\n"},
            ["trainer: train.py\n", "  master: {machine: n1-standard-4}"],
        ),
    ],
)
def test_the_build_and_the_launcher_of_pytorch(tmp_path: Path, files: dict[str, str], lines: list[str]) -> None:
    text = proposed(tmp_path, {"train.py": LOOP, **files})
    assert [line for line in lines if f"\n{line}" not in text] == []
    assert "nvidia-cublas" not in text or "# left out a limit: nvidia-cublas" in text
    assert WHL not in text


def test_a_place_of_wheels_that_a_list_of_packages_cannot_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "requirements.txt").write_text(f"-i {WHL}/cu126\n--extra-index-url https://team/simple\ntorch\n")
    (note,) = (note for note in write_starter(tmp_path, name="m").notes if "python_packages" in note)
    assert note.startswith("requirements.txt:2: python_packages cannot say --extra-index-url https://team/simple")


def test_a_program_that_compiles_needs_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP.replace("loss.", "torch.compile(loss)."))
    (note,) = (note for note in write_starter(tmp_path, name="m").notes if "compile" in note)
    assert note.startswith("train.py:4: torch.compile needs a C++ compiler")


PIPFILE = (
    '[[source]]\nname = "pypi"\nurl = "https://one/"\n[[source]]\nname = "team"\nurl = "https://two/"\n[packages]\n'
)


def test_a_package_of_one_index_is_refused_where_a_spec_cannot_say_so(tmp_path: Path) -> None:
    files = {"train.py": KERAS, "Pipfile": PIPFILE + 'ours = {version = "*", index = "team"}\n'}
    with pytest.raises(InputError, match="Pipfile:8: ours comes from the index team alone"):
        proposed(tmp_path, files)
    assert '"six' in proposed(tmp_path, {"Pipfile": PIPFILE + 'six = {version = "*", index = "pypi"}\n'})


@pytest.mark.parametrize(("key", "release"), [("jax", "0.6.2"), ("torch", "2.13.0")])
def test_a_first_project(tmp_path: Path, key: str, release: str) -> None:
    write_starter(tmp_path, name="m", framework=key, release=release)
    assert load(tmp_path / "image.yaml").spec.release == release
    assert f"\nimport {key}\n" in (tmp_path / "trainer/task.py").read_text()
