"""`imgtool lint`: checks a job file against the rules of its service, whoever wrote the file."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.base.errors import InputError
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit_result
from training_imgtool.model.frameworks import FRAMEWORKS

_PATIENCE = 60  # seconds


def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file, YAML or JSON; - reads stdin.")],
    region: Annotated[str | None, typer.Option(metavar="REGION", help="The region in which the job will run.")] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Only warn about names that imgtool's tables lack.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    require_digests: Annotated[
        bool,
        typer.Option("--require-digests", help="Refuse images by tag, and objects that imgtool does not check."),
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Check a job file against the rules of its service.

    An error means that the service refuses the file. A warning means that the service accepts a value that causes
    trouble later, or that imgtool did not check a document. A hint is only information, for example that a value is a
    placeholder. If there is an error, the exit code is 3.
    """
    from training_imgtool.base.yamlfile.reader import read_bytes
    from training_imgtool.jobs.model import Severity
    from training_imgtool.jobs.rules.lint import lint as judge

    data = sys.stdin.buffer.read() if str(file) == "-" else read_bytes(file)
    text, name = data.decode("utf-8", errors="replace"), "<stdin>" if str(file) == "-" else str(file)
    if re.search(rf"(?m)^(?:{'|'.join(FRAMEWORKS)}):\s", text):
        hint = f"imgtool show {name} checks it; imgtool config {name} -o FILE makes its job file"
        raise InputError(f"{name} is a spec, not a job file", hint=hint)
    answer = _ask_slurm(text) if "#SBATCH" in text else _ask_compose(text, file.parent)
    messages = judge(
        text,
        name,
        allow_unknown=allow_unknown,
        region=region,
        strict=strict,
        require_digests=require_digests,
        answer=answer,
    )
    wrong = any(message.severity is Severity.ERROR for message in messages)
    text = "".join(f"{message}\n" + (f"  {message.hint}\n" if message.hint else "") for message in messages)
    emit_result({"ok": not wrong, "findings": [asdict(message) for message in messages]}, text, as_json=as_json)
    if wrong:
        raise typer.Exit(3)


def _ask_slurm(text: str) -> str | None:
    """Returns why Slurm refuses a batch script; empty if Slurm accepts it, None if Slurm does not answer."""
    if not shutil.which("sbatch"):
        return None
    command = ["sbatch", "--test-only"]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return None
    said = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
    if not done.returncode:
        return ""
    is_away = any(words in done.stderr.lower() for words in ("unable to contact", "slurm.conf", "configuration file"))
    return None if is_away or not said else said[0]


def _ask_compose(text: str, folder: Path) -> str | None:
    """Returns why Docker Compose refuses a file; empty if Compose accepts it, None if there is no Compose."""
    programs = (["docker", "compose"], ["docker-compose"]) if re.search(r"(?m)^services:", text) else ()
    for program in (each for each in programs if shutil.which(each[0])):
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run([*program, "version"], capture_output=True, check=True, timeout=_PATIENCE)
            command = [*program, "--project-directory", str(folder), "--file", "-", "config", "--quiet"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=_PATIENCE)
            said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("time=")]
            unset = " (variables of the file are not set here)" if "variable is not set" in done.stderr else ""
            return "" if not done.returncode else (" ".join(said) or f"exit code {done.returncode}") + unset
    return None
