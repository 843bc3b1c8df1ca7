"""The files of `imgtool init`: a spec for the folder's code, else one with a small trainer that really trains."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.commands.starter.programs import find_trainer
from training_imgtool.commands.starter.survey import Survey, survey
from training_imgtool.core.atomic_files import check_writable, write_atomic
from training_imgtool.core.errors import InputError, LocalFileError
from training_imgtool.core.resources import data_file
from training_imgtool.spec.model import Accelerator
from training_imgtool.spec.targets import Target
from training_imgtool.spec.value_rules import check_text, quote
from training_imgtool.versions.matrix import load_matrix
from training_imgtool.wheels.import_names import DISTRIBUTIONS

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_TENSORFLOW = re.compile(r"(\d+)\.(\d+)\.\d+(?:\.post\d+)?")
_OLDEST = (2, 4)  # tf.distribute.MultiWorkerMirroredStrategy was experimental before

_DEFAULT = "2.15.1"

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
_PS = "  ps: {machine: n1-highmem-2}\n"
_SPEC = """\
# What imgtool builds. `imgtool schema` prints a JSON schema of this file for your editor.
{origin}name: {name}  # the images are REGISTRY/{name}
# registry: us-central1-docker.pkg.dev/my-project/training  # or --registry, or IMGTOOL_REGISTRY

tensorflow: "{tensorflow}"  # {tensorflow_from}
{python}
accelerator: {accelerator}  # {accelerator_from}
{system_packages}requirements: {requirements}  # resolved together with TensorFlow, and locked in image.lock
{unlisted}{trainer}
{args}
env: {{TF_CPP_MIN_LOG_LEVEL: "1"}}

roles:  # master, worker, ps, evaluator: one image each
{roles}
job:
  target: {target}  # or {others}
  region: us-central1
  # job_dir: gs://my-bucket/{name}  # where checkpoints and the model go
  {job_dir}
  scheduling: {{max_running: 7200s}}
"""
_DOCKERIGNORE = """\
**/__pycache__
**/*.pyc
**/.ipynb_checkpoints
.git
.venv
*.log
"""
_REQUIREMENTS = """\
# What the trainer imports besides TensorFlow, one requirement per line, such as:
# pandas>=2,<3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """The files of a first project: relative path to text; and what the user should know about them."""

    files: dict[str, str]
    notes: tuple[str, ...]


def starter(
    folder: Path, *, name: str | None = None, tensorflow: str | None = None, accelerator: Accelerator | None = None
) -> Starter:
    """Writes the texts that `folder` needs, from what it has. Arguments win over what its files say.

    Raises:
        InputError: a name or release that no spec could have.
    """
    seen = survey(folder, load_matrix())
    chosen = name or _usable_name(seen.name or folder.resolve().name)
    _check_name(chosen)
    release = tensorflow or (seen.tensorflow.value if seen.tensorflow else _DEFAULT)
    _check_release(release, own_trainer=not seen.code.programs)
    kind = accelerator or (Accelerator.GPU if seen.gpu else Accelerator.CPU)
    code = _Lines(seen, folder)
    target = "ai-platform" if kind is Accelerator.TPU else "vertex"
    spec = _SPEC.format(
        origin=f"# imgtool init read {', '.join(dict.fromkeys((*seen.files, *code.read)))}. Check what it proposes.\n"
        if seen.files or code.read
        else "",
        name=chosen,
        tensorflow=release,
        tensorflow_from=tensorflow_from(seen, given=tensorflow is not None),
        python=python_line(seen, release),
        accelerator=kind,
        accelerator_from=f"from {seen.gpu}"
        if seen.gpu and not accelerator
        else "cpu, gpu or tpu; a role may have its own",
        system_packages=system_packages_comment(seen),
        requirements=seen.requirements or "requirements.txt",
        unlisted=unlisted_comment(seen) if seen.requirements else "",
        trainer=code.trainer,
        args=code.args,
        roles=code.roles(kind),
        target=target,
        others=", ".join(other for other in Target if other != target),
        job_dir=code.job_dir,
    )
    files = {"image.yaml": spec, **({} if code.program else _trainer(chosen)), ".dockerignore": _DOCKERIGNORE}
    if not seen.requirements:
        files["requirements.txt"] = requirements_text(seen)
    return Starter(files=files, notes=code.notes)


