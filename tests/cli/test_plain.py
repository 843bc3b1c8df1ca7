"""Plain arguments mean what the command-line library makes of them; all others are left to it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer.main

from training_imgtool.cli import app, main, making, plain
from training_imgtool.spec.model import Role

KINDS = {  # what an option takes: the library's name of the type, whether it is a flag, whether it may be repeated
    plain.FLAG: ("boolean", True, False),
    plain.TEXT: ("str", False, False),
    plain.TEXTS: ("str", False, True),
    plain.ROLES: ("choice", False, True),
}
OPTIONS = {
    verb: sorted({*options, *others})
    for (verb, (_, options)), others in zip(plain.VERBS.items(), (("--push", "--output"), ("-x",)), strict=True)
}
SOME_VALUES = ["x", "worker", "ps", "Master", "oci:out", "plain", "1.0", "a=b", "=", "", "-", "--", "-t", "--json"]
OTHERS = ["images/mnist", ".", "", "-", "--", "-h", "--help", "--vers", "--reg", "--no-json", "-tX", "-t=X", "-ta=b"]
OTHERS += [
    "ä b",
    "-tt",
    "--tag=",
    "--tag=-x",
    "--json=1",
    "--role=ps",
    "--role=chief",
    "--registry=h/p=q",
    "-j",
    "\udcff",
]


def parameters(verb: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app.command_line((verb,)))
    return {parameter.name: parameter for parameter in group.commands[verb].params}


def keywords_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]] | None:
    """The verb that the library calls and what with; None when it calls none."""
    called: list[tuple[str, dict[str, Any]]] = []

    def note(verb: str, **keywords: Any) -> None:
        called.append((verb, keywords))

    with monkeypatch.context() as patch:
        for verb in plain.VERBS:
            patch.setattr(making, verb, partial(note, verb))
        try:
            app.run(arguments)
        except Exception:  # noqa: BLE001 - the library's errors have no name of their own
            return None
    return called[0] if called else None


def read(arguments: list[str]) -> tuple[str, dict[str, Any]] | None:
    call = plain.read(arguments)
    if call is None:
        return None
    assert isinstance(call, partial)
    assert not call.args
    return call.func.__name__, call.keywords


@pytest.mark.parametrize("verb", plain.VERBS)
def test_the_tables_are_what_the_verbs_declare(verb: str) -> None:
    declared = parameters(verb)
    function, options = plain.VERBS[verb]
    assert function is getattr(making, verb)
    assert {name for name, _, _ in options.values()} | {plain.SPEC} == declared.keys()
    spec = declared[plain.SPEC]
    assert (spec.param_type_name, spec.nargs, spec.default, spec.required) == ("argument", 1, None, False)
    spellings = {one: parameter.name for parameter in declared.values() for one in parameter.opts if one[0] == "-"}
    assert {one: name for one, (name, _, _) in options.items()} == spellings
    for name, takes, default in options.values():
        option = declared[name]
        assert (option.type.name, option.is_flag, option.multiple) == KINDS[takes], name
        assert (option.default or None) == (default or None), name
        assert not option.secondary_opts, name
        assert option.nargs == 1, name
        assert (option.required, option.callback, option.envvar) == (False, None, None), name
        if takes is plain.ROLES:
            assert tuple(option.type.choices) == tuple(Role)


@pytest.mark.parametrize("verb", plain.VERBS)
def test_nothing_is_read_otherwise_than_the_library_reads_it(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plainly = 0
    for words in (*_pairs(verb), *_random(verb)):
        arguments = [verb, *words]
        found = read(arguments)
        if found is not None:
            plainly += 1
            expected = keywords_of(arguments, monkeypatch)
            assert found == expected, arguments
            assert expected is not None
            assert {name: type(value) for name, value in found[1].items()} == {
                name: type(value) for name, value in expected[1].items()
            }, arguments
            assert list(map(type, found[1]["roles"] or ())) == list(map(type, expected[1]["roles"] or ()))
    assert plainly > 300


def _pairs(verb: str) -> Iterator[list[str]]:
    yield []
    words = (*OPTIONS[verb], *OTHERS)
    yield from ([word] for word in words)
    yield from ([one, two] for one, two in itertools.product(words, (*words, *SOME_VALUES)))
    yield from ([f"{option}={value}"] for option, value in itertools.product(OPTIONS[verb], SOME_VALUES))
    yield from (["spec", f"{option}{value}"] for option, value in itertools.product(OPTIONS[verb], SOME_VALUES))


def _random(verb: str) -> Iterator[list[str]]:
    source = random.Random(20)
    for _ in range(2500):
        words: list[str] = []
        for option in source.sample(OPTIONS[verb], source.randint(0, 4)):
            flag = plain.VERBS[verb][1].get(option, ("", "", None))[1] == plain.FLAG
            value = source.choice(["worker", "ps", "v1", "h/p", *SOME_VALUES])
            joined = [f"{option}={value}"] if option.startswith("--") else [option + value]
            words += [option] if flag else source.choice([[option, value], joined])
        if source.random() < 0.5:
            words.insert(source.randint(0, len(words)), source.choice(["images/mnist", *OTHERS]))
        yield words


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["show"],
        ["pus"],
        ["push", "--help"],
        ["push", "-h"],
        ["push", "--"],
        ["push", "--registr", "h/p"],
        ["push", "--registry"],
        ["push", "--role", "chief"],
        ["push", "--json", "--json"],
        ["push", "--json=yes"],
        ["push", "--dry-run"],
        ["push", "a", "b"],
        ["push", ""],
        ["push", "--tag", "-x"],
    ],
)
def test_what_is_not_plain_is_left_to_the_library(arguments: list[str]) -> None:
    assert plain.read(arguments) is None


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["push"], {}),
        (["push", "images/mnist", "--registry", "h/p"], {"spec": Path("images/mnist"), "registry": "h/p"}),
        (["push", "--registry=h/p", "."], {"spec": Path(), "registry": "h/p"}),
        (["push", "-t", "a", "--tag=b", "-tc"], {"tag": ["a", "b", "c"]}),
        (["push", "--role=ps", "--role", "worker"], {"roles": [Role.PS, Role.WORKER]}),
        (["push", "--locked", "--json", "--progress", "json"], {"locked": True, "as_json": True, "progress": "json"}),
        (["build", "--push", "--no-cache", "--engine=direct"], {"push": True, "no_cache": True, "engine": "direct"}),
        (["build", "--output", "oci:out", "--dry-run"], {"output": "oci:out", "dry_run": True}),
    ],
)
def test_the_everyday_ones_are_plain(arguments: list[str], given: dict[str, Any]) -> None:
    call = read(arguments)
    assert call is not None
    verb, keywords = call
    assert verb == arguments[0]
    changed = {name: value for name, value in keywords.items() if value not in (None, False, "auto")}
    assert changed == given


def test_a_shell_that_completes_is_answered_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(app, "run", asked.append)
    monkeypatch.setattr(plain, "read", _refuse)
    monkeypatch.setenv("_IMGTOOL_COMPLETE", "complete_bash")
    assert main._done(["push"]) == 0
    assert asked == [["push"]]


def _refuse(arguments: list[str]) -> Callable[[], object] | None:
    raise AssertionError(arguments)
