"""The real cosign for tests, and a stand-in that records how it was run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SERVICES = Path(__file__).resolve().parents[1] / ".services"
PASSWORD = "horse"
_STAND_IN = """\
#!{python}
import json, os, sys
calls = {folder!r} + "/calls"
given = "" if sys.stdin.isatty() else sys.stdin.read()
with open(calls, "a") as file:
    names = ("COSIGN_PASSWORD", "SIGSTORE_ID_TOKEN", "DOCKER_CONFIG")
    environ = {{name: os.environ[name] for name in names if name in os.environ}}
    file.write(json.dumps({{"arguments": sys.argv[1:], "given": given, "environ": environ}}) + "\\n")
code, out, err = json.load(open({folder!r} + "/answers")).get(sys.argv[1], [0, "", ""])
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


def find_program(name: str) -> Path:
    """The folder of a real cosign: `cosign2` or `cosign3` of scripts/services, else one on PATH; or skips the test."""
    folder = _SERVICES / name / "root/usr/bin"
    if (folder / "cosign").exists():
        return folder
    found = shutil.which("cosign")
    if found is None:
        pytest.skip(f"no {name} (scripts/services up cosign)")
    return Path(found).parent


def make_keys(folder: Path, program: Path) -> tuple[Path, Path]:
    """A key pair as cosign makes it, locked with PASSWORD."""
    folder.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "COSIGN_PASSWORD": PASSWORD}
    command = [str(program / "cosign"), "generate-key-pair"]
    subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=True)
    return folder / "cosign.key", folder / "cosign.pub"


class Recorder:
    """A program called cosign that notes its arguments and answers as told; by default, that all is well.

    Attributes:
        folder: what PATH must begin with.
    """

    def __init__(self, folder: Path, options: str = "--tlog-upload --use-signing-config") -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        program = folder / "cosign"
        program.write_text(_STAND_IN.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self._answers: dict[str, tuple[int, str, str]] = {}
        self.answer("sign", out=f"Flags:\n {options}\n")

    def answer(self, verb: str, code: int = 0, out: str = "", err: str = "") -> None:
        """How one verb ends from now on."""
        self._answers[verb] = (code, out, err)
        (self.folder / "answers").write_text(json.dumps(self._answers))

    def calls(self, *, of_help: bool = False) -> list[dict[str, Any]]:
        """What was run since the last call of this, without the question for its options."""
        path = self.folder / "calls"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        path.unlink(missing_ok=True)
        return [call for call in calls if of_help or call["arguments"] != ["sign", "--help"]]
