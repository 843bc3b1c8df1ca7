"""What `--help` prints: every verb with a whole sentence, every option with a text."""

from __future__ import annotations

import re

import pytest
import typer.main
from typer.testing import CliRunner

from training_imgtool.cli import app

RUN = CliRunner()


def shown(*arguments: str) -> str:
    ended = RUN.invoke(app.command_line(), arguments, env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_the_list_of_verbs_is_whole_at_80_columns() -> None:
    lines = shown("--help").partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in lines if re.match(r"  \w", line)][: len(app.VERBS)] == list(app.VERBS)
    assert not [line for line in lines if line.endswith("...")]


@pytest.mark.parametrize("verb", app.VERBS)
def test_every_option_has_a_text(verb: str) -> None:
    command = typer.main.get_command(app.command_line()).commands[verb]  # type: ignore[attr-defined]
    bare = [option.name for option in command.params if not getattr(option, "help", None)]
    assert not bare
    assert command.help
    assert command.help.split()[0] in shown(verb, "--help")