class _Lines:
    """The lines of a spec that depend on the folder's program; those of the starter's own trainer without one."""

    def __init__(self, seen: Survey, folder: Path) -> None:
        self.program = seen.code.programs[0] if seen.code.programs else None
        self.read = tuple(str(program.path) for program in seen.code.programs[:5])
        self._trainer = (
            find_trainer(self.program, folder) if self.program else "{source: trainer, module: trainer.task}"
        )
        self._arguments = seen.arguments if all(map(str.isprintable, seen.arguments)) else ()
        self._strategies = seen.code.strategies
        notebooks = () if self.program else sorted(path.name for path in folder.glob("*.ipynb"))
        self._notebooks = tuple(
            f"{name} is a notebook: jupyter nbconvert --to script {name}, and run init again" for name in notebooks[:1]
        )
        self._others = tuple(str(program.path) for program in seen.code.programs[1:5])

    @property
    def trainer(self) -> str:
        if self._trainer is None:
            return "# trainer: FOLDER/FILE.py"
        others = f"  # or {', '.join(self._others)}" if self._others else ""
        line = self.program.notebook_line if self.program else None
        notebook = f"  # first delete the notebook's commands, such as line {line}" if line else ""
        return f"trainer: {self._trainer}{others}{notebook}"

    @property
    def args(self) -> str:
        if self.program is None:
            return 'args: ["--epochs=5"]'
        options = ", ".join(
            f"{option.name}{' (required)' if option.required else ''}" for option in self.program.options[:12]
        )
        shown = f"  # its options: {options}" if options else ""
        if self._arguments:
            words = json.dumps(list(self._arguments), ensure_ascii=False)
            return f"args: {words}  # from Dockerfile{shown.replace('  # ', '; ')}"
        return f"# args: []{shown}"

    @property
    def job_dir(self) -> str:
        """`pass_job_dir`, in a comment where the program would refuse `--job-dir`."""
        line = "pass_job_dir: true  # appends --job-dir=DIR to the arguments"
        if self.program is None or self.program.has_job_dir:
            return f"{line}; DIR is job_dir, or ./job in imgtool run"
        own = any(option.name == "--job_dir" for option in self.program.options)
        return f"# {line}; the program {'takes --job_dir: write it into args' if own else 'must take it'}"

    def roles(self, accelerator: Accelerator) -> str:
        """Writes the roles that the program's strategy needs: one process does not become three by itself."""
        lines = _ROLES[accelerator]
        if self.program is None or accelerator is Accelerator.TPU:
            return lines
        if "ParameterServerStrategy" in self._strategies:
            return lines + _PS
        if "MultiWorkerMirroredStrategy" in self._strategies:
            return lines
        return lines.splitlines(keepends=True)[0]

    @property
    def notes(self) -> tuple[str, ...]:
        if self._trainer is not None:
            return self._notebooks
        names = "names of folders may have letters, digits and ._@+-"
        return (
            f"{self.program and self.program.path} cannot start as it lies: {names}; complete `trainer` in image.yaml",
        )


def _trainer(name: str) -> dict[str, str]:
    return {
        "trainer/__init__.py": f'"""The training program of {name}."""\n',
        "trainer/task.py": data_file("starter_task.py.txt").read_text(encoding="utf-8"),
    }


def _check_name(name: str) -> None:
    check_text(name)
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{quote(name)} is not an image's name: expected lower-case letters and digits, "
            "joined by single '.', '_' or '-'",
            hint="give one with --name",
        )


