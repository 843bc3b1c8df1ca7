"""Prints a recipe as a Dockerfile, for people, for `render -o` and for buildx if it builds the whole image.

imgtool renders its own template in this process. A user's template may come from an untrusted pull request, so imgtool
renders it in a child process with limits (`model.recipe.jinja`).
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from training_imgtool.base import resources
from training_imgtool.base.errors import ImgtoolError, InputError
from training_imgtool.base.secret_text import detect_command_secret, detect_named_secret
from training_imgtool.model.recipe import install_step
from training_imgtool.model.recipe.recipe import KEY_LABEL, Copy, Recipe, print_lines

LONGEST = 1 << 20  # characters of a printed Dockerfile, bytes of a template
BASE_TEMPLATE = "base.Dockerfile.j2"
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-+]([^}]*))?\})")
_PAIR = re.compile(r"""(?<!\w)(\w+)=("(?:\\.|[^"\\])*"|'[^']*'|\S+)""")
_LONGEST_VALUE = 1000  # characters of a variable
_PATIENCE = 60  # seconds of wall time for a child that may use 5 of CPU


class TemplateError(InputError):
    """imgtool cannot render a template, or the printed Dockerfile is invalid or contains a credential."""


def print_dockerfile(recipe: Recipe, key: str, *, base: str | None = None) -> str:
    """Returns the Dockerfile of an image, which ends with one newline.

    Args:
        recipe: the image's recipe.
        key: the recipe's key, for the last label.
        base: the repository of the base image, which replaces the one in the recipe.
    """
    if recipe.template is not None:
        return with_key(recipe.template.text, key)
    return with_key(_render(recipe, BASE_TEMPLATE, None, base), key)


def print_template(recipe: Recipe, template: str, folder: Path, *, allow_secrets: Collection[str] = ()) -> str:
    """Returns the Dockerfile that a user's template prints, without the image's key.

    Args:
        recipe: the recipe, which contains the values for the template.
        template: the template's path below `folder`.
        folder: the spec's folder.
        allow_secrets: settings such as `env.NAME` that look like secrets but are not.

    Raises TemplateError, with `TEMPLATE:LINE`, if the template is wrong or prints a credential.
    """
    text = _render(recipe, template, folder, None)
    if not re.search(r"(?im)^FROM\s.*\sAS\s+image\s*$", text):
        raise TemplateError(
            f"{template} does not print a stage `image`",
            hint=f'let the template begin with {{% extends "{BASE_TEMPLATE}" %}}',
        )
    _check_secrets(text, template, allow_secrets)
    return text


def with_key(text: str, key: str) -> str:
    """Adds the image's key to a printed Dockerfile as the last label. The image's key does not depend on this label."""
    return f'{text}LABEL {KEY_LABEL}="{key}"\n'


def _render(recipe: Recipe, template: str, user: Path | None, base: str | None) -> str:
    values = list_values(recipe, base)
    request = {
        "builtin": str(resources.directory("templates")),
        "builtin_names": [BASE_TEMPLATE],
        "user": str(user) if user is not None else None,
        "template": template,
        "values": values,
        "limit": LONGEST,
    }
    answer = _render_in_child(request) if user is not None else _render_here(request)
    if "error" in answer:
        raise _make_error(template, answer["error"], values)
    lines = answer["text"].replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n")
    return "".join(f"{line}\n" for line in lines)


def _render_here(request: dict[str, Any]) -> dict[str, Any]:
    from training_imgtool.model.recipe.jinja import render

    return render(request)


def _render_in_child(request: dict[str, Any]) -> dict[str, Any]:
    """Runs the program `jinja.py` with limits; if a limit ends the program, the returned answer says so."""
    child = Path(__file__).with_name("jinja.py")
    limits = {"error": {"kind": "limits", "message": "", "where": ""}}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(child)],
            input=json.dumps({**request, "path": sys.path}).encode(),
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return limits
    if done.returncode < 0 or b"MemoryError" in done.stderr:
        return limits
    if done.returncode:
        last = done.stderr.decode(errors="replace").splitlines()[-20:]
        raise ImgtoolError("the program that renders templates failed", details=tuple(last))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _make_error(template: str, error: Mapping[str, str], values: Mapping[str, Any]) -> TemplateError:
    where = error["where"] or template
    message = error["message"]
    match error["kind"]:
        case "undefined":
            return TemplateError(f"{where}: {message}", hint=f"defined: {', '.join(sorted(values))}")
        case "missing":
            hint = f"a path relative to the spec, or {BASE_TEMPLATE}"
            return TemplateError(f"{where}: no template {message!r}", hint=hint)
        case "security":
            return TemplateError(f"{where}: not allowed in a template: {message}")
        case "limits" | "memory":
            return TemplateError(f"{where}: the template exceeded 5 s or 512 MiB")
        case "recursion":
            return TemplateError(f"{where}: the template includes or extends itself, or more than about 100 others")
    return TemplateError(f"{where}: {message}")


