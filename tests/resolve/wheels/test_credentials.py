"""The logins of indexes that the keyring program has."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from training_imgtool.resolve.wheels.index.credentials import find_authorization


@pytest.mark.parametrize(
    ("script", "password"),
    [
        ('[ "$2 $3" = "https://i.example ann" ] && echo pw', "pw"),
        ('[ "$2 $3" = "i.example ann" ] && echo pw', "pw"),
        ("echo locked; exit 1", None),
        ("exit 0", None),
        (None, None),
    ],
)
def test_what_the_keyring_program_answers(tmp_path: Path, script: str | None, password: str | None) -> None:
    if script:
        (tmp_path / "keyring").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "keyring").chmod(0o755)
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "UV_KEYRING_PROVIDER": "subprocess"}
    expected = f"Basic {b64encode(f'ann:{password}'.encode()).decode()}" if password else None
    assert find_authorization("https://ann@i.example/simple", (), environ) == expected
