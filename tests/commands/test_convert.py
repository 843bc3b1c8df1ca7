"""`config --from` of a packaged job: what it writes without `--push`, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.cli.main import _run
from training_imgtool.commands.job_files.convert import read_install_requires

PACKAGED = "trainingInput: {scaleTier: BASIC, runtimeVersion: '2.11', pythonVersion: '3.7'}\n"
SETUP = """\
from setuptools import find_packages, setup
REQUIRED = ["tensorflow==1.15", "six>=1.10"]
setup(name="trainer", install_requires=REQUIRED, packages=find_packages())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("print(1)\n")
    (tmp_path / "config.yaml").write_text(PACKAGED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_packaged_job_becomes_a_spec(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "setup.py").write_text(SETUP)
    arguments = ["config", "--from", "config.yaml", "--flags", "j1 --region us-central1 -- --epochs 3"]
    assert _run(arguments) == 3
    assert "--push writes an image.yaml with the same TensorFlow" in capsys.readouterr().err
    assert _run([*arguments, "--spec", "image.yaml"]) == 0
    text = (folder / "image.yaml").read_text()
    assert 'tensorflow: "2.11.1"' in text
    assert '  id: "j1"\n' in text
    assert (folder / "requirements.txt").read_text() == "six>=1.10\n"
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "note: requirements.txt lists what setup.py installs\n" in printed.err
    assert "note: trainingInput.pythonVersion: imgtool chooses the Python that fits TensorFlow\n" in printed.err
    assert "next: imgtool config image.yaml --push -o vertex.yaml\n" in printed.err


def test_a_spec_that_says_the_same_is_used_and_another_one_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["config", "--from", "config.yaml", "--region", "us-central1", "--spec", "image.yaml"]
    assert _run(arguments) == 0
    assert _run(arguments) == 0
    (folder / "image.yaml").write_text("name: mine\n")
    capsys.readouterr()
    assert _run(arguments) == 9
    assert "image.yaml already exists with other content" in capsys.readouterr().err
    assert (folder / "image.yaml").read_text() == "name: mine\n"


def test_the_package_may_lie_deeper(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "trainer").rename(folder / "src" / "census")
    flags = "j1 --region us-central1 --package-path src/census/ --module-name census.task"
    assert _run(["config", "--from", "config.yaml", "--flags", flags, "--spec", "image.yaml"]) == 0
    assert 'source: "src/census"\n  module: "census.task"' in (folder / "image.yaml").read_text()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--flags", "--module-name=model.task", "--spec", "image.yaml"], 3, "the job starts the module model.task"),
        (["--flags", "--package-path=../elsewhere", "--spec", "x/image.yaml"], 3, "is not a folder"),
        (["--flags", "--package-path=trainer", "--spec", "deep/image.yaml"], 3, "is not below"),
        (["--spec", "image.yaml", "-o", "vertex.yaml"], 2, "the Vertex file names images by digest"),
        (["--flags", "--region='us", "--spec", "image.yaml"], 2, "--flags: not a command line: No closing quotation"),
        (["--flags", "--regoin us", "--spec", "image.yaml"], 2, "--regoin is not a flag of gcloud"),
    ],
)
def test_what_is_refused_leaves_no_file(
    folder: Path, options: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["config", "--from", "config.yaml", *options]) == code
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "trainer"]


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        (SETUP, ("six>=1.10",)),
        ("import setuptools\nsetuptools.setup(install_requires=['pandas<2', 'a[b]; python_version<\"3\"'])\n",
         ("pandas<2", 'a[b]; python_version < "3"')),
        ("from setuptools import setup\nsetup(install_requires='six')\n", ("six",)),
        ("from setuptools import setup\nsetup(name='x')\n", ()),
        ("from setuptools import setup\nsetup(install_requires=open('r').read().split())\n", ()),
        ("from setuptools import setup\nsetup(install_requires=['-e .'])\n", ()),
        ("print 'Python 2'\n", ()),
    ],
)  # fmt: skip
def test_the_requirements_of_a_setup_py(text: str, requirements: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(text)
    assert read_install_requires(tmp_path / "setup.py") == requirements


def test_without_a_setup_py_there_are_none(tmp_path: Path) -> None:
    assert read_install_requires(tmp_path / "setup.py") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trainingInput: {scaleTier: CUSTOM, runtimeVersion: '2.11'}\n", "machine"),
        (
            (
                "trainingInput: {scaleTier: BASIC, runtimeVersion: '2.11', hyperparameters: {goal: MINIMIZE, "
                "hyperparameterMetricTag: Taxi Model Accuracy, params: [{parameterName: a, type: INTEGER, minValue: 1, "
                "maxValue: 2}]}}\n"
            ),
            "Taxi Model Accuracy",
        ),
    ],
)
def test_a_job_whose_spec_would_be_refused_leaves_none(
    text: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.yaml").write_text(text)
    assert _run(["config", "--from", "config.yaml", "--region", "us-central1", "--spec", "image.yaml"]) == 3
    printed = capsys.readouterr().err
    assert "the job cannot become an image.yaml" in printed
    assert said in printed
    assert not (folder / "image.yaml").exists()
