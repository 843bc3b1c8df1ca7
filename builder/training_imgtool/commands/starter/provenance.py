"""The lines of a first spec and of a requirements file that say where a value comes from, or what is missing."""

from __future__ import annotations

from training_imgtool.commands.starter.survey import Survey
from training_imgtool.versions.matrix import load_matrix
from training_imgtool.wheels.import_names import DISTRIBUTIONS

_REQUIREMENTS = """\
# What the trainer imports besides TensorFlow, one requirement per line, such as:
# pandas>=2,<3
"""


def tensorflow_from(seen: Survey, *, given: bool) -> str:
    """Where the release comes from; `given` if the command line has it."""
    if seen.unknown_tensorflow:
        return f"no release fits {seen.unknown_tensorflow}: imgtool compat lists them"
    if seen.tensorflow and not given:
        return f"from {seen.tensorflow.where}"
    return "Python, CUDA, cuDNN and the base image follow from it: imgtool compat"


def requirements_text(seen: Survey) -> str:
    """The text of a new requirements file."""
    lines = [f"{clue.value}  # from {clue.where}\n" for clue in seen.python_packages]
    return _REQUIREMENTS + "".join(lines) + unlisted_comment(seen)


def unlisted_comment(seen: Survey) -> str:
    """A comment: which package has a module is not for imgtool to guess."""
    names = [f"{name} ({DISTRIBUTIONS[name]})" if name in DISTRIBUTIONS else name for name in seen.unlisted[:12]]
    more = f" and {len(seen.unlisted) - 12} more" if len(seen.unlisted) > 12 else ""
    cause = "# missing, unless another package brings them: the packages of these imports:"
    return f"{cause} {', '.join(names)}{more}\n" if names else ""


def python_line(seen: Survey, release: str) -> str:
    """The Python of the project's Dockerfile where TensorFlow has wheels for it."""
    if seen.python is None:
        return '# python: "3.11"'
    minor = load_matrix().minors.get(".".join(release.split(".")[:2]))
    fits = minor is not None and release in minor.releases and seen.python.value in minor.releases[release].pythons
    return f'{"" if fits else "# "}python: "{seen.python.value}"  # from {seen.python.where}'


def system_packages_comment(seen: Survey) -> str:
    """A comment: a Dockerfile often installs what its build needs, and packages cost an engine."""
    names = ", ".join(seen.system_packages)
    return f"# system_packages: [{names}]  # from Dockerfile; some need an engine\n" if names else ""