def _check_secrets(text: str, template: str, allow_secrets: Collection[str]) -> None:
    """Raises TemplateError if a printed text contains a credential, which everyone who pulls the image could read."""
    lines = without_variables(text, allowed_variables(allow_secrets)).split("\n")
    places = {line: number for number, line in (*_expand(lines), *enumerate(lines, 1))}
    for line, number in places.items():
        if kind := find_secret(line):
            raise TemplateError(
                f"{template}: line {number} of the Dockerfile that the template prints contains {kind}",
                hint="everyone who pulls the image can read it; mount a secret of the spec in that RUN, or list "
                "env.NAME in allow_secrets if it is not a secret; `imgtool render` prints the Dockerfile",
            )


def allowed_variables(allow_secrets: Collection[str]) -> tuple[str, ...]:
    """Lists the variables that `allow_secrets` names, such as PAD_TOKEN for `env.PAD_TOKEN`."""
    return tuple(name.rpartition("env.")[2] for name in allow_secrets if "env." in name)


def without_variables(text: str, names: Iterable[str]) -> str:
    """Removes the values of the variables `names` from a text."""
    for name in names:
        text = re.sub(rf"""\b{re.escape(name)}["']?[=\s][ ]*("(?:\\.|[^"\\])*"|\S+)""", "", text)
    return text


def _expand(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yields each instruction, as one line with the values of variables, after the number of its last line."""
    values: dict[str, str] = {}
    whole = ""
    for number, line in enumerate(lines, 1):
        if whole and line.lstrip().startswith("#"):
            continue
        whole += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        whole = _VARIABLE.sub(partial(_value_of, values), whole)
        if re.match(r"\s*(?:ARG|ENV)\s", whole, re.IGNORECASE):
            values |= {name: value.strip("\"'")[:_LONGEST_VALUE] for name, value in _PAIR.findall(whole)}
        yield number, whole
        whole = ""


def _value_of(values: Mapping[str, str], match: re.Match[str]) -> str:
    return values.get(match[1] or match[2]) or match[3] or match[0]


def find_secret(line: str) -> str | None:
    """Returns the kind of credential in an instruction of a Dockerfile, or in a text of an image's config, or None."""
    instruction, name, value = (*line.split(None, 2), "", "", "")[:3]
    if instruction.upper() in {"ENV", "LABEL"} and (kind := detect_named_secret(name, value)):
        return kind  # the old form without `=`
    return detect_command_secret(line)


def list_values(recipe: Recipe, base: str | None = None) -> dict[str, Any]:
    """Returns the values that a template can use, which are only texts, lists and dictionaries."""
    variant = recipe.locked.variant
    debian = recipe.debian
    return {
        "platform": recipe.platform,
        "base": {"reference": _refer_to_base(recipe, base), "name": recipe.base_name, "digest": recipe.base.digest},
        "variant": {
            "name": variant.name,
            "accelerator": str(variant.accelerator),
            "package": variant.package,
            variant.framework.key: variant.release,
            "python": variant.python,
            "python_from": variant.python_from,
            "python_executable": variant.python_executable,
            "cuda": variant.cuda or "",
            "cudnn": variant.cudnn or "",
            "os": variant.os or "",
        },
        "library_path": recipe.library_path,
        "apt_packages": list(debian.requested) if debian is not None else [],
        "apt_script": recipe.apt_script,
        "run": print_lines(recipe.run).rstrip("\n") if recipe.run.lines else "",
        "run_after_packages": print_lines(recipe.run_after_packages).rstrip("\n")
        if recipe.run_after_packages.lines
        else "",
        "venv": install_step.VENV,
        "library": {
            "folder": install_step.LIBRARY,
            "compile_script": install_step.library_script(variant),
        },
        "wheels": {
            "folder": install_step.context_folder(recipe.locked),
            "destination": install_step.WHEELS,
            "install_script": install_step.install_script(recipe.locked, recipe.exclude),
        },
        "files": [_describe_copy(copy) for copy in recipe.files],
        "code": [_describe_copy(copy) for copy in recipe.code],
        "working_folder": recipe.working_folder,
        "entrypoint": list(recipe.entrypoint),
        "env": dict(sorted(recipe.env.items())),
        "labels": dict(sorted(recipe.labels.items())),
        "user": recipe.user or "",
    }


def _describe_copy(copy: Copy) -> dict[str, str]:
    """Returns the source and target of a COPY instruction for a build context; paths of folders end with `/`."""
    source = posixpath.normpath(posixpath.join(install_step.CODE, copy.source))
    slash = "/" if copy.is_folder else ""
    return {"source": f"{source}{slash}", "target": f"{copy.target}{slash}"}


def _refer_to_base(recipe: Recipe, repository: str | None) -> str:
    """Returns the base image as `REPOSITORY:TAG@DIGEST`. The tag is for people; builders use the digest."""
    name, colon, tag = recipe.base_name.rpartition(":")
    with_tag = f":{tag}" if colon and "/" not in tag and "@" not in name else ""
    return f"{repository or recipe.base.repository}{with_tag}@{recipe.base.digest}"
