"""Each reader: what a file's text states. The files are made up; their shapes are those of public projects."""

from __future__ import annotations

from functools import partial

import pytest
import yaml

from imgtool_project_reader.hint_files import read_docker, read_prose, read_python_version, read_shell
from imgtool_project_reader.requirement_files import (
    Reader,
    read_conda,
    read_pip,
    read_pipfile,
    read_pyproject,
    read_toml_lock,
)
from imgtool_project_reader.setup_files import read_setup_cfg, read_setup_py
from imgtool_project_reader.statement import Fact, caret

READ_CONDA = partial(read_conda, read_yaml=yaml.safe_load)
PIP = """-r base.txt
numpy==1.18.1 --hash=sha256:00  # a comment
pandas @ file:///home/conda/feedstock_root/pandas
scipy=1.5=py37_0
-e .
git+https://example.com/team/tool.git@v1
not a requirement
Package    Version
gensim     4.1.2  /opt/gensim
Python 3.8.10
--index-url https://example.com
"""
PYPROJECT = """[project]
name = "digits"
requires-python = ">=3.9,<3.11"
dependencies = ["tensorflow>=2.8,<2.13"]
scripts = {fit = "digits.cli:main"}
[project.optional-dependencies]
train = ["wandb"]
[dependency-groups]
dev = ["pytest", {include-group = "lint"}]
[tool.setuptools.dynamic]
dependencies = {file = ["more.txt"]}
"""
POETRY = """[tool.poetry]
name = "digits"
package-mode = false
[tool.poetry.dependencies]
python = "^3.8"
tensorflow = "2.10.1"
pillow = {version = "~9.1", optional = true}
tool = {git = "https://example.com/tool.git", rev = "v1"}
own = {path = "../own"}
backport = {version = "*", python = "<3.9"}
[tool.poetry.group.dev.dependencies]
pytest = "*"
[tool.poetry.extras]
images = ["pillow"]
"""
CONDA = """name: x
channels: [conda-forge]
dependencies:
  - python=3.7
  - conda-forge::tensorflow-gpu ==2.1.0
  - opencv=3.4.2
  - libpng
  - ffmpeg
  - numpy>=1.16
  - pip:
    - tqdm==4.62.0
"""
EXPORT = "dependencies:\n" + "".join(f"  - lib{n}=1.0=h_0\n" for n in range(4)) + "  - absl-py=0.13.0=py38_0\n"
SETUP = """REQUIRED = ["scipy"] + MORE
from setuptools import setup
setup(name="digits", python_requires=">=3.6", install_requires=["tensorflow==2.*", *REQUIRED, ["tqdm"], f"x{1}"],
      extras_require={"gpu": ["tensorflow-gpu"]}, entry_points={"console_scripts": ["fit = digits.cli:main"]})
open("requirements/base.txt")
"""
DOCKER = """FROM tensorflow/tensorflow:2.3.1-gpu
RUN apt-get update && apt-get install -y libsndfile1 && pip install -r needs.txt "scipy>=1.4" -U pip
WORKDIR /code/src
CMD ["python", "train.py", "--epochs", "5"]
"""
README = """# Digits
Requires Python 3.6 and TensorFlow >= 2.2
## Training
```sh
pip install -r requirements.txt
cd src
CUDA_VISIBLE_DEVICES=0 python train.py --data X
```
Tested with TensorFlow 2.9, 2.10 and 2.11. An implementation in TensorFlow 2.0.
"""


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (
            read_pip,
            "https://example.com/own_runtime-2.1-cp37-cp37m-linux_x86_64.whl\n",
            "Python ==3.7.*|package own_runtime==2.1",
        ),
        (
            read_pip,
            "torch @ https://example.com/whl/torch-2.4.0%2Bcu121-cp310-cp310-linux_x86_64.whl#sha256=aa",
            "Python ==3.10.*|package torch==2.4.0",
        ),
        (
            read_pip,
            "https://example.com/idna-3.7-py3-none-any.whl\nhttps://example.com/a-1-cp38-abi3-any.whl\n",
            "package idna==3.7|package a==1",
        ),
        (
            read_pip,
            PIP,
            (
                "includes base.txt|package numpy==1.18.1|package pandas|package scipy==1.5|installs ."
                "|package tool @ git+https://example.com/team/tool.git@v1|package gensim==4.1.2|Python ==3.8.*"
                "|index option --index-url https://example.com"
            ),
        ),
        (
            read_pyproject,
            PYPROJECT,
            (
                "name digits|Python >=3.9,<3.11|package tensorflow>=2.8,<2.13|package wandb [extra train]"
                "|package pytest [group dev]|console script fit=digits.cli:main|includes more.txt"
            ),
        ),
        (
            read_pyproject,
            POETRY,
            (
                "name digits|Python >=3.8,<4|package tensorflow==2.10.1|package pillow<9.2,>=9.1 [extra images]"
                '|package tool @ git+https://example.com/tool.git@v1|package backport; python_version < "3.9"'
                "|package pytest [group dev]"
            ),
        ),
        (read_pyproject, "[project\n", ""),
        (
            read_pipfile,
            (
                '[packages]\ntensorflow = ">=2.3"\ngym = {extras = ["atari"], version = "*"}\nown = {path = "."}\n'
                '[requires]\npython_version = "3.7"\n'
                '[scripts]\ntrain = "python src/train.py"\n'
            ),
            "Python ==3.7.*|package tensorflow>=2.3|package gym[atari]|command python src/train.py",
        ),
        (
            read_toml_lock,
            (
                '[[package]]\nname = "a"\nversion = "1"\n[[package]]\nname = "b"\nversion = "1"\n[[package]]\n'
                'name = "b"\nversion = "2"\n[[package]]\nname = "own"\nversion = "1"\nsource = {editable = "."}\n'
            ),
            "locked a==1",
        ),
        (
            read_setup_cfg,
            (
                "[options]\npython_requires = >=3.7\ninstall_requires =\n  scipy>=1.0\n  file: more.txt\n"
                "[options.entry_points]\nconsole_scripts =\n  fit = digits.cli:main\n"
            ),
            "Python >=3.7|package scipy>=1.0|includes more.txt|console script fit=digits.cli:main",
        ),
        (
            read_setup_py,
            SETUP,
            (
                "name digits|Python >=3.6|package tensorflow==2.*|package scipy|package tqdm"
                "|package tensorflow-gpu [extra gpu]|console script fit=digits.cli:main|includes requirements/base.txt"
            ),
        ),
        (
            READ_CONDA,
            CONDA,
            (
                "Python ==3.7.*|accelerator tensorflow-gpu|package tensorflow-gpu==2.1.0|package "
                "opencv-python-headless==3.4.2.*|system package ffmpeg|package numpy>=1.16|package tqdm==4.62.0"
            ),
        ),
        (READ_CONDA, EXPORT, "locked absl-py==0.13.0"),
        (
            read_docker,
            DOCKER,
            (
                "TensorFlow ==2.3.1|accelerator FROM tensorflow/tensorflow:2.3.1-gpu|system package libsndfile1"
                "|installs needs.txt|package scipy>=1.4|command cd /code/src && python train.py --epochs 5"
            ),
        ),
        (
            read_prose,
            README,
            (
                "TensorFlow >=2.2|Python ==3.6.*|installs requirements.txt|command cd src && "
                "CUDA_VISIBLE_DEVICES=0 python train.py --data X"
                "|TensorFlow ==2.9.*|TensorFlow ==2.*"
            ),
        ),
        (read_prose, "# Requirements\n- OpenAI gymnasium (v0.28.1)\n", "package gymnasium==0.28.1"),
        (read_prose, "Install tensorflow2.0-beta1 with pip", "TensorFlow ==2.0.*"),
        (read_prose, "For training it, use the build_net.py script, not others.", "command python build_net.py"),
        (read_prose, "The model was trained with net.py", ""),
        (read_shell, "# python no.py\ncd exp\npython train.py $X\n", "command cd exp && python train.py $X"),
        (read_python_version, "3.10.4\n", "Python ==3.10.*"),
        (read_python_version, "python-3.7.9\n", "Python ==3.7.*"),
    ],
)
def test_what_a_file_states(read: Reader, text: str, expected: str) -> None:
    stated = [f"{item.fact} {item.value}{f' [{item.group}]' if item.group else ''}" for item in read(text, "FILE")]
    assert stated == [part for part in expected.split("|") if part]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("^0.2.3", ">=0.2.3,<0.3"), ("^0.0.3", ">=0.0.3,<0.0.4"), ("~1.2.3", ">=1.2.3,<1.3"), ("*", ""), ("1.2", "==1.2")],
)
def test_limits_of_poetry(text: str, expected: str) -> None:
    assert caret(text) == expected


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_prose, "/" * 200_000),
        (READ_CONDA, f"dependencies: ['a{' ' * 200_000}b']"),
        (read_setup_cfg, "[options]\nx" + " " * 200_000 + "y\n"),
        (read_pipfile, "a." * 100_000 + "x = 1\n"),
        (read_docker, "FROM a\nCMD " + "torchrun --a " * 20_000 + "\n"),
        (read_shell, "torchrun " + "--aa " * 380 + "x\n"),
    ],
)
def test_long_lines_take_no_time(read: Reader, text: str) -> None:
    """Without a bound on the work for each character, these texts take minutes."""
    assert len([*read(text, "a")]) < 2


@pytest.mark.parametrize(
    ("read", "text"), [(read_prose, "pip install  \n"), (read_docker, "FROM a\nCMD " + "[" * 10_000)]
)
def test_texts_that_state_nothing(read: Reader, text: str) -> None:
    assert not [item for item in read(text, "a") if item.fact is not Fact.COMMAND]
