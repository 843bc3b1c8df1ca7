"""The files of `imgtool init`: a spec with its choices explained, and a small trainer that really trains."""

from __future__ import annotations

import os
import re
from pathlib import Path

from training_imgtool.core.atomic_files import check_writable, write_atomic
from training_imgtool.core.errors import InputError, LocalFileError
from training_imgtool.core.resources import data_file
from training_imgtool.spec.model import Accelerator
from training_imgtool.spec.value_rules import check_text, quote

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_TENSORFLOW = re.compile(r"(\d+)\.(\d+)\.\d+(?:\.post\d+)?")
_OLDEST = (2, 4)  # tf.distribute.MultiWorkerMirroredStrategy was experimental before

_ROLES = {
    Accelerator.CPU: """\
  master: {machine: n1-standard-4}
  worker: {machine: n1-standard-4, count: 1}
""",
    Accelerator.GPU: """\
  master: {machine: n1-standard-8, gpus: {type: NVIDIA_TESLA_T4, count: 1}}
  worker: {machine: n1-standard-8, gpus: {type: NVIDIA_TESLA_T4, count: 1}, count: 1}
""",
    # AI Platform's layout: an ordinary master and one worker that is the TPU's host.
    Accelerator.TPU: """\
  master: {machine: n1-standard-4, accelerator: cpu}
  worker: {accelerator: tpu, tpu: {type: TPU_V3, count: 8}}
""",
}
_SPEC = """\
# What imgtool builds. `imgtool schema` prints a JSON schema of this file for your editor.
name: {name}  # the images are REGISTRY/{name}
# registry: us-central1-docker.pkg.dev/my-project/training  # or --registry, or IMGTOOL_REGISTRY

tensorflow: "{tensorflow}"  # Python, CUDA, cuDNN and the base image follow from it: imgtool compat
# python: "3.11"
accelerator: {accelerator}  # cpu, gpu or tpu; a role may have its own
requirements: requirements.txt  # resolved together with TensorFlow, and locked in image.lock
trainer: {{source: trainer, module: trainer.task}}
args: ["--epochs=5"]
env: {{TF_CPP_MIN_LOG_LEVEL: "1"}}

roles:  # master, worker, ps, evaluator: one image each
{roles}
job:
  target: {target}  # or {others}
  region: us-central1
  # job_dir: gs://my-bucket/{name}  # where checkpoints and the model go
  # pass_job_dir: true  # appends --job-dir=DIR to the arguments
  scheduling: {{max_running: 7200s}}
"""
_TARGETS = ("vertex", "ai-platform", "tfjob", "jobset", "pods", "eci", "compose", "tf-config")
_REQUIREMENTS = """\
# What the trainer imports besides TensorFlow, one requirement per line, such as:
# pandas>=2,<3
"""
_DOCKERIGNORE = """\
**/__pycache__
**/*.pyc
**/.ipynb_checkpoints
.git
.venv
"""


def starter_files(name: str, tensorflow: str, accelerator: Accelerator) -> dict[str, str]:
    """The files of a first project: relative path to text.

    Args:
        name: the images' name.
        tensorflow: the TensorFlow release, such as 2.15.1.
        accelerator: what the roles compute on.

    Raises:
        InputError: a name or release that no spec could have.
    """
    check_text(name)
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{quote(name)} is not an image's name: expected lower-case letters and digits, "
            "joined by single '.', '_' or '-'",
            hint="give one with --name",
        )
    release = _TENSORFLOW.fullmatch(tensorflow)
    if not release:
        raise InputError(f"expected a full TensorFlow release, such as 2.15.1, found {quote(tensorflow)}")
    if (int(release[1]), int(release[2])) < _OLDEST:
        raise InputError(f"the first trainer needs TensorFlow 2.4 or newer, found {tensorflow}")
    target = "ai-platform" if accelerator is Accelerator.TPU else "vertex"
    others = ", ".join(other for other in _TARGETS if other != target)
    roles = _ROLES[accelerator]
    spec = _SPEC.format(
        name=name, tensorflow=tensorflow, accelerator=accelerator, roles=roles, target=target, others=others
    )
    task = data_file("starter_task.py.txt").read_text(encoding="utf-8")
    return {
        "image.yaml": spec,
        "trainer/__init__.py": f'"""The training program of {name}."""\n',
        "trainer/task.py": task,
        "requirements.txt": _REQUIREMENTS,
        ".dockerignore": _DOCKERIGNORE,
    }


def write_starter(
    folder: Path, *, name: str | None = None, tensorflow: str, accelerator: Accelerator
) -> tuple[Path, ...]:
    """Writes the files of a first project and returns those that are new; what is there is left as it is.

    Args:
        folder: where; made when it is missing.
        name: the images' name; by default the folder's, as far as letters go.
        tensorflow: the TensorFlow release.
        accelerator: what the roles compute on.

    Raises:
        InputError: the folder has a spec already, or the name or release is none.
        LocalFileError: a file could not be written.
    """
    contents = starter_files(name or _name_of(folder), tensorflow, accelerator)
    if os.path.lexists(folder / "image.yaml"):
        raise InputError(f"{folder / 'image.yaml'} is there already", hint="choose another folder, or edit it")
    new = [path for path in contents if not os.path.lexists(folder / path)]
    for path in new:
        _make_folder((folder / path).parent)
        check_writable(folder / path)
    for path in new:
        write_atomic(folder / path, contents[path].encode())
    return tuple(folder / path for path in new)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalFileError(f"cannot make the folder {folder}: {(error.strerror or str(error)).lower()}") from error


def _name_of(folder: Path) -> str:
    """A name for the images from a folder's: `My Project` gives my-project."""
    return re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "trainer"
