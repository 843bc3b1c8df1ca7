"""Which program of a project trains, what it reaches, and how an image starts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project_reader.test_proposal import TRAIN, proposal_of, write
from training_imgtool.app.init import write_starter
from training_imgtool.model.load import load

MAIN = f"def main():\n    pass\nif __name__ == '__main__':\n    main()\n{TRAIN}"
LOADS = "import importlib\nif __name__ == '__main__':\n    importlib.import_module('net')\n"
LOOP = "import tensorflow as tf\nfor x in range(3):\n    tf.print(x)\n"
SCRIPT = "setup(name='p', entry_points={'console_scripts': ['p-train=p.go:main']}, install_requires=['tqdm'])"
ROUNDS = (
    "def step(x):\n    tf.x.minimize(x)\ndef rounds():\n    step(1)\ndef data():\n    pass\n"
    "inputs = data()\nparameters = {'epochs': 3}\n"
)


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
        ({"run_projector.py": MAIN, "run_net.py": MAIN}, "run_net.py"),
        # one that calls what trains counts as one that trains
        (
            {
                "gen/train_net.py": MAIN,
                "train_softmax.py": "import facenet, tensorflow\nif __name__ == '__main__':\n    facenet.train()\n",
                "facenet.py": f"def train():\n    pass\n{TRAIN}",
            },
            "train_softmax.py",
        ),
        ({"demo.py": MAIN, "train.py": f"@ex.automain\ndef run():\n    model.fit(1)\n{TRAIN[:23]}"}, "train.py"),
        ({"run_tests.py": MAIN, "benchmarks.py": MAIN}, "benchmarks.py"),
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
        ({"a.py": MAIN, "b.py": MAIN, "README.md": "The main file to run is `b.py`, with options.\n"}, "b.py"),
        # a package's programs are called by their folders
        (
            {
                "p/analyze/__main__.py": MAIN,
                "p/train/__main__.py": MAIN,
                "Dockerfile": "FROM x\nCMD python -m p.analyze",
            },
            "p/train/__main__.py",
        ),
        # one that trains, beside one that only imports what trains
        (
            {"lib.py": TRAIN, "train.py": MAIN, "use.py": "import lib\nlib.run()\n", "README.md": "python use.py\n"},
            "train.py",
        ),
        # what trains on TensorFlow without naming it
        ({"try-test.py": "import stable_baselines\nstable_baselines.A2C(1).learn(2)\n", "a.py": ""}, "try-test.py"),
        ({"Exports/run.py": MAIN, "beta_net.py": MAIN, "net.py": MAIN}, "net.py"),
        # what it runs as it loads is a function of its own that trains, by another one
        (
            {"work.py": f"import tensorflow as tf\n{ROUNDS}rounds()\n", "net.py": f"import tensorflow\n{ROUNDS}"},
            "work.py",
        ),
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
        ({"a/b/go.py": MAIN, "a/b/README.md": "## Train\npython go.py\n"}, ("/app/a/b/go.py",), "/app/a/b", None),
        ({"src/main.py": f"open('../data/x.csv')\n{MAIN}"}, ("/app/src/main.py",), "/app/src", None),
        ({"src/main.py": f"import os\nos.path.join(os.path.dirname(__file__), '../x.csv')\n{MAIN}"},
         ("/app/src/main.py",), "/app", None),
        # a folder without __init__.py that has a module of its own name
        ({"main.py": f"import utils\nfrom utils.utils import f\n{MAIN}", "utils/utils.py": "f = 1\n"},
         ("/app/main.py",), "/app", None),
        ({"p/go.py": MAIN, "setup.py": SCRIPT, "README.md": "## Train\npython p/go.py\n"},
         ("/app/p/go.py",), "/app", None),
        ({"train.py": f"import sub.net\n{MAIN}", "sub/net.py": ""}, ("/app/train.py",), "/app", None),
        (
            {"src/p/__main__.py": f"from p import x\nfrom .a import y\n{MAIN}", "src/p/x.py": "", "src/p/a.py":
             "import far\n", "lib/far.py": ""},
            ("-m", "p"), "/app", "/app/lib:/app/src",
        ),
        ({"lib/pkg/__main__.py": f"from pkg import x\n{MAIN}", "lib/pkg/x.py": ""}, ("-m", "pkg"), "/app", "/app/lib"),
        # a file whose name no module can have
        (
            {"dots/main-dots.py": f"import dots.net\n{MAIN}", "dots/net.py": ""},
            ("/app/dots/main-dots.py",), "/app", "/app",
        ),
        # a module that has the name of its plain folder
        (
            {"src/trainer/train.py": f"from tools import tools\n{MAIN}", "src/tools/tools.py": ""},
            ("/app/src/trainer/train.py",), "/app", "/app/src",
        ),
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


def test_what_only_loads_weights_is_no_trainer(tmp_path: Path) -> None:
    code = "import tensorflow\nfor x in range(3):\n    print(x)\n"
    assert proposal_of(tmp_path, {"load_weights.py": code}).program is None


def test_a_package_of_the_project_in_a_folder_that_the_program_adds(tmp_path: Path) -> None:
    code = f"import sys\nsys.path.insert(0, 'lib')\nfrom datasets.factory import make\nimport datasets.imdb\n{TRAIN}"
    files = {"tools/train.py": code, "lib/datasets/__init__.py": "", "lib/datasets/factory.py": "make = 1\n"}
    needs = proposal_of(tmp_path, {**files, "lib/datasets/imdb.py": "import tqdm\n"}).needs
    assert [line.text for line in needs.lines] == ["tqdm"]
