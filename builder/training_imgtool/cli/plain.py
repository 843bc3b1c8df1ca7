"""Reads plain arguments of the everyday verbs, as the command-line library would, without loading it.

Whatever is not plainly right is left to the library, which knows what to say: help, unknown and shortened options,
values that are missing, empty, begin with a dash or are not among those allowed, an option given twice. The tables
repeat what `cli.push` and `cli.build` declare; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from training_imgtool.cli import making

FLAG, TEXT, TEXTS, ROLES = "flag", "text", "texts", "roles"  # what an option takes; the last two may be given again
SPEC = "spec"  # the one argument that is no option

Options = dict[str, tuple[str, str, Any]]  # by the option's spelling: the parameter, what it takes, its default

_SHARED: Options = {
    "--role": ("roles", ROLES, None),
    "--registry": ("registry", TEXT, None),
    "--tag": ("tag", TEXTS, None),
    "-t": ("tag", TEXTS, None),
    "--engine": ("engine", TEXT, "auto"),
    "--locked": ("locked", FLAG, False),
    "--progress": ("progress", TEXT, "auto"),
    "--json": ("as_json", FLAG, False),
}
VERBS: dict[str, tuple[Callable[..., object], Options]] = {
    "push": (making.push, {**_SHARED, "--create-repository": ("create_repository", FLAG, False)}),
    "build": (
        making.build,
        {
            **_SHARED,
            "--push": ("push", FLAG, False),
            "--load": ("load", FLAG, False),
            "--output": ("output", TEXT, None),
            "--no-cache": ("no_cache", FLAG, False),
            "--dry-run": ("dry_run", FLAG, False),
        },
    ),
}


def read(arguments: list[str]) -> Callable[[], object] | None:
    """What a command line without the command's name asks for, ready to be called; None when the library must read it.

    Nothing is checked that a verb checks itself.
    """
    if not arguments or arguments[0] not in VERBS:
        return None
    function, options = VERBS[arguments[0]]
    given = _given(arguments[1:], options)
    if given is None:
        return None
    defaults = {name: default for name, _, default in options.values()}
    return partial(function, **{SPEC: None, **defaults, **given})


def _given(words: Iterable[str], options: Options) -> dict[str, Any] | None:
    """The parameters that `words` give; None when they are not plain."""
    given: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        if word[:1] != "-":
            if not word or SPEC in given:
                return None
            given[SPEC] = Path(word)
            continue
        option, equals, value = _split(word)
        if option not in options:
            return None
        name, takes, _ = options[option]
        if takes is FLAG:
            if equals:
                return None
            value = True
        else:
            value = _value(value if equals else next(left, ""), takes)
        if value is None or (name in given and takes not in {TEXTS, ROLES}):
            return None
        given[name] = [*given.get(name, ()), value] if takes in {TEXTS, ROLES} else value
    return given


def _split(word: str) -> tuple[str, bool, Any]:
    """An option, whether its value is in the same word, and that value: `--tag=X`, `-tX`, or nothing but an option."""
    if word[:2] == "--":
        option, equals, value = word.partition("=")
        return option, bool(equals), value
    return word[:2], len(word) > 2, word[2:]


def _value(text: str, takes: str) -> Any:
    """The value of an option; None when it is not plain."""
    if not text or text[0] in "-=":
        return None
    if takes is not ROLES:
        return text
    from training_imgtool.spec.model import Role

    return next((role for role in Role if role == text), None)
