from __future__ import annotations

import ast
import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from training_imgtool.app.init import write_starter
from training_imgtool.base.context.own_files import SCHEMA, list_own_files
from training_imgtool.base.errors import InputError, LocalFileError
from training_imgtool.model.load import load
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.model.targets import Target

NAMES = ["image.yaml", "trainer/__init__.py", "trainer/task.py", "requirements.txt", ".dockerignore", SCHEMA]


@pytest.mark.parametrize("accelerator", Accelerator)
def test_the_first_spec_loads_and_passes_the_schema(tmp_path: Path, accelerator: Accelerator) -> None:
    folder = tmp_path / "My Pröject"
    written = write_starter(folder, release="2.15.1", accelerator=accelerator)
    assert (written.proposal.table(), written.notes, written.diff) == ((), (), None)
    assert written.paths == tuple(folder / name for name in NAMES)
    spec = load(folder / "image.yaml").spec
    assert (spec.name, spec.tensorflow, spec.accelerator) == ("my-project", "2.15.1", accelerator)
    last = Role.WORKER if accelerator is Accelerator.TPU else Role.MASTER
    assert list(spec.roles) == list(dict.fromkeys([Role.MASTER, last]))
    assert spec.accelerator_of(last) is accelerator
    assert spec.job.target is (Target.AI_PLATFORM if accelerator is Accelerator.TPU else Target.VERTEX)
    assert spec.accelerator_of(Role.MASTER) is (Accelerator.CPU if accelerator is Accelerator.TPU else accelerator)
    text = (folder / "image.yaml").read_text()
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA}\n")
    jsonschema.Draft7Validator(json.loads((folder / SCHEMA).read_text())).validate(yaml.safe_load(text))
    assert SCHEMA in list_own_files(folder)


def test_zstd_where_the_targets_runtime_reads_it(tmp_path: Path) -> None:
    for accelerator, target in ((Accelerator.TPU, Target.JOBSET), (Accelerator.CPU, Target.VERTEX)):
        folder = tmp_path / accelerator
        write_starter(folder, framework="jax", release="0.10.2", accelerator=accelerator)
        text, spec = (folder / "image.yaml").read_text(), load(folder / "image.yaml").spec
        assert spec.job.target is target
        assert spec.compression == ("zstd" if target is Target.JOBSET else "gzip")
        assert ("unpack faster; containerd 1.5 or newer reads them" in text) is (target is Target.JOBSET)


def test_the_files_end_in_a_newline_and_the_trainer_is_python(tmp_path: Path) -> None:
    contents = write_starter(tmp_path, name="m").files
    assert sorted(contents) == sorted(NAMES)
    for text in contents.values():
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        assert all(line == line.rstrip() for line in text.splitlines())
    task = contents["trainer/task.py"]
    ast.parse(task, feature_version=(3, 7))
    assert "--job-dir" in task
    assert "TF_CONFIG" in task


def test_the_commented_keys_are_right_when_uncommented(tmp_path: Path) -> None:
    write_starter(tmp_path, name="m", release="2.15.1", accelerator=Accelerator.CPU)
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
    assert spec.job.pass_job_dir


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("scikit-learn\n")
    written = write_starter(tmp_path, name="m", release="2.15.1", accelerator=Accelerator.CPU)
    assert tmp_path / "requirements.txt" not in written.paths
    assert (tmp_path / "requirements.txt").read_text() == "scikit-learn\n"


