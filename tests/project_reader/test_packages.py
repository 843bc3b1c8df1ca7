"""What the image installs, for least forms of public projects that were proposed wrongly before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project_reader.test_programs import MAIN
from tests.project_reader.test_proposal import FIRST, FULL, LOCKED, POETRY, TRAIN, spec_of

CONDA_LIST = "".join(f"{name}=1.0=py37_0\n" for name in ("mkl", "libgcc", "zlib")) + "tqdm=4.47.0=py_0\n"


@pytest.mark.parametrize(
    ("files", "requirements", "packages"),
    [
        ({"requirements.txt": "pandas\n"}, "requirements.txt", ()),
        ({"requirements.txt": "-e .\npandas\n", "setup.py": "setup(name='p')"}, None, ("pandas",)),
        ({"requirements.txt": "tensorflow==1.8.0\npandas<2\nnumpy==1.14.0\n"}, None, ("pandas<2", "numpy")),
        ({"requirements.txt": "tensorflow==1.8.0\nkeras==2.0.7\nsix==1.11.0\nh5py==2.8.0\ngrpcio==1.0\n"}, None,
         ("keras==2.0.7", "six==1.11.0", "h5py==2.8.0", "grpcio")),
        # a candidate of the same minor is no other TensorFlow
        ({"requirements.txt": "tensorflow==2.0.0-rc0\nnumpy==1.16.2\n"}, None, ("numpy==1.16.2",)),
        # the newest release of a companion is for the newest TensorFlow
        ({"requirements.txt": "tensorflow==2.9.1\ntensorflow-probability\ntqdm\n"}, "requirements.txt",
         ("tensorflow-probability==0.17.*",)),
        ({"requirements.txt": "tensorflow==1.13.1\nkeras\nsklearn\n"}, None, ("keras<2.4,>=2.2.4", "scikit-learn")),
        # what this Python has needs no backport, and what a marker leaves out is not missing
        ({"requirements.txt": "tensorflow==2.3.1\npython>=3.6.6\ndataclasses\ntyping\ntqdm\n"}, None,
         ("tqdm",)),
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
        # the extra of the programs in a folder
        ({"train.py": "", "examples/train.py": MAIN, "setup.py":
          "setup(install_requires=['tqdm'], extras_require={'examples': ['pytz'], 'more': ['lxml']})"}, None,
         ("tqdm", "pytz")),
        # the list of a README's needs, and its badges
        ({"README.md": "## Requirements\n- Pandas (2.0.2)\n* OpenCV 4.5\n- Ubuntu 18.04\n## Results\n- tqdm 1.2.3\n"},
         None, ("pandas==2.0.2", "opencv-python-headless==4.5.*")),
        ({"README.md": "![x](https://img.shields.io/badge/openai%2Fgym-0.17.1-blue)\n"}, None, ("gym==0.17.1",)),
        # a call whose values say for which release the code is
        ({"train.py": f"import gym\na, b, c, d = gym.make('x').step(1)\n{TRAIN}", "requirements.txt": "gym\n"},
         "requirements.txt", ("gym<0.26",)),
        ({"train.py": f"import gym\na, b, c, d, e = gym.make('x').step(1)\n{TRAIN}", "requirements.txt": "gym\n"},
         "requirements.txt", ()),
        # what newer releases have removed: modules, attributes, arguments, the shapes of calls
        ({"train.py": f"from scipy.sparse.linalg.eigen.arpack import eigsh\n{TRAIN}",
          "requirements.txt": "scipy>=1.1\n"},
         "requirements.txt", ("scipy<1.8,>=1.1",)),
        ({"train.py": f"from scipy.integrate import cumtrapz\n{TRAIN}", "requirements.txt": "scipy==1.16\n"},
         "requirements.txt", ()),
        ({"train.py": f"import pandas as pd\ndf = pd.DataFrame()\ndf = df.append(1)\n{TRAIN}"}, None, ("pandas<2",)),
        ({"train.py": f"import pandas as pd\nrows = []\nrows.append(pd.NA)\n{TRAIN}"}, None, ("pandas",)),
        ({"train.py": f"import numpy as np\nx = np.zeros(1, np.bool)\n{TRAIN}"}, None, ("numpy<1.24",)),
        ({"train.py": f"import yaml\nyaml.load(open('x'))\n{TRAIN}"}, None, ("pyyaml<6",)),
        ({"train.py": f"import yaml\nyaml.load(open('x'), yaml.Loader)\n{TRAIN}"}, None, ("pyyaml",)),
        ({"train.py": f"from gensim.models import Word2Vec\nWord2Vec([], size=3)\n{TRAIN}"}, None,
         ("gensim<4", "scipy<1.13")),
        ({"train.py": "try:\n    from sklearn.externals import joblib\nexcept ImportError:\n    pass\n" + TRAIN,
          "requirements.txt": "scikit-learn\njoblib\n"}, "requirements.txt", ()),
        # what comes through another package, and what that one needs older
        ({"requirements.txt": "tensorflow==2.3.4\ntf-agents\n"}, "requirements.txt",
         ("tf-agents==0.6.*", "tensorflow-probability==0.11.*")),
        ({"requirements.txt": "tensorflow==2.15.1\ntf-agents\n"}, "requirements.txt", ("tf-agents==0.19.*",)),
        ({"requirements.txt": "tensorflow==1.15.5\nlibrosa==0.6.2\nnumba\n"}, "requirements.txt", ("numba<0.50",)),
        ({"train.py": f"from keras.layers.merge import add\n{FIRST}"}, None, ("keras<2.4,<2.9,>=2.2.4",)),
        # what a function imports only as it runs
        ({"train.py": f"from tensorflow.keras.utils import plot_model\n{TRAIN}plot_model(m, show_shapes=True)\n"}, None,
         ("pydot",)),
        ({"train.py": f"from tensorflow.keras.utils import plot_model\n{TRAIN}"}, None, ()),
        ({"train.py": f"{TRAIN}tf.keras.preprocessing.image.ImageDataGenerator().flow_from_directory('x')\n",
          "requirements.txt": "scipy\n"}, "requirements.txt", ("pillow",)),
        ({"train.py": f"import pandas as pd\npd.read_excel('x')\n{TRAIN}"}, None, ("pandas", "openpyxl")),
        # an open limit of what has releases for each TensorFlow
        ({"requirements.txt": "tensorflow==1.15.0\nkeras>=2.3.1\n"}, "requirements.txt",
         ("keras<2.4,>=2.2.4,>=2.3.1",)),
        ({"requirements.txt": "tensorflow==2.4.0\ntensorflow-probability>=0.13\n"}, "requirements.txt", ()),
        # of conda's packages that no table knows those that code imports; and one of another name
        ({"environment.yml": "dependencies: [plot=4.1, odd=1.0, iris=2.4, tqdm]\n", "train.py": f"import odd\n{TRAIN}"},
         None, ("odd==1.0.*", "scitools-iris==2.4.*", "tqdm")),
        # what the README installs from Git where a list only names it; what a script installs
        ({"requirements.txt": "jobs\n", "README.md": "pip install git+https://git.example/a/jobs.git\n"}, None,
         ("jobs @ git+https://git.example/a/jobs.git",)),
        ({"train.py": f"import torch\n{TRAIN}", "sh/pip_install.sh": "pip install torch==2.2.2\n",
          "requirements.txt": "tqdm\n"}, "requirements.txt", ("torch==2.2.2",)),
        ({"pyproject.toml": FULL}, "pyproject.toml", ()),
        ({"requirements.txt": "tensorflow-datasets==4.9\n"}, "requirements.txt", ("importlib-resources",)),
        # an alias beside the real line; Poetry's table beside [project]; the branch of a package from Git
        ({"requirements.txt": "scikit-learn==0.19.1\nsklearn==0.0\ntensorflow==1.15.5\n"}, None,
         ("scikit-learn==0.19.1",)),
        ({"pyproject.toml": "[project]\nname = 'p'\n[tool.poetry.dependencies]\ntqdm = '>4'\n"}, None, ("tqdm>4",)),
        ({"Pipfile": "[packages]\njobs = {git = 'https://git.example/a/jobs.git', ref = 'more'}\n"}, None,
         ("jobs @ git+https://git.example/a/jobs.git@more",)),
        # a folder `env` of the project's own code
        ({"train.py": f"from env.net import f\n{TRAIN}", "env/net.py": "import lxml\n"}, None, ("lxml",)),
        # Python does not search `src` for a script beside it
        ({"train.py": f"import keras_tuner\n{TRAIN}", "src/keras_tuner/x.py": ""}, None, ("keras-tuner",)),
        # lines of a README's list, and a package that it installs from a repository
        ({"README.md": "```\npandas>=1.0\ntqdm ~= 4.5\n```\n"}, None, ("pandas>=1.0", "tqdm~=4.5")),
        ({"README.md": "pip install --editable=git+https://git.example/a/Queue.git#egg=jobs\n", "environment.yml":
          "dependencies: [mamba, tqdm]\n", "train.py": f"import jobs\n{TRAIN}"}, None,
         ("tqdm", "jobs @ git+https://git.example/a/Queue.git#egg=jobs")),
        # folders that a command installs, and groups that alone name TensorFlow
        ({"lib/setup.py": "setup(install_requires=['tqdm'])", "README.md": "pip install -e lib\n"}, None, ("tqdm",)),
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
        ({"docs/needs.txt": "easydict\n", "README.md": "pip install -r docs/needs.txt\n"}, "docs/needs.txt", ()),
        ({"pyproject.toml": f'{POETRY}scipy = "^1.9"\n', "poetry.lock": LOCKED}, None, ("scipy==1.9.3",)),
        ({"environment.yml": "dependencies: [numpy, libpng, llvm-openmp, mpi, {pip: [tqdm]}]\n"}, None,
         ("numpy", "tqdm")),
        ({"train.py": f"import PIL, yaml, os, keras\nimport google.cloud.storage\n{TRAIN}"}, None,
         ("pillow", "pyyaml", "google-cloud-storage")),
        ({"train.py": f"def f():\n    import wandb\n{TRAIN}"}, None, ()),  # it may never run
        ({"train.py": f"import cv2\n{TRAIN}", "requirements.txt": "opencv-contrib-python\n"}, "requirements.txt", ()),
        ({"train.py": f"import keras\nimport tensorflow_addons\n{TRAIN}", "README.md": "tensorflow==2.3.1\n"}, None,
         ("keras>=2.3,<2.5", "tensorflow-addons==0.13.*")),
        ({"train.py": f"import keras\n{TRAIN}", "README.md": "tensorflow==2.1.0\n"}, None, ("keras>=2.3,<2.4",)),
        # modules of Python itself that a list names, an import that no package can be called, and a sentence
        ({"requirements.txt": "logging\nmultiprocessing\nargparse\ntqdm\n", "train.py": f"import _ext\n{TRAIN}",
          "README.md": "2. Let pip install tqdm globally (still accessible, but changes take effect)\n"}, None,
         ("tqdm",)),
        ({"README.md": "Use pip install tqdm and pandas to get them.\n"}, None, ("tqdm",)),
        # a list that a sentence introduces, of the releases that it was tried with
        ({"train.py": f"import keras\n{FIRST}", "README.md": "## Issues\n1. The test environment is\n   - Keras 2.1.5\n"
          "   - tensorflow 1.6.0\n\n2. Others\n   - tqdm 4.0.0\n"}, None, ("keras==2.1.5",)),
        ({"train.py": f"import helpers, nothing_known\n{TRAIN}", "helpers.py": ""}, None, ()),
    ],
)  # fmt: skip
def test_what_the_image_installs(
    tmp_path: Path, files: dict[str, str], requirements: str | None, packages: tuple[str, ...]
) -> None:
    spec = spec_of(tmp_path, {"train.py": TRAIN, **files})
    assert (spec.requirements, {*spec.python_packages}) == (requirements, {*packages})
