from __future__ import annotations

import ast
from pathlib import Path

import jsonschema
import pytest
import yaml

from training_imgtool.commands.init import starter_files, write_starter
from training_imgtool.core.errors import InputError, LocalFileError
from training_imgtool.spec.json_schema import json_schema
from training_imgtool.spec.load import load
from training_imgtool.spec.model import Accelerator, Role, Target

NAMES = ["image.yaml", "trainer/__init__.py", "trainer/task.py", "requirements.txt", ".dockerignore"]


@pytest.mark.parametrize("accelerator", Accelerator)
def test_the_first_spec_loads_and_passes_the_schema(tmp_path: Path, accelerator: Accelerator) -> None:
    folder = tmp_path / "My Project"
    written = write_starter(folder, tensorflow="2.15.1", accelerator=accelerator)
    assert written == tuple(folder / name for name in NAMES)
    spec = load(folder / "image.yaml").spec
    assert (spec.name, spec.tensorflow, spec.accelerator) == ("my-project", "2.15.1", accelerator)
    assert list(spec.roles) == [Role.MASTER, Role.WORKER]
    assert spec.accelerator_of(Role.WORKER) is accelerator
    assert spec.job.target is (Target.AI_PLATFORM if accelerator is Accelerator.TPU else Target.VERTEX)
    assert spec.accelerator_of(Role.MASTER) is (Accelerator.CPU if accelerator is Accelerator.TPU else accelerator)
    jsonschema.Draft7Validator(json_schema()).validate(yaml.safe_load((folder / "image.yaml").read_text()))


def test_the_files_end_in_a_newline_and_the_trainer_is_python() -> None:
    contents = starter_files("m", "2.15.1", Accelerator.CPU)
    assert list(contents) == NAMES
    for text in contents.values():
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        assert all(line == line.rstrip() for line in text.splitlines())
    task = contents["trainer/task.py"]
    ast.parse(task, feature_version=(3, 7))
    assert "--job-dir" in task
    assert "TF_CONFIG" in task


def test_the_commented_keys_are_right_when_uncommented(tmp_path: Path) -> None:
    write_starter(tmp_path, name="m", tensorflow="2.15.1", accelerator=Accelerator.CPU)
    path = tmp_path / "image.yaml"
    text = path.read_text()
    for line in ("# registry: ", '# python: "3.11"', "# job_dir: "):
        assert line in text
        text = text.replace(line, line.removeprefix("# "))
    path.write_text(text)
    spec = load(path).spec
    assert spec.registry == "us-central1-docker.pkg.dev/my-project/training"
    assert spec.python == "3.11"
    assert spec.job.job_dir == "gs://my-bucket/m"


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("scikit-learn\n")
    written = write_starter(tmp_path, name="m", tensorflow="2.15.1", accelerator=Accelerator.CPU)
    assert tmp_path / "requirements.txt" not in written
    assert (tmp_path / "requirements.txt").read_text() == "scikit-learn\n"
    before = (tmp_path / "image.yaml").read_bytes()
    with pytest.raises(InputError, match=r"image\.yaml is there already"):
        write_starter(tmp_path, name="n", tensorflow="2.15.1", accelerator=Accelerator.CPU)
    assert (tmp_path / "image.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "tensorflow", "message"),
    [
        ("My Model", "2.15.1", "'My Model' is not an image's name: expected lower-case letters"),
        ("m\nx: y", "2.15.1", "the character U\\+000A is not allowed"),
        ("m", "2.15", "expected a full TensorFlow release, such as 2.15.1, found '2.15'"),
        ("m", '2.15.1"\nx: y', "expected a full TensorFlow release"),
        ("m", "1.15.5", "the first trainer needs TensorFlow 2.4 or newer, found 1.15.5"),
    ],
)
def test_names_that_no_spec_could_have(tmp_path: Path, name: str, tensorflow: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_starter(tmp_path, name=name, tensorflow=tensorflow, accelerator=Accelerator.CPU)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(LocalFileError, match="cannot make the folder"):
        write_starter(tmp_path / "f", name="m", tensorflow="2.15.1", accelerator=Accelerator.CPU)
