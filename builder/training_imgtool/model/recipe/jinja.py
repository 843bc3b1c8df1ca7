"""Renders templates. Only this module imports Jinja. The file is also a program, which renders users' templates.

The program reads a request as JSON from stdin, limits its memory and CPU time, forbids itself network access, writing
and child processes, and answers with JSON. The file imports nothing from this package, so Python can run it alone.

A request is `{"builtin": FOLDER, "builtin_names": […], "user": FOLDER | null, "template": NAME, "values": {…},
"limit": CHARACTERS}`. The answer is `{"text": …}`, or `{"error": {"kind", "message", "where"}}`.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import shlex
import stat
import sys
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

MEMORY = 512 << 20  # bytes of address space
SECONDS = 5  # limit of CPU time
_FORBIDDEN = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "ctypes.", "pty.")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class RefusedError(Exception):
    """A template did something that is not allowed. The message describes this to the template's author."""


def quote(value: object) -> str:
    """Puts a value of ENV or LABEL in double quotes and escapes it, so that the image gets it unchanged."""
    text = _plain(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"'


def shell(value: object) -> str:
    """Returns a value as one word of a shell command."""
    return shlex.quote(_plain(value))


def exec_json(value: object) -> str:
    """Formats a list of words as JSON, for RUN, CMD or ENTRYPOINT."""
    if not isinstance(value, list | tuple):
        raise RefusedError(f"exec_json expects a list of texts, found {_kind(value)}")
    return json.dumps([_plain(word) for word in value], ensure_ascii=False)


def _plain(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RefusedError(f"expected text, found {_kind(value)}")
    text = str(value)
    for character in text:
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}:
            raise RefusedError(f"a value contains the control character U+{ord(character):04X}")
    return text


def _kind(value: object) -> str:
    return "nothing (null)" if value is None else f"a {type(value).__name__}"


def render(request: Mapping[str, Any]) -> dict[str, Any]:
    """Renders a template. Returns any fault of the template as an error, and never raises one."""
    from jinja2.exceptions import TemplateSyntaxError

    environment = _environment(request["builtin"], tuple(request["builtin_names"]), request["user"], request["limit"])
    try:
        template = environment.get_template(request["template"])
        if request["user"] is not None and (lost := _find_lost(environment, request["template"])):
            return {"error": {"kind": "refused", "message": lost[1], "where": f"{request['template']}:{lost[0]}"}}
        return {"text": _text(template, request["values"], request["limit"])}
    except TemplateSyntaxError as error:
        where = f"{error.filename or error.name}:{error.lineno}"
        return {"error": {"kind": "refused", "message": error.message or "", "where": where}}
    except Exception as error:  # noqa: BLE001 - a template can cause any exception
        where = _find_place(error.__traceback__)
        return {"error": {"kind": _classify(error), "message": _message(error), "where": where}}


def _find_lost(environment: Any, name: str) -> tuple[int, str] | None:
    """Returns the line of what Jinja drops in a template that extends another, and a message; None for nothing.

    Jinja prints nothing for a block that the other template does not have, and for text outside of all blocks.
    """
    from jinja2 import nodes

    def read(template: str) -> tuple[list[Any], str | None]:
        body = environment.parse(environment.loader.get_source(environment, template)[0]).body
        parent = next((node.template for node in body if isinstance(node, nodes.Extends)), None)
        return body, parent.value if isinstance(parent, nodes.Const) else None

    own, parent = read(name)
    blocks, seen = set[str](), {name}
    above = parent
    while above is not None and above not in seen:
        seen.add(above)
        blocks |= {*environment.get_template(above).blocks}
        above = read(above)[1]
    for node in own if blocks else ():
        if isinstance(node, nodes.Block) and node.name not in blocks:
            close = difflib.get_close_matches(node.name, sorted(blocks), n=1, cutoff=0)
            return node.lineno, f"{parent} has no block {node.name}; did you mean {close[0]}?"
        for part in node.nodes if isinstance(node, nodes.Output) else ():
            text = part.data if isinstance(part, nodes.TemplateData) else "{{"
            if text.strip():
                line = part.lineno + len(text) - len(text.lstrip("\n"))
                return line, "text outside of a block is not printed: write it into a block, such as after_code"
    return None


def _classify(error: Exception) -> str:
    from jinja2.exceptions import SecurityError, TemplateNotFound, UndefinedError

    kinds: list[tuple[type[Exception], str]] = [
        (TemplateNotFound, "missing"),
        (SecurityError, "security"),
        (UndefinedError, "undefined"),
        (MemoryError, "memory"),
        (RecursionError, "recursion"),
    ]
    return next((kind for of, kind in kinds if isinstance(error, of)), "refused")


def _message(error: Exception) -> str:
    from jinja2.exceptions import TemplateError, TemplateNotFound

    if isinstance(error, TemplateNotFound):
        return str(error.name)
    if isinstance(error, RefusedError | TemplateError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _text(template: Any, values: Mapping[str, Any], limit: int) -> str:
    parts = []
    length = 0
    for part in template.generate(values):
        length += len(part)
        if length > limit:
            raise RefusedError(f"the rendered Dockerfile is longer than {limit} characters")
        parts.append(part)
    return "".join(parts)


@functools.lru_cache(maxsize=4)
def _environment(builtin: str, builtin_names: tuple[str, ...], user: str | None, limit: int) -> Any:
    """Makes a Jinja environment with imgtool's rules; caches it, so that a spec's roles share compiled templates."""
    from jinja2 import StrictUndefined, Undefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def finalize(value: object) -> object:
        if isinstance(value, Undefined) or (isinstance(value, str | int) and not isinstance(value, bool)):
            return value
        raise RefusedError(f"expected text, found {_kind(value)}; use a filter such as join, exec_json or string")

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        finalize=finalize,
        loader=_loader(builtin, builtin_names, user, limit),
        autoescape=False,  # Dockerfiles are not HTML; the filters below quote
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for name in ("lipsum", "cycler"):
        environment.globals.pop(name)
    environment.filters.pop("random")
    environment.filters |= {"env_value": quote, "label": quote, "shell": shell, "exec_json": exec_json}
    return environment


def _loader(builtin: str, builtin_names: tuple[str, ...], user: str | None, limit: int) -> Any:
    from jinja2 import FunctionLoader, TemplateNotFound

    def load(name: str) -> tuple[str, str, Callable[[], bool]]:
        root = builtin if name in builtin_names else user
        if root is None:
            raise TemplateNotFound(name)
        source = _source(root, name, limit)
        if source is None:
            raise TemplateNotFound(name)
        return source, name, lambda: name in builtin_names or _source(root, name, limit) == source

    return FunctionLoader(load)


def _source(root: str, name: str, limit: int) -> str | None:
    """Returns the text of the template `name`; None if there is none. Raises RefusedError for a path outside `root`."""
    top = Path(root).resolve()
    path = (top / name).resolve()
    if not path.is_relative_to(top):
        raise RefusedError(f"the template {name!r} is outside the spec's folder")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise RefusedError(f"the template {name!r} is not a file, or is longer than {limit} bytes")
        data = file.read(limit)
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise RefusedError(f"the template {name!r} is not UTF-8 at byte {error.start}") from error


def _find_place(traceback: TracebackType | None) -> str:
    """Returns the `TEMPLATE:LINE` at which the innermost template failed, from a traceback that Jinja rewrote."""
    where = ""
    while traceback is not None:
        if "__jinja_exception__" in traceback.tb_frame.f_globals:
            where = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuses network access, child processes and writing to files. Python calls this function as an audit hook."""
    if event.startswith(_FORBIDDEN) or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES):
        raise RefusedError(f"a template may not do this: {event}")


def main() -> None:
    """Reads one request from stdin, and prints the answer."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    import jinja2.debug
    import jinja2.sandbox  # noqa: F401 - loaded before the limit on memory

    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (OSError, ValueError):
        if sys.platform == "linux":  # macOS refuses limits of the address space
            raise
    with os.fdopen(1, "w", encoding="utf-8") as answer:
        sys.addaudithook(_refuse)
        json.dump(render(request), answer)


if __name__ == "__main__":
    main()
