"""Defines the frameworks that projects train with: their packages, and the imports that tell of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from imgtool_project_reader.statement import Fact

_TRAINERS = re.compile(r"(?:Seq2Seq)?Train(?:er|ingArguments)|AutoModel\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework.

    Attributes:
        key: its name in a spec, its import name, and Keras 3's name for it.
        fact: the kind of statements about its releases.
        packages: its distributions, each with the same releases.
        parts: distributions that it installs, with similar releases.
        builds: matches the names of other builds of it.
        usual: its release if nothing tells which.
        is_old_usual: whether later releases come last unless a file asks for one; if not, the newest is best.
        brought: matches packages that its builds require in releases of their own choice.
        companions: distributions with releases of the same number as its own, and the difference of the minors.
        libraries: imports of libraries that train with this framework alone.
        brings: import names of the packages that each of its installations contains.
        beside: packages that an image of it needs in addition, if the program imports them, by import name.
    """

    key: str
    fact: Fact
    packages: tuple[str, ...]
    parts: tuple[str, ...] = ()
    builds: str = "(?!)"
    brought: str = "(?!)"
    companions: Mapping[str, int] = field(default_factory=dict)
    usual: str
    is_old_usual: bool = False
    libraries: frozenset[str]
    brings: frozenset[str]
    beside: Mapping[str, str] = field(default_factory=dict)

    def is_own(self, name: str) -> bool:
        """Tells whether a distribution is the framework, under any of its names, or a part of it."""
        return name in {*self.packages, *self.parts} or re.fullmatch(self.builds, name) is not None


TENSORFLOW = Framework(
    key="tensorflow",
    fact=Fact.TENSORFLOW,
    packages=("tensorflow", "tensorflow-cpu", "tensorflow-gpu"),
    builds=r"tensorflow-(?:tpu|metal|macos|intel|rocm.*|directml|aarch64|cpu-aws|gpu-macosx)|tf-nightly.*|intel-tensorflow.*",
    usual="2.15.1",  # the last with Keras 2, for which most code is written
    is_old_usual=True,
    libraries=frozenset(
        """tf_keras tf_agents tensorforce stable_baselines tflearn tensorlayer tensorpack rl tf2rl t5 trax deepctr
        spektral csbdeep stardist autokeras keras_tuner keras_cv keras_nlp deepchem ktrain kashgari tfx""".split()  # noqa: SIM905 - a table of words reads best so
    ),
    brings=frozenset(
        """absl astunparse flatbuffers gast google google_pasta grpc h5py libclang ml_dtypes numpy opt_einsum packaging
        requests setuptools pkg_resources six tensorboard tensorflow tensorflow_estimator termcolor typing_extensions
        urllib3 werkzeug wrapt""".split()  # noqa: SIM905
    ),
)
JAX = Framework(
    key="jax",
    fact=Fact.JAX,
    packages=("jax",),
    parts=("jaxlib",),
    usual="0.10.2",
    libraries=frozenset({"equinox", "flax", "haiku", "optax"}),
    brings=frozenset({"jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum", "scipy"}),
    beside={"keras": "keras>=3", "tensorflow": "tensorflow-cpu"},
)
TORCH = Framework(
    key="torch",
    fact=Fact.TORCH,
    packages=("torch",),
    brought=r"nvidia-(?:cu|nccl|nv).*|(?:pytorch-)?triton|cuda-(?:bindings|pathfinder|toolkit)",
    companions={"torchvision": 15, "torchaudio": 0},
    usual="2.13.0",
    libraries=frozenset(
        """accelerate deepspeed detectron2 fairseq fastai ignite lightning lightning_fabric litgpt mmcv mmengine monai
        peft pytorch_lightning sentence_transformers skorch stable_baselines3 timm torch_geometric torchaudio torchtune
        torchvision trl ultralytics unsloth""".split()  # noqa: SIM905
    ),
    brings=frozenset("torch triton filelock fsspec jinja2 networkx sympy typing_extensions setuptools".split()),  # noqa: SIM905
    beside={"keras": "keras>=3", "tensorflow": "tensorflow-cpu"},
)
FRAMEWORKS = {framework.key: framework for framework in (TENSORFLOW, JAX, TORCH)}
PACKAGES = frozenset(
    package for framework in FRAMEWORKS.values() for package in (*framework.packages, *framework.parts)
)
"""The distributions of all frameworks, and their parts."""


def is_trainer(module: str, name: str) -> bool:
    """Tells whether an imported name is a trainer or a model of transformers for PyTorch."""
    return module.partition(".")[0] == "transformers" and _TRAINERS.fullmatch(name) is not None
