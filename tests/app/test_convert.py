"""`config --from` of a packaged job without `--push`: the spec that it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.cli.main import _run

PACKAGED = "trainingInput: {scaleTier: BASIC, runtimeVersion: '2.11', pythonVersion: '3.7'}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("print(1)\n")
    (tmp_path / "config.yaml").write_text(PACKAGED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_packaged_job_becomes_a_spec(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "setup.py").write_text("from setuptools import setup\nsetup(install_requires=['six>=1.10'])\n")
    arguments = ["config", "--from", "config.yaml", "--flags", "j1 --region us-central1 -- --epochs 3"]
    assert _run(arguments) == 0
    text = (folder / "image.yaml").read_text()
    assert 'tensorflow: "2.11.1"' in text
    assert '  id: "j1"\n' in text
    assert 'requirements: "setup.py"\n' in text
    printed = capsys.readouterr()
    assert printed.out == ""
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
        (
            ["--flags", "--module-name=model.task", "--spec", "image.yaml"],
            3,
            "expected the folder of the package that has the job's module, model.task",
        ),
        (["--flags", "--package-path=../elsewhere", "--spec", "x/image.yaml"], 3, "expected the folder of"),
        (["--flags", "--package-path=trainer", "--spec", "deep/image.yaml"], 3, "is not below"),
        (["--spec", "image.yaml", "-o", "vertex.yaml"], 2, "the job file needs the digests of the images"),
        (["--flags", "--region='us", "--spec", "image.yaml"], 2, "--flags: not a command line: No closing quotation"),
        (["--flags", "--regoin us", "--spec", "image.yaml"], 2, "--regoin is not a flag of gcloud"),
    ],
)
def test_what_is_refused_leaves_no_file(
    folder: Path, options: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["config", "--from", "config.yaml", "--region", "us-central1", *options]) == code
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "trainer"]


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
    assert "imgtool cannot make an image.yaml from the job" in printed
    assert said in printed
    assert not (folder / "image.yaml").exists()
