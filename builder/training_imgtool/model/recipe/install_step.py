"""Makes the RUN instruction that installs the wheels in a printed Dockerfile.

The instruction creates a virtual environment at /opt/venv without ensurepip, so the base needs only an interpreter. pip
runs from its own wheel, and installs exactly the locked wheels, without a network. Then the instruction compiles the
installed modules, so that an import of TensorFlow does not have to compile them.

The wheels of a variant are in `wheels/<variant>` in the build context, and in `/wheels` in the stage.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath

from training_imgtool.model.lock import LockedVariant, Variant
from training_imgtool.model.recipe.apt_step import CUDA_LIBRARY_PATH, DRIVER_PATH

VENV = "/opt/venv"
WHEELS = "/wheels"
LIBRARY = "/stdlib"
"""The folder in a stage of buildx with the bytecode of the standard library."""
REQUIREMENTS = "requirements.txt"
CODE = "code"
"""The folder with the files of the spec in a builder's context; the wheels are beside it."""
UNCOMPILED = "tests"
"""Folders of this name get no bytecode. In a TensorFlow stack with scikit-learn, it would be a third of all."""
_LEFT_OUT = (
    r"/(?:(?:site|dist)-packages|tests?|idle_test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data)/"
    r"|/sitecustomize\.py$"
)
_CUDA_WHEEL = re.compile(r"nvidia-(?!cuda-nvcc)(.+)-cu\d+")  # cuda-nvcc contains programs, not libraries
_CUDA_13 = "nvidia-cuda-runtime"  # from CUDA 13 on, most of its wheels have no suffix and one folder, nvidia/cu13
_HASHED_BYTECODE_SINCE = (3, 7)  # compileall --invalidation-mode, Python 3.7's What's New
_ROOT_ACTION_SINCE = (22, 1)  # pip's changelog; the last pip for Python 3.6 is 21.3.1


def context_folder(locked: LockedVariant) -> str:
    """Returns the folder in the build context that contains the variant's wheels."""
    return f"wheels/{locked.variant.name}"


def site_packages(locked: LockedVariant) -> str:
    """Returns the absolute path of the environment's site-packages in the image."""
    return f"{VENV}/lib/python{locked.variant.python}/site-packages"


def library_path(locked: LockedVariant, *, cuda_base: bool) -> str:
    """Returns the LD_LIBRARY_PATH of an image that computes on GPUs; empty for other images.

    Images with NVIDIA's wheels need the variable, too. TensorFlow's RUNPATH contains most folders of these wheels,
    but not that of cuSOLVER, without which 2.21.0 finds no GPU, and that of CUPTI, without which 2.15.1 cannot profile.
    cuDNN 9.3 does not look for NVRTC in the folder of the wheel. Source: runs on an H100; docs/howto/gpu.md.
    """
    if cuda_base:
        return CUDA_LIBRARY_PATH
    names = [match[1].replace("-", "_") for wheel in locked.wheels if (match := _CUDA_WHEEL.fullmatch(wheel.name))]
    names += [f"cu{wheel.version.partition('.')[0]}" for wheel in locked.wheels if wheel.name == _CUDA_13]
    folders = [f"{site_packages(locked)}/nvidia/{name}/lib" for name in names]
    return ":".join((DRIVER_PATH, *folders)) if folders else ""


def pyvenv_cfg(locked: LockedVariant) -> str:
    """Returns the text of pyvenv.cfg (PEP 405)."""
    home = PurePosixPath(locked.variant.python_executable).parent
    return f"home = {home}\ninclude-system-site-packages = false\nversion = {locked.variant.python}\n"


def requirements_text(locked: LockedVariant) -> str:
    """Returns the text of a requirements file with the locked wheels and their hashes, for pip's --require-hashes."""
    return "".join(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in locked.wheels)


def install_commands(locked: LockedVariant, exclude: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the shell commands that make /opt/venv, as one text per command.

    Args:
        locked: the wheels and the interpreter.
        exclude: prefixes of paths below site-packages to remove after the installation, such as `tensorflow/include`.
    """
    python = locked.variant.python
    site = site_packages(locked)
    config = pyvenv_cfg(locked).replace("\n", "\\n")
    as_root = " --root-user-action=ignore" if _number(locked.installer.version) >= _ROOT_ACTION_SINCE else ""
    commands = [
        "set -eu",
        f"mkdir -p {VENV}/bin {site}",
        f"ln -s {locked.variant.python_executable} {VENV}/bin/python",
        f"ln -s python {VENV}/bin/python3",
        f"ln -s python {VENV}/bin/python{python}",
        f"printf '{config}' > {VENV}/pyvenv.cfg",
        (
            f"{VENV}/bin/python {WHEELS}/installer/{locked.installer.file}/pip --isolated --no-cache-dir"
            " --disable-pip-version-check install --quiet --no-index --no-deps --no-compile --no-warn-script-location"
            f"{as_root} --require-hashes --find-links {WHEELS} -r {WHEELS}/{REQUIREMENTS}"
        ),
    ]
    commands += [f"rm -rf {site}/{shlex.quote(prefix.strip('/'))}" for prefix in exclude]
    if has_hashed_bytecode(locked.variant):
        commands.append(compile_command(locked))
    return tuple(commands)


def has_hashed_bytecode(variant: Variant) -> bool:
    """Returns whether a variant's Python reads bytecode that contains the source's hash instead of its time."""
    return _number(variant.python) >= _HASHED_BYTECODE_SINCE


def library_script(variant: Variant) -> str:
    """Returns the argument of RUN that compiles the standard library into `LIBRARY`, from where COPY takes it.

    Python's option -B lets the modules that compileall imports stay without bytecode, and without -f, compileall skips
    the modules that have it.
    """
    if not has_hashed_bytecode(variant):
        return f"mkdir {LIBRARY}"
    python = variant.python_executable
    options = f"-q -j 0 -x '{_LEFT_OUT}' --invalidation-mode checked-hash"
    commands = (
        "set -eu",
        f"library=\"$({python} -IBSc 'import os; print(os.path.dirname(os.__file__))')\"",
        f"mkdir {LIBRARY}",
        f'{{ {python} -I -B -m compileall {options} "$library" >/dev/null || true; }}',
        f"find \"$library\" -name '*.pyc' -newer {LIBRARY} -exec cp --parents -t {LIBRARY} {{}} +",
    )
    return "; \\\n    ".join(commands)


def is_left_out(path: str) -> bool:
    """Returns whether a module of the standard library gets no bytecode, because no trainer imports it."""
    return re.search(_LEFT_OUT, f"/{path}") is not None


def _number(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def compile_command(locked: LockedVariant) -> str:
    """Returns the shell command that compiles the modules in /opt/venv.

    Its option -f also compiles modules that a .pth file has imported, and so compiled in another mode. Files that this
    Python cannot compile stay uncompiled, as with pip.
    """
    return (
        f"{{ {VENV}/bin/python -m compileall -q -f -j 0 -x /{UNCOMPILED}/ --invalidation-mode unchecked-hash"
        f" {site_packages(locked)} >/dev/null || true; }}"
    )


def install_script(locked: LockedVariant, exclude: tuple[str, ...] = ()) -> str:
    r"""Returns the argument of RUN: the commands, joined with `; \` and a newline."""
    return "; \\\n    ".join(install_commands(locked, exclude))
