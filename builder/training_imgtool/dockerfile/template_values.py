"""The values that Dockerfile templates see, and what they must be to stand in a Dockerfile."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from typing import Any

from training_imgtool.core.errors import FieldError
from training_imgtool.dockerfile import apt_step, install_step
from training_imgtool.plan import RolePlan
from training_imgtool.spec.entry_point import EntryPoint
from training_imgtool.spec.model import APP

BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"
_PACKAGE = r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9-]+)?(?:=[A-Za-z0-9.+~:-]+)?"
_SOURCE = r"(?:\.|(?!\.{1,2}(?:/|\Z))[\w.@+-]+(?:/(?!\.{1,2}(?:/|\Z))[\w.@+-]+)*)"
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
_LABEL_NAME = r"[A-Za-z0-9][A-Za-z0-9_./-]*"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?::[A-Za-z0-9_][A-Za-z0-9_.-]*)?"
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def template_values(plan: RolePlan) -> dict[str, Any]:
    """Returns what a template can use: text, lists and dictionaries of text, nothing else."""
    variant = plan.locked.variant
    packages = apt_step.apt_packages(variant, plan.system_packages)
    labels = {**plan.labels, BASE_NAME: plan.base_name, BASE_DIGEST: plan.base.digest}
    return {
        "role": str(plan.role),
        "platform": plan.platform,
        "base": {"reference": _base_reference(plan), "name": plan.base_name, "digest": plan.base.digest},
        "variant": {
            "name": variant.name,
            "accelerator": str(variant.accelerator),
            "package": variant.package,
            "tensorflow": variant.tensorflow,
            "python": variant.python,
            "python_from": variant.python_from,
            "python_executable": variant.python_executable,
            "cuda": variant.cuda or "",
            "cudnn": variant.cudnn or "",
            "os": variant.os or "",
        },
        "cuda_base": plan.cuda_base,
        "apt_packages": list(packages),
        "apt_script": apt_step.install_script(variant, packages, apt_step.libraries_to_open(plan)) if packages else "",
        "venv": install_step.VENV,
        "wheels": {
            "folder": install_step.context_folder(plan.locked),
            "destination": install_step.WHEELS,
            "install_script": install_step.install_script(plan.locked, plan.exclude),
        },
        "source": plan.entry.folder,
        "code_folder": _in_image(plan.entry.folder),
        "code": [{"source": path, "target": _in_image(path)} for path in _list_sources(plan.entry)],
        "working_folder": plan.entry.working_folder,
        "module": plan.entry.module or "",
        "entrypoint": list(plan.entrypoint),
        "env": dict(sorted(plan.env.items())),
        "labels": dict(sorted(labels.items())),
        "user": plan.user or "",
    }


def _in_image(path: str) -> str:
    """Returns where COPY puts a path of the context; with a `/` at the end if it has one."""
    return posixpath.normpath(posixpath.join(APP, path)) + ("/" if path.endswith("/") else "")


def _list_sources(entry: EntryPoint) -> list[str]:
    """Lists what the code's COPY instructions name: folders end with `/`."""
    return [path if path in entry.files else f"{path}/" for path in entry.paths]


def _base_reference(plan: RolePlan) -> str:
    """Returns `REPOSITORY:TAG@DIGEST`: the tag is for people, the digest decides."""
    name, colon, tag = plan.base_name.rpartition(":")
    with_tag = f":{tag}" if colon and "/" not in tag and "@" not in name else ""
    return f"{plan.base.repository}{with_tag}@{plan.base.digest}"


def check_values(plan: RolePlan) -> None:
    """Refuses what no quoting can save, by its field; raises FieldError."""
    texts = {
        "trainer.source": plan.entry.folder,
        "trainer.module": plan.entry.module or "",
        "trainer.script": plan.entry.script or "",
        **{f"trainer.include[{number}]": text for number, text in enumerate(plan.entry.include)},
        "user": plan.user or "",
        "base": plan.base_name,
        **{f"system_packages[{number}]": text for number, text in enumerate(plan.system_packages)},
        **{f"exclude[{number}]": text for number, text in enumerate(plan.exclude)},
        **{f"env.{_escape(name)}": value for name, value in plan.env.items()},
        **{f"labels.{_escape(name)}": value for name, value in plan.labels.items()},
    }
    for where, text in texts.items():
        _check_text(where, text)
    rules = [
        (
            "trainer.source",
            plan.entry.folder,
            _SOURCE,
            "a folder of letters, digits and ._@+- between slashes",
        ),
        *(
            ("trainer.include", path, _SOURCE, "a path of letters, digits and ._@+- between slashes")
            for path in plan.entry.include
        ),
        *(("system_packages", name, _PACKAGE, "a Debian package, such as libgomp1") for name in plan.system_packages),
        *(("env", name, _ENV_NAME, "a variable's name: letters, digits, '_', '.', '-'") for name in plan.env),
        *(("labels", name, _LABEL_NAME, "a label's name: letters, digits and ._/-") for name in plan.labels),
        *(("user", name, _USER, "a user, or USER:GROUP") for name in filter(None, (plan.user,))),
    ]
    for where, text, rule, expected in rules:
        if not re.fullmatch(rule, text):
            raise FieldError(f"{_escape(text)}: expected {expected}", field=where)


def _check_text(where: str, text: str) -> None:
    for character in text:
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in _BIDI:
            name = unicodedata.name(character, "control character")
            raise FieldError(
                f"holds U+{ord(character):04X} ({name.lower()}), which has no place in a Dockerfile",
                field=where,
                hint="write the text on one line",
            )


def _escape(text: str) -> str:
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)[:80]
