"""What `--help` prints: every verb with a whole sentence, every option with a text."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
import typer.main
from typer.testing import CliRunner

from tests.faults.project import IMGTOOL
from training_imgtool.cli import app
from training_imgtool.jobs.model import Format
from training_imgtool.local.replicas import Service
from training_imgtool.model.spec import Role
from training_imgtool.model.targets import Target

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


@pytest.mark.parametrize("verb", app.VERBS)
def test_the_help_fits_on_a_screen_and_the_whole_help_explains_each_option(verb: str) -> None:
    command = typer.main.get_command(app.command_line()).commands[verb]  # type: ignore[attr-defined]
    short, whole = shown(verb, "--help"), shown("help", verb)
    assert len(short.splitlines()) <= 24
    for option in (option for option in command.params if option.param_type_name == "option"):
        name = max(option.opts, key=len)
        assert name in short
        assert re.search(
            rf"^  (-\w, )?{name}\b.*\s{re.escape(option.help.split()[0])}", whole, re.MULTILINE | re.DOTALL
        )


def test_help_version_and_completion_are_verbs() -> None:
    assert shown("help") == shown("--help")
    assert shown("version") == shown("-V") == shown("--version")
    assert "_IMGTOOL_COMPLETE=complete_bash" in shown("completion", "bash")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("imgtool build --engine ", {"auto", "buildx", "direct"}),
        ("imgtool push --progress ", {"auto", "tty", "plain", "json", "quiet"}),
        ("imgtool config --target ", {str(target) for target in Target}),
        ("imgtool config --format ", {str(form) for form in Format}),
        ("imgtool run --as ", {str(service) for service in Service}),
        ("imgtool verify --accept ", {"bytecode", "engine", "gone", "attached", "version"}),
        ("imgtool build --role ", {str(role) for role in Role}),
        ("imgtool help ", set(app.VERBS)),
        ("training-imgtool run --as ", {str(service) for service in Service}),
    ],
)
def test_values_complete(words: str, values: set[str]) -> None:
    program = IMGTOOL.with_name(words.split(maxsplit=1)[0])
    variable = f"_{program.name}_COMPLETE".replace("-", "_").upper()
    script = subprocess.run([program, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    assert f"{variable}=complete_bash" in script
    assert script.rstrip().endswith(f" {program.name}")
    env = {variable: "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
    ended = subprocess.run([program], env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert set(ended.stdout.split()) == values, ended.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_completes_verbs(shell: str) -> None:
    words = "imgtool pu"
    env = {"_IMGTOOL_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": "1"}
    env |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    ended = subprocess.run([IMGTOOL], env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert "push" in ended.stdout, ended.stderr
    assert "pull" not in ended.stdout
