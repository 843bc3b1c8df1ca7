"""The lines of secrets that no log shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from training_imgtool.base.errors import InputError
from training_imgtool.base.settings import SecretSource
from training_imgtool.make.engines.secrets import hidden_values

TEXT = "FROM scratch\nRUN --mount=type=secret,id=token curl https://models.example.com\n"


def hidden(value: str | bytes, text: str = TEXT) -> tuple[str, ...]:
    name = os.fsdecode(value)
    return hidden_values([SecretSource(id="token", env="TOKEN")], {"TOKEN": name}, text)


def test_the_lines_of_a_secret_are_hidden() -> None:
    assert hidden("hunter2") == ("hunter2",)
    assert hidden("  first-line $x \r\n\nsec\"ond'\nab\n") == ("first-line $x", "sec\"ond'")
    assert hidden("correcthorse") == ("correcthorse",)
    assert hidden(b"caf\xc3\xa9-\xff-1") == ("caf\u00e9-\ufffd-1",)


@pytest.mark.parametrize("value", ["", "\n", "abc", "python", "Training", "installed", "https://models.example.com"])
def test_what_would_make_a_log_unreadable_is_shown(value: str) -> None:
    assert hidden(value) == ()


def test_what_is_no_file_is_no_secret(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(bytes(500_001))
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "large", tmp_path / "nothing"):
        with pytest.raises(InputError, match=r"secret token: .* is not there, or is no file, or has more than"):
            hidden_values([SecretSource(id="token", file=place)], {}, TEXT)
