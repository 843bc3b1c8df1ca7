"""Finds out which framework a project trains with, directly or through Keras 3."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from imgtool_project_reader.frameworks import FRAMEWORKS, JAX, TENSORFLOW, TORCH, Framework, is_trainer
from imgtool_project_reader.listings import Listing
from imgtool_project_reader.programs import Code, Reached
from imgtool_project_reader.read import Project
from imgtool_project_reader.source import Imported, Source
from imgtool_project_reader.statement import Certainty, Statement

_BACKEND = re.compile(  # os.environ["KERAS_BACKEND"] = "jax", KERAS_BACKEND: jax, and phrases in a README
    r"""KERAS_BACKEND["'\]`\s]*(?:[=:,]|(?:environment variable )?to\b)\s*["'`]?(?P<name>[a-z]+)"""
)
_TELLS = re.compile(r"(?i).*\.(?:md|rst|sh|ya?ml|env|toml)|(?:.*/)?(?:dockerfile.*|\.env|makefile)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The framework of a project.

    Attributes:
        framework: the framework.
        statement: the place that tells of it, with an empty value; None if no file does.
        says: what this place says, such as `imports torch`.
    """

    framework: Framework
    statement: Statement | None = None
    says: str = ""


def find_framework(code: Code, listings: tuple[Listing, ...], reached: Reached | None) -> Evidence:
    """Finds the framework that the program trains with; without evidence, that is TensorFlow.

    The backend of Keras that the code chooses decides first; then the imports, the listed packages, and other texts. In
    a project without a program, all files count.
    """
    project = code.project
    files = [file for file in project.files if file.endswith(".py")] if reached is None else []
    sources = reached.sources if reached else tuple(filter(None, map(code.source, files)))
    foreign = [(item, source, item.always) for source in sources for item in source.imports if not item.level]
    imports = _list_imports(reached.foreign if reached else foreign)
    chosen = [*_find_backends(project, (source.path for source in sources))]
    if "keras" in imports and chosen and (framework := FRAMEWORKS.get(chosen[0][0])):
        return _tell(framework, f"sets KERAS_BACKEND to {framework.key}", *chosen[0][1:])
    listed = [item for listing in listings[:1] for item in listing.packages]
    has_tensorflow = any(TENSORFLOW.is_own(item.package) for item in listed)
    of_jax = [name for name in imports if name == "jax" or name in JAX.libraries]
    if of_jax and (of_jax != ["jax"] or not (has_tensorflow and "tensorflow" in imports)):
        return _tell(JAX, f"imports {of_jax[0]}", *imports[of_jax[0]][:2])
    others = {"keras", "tensorflow", *TENSORFLOW.libraries} & imports.keys()
    is_sure = any(imports[name].always for name in others)
    of_torch = [name for name in imports if name in {"torch", *TORCH.libraries} or name.startswith("transformers.")]
    best = min(of_torch, key=lambda name: (not imports[name].always, name != "torch"), default=None)
    if best and not (has_tensorflow or is_sure) and (imports[best].always or not others):
        return _tell(TORCH, f"imports {best}", *imports[best][:2])
    if others <= {"keras"} and not has_tensorflow:
        for framework in (JAX, TORCH):
            if item := next((item for item in listed if framework.is_own(item.package)), None):
                return _tell(framework, f"lists {item.package}", item.file, item.line)
    told = [*_find_backends(project, filter(_TELLS.fullmatch, project.files))] if others == {"keras"} else []
    if len({name for name, *_ in told}) == 1 and (framework := FRAMEWORKS.get(told[0][0])):
        return _tell(framework, f"names {framework.key} for Keras", *told[0][1:], certainty=Certainty.GUESS)
    return Evidence(framework=TENSORFLOW)


def find_accelerator(evidence: Evidence, listings: tuple[Listing, ...]) -> tuple[str, str] | None:
    """Returns the accelerator (gpu or tpu) that extras of the listed framework name, and the requirement's place."""
    own = evidence.framework.packages
    for item in (item for listing in listings[:1] for item in listing.packages if item.package in own):
        for extra in item.requirement.extras:
            if extra == "tpu" or extra.startswith("cuda"):
                return "tpu" if extra == "tpu" else "gpu", f"{item.place}: {item.value}"
    return None


class _Use(NamedTuple):
    path: str
    line: int
    always: bool


def _tell(framework: Framework, says: str, path: str, line: int, *, certainty: Certainty = Certainty.HINT) -> Evidence:
    return Evidence(framework=framework, statement=Statement(framework.fact, "", path, line, certainty), says=says)


def _list_imports(foreign: Iterable[tuple[Imported, Source, bool]]) -> dict[str, _Use]:
    """Maps the first name of each import of another package to its first use; transformers' trainers need PyTorch."""
    uses: dict[str, _Use] = {}
    for item, source, always in foreign:
        top = item.module.partition(".")[0]
        trainer = next((name for name in item.names if is_trainer(item.module, name)), None)
        name = f"{top}.{trainer}" if trainer else top
        uses.setdefault(name, _Use(source.path, item.line, always))
    return uses


def _find_backends(project: Project, files: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Yields each Keras backend that one of the files names, with the file and the line."""
    for file in files:
        for number, line in enumerate(project.read(file).splitlines(), 1):
            if match := _BACKEND.search(line):
                yield match["name"], file, number
