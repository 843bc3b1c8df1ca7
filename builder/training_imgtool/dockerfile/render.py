"""Renders a role's Dockerfile: plain values in, checked text out, the same bytes anywhere.

Templates of ours render in this process. A user's template is data from a pull request: it renders in a child
with limits (`dockerfile.jinja`). Either way values are checked before, and the text is parsed after: with
harmless values in their place, the template must give the same instructions, so no value can add one.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from training_imgtool.core import resources
from training_imgtool.core.errors import FieldError, ImgtoolError, InputError
from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.secret_text import detect_named_secret
from training_imgtool.dockerfile import apt_step, install_step
from training_imgtool.dockerfile.parse import Dockerfile, parse
from training_imgtool.dockerfile.rules import check_directives, check_rules
from training_imgtool.plan import BASE_TEMPLATE, KEY_LABEL, REVISION, RolePlan
from training_imgtool.spec.entry_point import EntryPoint
from training_imgtool.spec.model import APP

BUILTIN = frozenset({BASE_TEMPLATE})
LAST_STAGE = "image"
LONGEST = 1 << 20  # characters of a rendered Dockerfile, bytes of a template
_PATIENCE = 60  # seconds of wall time for a child that may use 5 of CPU
BASE_NAME = "org.opencontainers.image.base.name"
BASE_DIGEST = "org.opencontainers.image.base.digest"
_PACKAGE = r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9-]+)?(?:=[A-Za-z0-9.+~:-]+)?"
_SOURCE = r"(?:\.|(?!\.{1,2}(?:/|\Z))[\w.@+-]+(?:/(?!\.{1,2}(?:/|\Z))[\w.@+-]+)*)"
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
_LABEL_NAME = r"[A-Za-z0-9][A-Za-z0-9_./-]*"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?::[A-Za-z0-9_][A-Za-z0-9_.-]*)?"
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_FORM = b"normalised texts\n"
_MARK = "imgtool-revision-goes-here"

Answer = dict[str, Any]


class TemplateError(InputError):
    """A template that cannot be rendered, or gives something else than a Dockerfile."""


@dataclass(frozen=True, slots=True)
class TemplateRoots:
    """Where templates lie: the spec's folder for the user's, and our own."""

    user: Path | None = None
    builtin: Path = field(default_factory=lambda: resources.directory("templates"))


def render(
    plan: RolePlan,
    *,
    roots: TemplateRoots,
    key: str | None,
    cache: RenderCache | None = None,
    allow_secrets: Collection[str] = (),
) -> str:
    """Renders the Dockerfile of one role; ends in one newline.

    Args:
        plan: every choice made.
        roots: where templates are looked for.
        key: the content key for the last label; None leaves the label out, which changes no key.
        cache: remembers what our own templates gave; None asks them each time.
        allow_secrets: settings such as `env.NAME` that look like secrets and are none.

    Raises:
        FieldError: a value that has no place in a Dockerfile, by its field.
        TemplateError: a template that is wrong, with `TEMPLATE:LINE`; or a value that changed the instructions.
        DockerfileError: a rendered line that is refused.
    """
    values = template_values(plan)
    check_values(plan)
    text, harmless = _render_texts(plan.template, [values, _harmless_values(values)], roots, cache)
    file = f"{plan.role}.Dockerfile"
    check_directives(text, file)
    dockerfile = parse(text, file=file)
    of_template = parse(harmless, file=file)
    _compare(dockerfile, of_template, plan.template)
    _check_secrets(of_template, plan.template, roots, allow_secrets)
    check_rules(dockerfile)
    _check_end(dockerfile, plan)
    return text if key is None else with_key(text, key)


def with_key(text: str, key: str) -> str:
    """Returns a rendered Dockerfile with its content key as the last label, which the key itself does not cover."""
    return f'{text}LABEL {KEY_LABEL}="{key}"\n'


def _harmless_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the same values with a plain letter for all free text."""
    free = {"env": values["env"], "labels": values["labels"]}
    return {
        **values,
        **{name: {key: "x" if value else "" for key, value in pairs.items()} for name, pairs in free.items()},
        "user": "x" if values["user"] else "",
        "source": "x",
        "code": [{"source": "x", "target": "/x"} for _ in values["code"]],
        "module": "x",
        "entrypoint": ["x"] * len(values["entrypoint"]),
    }


