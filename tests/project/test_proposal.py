"""What imgtool proposes for small projects; each is the least form of a public one that was proposed wrongly before."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.commands.init import write_starter
from training_imgtool.project.packages import Concessions
from training_imgtool.project.proposal import Proposal, propose
from training_imgtool.spec.load import load
from training_imgtool.spec.model import Accelerator, ImageSpec
from training_imgtool.versions.matrix import load_matrix

TRAIN = "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.fit([1])\n"
MAIN = f"def main():\n    pass\nif __name__ == '__main__':\n    main()\n{TRAIN}"
LOADS = "import importlib\nif __name__ == '__main__':\n    importlib.import_module('net')\n"
CREATE = "conda env create -f a/environment.yml\n"
FIRST = "import tensorflow as tf\nx = tf.placeholder(tf.float32)\nwith tf.Session() as s:\n    s.run(x)\n"
POETRY = '[tool.poetry]\nname = "p"\n[tool.poetry.dependencies]\n'
PEP_621 = '[project]\nname = "p"\ndependencies = ["tensorflow"]\n'
SETUP = "setup(python_requires='>=3.9,<3.10', install_requires=['tensorflow>=2.8,<2.13'])"
ASKS = "import tensorflow as tf\nif tf.__version__ < '2':\n    tf.Session(); tf.placeholder(1)\ntf.a.fit()\n"
ONE = "import tensorflow as tf\ntf.Session(); tf.placeholder(1)\ntf.a.fit()\n"
LOOP = "import tensorflow as tf\nfor x in range(3):\n    tf.print(x)\n"
CONDA_LIST = "".join(f"{name}=1.0=py37_0\n" for name in ("mkl", "libgcc", "zlib")) + "tqdm=4.47.0=py_0\n"
SCRIPT = "setup(name='p', entry_points={'console_scripts': ['p-train=p.go:main']}, install_requires=['tqdm'])"
LOCKED = '[[package]]\nname = "scipy"\nversion = "1.9.3"\n[[package]]\nname = "tensorflow"\nversion = "2.10.1"\n'


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes a project."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def proposal_of(folder: Path, files: dict[str, str]) -> Proposal:
    """Proposes for a project of these files."""
    write(folder, files)
    return propose(folder, load_matrix())


def spec_of(folder: Path, files: dict[str, str]) -> ImageSpec:
    """Reads the spec that init writes for a project of these files."""
    write(folder, files)
    write_starter(folder)
    return load(folder / "image.yaml").spec


@pytest.mark.parametrize(
    ("files", "tensorflow", "python"),
    [
        ({"pyproject.toml": f'{POETRY}tensorflow = "2.10.1"\n'}, "2.10.1", None),
        ({"Pipfile": '[packages]\ntensorflow = ">=2.3,<2.5"\n[requires]\npython_version = "3.7"\n'}, "2.4.4", "3.7"),
        ({"environment.yml": "dependencies: [python=3.8, tensorflow=2.6.2]\n"}, "2.6.2", "3.8"),
        (
            {"setup.py": SETUP},
            "2.12.1",
            "3.9",
        ),
        ({"requirements.txt": "tensorflow==2.3.0rc0\n"}, "2.3.4", None),  # the nearest that there is
        ({"requirements.txt": "tensorflow-gpu==1.8.0\n"}, "1.15.5", None),  # the last of its major version
        ({"requirements.txt": "tensorflow-text~=2.11.0\n"}, "2.11.1", None),  # a companion of the same minor
        ({"requirements.txt": "tensorflow>=2.2\ntensorflow-probability==0.10.*\n"}, "2.2.3", None),
        ({"requirements.txt": "tensorflow>=2.9\n"}, "2.15.1", None),  # the last with Keras 2
        ({"requirements.txt": "tensorflow>=2.18\n"}, "2.18.1", None),
        ({"requirements.txt": "tensorflow==2.11.0\n", "README.md": "Requires TensorFlow 2.3\n"}, "2.11.0", None),
        ({"requirements.txt": "tensorflow>=2.3\n", "README.md": "Works with TensorFlow 2.3.0\n"}, "2.3.0", None),
        ({"Dockerfile": "FROM tensorflow/tensorflow:2.5.1\n"}, "2.5.1", None),
        ({"README.md": "# TensorFlow Version\n2.4\n"}, "2.4.4", None),
        ({"Dockerfile": "FROM gcr.io/deeplearning-platform-release/tf2-gpu.2-4\n"}, "2.4.4", None),
        ({"Dockerfile": "FROM x.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest\n"}, "2.14.1", "3.10"),
        (
            {"requirements.txt": "tensorflow\ntf-keras\n"},
            "2.16.2",
            None,
        ),  # who asks for Keras 2 has a TensorFlow with 3
        ({"a/environment.yml": "dependencies: [tensorflow=2.4, python=3.7.3]\n", "README.md": CREATE}, "2.4.4", "3.7"),
        ({".python-version": "3.9.13\n"}, "2.15.1", "3.9"),
        ({"requirements.txt": "tensorflow==2.5.0\nnumpy==1.19.2\n"}, "2.5.0", "3.8"),  # numpy has no wheel for 3.9
        (
            {"uv.lock": LOCKED, "pyproject.toml": PEP_621},
            "2.10.1",
            None,
        ),
        ({"requirements.txt": "tensorflow>=1.12\n"}, "1.15.5", None),  # a lower limit is what its author had
        ({"README.md": "Keras 2.3.1 and Python 3\n"}, "2.2.3", None),
        ({"README.md": "![TF](https://img.shields.io/badge/TensorFlow-2.1-orange)\n"}, "2.1.4", None),
        ({"README.rst": ".. _`TensorFlow 1.14`: https://example.com/r1.14\n"}, "2.15.1", None),
        ({"REQUIREMENTS.txt": "tensorflow==2.3.1\n"}, "2.3.1", None),
        ({"README.md": "Tested with Python 3.6\n", "requirements.txt": "tensorflow>=2.0\n"}, "2.6.2", "3.6"),
        ({"README.md": "built in TensorFlow 2.0\n\nTensorFlow == 2.1.0\n"}, "2.1.0", None),  # a release beats a major
        ({}, "2.15.1", None),
    ],
)
def test_tensorflow_and_python(tmp_path: Path, files: dict[str, str], tensorflow: str, python: str | None) -> None:
    choice = proposal_of(tmp_path, {"train.py": TRAIN, **files}).choice
    assert (choice.tensorflow, choice.python) == (tensorflow, python)


@pytest.mark.parametrize(
    ("code", "tensorflow"),
    [
        (FIRST, "1.15.5"),
        ("import tensorflow.contrib.slim as slim\nimport tensorflow as tf\ntf.app.run()\n", "1.15.5"),
        ("import tensorflow.compat.v1 as tf\n" + FIRST.partition("\n")[2], "2.15.1"),
        ("from keras.models import Model\nModel(input=1, output=2).fit(1, nb_epoch=3)\n", "1.15.5"),
        (
            "from net import f\nfrom tensorflow.python.keras import Model\nModel().fit(1)\n",
            "1.15.5",
        ),  # a name in another file
        ("import tensorflow as tf\nfrom tensorflow.python.keras.layers import Dense\ntf.x.fit()\n", "2.5.3"),
        (ASKS, "2.15.1"),
        (f"{ONE}if tf.__version__.split('.')[0] != '1':\n    raise ValueError('TensorFlow 1 required')\n", "1.15.5"),
        (f"{ONE}print('TensorFlow', tf.__version__)\n", "1.15.5"),
        (f"{ONE}OLD = tf.__version__ < '2'\n", "2.15.1"),
        ("from keras.layers.convolutional import Conv2D\nfrom keras.models import Model\nModel().fit(1)\n", "2.12.1"),
    ],
)
def test_the_release_by_the_api_that_code_uses(tmp_path: Path, code: str, tensorflow: str) -> None:
    files = {"train.py": code, "net.py": "import tensorflow as tf\ndef f():\n    tf.set_random_seed(1)\n"}
    assert proposal_of(tmp_path, files).choice.tensorflow == tensorflow


@pytest.mark.parametrize(
    ("files", "program"),
    [
        ({"predict.py": MAIN, "train.py": MAIN}, "train.py"),
        ({"export.py": MAIN, "build_vocab.py": MAIN, "model_main.py": MAIN}, "model_main.py"),
        ({"a.py": MAIN, "zebra.py": MAIN, "README.md": "## Training\npython zebra.py\n"}, "zebra.py"),
        ({"go.py": "import tensorflow\nfrom net import Net\nNet().train()\n", "net.py": TRAIN[:23]}, "go.py"),
        (
            {
                "train1.py": f"try:\n    for x in ():\n        pass\nexcept OSError:\n    pass\n{TRAIN[:23]}",
                "test1.py": MAIN,
            },
            "train1.py",
        ),
        ({"a.py": f"from net import Net\nNet().single_gpu_train()\n{TRAIN[:23]}", "net.py": ""}, "a.py"),
        ({"tests/train.py": MAIN, "run.py": MAIN}, "run.py"),
        ({"test_train.py": MAIN, "solve.py": MAIN}, "solve.py"),
        ({"main.py": "import os\nif __name__ == '__main__':\n    os.getcwd()\n", "cnn.py": MAIN}, "cnn.py"),
        # the README's own command, whatever its heading is and however the program loads TensorFlow
        (
            {"run_tool.py": MAIN[:-40], "main.py": LOADS, "README.md": "### Demo\n\n    python main.py --x=1\n"},
            "main.py",
        ),
        # a module that has moved since the README was written
        (
            {"src/p/b/work.py": MAIN, "src/p/task.py": MAIN, "README.md": "python -u -m p.a.work 0 1\n"},
            "src/p/b/work.py",
        ),
        # what others import is a library, even if it can start; and a first run is more than one that goes on
        ({"lib/trainer.py": MAIN, "solve.py": f"import lib.trainer\n{MAIN}", "run.py": MAIN}, "run.py"),
        ({"continue_train.py": MAIN, "train.py": MAIN}, "train.py"),
        # a part of the project with packages of its own is not what the project is about
        (
            {
                "part/train.py": MAIN,
                "part/requirements.txt": "tqdm\n",
                "requirements.txt": "tqdm\n",
                "run_net.py": MAIN,
            },
            "run_net.py",
        ),
        ({"7-Utils/train.py": MAIN, "3-nets/main.py": MAIN}, "3-nets/main.py"),
        # what brings the project's parts together, and what lies where programs lie
        (
            {
                "toy.py": f"import a\n{MAIN}",
                "main.py": f"import a, b, c, fit\n{MAIN[:-40]}",
                **dict.fromkeys(("a.py", "b.py", "c.py"), ""),
                "fit.py": f"import b, c, e, f, g, h, i\n{TRAIN}",
                **dict.fromkeys(("e.py", "f.py", "g.py", "h.py", "i.py"), ""),
            },
            "main.py",
        ),
        ({"lib/trainer.py": MAIN, "scripts/run_it.py": MAIN}, "scripts/run_it.py"),
        ({"graveyard/train.py": MAIN, "net_test/train.py": MAIN, "run.py": MAIN}, "run.py"),
        # a command whose file is gone, and as many of its name as there may be
        ({"a/work.py": MAIN, "b/work.py": MAIN, "net.py": MAIN, "run.sh": "python old/work.py\n"}, "net.py"),
        # a console script that prose names, of a project below the top
        (
            {
                "sub/p/go.py": f"def main():\n    pass\n{TRAIN[:23]}",
                "sub/setup.py": SCRIPT,
                "fit.py": MAIN,
                "README.md": "`p-train data/`\n",
            },
            "sub/p/go.py",
        ),
        ({"new/run.py": MAIN, "run.py": MAIN, "new/README.md": "## Train\npython run.py\n"}, "new/run.py"),
        ({"serve.py": MAIN, "net.py": MAIN, "run.sh": "python net.py\n"}, "net.py"),
        # of several shell scripts the one that the README names, and what its own name says
        (
            {
                "a.py": MAIN,
                "b.py": MAIN,
                "a.sh": "python a.py\n",
                "b.sh": "python b.py\n",
                "README.md": "Run `./b.sh --name X`.\n",
            },
            "b.py",
        ),
        ({"a.py": MAIN, "b.py": MAIN, "a.sh": "python a.py\n", "train_b.sh": "python b.py\n"}, "b.py"),
        ({"Exports/run.py": MAIN, "beta_net.py": MAIN, "net.py": MAIN}, "net.py"),
        (
            {"loop.py": LOOP, "util.py": "import tensorflow\n"},
            "loop.py",
        ),
    ],
)
def test_the_program_that_trains(tmp_path: Path, files: dict[str, str], program: str) -> None:
    chosen = proposal_of(tmp_path, files).program
    assert chosen is not None
    assert chosen.path == program


@pytest.mark.parametrize(
    ("files", "arguments", "folder", "python_path"),
    [
        # relative imports: a module, which Python finds from above its package
        (
            {"pkg/train.py": f"from . import util\n{MAIN}", "pkg/util.py": "", "pkg/__init__.py": ""},
            ("-m", "pkg.train"), "/app", None,
        ),
        # the package lies beside the folder of the script
        (
            {"examples/run.py": f"import pkg\n{MAIN}", "pkg/__init__.py": ""},
            ("/app/examples/run.py",), "/app", "/app",
        ),
        (
            {"scripts/fit.py": f"import pkg\n{MAIN}", "src/pkg/__init__.py": ""},
            ("/app/scripts/fit.py",), "/app", "/app/src",
        ),
        # a script that opens what lies beside it
        ({"src/main.py": f"open('./data.txt')\n{MAIN}", "src/data.txt": ""}, ("/app/src/main.py",), "/app/src", None),
        ({"src/main.py": MAIN, "README.md": "cd src\npython main.py\n"}, ("/app/src/main.py",), "/app/src", None),
        ({"train.py": f"import sub.net\n{MAIN}", "sub/net.py": ""}, ("/app/train.py",), "/app", None),
        (
            {"src/p/__main__.py": f"from p import x\nfrom .a import y\n{MAIN}", "src/p/x.py": "", "src/p/a.py":
             "import far\n", "lib/far.py": ""},
            ("-m", "p"), "/app", "/app/lib:/app/src",
        ),
        ({"lib/pkg/__main__.py": f"from pkg import x\n{MAIN}", "lib/pkg/x.py": ""}, ("-m", "pkg"), "/app", "/app/lib"),
        # a package in two places: where the module lies
        (
            {"p/__main__.py": f"from p.cli import x\n{MAIN}", "p/__init__.py": "", "src/p/__init__.py": "",
             "src/p/cli.py": ""},
            ("/app/p/__main__.py",), "/app", "/app/src",
        ),
    ],
)  # fmt: skip
def test_how_the_image_starts_it(
    tmp_path: Path, files: dict[str, str], arguments: tuple[str, ...], folder: str, python_path: str | None
) -> None:
    write(tmp_path, files)
    write_starter(tmp_path)
    loaded = load(tmp_path / "image.yaml")
    assert loaded.entry.arguments == arguments
    assert loaded.entry.working_folder == folder
    assert loaded.spec.env.get("PYTHONPATH", loaded.entry.python_path) == python_path


@pytest.mark.parametrize(
    ("files", "requirements", "packages"),
    [
        ({"requirements.txt": "pandas\n"}, "requirements.txt", ()),
        ({"requirements.txt": "-e .\npandas\n", "setup.py": "setup(name='p')"}, None, ("pandas",)),
        ({"requirements.txt": "tensorflow==1.8.0\npandas<2\nnumpy==1.14.0\n"}, None, ("pandas<2", "numpy")),
        # the limits of what TensorFlow needs are those of the release that the project means, which is too old
        ({"requirements.txt": "tensorflow==1.8.0\nkeras==2.2.0\nabsl-py==0.4\ntqdm==4.0\n"}, None,
         ("keras<2.4,>=2.2.4", "absl-py", "tqdm==4.0")),
        # a candidate of the same minor is no other TensorFlow
        ({"requirements.txt": "tensorflow==2.0.0-rc0\nnumpy==1.16.2\n"}, None, ("numpy==1.16.2",)),
        # the newest release of a companion is for the newest TensorFlow
        ({"requirements.txt": "tensorflow==2.9.1\ntensorflow-probability\ntqdm\n"}, "requirements.txt",
         ("tensorflow-probability==0.17.*",)),
        ({"requirements.txt": "tensorflow==1.13.1\nkeras\nsklearn\n"}, None, ("keras<2.4,>=2.2.4", "scikit-learn")),
        # another file's release of a companion is for another TensorFlow
        ({"requirements.txt": "tensorflow==2.5.0\n",
          "Pipfile": '[packages]\ntensorflow-addons = "==0.9.1"\ntqdm = "*"\n',
          "train.py": f"import tensorflow_addons, tqdm\n{TRAIN}"}, "requirements.txt",
         ("tensorflow-addons==0.15.*", "tqdm")),
        # what this Python has needs no backport, and what a marker leaves out is not missing
        ({"requirements.txt": "tensorflow==2.3.1\ndataclasses\ntyping\ntqdm\n"}, None, ("tqdm",)),
        ({"train.py": f"try:\n    import yaml\nexcept ImportError:\n    pass\n{TRAIN}",
          "requirements.txt": "tqdm\npyyaml; python_version < '3'\n"}, "requirements.txt", ()),
        ({"need/requirements.txt": "pyyaml; python_version < '3'\n", "train.py": f"import yaml\n{TRAIN}"}, None,
         ("pyyaml",)),
        # conda's list in a file of pip's name, and an environment of another name that a command names
        ({"requirements.txt": CONDA_LIST, "train.py": f"import tqdm\n{TRAIN}"}, None, ("tqdm==4.47.0",)),
        ({"needs.yml": "dependencies: [tqdm=4.5]\n", "README.md": "conda env create -f needs.yml\n"}, None,
         ("tqdm==4.5.*",)),
        ({"README.md": "Needs:\n\ntensorflow-gpu==1.13.1\nkeras==2.1.5\n", "train.py": f"import keras\n{TRAIN}"}, None,
         ("keras==2.1.5",)),
        # lines of a README's list, and a package that it installs from a repository
        ({"README.md": "```\npandas>=1.0\ntqdm ~= 4.5\n```\n"}, None, ("pandas>=1.0", "tqdm~=4.5")),
        ({"README.md": "pip install --editable=git+https://git.example/a/Queue.git#egg=jobs\n", "environment.yml":
          "dependencies: [mamba, tqdm]\n", "train.py": f"import jobs\n{TRAIN}"}, None,
         ("tqdm", "jobs @ git+https://git.example/a/Queue.git#egg=jobs")),
        # an import that only the list for tests names
        ({"requirements-dev.txt": "some_rolling==1.0\n", "requirements.txt": "tqdm\n", "train.py":
          f"import some_rolling\n{TRAIN}"}, "requirements.txt", ("some_rolling",)),
        # folders that a command installs, and groups that alone name TensorFlow
        ({"lib/setup.py": "setup(install_requires=['tqdm'])", "README.md": "pip install -e lib\n"}, None, ("tqdm",)),
        ({"pyproject.toml": '[tool.hatch.envs.default]\ndependencies = ["tqdm"]\n'}, None, ("tqdm",)),
        ({"pyproject.toml": '[tool.pdm.dev-dependencies]\nml = ["tensorflow", "tqdm"]\n'}, None, ("tqdm",)),
        ({"pyproject.toml": '[tool.poetry.dev-dependencies]\ntqdm = "*"\n'}, None, ()),
        ({"pyproject.toml": '[tool.poetry.group.ml.dependencies]\ntensorflow = "*"\ntqdm = "*"\n[build-system]\n'},
         None, ("tqdm",)),
        # a limit on Python that the release has no wheel for
        ({"pyproject.toml": '[project]\nname = "p"\nrequires-python = ">=3.12"\n'
          'dependencies = ["tensorflow==2.10.1", "tqdm"]\n'}, None, ("tqdm",)),
        # of two files that the README installs, the one nearer to the program
        ({"train.py": "", "a/b/c/train.py": MAIN, "a/requirements.txt": "pytz\n", "a/b/requirements.txt": "tqdm\n",
          "README.md": "pip install -r a/requirements.txt\npip install -r a/b/requirements.txt\n"},
         "a/b/requirements.txt", ()),
        ({"requirements.txt": "sklearn==0.0.post1\nwebrtcvad==2.0.10\n"}, None,
         ("scikit-learn", "webrtcvad-wheels==2.0.10")),
        ({"docs/requirements.txt": "sphinx\n", "requirements-dev.txt": "pytest\n"}, None, ()),
        ({"docs/needs.txt": "easydict\n", "README.md": "pip install -r docs/needs.txt\n"}, "docs/needs.txt", ()),
        ({"pyproject.toml": f'{POETRY}scipy = "^1.9"\n', "poetry.lock": LOCKED}, None, ("scipy==1.9.3",)),
        ({"environment.yml": "dependencies: [numpy, libpng, llvm-openmp, mpi, {pip: [tqdm]}]\n"}, None,
         ("numpy", "tqdm")),
        ({"train.py": f"import PIL, yaml, os, keras\nimport google.cloud.storage\n{TRAIN}"}, None,
         ("pillow", "pyyaml", "google-cloud-storage")),
        ({"train.py": f"def f():\n    import wandb\n{TRAIN}"}, None, ()),  # it may never run
        ({"train.py": f"import cv2\n{TRAIN}", "requirements.txt": "opencv-contrib-python\n"}, "requirements.txt", ()),
        ({"train.py": f"from scipy.misc import imread\n{FIRST}"}, None, ("scipy<1.2",)),
        ({"train.py": f"import keras\nimport tensorflow_addons\n{TRAIN}", "README.md": "tensorflow==2.3.1\n"}, None,
         ("keras>=2.3,<2.5", "tensorflow-addons==0.13.*")),
        ({"train.py": f"import helpers, nothing_known\n{TRAIN}", "helpers.py": ""}, None, ()),
    ],
)  # fmt: skip
def test_what_the_image_installs(
    tmp_path: Path, files: dict[str, str], requirements: str | None, packages: tuple[str, ...]
) -> None:
    spec = spec_of(tmp_path, {"train.py": TRAIN, **files})
    assert (spec.requirements, {*spec.python_packages}) == (requirements, {*packages})


def test_a_concession_to_a_package_by_its_right_name(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN, "requirements.txt": "pil==1.0\ntqdm\n"})
    for given, lines in (
        ({"loosened": {"pillow": "why"}}, ["pillow", "tqdm"]),
        ({"left_out": {"pillow": "why"}}, ["tqdm"]),
    ):
        needs = propose(tmp_path, load_matrix(), concessions=Concessions(**given)).needs
        assert [line.text for line in needs.lines] == lines


def test_a_list_as_powershell_writes_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("tensorflow==2.8.0\r\nabsl\r\ntqdm==4.0\r\n".encode("utf-16"))
    spec = spec_of(tmp_path, {"train.py": TRAIN})
    assert (spec.tensorflow, spec.requirements) == ("2.8.0", None)
    assert spec.python_packages == ("absl-py", "tqdm==4.0")


def test_gpu_where_the_project_asks_and_a_base_exists(tmp_path: Path) -> None:
    assert (
        proposal_of(tmp_path / "a", {"train.py": TRAIN, "requirements.txt": "tensorflow-gpu==2.9.1\n"}).accelerator
        is Accelerator.GPU
    )
    old = proposal_of(tmp_path / "b", {"train.py": TRAIN, "requirements.txt": "tensorflow-gpu==2.1.0\n"})
    assert old.accelerator is Accelerator.CPU
    assert "cpu, since: no base with CUDA 10.1" in str(old.accelerator_from)
    both = {
        "Dockerfile.cpu": "FROM tensorflow/tensorflow:2.9.1\n",
        "Dockerfile.gpu": "FROM tensorflow/tensorflow:2.9.1-gpu\n",
    }
    assert proposal_of(tmp_path / "c", {"train.py": TRAIN, **both}).accelerator is Accelerator.CPU


def test_the_libraries_that_wheels_open(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, {"train.py": TRAIN, "requirements.txt": "opencv-python\n", "environment.yml": "dependencies: [sox]\n"}
    )
    assert spec.system_packages == ("libgl1", "libglib2.0-0")


def test_the_table_says_who_said_what(tmp_path: Path) -> None:
    files = {"train.py": TRAIN, "requirements.txt": "tensorflow==2.11.0\n", "README.md": "TensorFlow >= 2.12 needed\n"}
    rows = proposal_of(tmp_path, files).table()
    assert [(row.fact, row.value, row.place, bool(row.remark)) for row in rows[:2]] == [
        ("TensorFlow", "==2.11.0", "requirements.txt:1", False),
        ("TensorFlow", ">=2.12", "README.md:1", True),
    ]
    assert rows[-1].fact == "program"
    assert rows[-1].value == "train.py"


def test_tensorflow_by_the_names_of_its_nightlies(tmp_path: Path) -> None:
    files = {"train.py": TRAIN, "requirements.txt": "tf-nightly-gpu-2.0-preview\ntf-nightly==2.9.0.dev1\ntqdm\n"}
    assert spec_of(tmp_path, files).python_packages == ("tqdm",)


def test_a_package_whose_last_word_is_the_import(tmp_path: Path) -> None:
    code = f"import retro\n{TRAIN}"
    unknown = proposal_of(tmp_path, {"train.py": code, "requirements.txt": "gymnasium\n"}).needs.unknown
    assert unknown == ("retro (train.py:1)",)
    assert not proposal_of(tmp_path, {"train.py": code, "requirements.txt": "gym-retro\n"}).needs.unknown