def test_a_spec_that_is_there_is_compared_and_left_as_it_is(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": program()})
    write_starter(tmp_path, name="m", release="2.15.1")
    before = (tmp_path / "image.yaml").read_bytes()
    assert write_starter(tmp_path, name="m", release="2.15.1").diff == ""
    again = write_starter(tmp_path, name="n", release="2.14.1")
    assert again.paths == ()
    assert again.diff is not None
    assert '-tensorflow: "2.15.1"' in again.diff
    assert '+tensorflow: "2.14.1"' in again.diff
    assert (tmp_path / "image.yaml").read_bytes() == before
    assert write_starter(tmp_path, name="n", force=True).paths == (tmp_path / "image.yaml", tmp_path / SCHEMA)
    assert load(tmp_path / "image.yaml").spec.name == "n"


@pytest.mark.parametrize(
    ("name", "tensorflow", "message"),
    [
        ("My Model", "2.15.1", "'My Model' is not a valid name for images: expected lower-case letters"),
        ("m\nx: y", "2.15.1", "the character U\\+000A is not allowed"),
        ("m", "2.15", "expected a full TensorFlow release, such as 2.15.1, found '2.15'"),
        ("m", '2.15.1"\nx: y', "expected a full TensorFlow release"),
        ("m", "1.15.5", "the trainer that init writes needs TensorFlow 2.4 or newer, found 1.15.5"),
    ],
)
def test_names_that_no_spec_could_have(tmp_path: Path, name: str, tensorflow: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_starter(tmp_path, name=name, release=tensorflow, accelerator=Accelerator.CPU)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(LocalFileError, match="cannot make the folder"):
        write_starter(tmp_path / "f", name="m", release="2.15.1", accelerator=Accelerator.CPU)


PROGRAM = """import argparse
import tensorflow as tf
{imports}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("-d", "--data-dir", required=True)
    {body}


if __name__ == "__main__":
    main()
"""


def project(folder: Path, files: dict[str, str]) -> dict[str, bytes]:
    """Writes a project; returns its bytes."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {name: (folder / name).read_bytes() for name in files}


def proposed(folder: Path, files: dict[str, str]) -> tuple[ImageSpec, str]:
    """The spec that init proposes for a project whose files stay as they are, and its text."""
    before = project(folder, files)
    written = write_starter(folder)
    assert not {str(path.relative_to(folder)) for path in written.paths} & set(files)
    assert {name: (folder / name).read_bytes() for name in files} == before
    return load(folder / "image.yaml").spec, (folder / "image.yaml").read_text()


def program(imports: str = "", body: str = "") -> str:
    return PROGRAM.format(imports=imports, body=body)


def test_a_project_with_a_dockerfile_and_requirements(tmp_path: Path) -> None:
    spec, text = proposed(
        tmp_path,
        {
            "Dockerfile": "FROM tensorflow/tensorflow:2.13.0-gpu\nRUN apt-get install -y libgomp1 git\n",
            "requirements.txt": "pandas\n",
            "census/task.py": program("from census import model"),
            "census/model.py": "import tensorflow as tf\nx = tf.distribute.ParameterServerStrategy\n",
            "census/__init__.py": "",
            "tools/prepare.py": 'if __name__ == "__main__":\n    print()\n',
        },
    )
    assert (spec.tensorflow, spec.accelerator) == ("2.13.0", Accelerator.GPU)
    assert (spec.trainer.source, spec.trainer.module) == ("census", "census.task")
    assert list(spec.roles) == [Role.MASTER, Role.WORKER, Role.PS]
    assert spec.args == ()
    assert "its options: --epochs, --data-dir (required)" in text
    assert "system_packages: [libgomp1]  # Dockerfile:2\n# the project installs, too: git\n" in text
    assert "prepare" not in text
    assert "to the arguments; the program must take it" in text
    assert "Dockerfile: FROM tensorflow/tensorflow:2.13.0-gpu" in text


def test_a_python_that_the_release_has_no_wheels_for_is_a_comment(tmp_path: Path) -> None:
    files = {"Dockerfile": "FROM python:3.12-slim\n", "a/train.py": program(), "requirements.txt": "tensorflow<2.16\n"}
    spec, text = proposed(tmp_path, files)
    assert spec.python is None
    assert '# python: "3.11"  # TensorFlow 2.15.1 has no wheel for what Dockerfile says: ==3.12.*' in text
    assert spec.tensorflow == "2.15.1"


def test_a_python_that_nothing_asks_for_is_a_comment_that_the_release_has(tmp_path: Path) -> None:
    _, text = proposed(tmp_path, {"train.py": program(), "requirements.txt": "tensorflow==1.15.5\n"})
    assert '\n# python: "3.7"\n' in text


def test_a_program_that_no_spec_can_start_is_named(tmp_path: Path) -> None:
    project(tmp_path, {"my code/train.py": program()})
    written = write_starter(tmp_path)
    assert written.notes[0].startswith("my code/train.py cannot start in its folder: names of folders may have letters")
    assert tmp_path / "trainer/task.py" not in written.paths
    assert "# trainer: FOLDER/FILE.py" in (tmp_path / "image.yaml").read_text()


def test_files_that_say_nothing(tmp_path: Path) -> None:
    """Damaged or hostile files are no clue, and none of their text reaches the spec."""
    project(
        tmp_path,
        {
            "Dockerfile": "FROM tensorflow/tensorflow:2.13.0@x\x07y\nNONSENSE\n",
            "pyproject.toml": "[project\n",
            "requirements.txt": "===\n",
            "a/train.py": "def broken(:\n",
            "a/b\nname: evil.py": program(),
        },
    )
    written = write_starter(tmp_path, name="m")
    assert written.paths == tuple(tmp_path / name for name in ("image.yaml", ".dockerignore", SCHEMA))
    assert written.notes == ("no file trains, as far as imgtool can read: complete `trainer` in image.yaml",)
    text = (tmp_path / "image.yaml").read_text()
    assert 'tensorflow: "2.15.1"  # a guess: no file names a release' in text
    assert "NONSENSE" not in text
    assert "\nname: m " in text
    assert "evil" not in text


def test_a_dockerfile_alone_says_what_to_install_and_to_start(tmp_path: Path) -> None:
    dockerfile = """FROM python:3.11-slim
RUN pip install --no-cache-dir -U pip tensorflow==2.14.0 "scikit-learn>=1.3" -i https://mirror.example.com/simple $MORE
COPY . /code
ENTRYPOINT ["python", "-u", "/code/fit_model.py"]
CMD ["--steps", "5"]
"""
    spec, text = proposed(
        tmp_path,
        {"Dockerfile": dockerfile, "train.py": program(), "fit_model.py": program("import sklearn, PIL, cudf")},
    )
    assert (spec.tensorflow, spec.python) == ("2.14.0", "3.11")
    assert (spec.trainer.source, spec.trainer.script, spec.args) == (".", "fit_model.py", ("--steps", "5"))
    assert spec.python_packages == ("scikit-learn>=1.3", "pillow")
    assert '  - "pillow"  # a guess: imported in fit_model.py:3\n' in text
    assert (
        "# missing, unless another package brings them: the packages of these imports: cudf (fit_model.py:3)\n" in text
    )
    assert "mirror" not in text
    assert not (tmp_path / "requirements.txt").exists()


def test_a_script_of_a_notebook(tmp_path: Path) -> None:
    code = "# In[1]:\n!pip install pandas\nimport tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.fit([1])\n"
    spec, _ = proposed(tmp_path, {"My-Notebook.py": code, "prepare.py": "print(1)\n"})
    assert (spec.trainer.source, spec.trainer.script) == (".", "My-Notebook.py")
    assert not (tmp_path / "trainer").exists()


def test_a_notebook_becomes_a_program(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Digits"]},
        {"cell_type": "code", "source": ["!pip install pandas==2.1.0\n", "import pandas, tensorflow as tf"]},
        {"cell_type": "code", "source": "%%bash\nls"},
        {"cell_type": "code", "source": "from __future__ import annotations"},
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "if True:\n", "    !ls\n", "model = tf.keras.Sequential()"],
        },
        {"cell_type": "code", "source": ["display(model.fit([1]))\n", "model?"]},
        {"cell_type": "code", "source": ["print('%d'\n", "    % (1))"]},  # no command
    ]
    spec, _ = proposed(tmp_path, {"01 Digits-CNN.ipynb": json.dumps({"cells": cells})})
    assert (spec.trainer.source, spec.trainer.script) == (".", "01_Digits_CNN.py")
    assert spec.python_packages == ("pandas",)
    assert not (tmp_path / "trainer").exists()
    code = (tmp_path / "01_Digits_CNN.py").read_text()
    compile(code, "digits.py", "exec")  # which imports from the future only at the top
    calls = [ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    assert {"model.fit([1])", "print('%d' % 1)"} <= {*calls}
    assert "# ls" in code


def test_a_notebook_that_is_called_as_what_it_imports(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": "import tensorflow as tf\ntf.keras.Sequential().fit([1])"}]
    spec, _ = proposed(tmp_path, {"keras.ipynb": json.dumps({"cells": cells})})
    assert spec.trainer.script == "keras_notebook.py"


def test_a_notebook_that_changes_becomes_its_script_again(tmp_path: Path) -> None:
    def write(code: str) -> None:
        cells = [{"cell_type": "code", "source": f"import tensorflow as tf\n{code}"}]
        project(tmp_path, {"train.ipynb": json.dumps({"cells": cells})})

    write("tf.keras.Sequential().fit([1])")
    first = write_starter(tmp_path)
    assert write_starter(tmp_path).diff == ""
    write("tf.keras.Sequential().fit([2])")
    again = write_starter(tmp_path, force=True)
    assert again.notes == first.notes == ("train.ipynb became train.py; run init --force once the notebook changes",)
    assert "fit([2])" in (tmp_path / "train.py").read_text()


def test_a_console_script_whose_file_starts_nothing(tmp_path: Path) -> None:
    metadata = '[project]\nname = "pkg"\ndependencies = ["tensorflow==2.15.1"]\nscripts = {fit = "pkg.cli:main"}\n'
    code = """import click
@click.command()
@click.option("--epochs", default=1)
@click.option("--data", required=True)
@click.argument("name")
def main(epochs, data, name): pass
"""
    spec, text = proposed(tmp_path, {"pyproject.toml": metadata, "src/pkg/cli.py": code, "src/pkg/__init__.py": ""})
    assert (spec.trainer.module, spec.trainer.function) == ("pkg.cli", "main")
    assert "trainer: {source: ., module: pkg.cli, function: main}" in text
    assert "its options: --epochs, --data (required), name (required)" in text
    assert spec.python_packages == ("click",)


def test_flags_and_a_setup_py(tmp_path: Path) -> None:
    code = """from absl import app, flags
import tensorflow as tf
flags.DEFINE_integer("steps", 3, "")
flags.DEFINE_string("data", None, "")
flags.DEFINE_string("job_dir", None, "")
flags.mark_flag_as_required("data")
def main(argv): pass
if __name__ == "__main__":
    app.run(main)
"""
    setup = "from setuptools import setup\nsetup(install_requires=['tensorflow>=2.12,<2.14', 'scipy'])\n"
    spec, text = proposed(tmp_path, {"setup.py": setup, "census/main.py": code, "census/main_test.py": code})
    assert (spec.tensorflow, spec.trainer.script or spec.trainer.module) == ("2.13.1", "main.py")
    assert "its options: --steps, --data (required), --job_dir" in text
    assert "the program takes --job_dir: write it into args" in text
    assert "main_test" not in text
    assert spec.python_packages == ("scipy",)


def test_what_the_spec_cannot_have_is_a_comment(tmp_path: Path) -> None:
    code = "import tensorflow as tf\nget_ipython().system('ls')\ntf.keras.Sequential().fit([1])\n"
    _, text = proposed(tmp_path, {"requirements.txt": "tensorflow==2.15.9\n", "pkg/explore.py": code})
    assert "the nearest to requirements.txt:1: ==2.15.9; imgtool compat lists the releases" in text
