"""What imgtool proposes for small projects; each is the least form of a public one that was proposed wrongly before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from imgtool_project_reader.packages import Concessions
from imgtool_project_reader.proposal import Proposal, propose
from training_imgtool.app.init import write_starter
from training_imgtool.app.init_knowledge import make_knowledge
from training_imgtool.model.load import load
from training_imgtool.model.spec import ImageSpec
from training_imgtool.resolve.versions.matrix import load_matrix

KNOWLEDGE = make_knowledge(load_matrix())
TRAIN = "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.fit([1])\n"
CREATE = "conda env create -f a/environment.yml\n"
FIRST = "import tensorflow as tf\nx = tf.placeholder(tf.float32)\nwith tf.Session() as s:\n    s.run(x)\n"
POETRY = '[tool.poetry]\nname = "p"\n[tool.poetry.dependencies]\n'
PEP_621 = '[project]\nname = "p"\ndependencies = ["tensorflow"]\n'
FULL = '[project]\nname = "p"\ndependencies = ["tqdm"]\noptional-dependencies = {full = ["tensorflow>=2.17"]}\n'
SETUP = "setup(python_requires='>=3.9,<3.10', install_requires=['tensorflow>=2.8,<2.13'])"
ASKS = "import tensorflow as tf\nif tf.__version__ < '2':\n    tf.Session(); tf.placeholder(1)\ntf.a.fit()\n"
ONE = "import tensorflow as tf\ntf.Session(); tf.placeholder(1)\ntf.a.fit()\n"
LOCKED = '[[package]]\nname = "scipy"\nversion = "1.9.3"\n[[package]]\nname = "tensorflow"\nversion = "2.10.1"\n'


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes a project."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def proposal_of(folder: Path, files: dict[str, str]) -> Proposal:
    """Proposes for a project of these files."""
    write(folder, files)
    return propose(folder, KNOWLEDGE)


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
        ({"README.md": "Keras 2.3.1 and Python 3\n"}, "1.15.5", None),  # nothing asks for TensorFlow 2
        ({"README.md": "# It is incompatible with the new Tensorflow 2.0\n"}, "1.15.5", None),
        ({"README.md": "Does not work with TensorFlow 2.3; tested with TensorFlow 2.2\n"}, "2.2.3", None),
        ({"README.md": "* Tensorflow ( recommended  version : 2.4.1 )\n"}, "2.4.1", None),
        ({"README.md": "![TF](https://img.shields.io/badge/TensorFlow-2.1-orange)\n"}, "2.1.4", None),
        ({"README.rst": ".. _`TensorFlow 1.14`: https://example.com/r1.14\n"}, "2.15.1", None),
        ({"REQUIREMENTS.txt": "tensorflow==2.3.1\n"}, "2.3.1", None),
        ({"README.md": "Tested with Python 3.6\n", "requirements.txt": "tensorflow>=2.0\n"}, "2.6.2", "3.6"),
        # all that Keras 2 may be, for code of an older one
        (
            {"environment.yml": "dependencies: [keras=2]\n", "train.py": f"from keras.legacy import layers\n{TRAIN}"},
            "1.15.5",
            None,
        ),
        # an image takes one of the Pythons that the project is for
        ({"Dockerfile": "FROM python:3.11\n", "pyproject.toml": f'{POETRY}python = "~3.9"\n'}, "2.15.1", "3.9"),
        # code may have come to need more than the README says
        (
            {"README.md": "with Tensorflow `<2.13`\n", "train.py": f"{TRAIN}tf.keras.metrics.F1Score()\n"},
            "2.15.1",
            None,
        ),
        ({"pyproject.toml": FULL}, "2.17.1", None),  # an extra alone names TensorFlow
        ({"README.md": "built in TensorFlow 2.0\n\nTensorFlow == 2.1.0\n"}, "2.1.0", None),  # a release beats a major
        # a library of one major version of TensorFlow, listed or imported
        ({"requirements.txt": "tensorflow\nstable_baselines\n"}, "1.15.5", None),
        ({"train.py": f"import stable_baselines\n{TRAIN}"}, "1.15.5", None),
        # the newest release that still has what the code takes has wheels up to this Python
        ({"train.py": f"from scipy.sparse.linalg.eigen import arpack\n{TRAIN}"}, "2.15.1", "3.10"),
        ({}, "2.15.1", None),
    ],
)
def test_tensorflow_and_python(tmp_path: Path, files: dict[str, str], tensorflow: str, python: str | None) -> None:
    choice = proposal_of(tmp_path, {"train.py": TRAIN, **files}).choice
    assert (choice.release, choice.python) == (tensorflow, python)


@pytest.mark.parametrize(
    ("code", "tensorflow"),
    [
        (FIRST, "1.15.5"),
        ("import tensorflow.compat.v1 as tf\n" + FIRST.partition("\n")[2], "2.15.1"),
        ("from keras.models import Model\nModel(input=1, output=2).fit(1, nb_epoch=3)\n", "1.15.5"),
        ("import keras\nm = keras.Model()\nm.add(Convolution2D(8, border_mode='same'))\nm.fit(1)\n", "1.15.5"),
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
        ("from keras import backend as K\nK.set_session(1)\nK.fit()\n", "1.15.5"),
        # Keras 2.9 to 2.12 have it elsewhere
        ("from keras.preprocessing.sequence import pad_sequences\nimport keras\nkeras.Model().fit(1)\n", "2.8.4"),
        ("from tensorflow.keras.preprocessing.sequence import pad_sequences\npad_sequences.fit(1)\n", "2.15.1"),
        ("import keras\nm = keras.Model()\nm.compile(metrics=['accuracy'])\nm.fit(callbacks=['val_acc'])\n", "1.15.5"),
        (f"{TRAIN}model.compile(tf.keras.optimizers.SGD(lr=1))\n", "2.10.1"),
        (f"{TRAIN}try:\n    tf.image.resize(1)\nexcept AttributeError:\n    tf.image.resize_images(1)\n", "2.15.1"),
        (f"{TRAIN}model.compile(tf.keras.optimizers.legacy.SGD(lr=1))\n", "2.15.1"),
        (f"import time\n{TRAIN}time.clock()\n", "2.11.0"),  # Python 3.7 is the last that has it
    ],
)
def test_the_release_by_the_api_that_code_uses(tmp_path: Path, code: str, tensorflow: str) -> None:
    files = {"train.py": code, "net.py": "import tensorflow as tf\ndef f():\n    tf.set_random_seed(1)\n"}
    assert proposal_of(tmp_path, files).choice.release == tensorflow


BLOCK = """# /// script
# requires-python = ">=3.10,<3.12"
# dependencies = ["tensorflow==2.14.1", "pandas==2.2.3"]
# ///
"""
PYLOCK = """requires-python = ">=3.10"
[[packages]]
name = "tensorflow"
version = "2.14.1"
[[packages]]
name = "pywin32"
version = "1"
marker = "sys_platform == 'win32'"
"""


@pytest.mark.parametrize(
    ("files", "requirements"),
    [
        ({"train.py": BLOCK + TRAIN, "requirements.txt": "tensorflow==2.8.0\n"}, "train.py"),
        ({"train.py": TRAIN, "tool.py": BLOCK, "requirements.txt": "tensorflow==2.14.1\n"}, "requirements.txt"),
        ({"train.py": TRAIN, "pylock.toml": PYLOCK}, "pylock.toml"),
        ({"train.py": TRAIN, "pylock.toml": PYLOCK, "requirements.txt": "tensorflow\n"}, "requirements.txt"),
    ],
)
def test_what_a_program_or_a_lock_says(tmp_path: Path, files: dict[str, str], requirements: str) -> None:
    found = proposal_of(tmp_path, files)
    assert (found.choice.release, found.needs.requirements) == ("2.14.1", requirements)


@pytest.mark.parametrize(
    ("code", "python"),
    [
        ("import functools\nx = functools.cache\n", None),  # each Python of this release has it
        ("try:\n    from typing import Self\nexcept ImportError:\n    pass\n", None),
        ("import sys\nif sys.version_info > (3, 9):\n    'a'.removeprefix('b')\n", None),
        ("from __future__ import annotations\ndef f(a: list[int]) -> int | None: pass\n", None),
        ("from collections import Mapping\n", "3.9"),
    ],
)
def test_the_python_that_code_needs(tmp_path: Path, code: str, python: str | None) -> None:
    pin = {None: "2.15.1", "3.8": "2.4.1", "3.10": "2.8.4", "3.9": "2.15.1"}[python]
    files = {"requirements.txt": f"tensorflow=={pin}\n", "train.py": f"{code}{TRAIN}"}
    assert proposal_of(tmp_path, files).choice.python == python


def test_a_concession_to_a_package_by_its_right_name(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN, "requirements.txt": "pil==1.0\ntqdm\n"})
    for given, lines in (
        ({"loosened": {"pillow": "why"}}, ["pillow", "tqdm"]),
        ({"left_out": {"pillow": "why"}}, ["tqdm"]),
    ):
        needs = propose(tmp_path, KNOWLEDGE, concessions=Concessions(**given)).needs
        assert [line.text for line in needs.lines] == lines


def test_a_list_as_powershell_writes_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("tensorflow==2.8.0\r\nabsl\r\ntqdm==4.0\r\n".encode("utf-16"))
    spec = spec_of(tmp_path, {"train.py": TRAIN})
    assert (spec.tensorflow, spec.requirements) == ("2.8.0", None)
    assert spec.python_packages == ("absl-py", "tqdm==4.0")


def test_gpu_where_the_project_asks_and_a_base_exists(tmp_path: Path) -> None:
    assert (
        proposal_of(tmp_path / "a", {"train.py": TRAIN, "requirements.txt": "tensorflow-gpu==2.9.1\n"}).accelerator
        == "gpu"
    )
    old = proposal_of(tmp_path / "b", {"train.py": TRAIN, "requirements.txt": "tensorflow-gpu==2.1.0\n"})
    assert old.accelerator == "cpu"
    assert "cpu, since: no base with CUDA 10.1" in str(old.accelerator_from)
    both = {
        "Dockerfile.cpu": "FROM tensorflow/tensorflow:2.9.1\n",
        "Dockerfile.gpu": "FROM tensorflow/tensorflow:2.9.1-gpu\n",
    }
    assert proposal_of(tmp_path / "c", {"train.py": TRAIN, **both}).accelerator == "cpu"


def test_a_dockerfile_per_role_as_the_page_has_it(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/howto/come-from.md").read_text()
    text = page.partition("```dockerfile\n")[2].partition("```")[0]
    roles = {f"{role}.Dockerfile": text for role in ("master", "worker", "ps")}
    spec = spec_of(tmp_path, {"trainer/task.py": TRAIN, "requirements.txt": "soundfile\n", **roles})
    assert (spec.release, spec.system_packages, spec.args) == ("2.15.0", ("libsndfile1",), ("--epochs=10",))


def test_the_libraries_that_wheels_open(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, {"train.py": TRAIN, "requirements.txt": "opencv-python\n", "environment.yml": "dependencies: [sox]\n"}
    )
    assert spec.system_packages == ("libgl1", "libglib2.0-0")


@pytest.mark.parametrize(("pin", "packages"), [("==0.10.3.post1", ("libsndfile1",)), ("==0.12.1", ()), ("", ())])
def test_an_old_soundfile_opens_the_library_of_the_system(tmp_path: Path, pin: str, packages: tuple[str, ...]) -> None:
    spec = spec_of(tmp_path, {"train.py": TRAIN, "requirements.txt": f"SoundFile{pin}\n"})
    assert spec.system_packages == packages


@pytest.mark.parametrize(("release", "asks"), [("2.18.0", True), ("2.15.1", False)])
def test_keras_2_beside_a_tensorflow_with_keras_3_is_asked_for(tmp_path: Path, release: str, asks: bool) -> None:
    spec = spec_of(tmp_path, {"train.py": TRAIN, "requirements.txt": f"tensorflow=={release}\ntf-keras\n"})
    assert ("TF_USE_LEGACY_KERAS" in spec.env) is asks


def test_a_program_that_runs_a_pipeline_trains(tmp_path: Path) -> None:
    runner = "from tfx.orchestration.local.local_dag_runner import LocalDagRunner\nLocalDagRunner().run(make())\n"
    spec = spec_of(
        tmp_path, {"pipeline/runner_local.py": runner, "requirements.txt": "tfx==1.2.0\ntensorflow==2.5.0\n"}
    )
    assert spec.trainer.source == "pipeline"


def test_the_debian_packages_that_a_readme_and_a_dockerfile_install(tmp_path: Path) -> None:
    needs = proposal_of(
        tmp_path,
        {
            "train.py": f"import net\n{TRAIN}",
            "requirements.txt": "opencv-python\n",
            "README.md": "```\nsudo apt-get install -y ffmpeg \\\n  libsndfile1-dev build-essential\n```\n",
            "Dockerfile": "FROM python:3.8\nRUN apt-get install -y vim openjdk-11-jre libgl1-mesa-glx=1.0 libcudnn8\n",
            "net.py": "import os, subprocess\nsubprocess.run(['git', 'log'])\nos.system('wget x')\n",
            "tests/Dockerfile": "FROM python:3.8\nRUN apt-get install -y libmpich12\n",
        },
    ).needs
    assert dict(needs.system) == {
        "libgl1": "Dockerfile:2",
        "libglib2.0-0": "the wheels need it",
        "git": "net.py starts git",
        "wget": "net.py starts wget",
        "openjdk-11-jre": "Dockerfile:2",
        "ffmpeg": "README.md:2",
        "libsndfile1": "README.md:2",
    }
    assert needs.builds_only == ("vim", "libcudnn8")


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


def test_a_list_that_is_a_link_within_the_project(tmp_path: Path) -> None:
    write(tmp_path / "p", {"train.py": TRAIN, "sub/needs.txt": "tqdm\n"})
    write(tmp_path, {"far.txt": "pytz\n"})
    (tmp_path / "p/requirements.txt").symlink_to("sub/needs.txt")
    (tmp_path / "p/requirements-more.txt").symlink_to("../far.txt")
    proposal = propose(tmp_path / "p", KNOWLEDGE)
    assert [listing.file for listing in proposal.listings] == ["requirements.txt"]


def test_the_arguments_of_an_image_that_sets_variables(tmp_path: Path) -> None:
    docker = "FROM python:3.9\nCMD A=1 B=2 python3 train.py --epochs 3\n"
    assert spec_of(tmp_path, {"train.py": TRAIN, "Dockerfile": docker}).args == ("--epochs", "3")


def test_a_package_whose_last_word_is_the_import(tmp_path: Path) -> None:
    code = f"import quux\n{TRAIN}"
    unknown = proposal_of(tmp_path, {"train.py": code, "requirements.txt": "gymnasium\n"}).needs.unknown
    assert unknown == ("quux (train.py:1)",)
    assert not proposal_of(tmp_path, {"train.py": code, "requirements.txt": "gym-quux\n"}).needs.unknown


def test_the_variables_before_a_command_that_the_code_names(tmp_path: Path) -> None:
    code = f"import os\nprint(os.environ['DATA_DIR'], os.environ['API_KEY'])\n{TRAIN}"
    said = "# p\n\n```\nAPI_KEY=x DATA_DIR='a b' OTHER=1 python train.py\n```\n"
    env = spec_of(tmp_path, {"train.py": code, "README.md": said}).env
    assert {key: value for key, value in env.items() if not key.startswith("TF_")} == {"DATA_DIR": "a b"}


def test_of_the_targets_of_a_dockerfile_the_plain_one_starts_the_program(tmp_path: Path) -> None:
    docker = (
        'FROM python:3.9 AS base\nENTRYPOINT ["python", "train.py"]\n'
        'FROM base AS cpu\nCMD ["--on=cpu"]\nFROM base AS tpu\nCMD ["--on=tpu"]\n'
    )
    assert spec_of(tmp_path, {"train.py": TRAIN, "Dockerfile": docker}).args == ("--on=cpu",)


def test_the_files_that_a_build_names(tmp_path: Path) -> None:
    files = {
        "train.py": TRAIN,
        "pyproject.toml": '[project]\nname = "p"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = {file = ["reqs/base.in", "more.lst"]}\n',
        "reqs/base.in": "tensorflow==2.14.1\n-r far.pip\n",
        "reqs/far.pip": "six @ file:///work/dist/six-1.16.0-cp311-cp311-linux_x86_64.whl#sha256=0\n",
        "more.lst": "tqdm==4.66.5\npandas>=1.0/2.0\n",
    }
    spec = spec_of(tmp_path, files)
    assert (spec.tensorflow, set(spec.python_packages)) == ("2.14.1", {"six==1.16.0", "tqdm==4.66.5"})
    notes = write_starter(tmp_path, name="m", force=True).notes
    assert "more.lst:2: 'pandas>=1.0/2.0' is no requirement: correct it, or add it by hand" in notes


@pytest.mark.parametrize("code", ["tf.keras.random.uniform((1,))\n", "import keras\nkeras.ops.ones((1,))\n"])
def test_names_of_keras_3_need_a_tensorflow_with_keras_3(tmp_path: Path, code: str) -> None:
    assert proposal_of(tmp_path, {"train.py": TRAIN + code}).choice.release.startswith("2.16.")


def test_a_package_starts_where_its_relative_paths_are(tmp_path: Path) -> None:
    code = f"from pkg.model import f\nopen('data/x.csv')\n{TRAIN}"
    write(tmp_path, {"pkg/__init__.py": "", "pkg/train.py": code, "pkg/model.py": "f = 1\n", "pkg/data/x.csv": "1\n"})
    placement = propose(tmp_path, KNOWLEDGE).placement
    assert placement is not None
    assert placement.trainer == {"source": ".", "module": "pkg.train", "workdir": "pkg"}


def test_the_caller_learns_which_files_are_read(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": f"import helper\n{TRAIN}", "helper.py": "", "notes.txt": ""})
    read: list[str] = []
    propose(tmp_path, replace(KNOWLEDGE, report=read.append))
    assert sorted(read) == ["helper.py", "train.py"]
