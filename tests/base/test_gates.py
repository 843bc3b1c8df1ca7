"""The table of gates: every row is red when it is empty or blank, and asks for nothing when it is left out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import training_imgtool
from training_imgtool.base.errors import UsageError
from training_imgtool.base.gates import GATES, Gate
from training_imgtool.base.settings import VARIABLES, from_environment
from training_imgtool.cli import app

VERBS = typer.main.get_command(app.command_line()).commands  # type: ignore[attr-defined]
EMPTY = pytest.mark.parametrize("value", ["", " ", "\t\n"], ids=["empty", "blank", "white"])


def _options() -> Iterator[tuple[str, Gate]]:
    """Each verb with each gate that it has."""
    for verb, command in VERBS.items():
        names = {name for option in command.params for name in option.opts if not getattr(option, "is_flag", False)}
        yield from ((verb, gate) for gate in GATES if gate.option in names)


@EMPTY
@pytest.mark.parametrize(("verb", "gate"), [pytest.param(*row, id=f"{row[0]} {row[1].option}") for row in _options()])
def test_an_empty_option_is_refused(tmp_path: Path, verb: str, gate: Gate, value: str) -> None:
    for arguments in ([f"{gate.option}={value}"], [gate.option, value]):
        ended = CliRunner().invoke(app.command_line((verb,)), [verb, *arguments, str(tmp_path)], standalone_mode=False)
        if gate.option == "--role":  # a choice: the parser refuses it
            assert "is not one of" in str(ended.exception)
        else:
            assert isinstance(ended.exception, UsageError)
            assert str(ended.exception).startswith(f"{gate.option} is empty")
    assert not [*tmp_path.iterdir()]


def _arguments() -> Iterator[tuple[str, str]]:
    """Each function of the Python interface with each of its arguments that is a gate."""
    options = {gate.option[2:].replace("-", "_") for gate in GATES if gate.option}
    for function in training_imgtool.__all__:
        if inspect.isfunction(called := getattr(training_imgtool, function)):
            names = [name for name in inspect.signature(called).parameters if {name, name.removesuffix("s")} & options]
            yield from ((function, name) for name in names)


@EMPTY
@pytest.mark.parametrize(("function", "argument"), [*_arguments()])
def test_an_empty_argument_is_refused(tmp_path: Path, function: str, argument: str, value: str) -> None:
    given = [value] if argument.endswith("s") else value
    with pytest.raises(UsageError, match=f"^{argument} is empty"):
        getattr(training_imgtool, function)(tmp_path, **{argument: given})


def test_the_python_interface_has_gates() -> None:
    assert {("push", "registry"), ("push", "tags"), ("verify", "signature"), ("run", "registry")} <= {*_arguments()}


@EMPTY
@pytest.mark.parametrize("gate", [gate for gate in GATES if gate.variable], ids=lambda gate: gate.variable)
def test_an_empty_variable_is_refused(gate: Gate, value: str) -> None:
    with pytest.raises(UsageError, match=f"{gate.variable} is empty"):
        from_environment({"HOME": "/nonexistent", gate.variable: value})


def test_what_is_not_set_asks_for_nothing() -> None:
    settings = from_environment({"HOME": "/nonexistent"})
    assert (settings.registry, settings.builder, settings.ca_file, settings.attestations) == (None, None, None, True)
    for verb, command in VERBS.items():
        found = command.make_context(verb, [], resilient_parsing=True)
        assert not [gate for name, gate in _options() if name == verb and found.params.get(gate.option[2:]) == ""]


def test_the_table_has_every_option_and_variable_once_and_no_other() -> None:
    has = {gate.option for _, gate in _options()}
    assert has == {gate.option for gate in GATES if gate.option}
    names = [name for gate in GATES for name in (gate.option, gate.variable) if name]
    assert len(names) == len(set(names))
    assert {gate.variable for gate in GATES if gate.variable} <= {*VARIABLES}