def _check_release(tensorflow: str, *, own_trainer: bool) -> None:
    release = _TENSORFLOW.fullmatch(tensorflow)
    if not release:
        raise InputError(f"expected a full TensorFlow release, such as 2.15.1, found {quote(tensorflow)}")
    if own_trainer and (int(release[1]), int(release[2])) < _OLDEST:
        raise InputError(f"the first trainer needs TensorFlow 2.4 or newer, found {tensorflow}")


def write_starter(
    folder: Path, *, name: str | None = None, tensorflow: str | None = None, accelerator: Accelerator | None = None
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Writes the files of a first project. Existing files stay as they are.

    Args:
        folder: where; made when it is missing.
        name: the images' name; by default the project's, otherwise the folder's, as far as letters go.
        tensorflow: the TensorFlow release; by default what the project's files ask for.
        accelerator: what the roles compute on; by default what the project's Dockerfile asks for.

    Returns:
        The new files, and what the user should know.

    Raises:
        InputError: the folder has a spec already, or the name or release is none.
        LocalFileError: a file could not be written.
    """
    if os.path.lexists(folder / "image.yaml"):
        raise InputError(f"{folder / 'image.yaml'} already exists", hint="choose another folder, or edit it")
    made = starter(folder, name=name, tensorflow=tensorflow, accelerator=accelerator)
    order = sorted(
        made.files, key=lambda path: (path == ".dockerignore", path == "requirements.txt", path != "image.yaml")
    )
    new = [path for path in order if not os.path.lexists(folder / path)]
    for path in new:
        _make_folder((folder / path).parent)
        check_writable(folder / path)
    for path in new:
        write_atomic(folder / path, made.files[path].encode())
    return tuple(folder / path for path in new), made.notes


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalFileError(f"cannot make the folder {folder}: {(error.strerror or str(error)).lower()}") from error


def _usable_name(text: str) -> str:
    """Derives a name for the images from a project's or folder's: `My Project` gives my-project."""
    plain = unicodedata.normalize("NFKD", text.casefold()).encode("ascii", "ignore").decode()  # ö becomes o, ß ss
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "trainer"


def tensorflow_from(seen: Survey, *, given: bool) -> str:
    """Says where the release comes from; `given` if the command line has it."""
    if seen.unknown_tensorflow:
        return f"no release fits {seen.unknown_tensorflow}: imgtool compat lists them"
    if seen.tensorflow and not given:
        return f"from {seen.tensorflow.source}"
    return "Python, CUDA, cuDNN and the base image follow from it: imgtool compat"


def requirements_text(seen: Survey) -> str:
    """Writes the text of a new requirements file."""
    lines = [f"{clue.value}  # from {clue.source}\n" for clue in seen.python_packages]
    return _REQUIREMENTS + "".join(lines) + unlisted_comment(seen)


def unlisted_comment(seen: Survey) -> str:
    """Writes a comment: which package has a module is not for imgtool to guess."""
    names = [f"{name} ({DISTRIBUTIONS[name]})" if name in DISTRIBUTIONS else name for name in seen.unlisted[:12]]
    more = f" and {len(seen.unlisted) - 12} more" if len(seen.unlisted) > 12 else ""
    cause = "# missing, unless another package brings them: the packages of these imports:"
    return f"{cause} {', '.join(names)}{more}\n" if names else ""


def python_line(seen: Survey, release: str) -> str:
    """Writes the Python of the project's Dockerfile where TensorFlow has wheels for it."""
    if seen.python is None:
        return '# python: "3.11"'
    minor = load_matrix().minors.get(".".join(release.split(".")[:2]))
    fits = minor is not None and release in minor.releases and seen.python.value in minor.releases[release].pythons
    return f'{"" if fits else "# "}python: "{seen.python.value}"  # from {seen.python.source}'


def system_packages_comment(seen: Survey) -> str:
    """Writes a comment: a Dockerfile often installs what its build needs, and packages cost an engine."""
    names = ", ".join(seen.system_packages)
    return f"# system_packages: [{names}]  # from Dockerfile; some need an engine\n" if names else ""
