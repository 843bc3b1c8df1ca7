"""Empty values: every option and every gate is red when it is empty or blank, and asks for nothing when left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import training_imgtool
from training_imgtool.base.errors import UsageError
from training_imgtool.base.gates import GATES
from training_imgtool.base.settings import VARIABLES, from_environment
from training_imgtool.cli import app

VERBS = typer.main.get_command(app.command_line()).commands  # type: ignore[attr-defined]
EMPTY = pytest.mark.parametrize("value", ["", " ", "\t\n"], ids=["empty", "blank", "white"])
EVIDENCE = {"--signature", "--issuer", "--key", "--registry", "--engine", "--builder", "--secret", "--tag"}


def _options() -> Iterator[tuple[str, str]]:
    """Each verb with each option that takes a text."""
    for verb, command in VERBS.items():
        for option in command.params:
            if option.param_type_name == "option" and option.type.name == "str":
                yield verb, option.opts[0]


@EMPTY
@pytest.mark.parametrize(("verb", "option"), [*_options()])
def test_an_empty_option_is_refused(tmp_path: Path, verb: str, option: str, value: str) -> None:
    place = [str(tmp_path)] if any(param.param_type_name == "argument" for param in VERBS[verb].params) else []
    for arguments in ([f"{option}={value}"], [option, value]):
        ended = CliRunner().invoke(app.command_line((verb,)), [verb, *arguments, *place], standalone_mode=False)
        assert isinstance(ended.exception, UsageError)
        assert str(ended.exception).startswith(f"{option} is empty")
    assert not [*tmp_path.iterdir()]


def test_the_options_about_evidence_are_among_them() -> None:
    assert {option for _, option in _options()} >= EVIDENCE


@EMPTY
@pytest.mark.parametrize(
    ("function", "argument"),
    [
        *(("push", name) for name in ("registry", "roles", "tags", "engine", "builder", "secrets")),
        *(("verify", name) for name in ("registry", "roles", "accept", "signature", "issuer")),
        *((function, "registry") for function in ("plan", "job", "run")),
    ],
)
def test_an_empty_argument_is_refused(tmp_path: Path, function: str, argument: str, value: str) -> None:
    given = [value] if argument in {"roles", "tags", "secrets", "accept"} else value
    with pytest.raises(UsageError, match=f"^{argument} is empty"):
        getattr(training_imgtool, function)(tmp_path, **{argument: given})


@EMPTY
@pytest.mark.parametrize("variable", GATES)
def test_an_empty_variable_is_refused(variable: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{variable} is empty"):
        from_environment({"HOME": "/nonexistent", variable: value})


def test_what_is_not_set_asks_for_nothing() -> None:
    settings = from_environment({"HOME": "/nonexistent"})
    assert (settings.registry, settings.builder, settings.ca_file, settings.attestations) == (None, None, None, True)
    assert {*GATES} <= {*VARIABLES}