def _render_texts(
    template: str, values: list[dict[str, Any]], roots: TemplateRoots, cache: RenderCache | None
) -> tuple[str, ...]:
    request = {
        "builtin": str(roots.builtin),
        "builtin_names": sorted(BUILTIN),
        "user": str(roots.user) if roots.user is not None else None,
        "template": template,
        "values": values,
        "limit": LONGEST,
    }
    if template in BUILTIN:
        revision = values[0]["labels"].get(REVISION, "")
        make = partial(_with_normal_texts, _render_here, request)
        answer = cache.answer(request, revision, make) if cache else make()
    else:
        answer = _with_normal_texts(_render_in_child, request)
    if "error" in answer:
        raise _template_error(template, answer["error"], values[0])
    return tuple(answer["texts"])


def _with_normal_texts(ask: Callable[[dict[str, Any]], dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    answer = ask(request)
    return {"texts": [_normalise(text) for text in answer["texts"]]} if "texts" in answer else answer


def _render_here(request: dict[str, Any]) -> dict[str, Any]:
    from training_imgtool.dockerfile.jinja import render as render_here

    return render_here(request)


def list_sources(roots: TemplateRoots) -> list[Path]:
    """Lists what a text of our own templates depends on beside the values; Jinja by the file that names its version."""
    jinja = find_spec("jinja2")
    ours = [*(roots.builtin / name for name in sorted(BUILTIN)), Path(__file__).with_name("jinja.py")]
    return [*ours, Path(jinja.origin)] if jinja and jinja.origin else ours


def _render_in_child(request: dict[str, Any]) -> dict[str, Any]:
    """Runs the program `jinja.py` with limits; whatever happens to it comes back as an answer."""
    import subprocess

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


def _template_error(template: str, error: Mapping[str, str], values: Mapping[str, Any]) -> TemplateError:
    where = error["where"] or template
    message = error["message"]
    match error["kind"]:
        case "undefined":
            return TemplateError(f"{where}: {message}", hint=f"defined: {', '.join(sorted(values))}")
        case "missing":
            return TemplateError(
                f"{where}: no template {message!r}",
                hint=f"a path relative to the spec, or one of {', '.join(sorted(BUILTIN))}",
            )
        case "security":
            return TemplateError(f"{where}: not allowed in a template: {message}")
        case "limits" | "memory":
            return TemplateError(f"{where}: the template exceeded 5 s or 512 MiB")
        case "recursion":
            return TemplateError(
                f"{where}: the template includes or extends itself, or more than about 100 others deep"
            )
    return TemplateError(f"{where}: {message}")


def _normalise(text: str) -> str:
    """Writes Unix lines, no blank lines at the ends, one between instructions, none inside one."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n") + "\n"
    blank = {
        number
        for instruction in _continued_instructions(text)
        for number, line in enumerate(instruction.raw.splitlines(), instruction.line)
        if not line.strip()
    }
    lines = [line for number, line in enumerate(text.split("\n"), 1) if number not in blank]
    return "\n".join(lines)


def _continued_instructions(text: str) -> list[Any]:
    """Returns the instructions over several lines whose blank lines mean nothing."""
    try:
        dockerfile = parse(text)
    except InputError:
        return []  # parsed again, with the file's name, by the caller
    every = [*dockerfile.args, *(instruction for stage in dockerfile.stages for instruction in stage.instructions)]
    return [instruction for instruction in every if not instruction.heredocs and "\n" in instruction.raw.rstrip("\n")]


def _shape(dockerfile: Dockerfile) -> list[str]:
    names = [instruction.name for instruction in dockerfile.args]
    for stage in dockerfile.stages:
        names += ["FROM", *(instruction.name for instruction in stage.instructions)]
    return names


def _compare(dockerfile: Dockerfile, harmless: Dockerfile, template: str) -> None:
    """Refuses a text whose instructions depend on the values in it."""
    shape, expected = _shape(dockerfile), _shape(harmless)
    if shape != expected or dockerfile.directives != harmless.directives:
        same = next((n for n, (a, b) in enumerate(zip(shape, expected, strict=False)) if a != b), len(expected))
        raise TemplateError(
            f"{template}: a value changes the instructions: {' '.join(shape[same : same + 3]) or 'fewer of them'} "
            f"where other values give {' '.join(expected[same : same + 3]) or 'none'}",
            hint="put values in with the filters env_value, label, shell or exec_json, and do not branch on free text",
        )


def _check_secrets(dockerfile: Dockerfile, template: str, roots: TemplateRoots, allow_secrets: Collection[str]) -> None:
    """Refuses a credential that a template itself writes into an image's settings or history; it is never shown."""
    every = (*dockerfile.args, *(instruction for stage in dockerfile.stages for instruction in stage.instructions))
    for instruction in (each.inner if each.name == "ONBUILD" else each for each in every):
        for name, value in instruction.pairs if instruction.name in {"ENV", "ARG", "LABEL"} else ():
            kind = detect_named_secret(name.strip("'\""), (value or "").strip("'\""))
            if kind and f"env.{name}" not in allow_secrets:
                raise TemplateError(
                    f"{_find_line(template, name, roots)}: {instruction.name} {name} looks like {kind}",
                    hint="whoever pulls the image can read it: give it as `secrets:` to a RUN that mounts it, or list "
                    f"env.{name} in allow_secrets if it is no secret",
                )


def _find_line(template: str, word: str, roots: TemplateRoots) -> str:
    """Returns `TEMPLATE:LINE` of the first line with a word; without LINE if an included file has it."""
    text = (roots.user / template).read_text(errors="replace") if roots.user and template not in BUILTIN else ""
    pattern = rf"(?<![\w.]){re.escape(word)}[=\s\"']"
    numbers = [number for number, line in enumerate(text.split("\n"), 1) if re.search(pattern, line)]
    return f"{template}:{numbers[0]}" if numbers else template


def _check_end(dockerfile: Dockerfile, plan: RolePlan) -> None:
    last = dockerfile.stages[-1]
    if last.name != LAST_STAGE:
        raise TemplateError(
            f"{plan.template}: the last stage is {last.label!r}, expected {LAST_STAGE!r}",
            hint=f'let the template begin with {{% extends "{BASE_TEMPLATE}" %}}',
        )


def template_values(plan: RolePlan) -> dict[str, Any]:
    """Returns what a template can use: text, lists and dictionaries of text, nothing else."""
    variant = plan.locked.variant
    packages = apt_step.apt_packages(variant, plan.system_packages)
    labels = {**plan.labels, BASE_NAME: plan.base_name, BASE_DIGEST: plan.base.digest}
    return {
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
        "library_path": install_step.library_path(plan.locked, cuda_base=plan.cuda_base),
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


class RenderCache:
    """Texts of templates as `dockerfile.render` wants them, in the cache. Losing them costs time, nothing else.

    Args:
        cache: the machine's cache.
        sources: the files that every answer depends on; read once.
    """

    def __init__(self, cache: Path, sources: Iterable[Path]) -> None:
        self._folder = cache / "rendered"
        self._sources = b"".join(hashlib.sha256(source.read_bytes()).digest() for source in sources)

    def answer(self, request: Mapping[str, Any], revision: str, make: Callable[[], Answer]) -> Answer:
        """Returns the answer to `request`: kept, else made and, when it holds texts, kept.

        Args:
            request: the request, in plain values.
            revision: a text in the values that templates copy and never look at; may be empty.
            make: asks.
        """
        text = json.dumps(request, sort_keys=True)
        if not revision or _MARK in text:
            return make()
        digest = hashlib.sha256(_FORM + text.replace(revision, _MARK).encode() + self._sources)
        path = self._folder / f"{digest.hexdigest()}.json"
        texts = read_cached(path)
        if texts is not None:
            return {"texts": [text.replace(_MARK, revision) for text in texts]}
        answer = make()
        if "texts" in answer:
            write_cached(path, [text.replace(revision, _MARK) for text in answer["texts"]])
        return answer
