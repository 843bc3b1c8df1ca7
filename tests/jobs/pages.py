"""The pages of docs/jobs: what their commands print. `python -m tests.jobs.pages` writes it into them anew.

On a page a ```yaml block that begins with `# image.yaml` is the spec of the commands below it; a ```console
block holds one `$ imgtool config …` and what it prints; what goes to standard error follows under "On standard error:",
the notes of the version matrix first. The images' digests are made up, everything else is what the code prints.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path

from training_imgtool.cli.output import emit_note
from training_imgtool.core.reference import Digest, parse_repository
from training_imgtool.jobs import Format, JobFile, JobOptions, job_data
from training_imgtool.jobs.conversion.job import read_job
from training_imgtool.jobs.conversion.vertex import convert
from training_imgtool.jobs.google.package import staged_uri, trainer_package
from training_imgtool.jobs.lint import lint
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.jobs.tf_config import parse_hosts
from training_imgtool.spec.load import load
from training_imgtool.spec.model import ImageSpec, Role, Target
from training_imgtool.versions.matrix import load_matrix
from training_imgtool.versions.resolve import resolve

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "jobs"
PAGES = sorted(FOLDER.glob("*.md"))
VERSION = "0.1.0"
TRAINER = {"trainer/task.py": b'print("training")\n'}
_BLOCK = re.compile(
    r"```(?P<kind>yaml|console)\n(?P<body>.*?)```\n(?P<errors>\nOn standard error:\n\n```text\n.*?```\n)?", re.DOTALL
)


def current(text: str) -> str:
    """The page with every output as the code prints it now."""
    spec: ImageSpec | None = None
    files: dict[str, str] = {}

    def block(found: re.Match[str]) -> str:
        nonlocal spec
        body = found["body"]
        named = re.match(r"# (\S+\.yaml)\n", body)
        if found["kind"] == "yaml":
            if named and named[1] == "image.yaml":
                spec = _load(body)
            elif named:
                files[named[1]] = body
            return found[0]
        command = re.match(r"\$ imgtool (.*?[^\\])\n", body, re.DOTALL)
        if command is None:
            return found[0]
        words = shlex.split(command[1].replace("\\\n", " "))
        output, notes = _lint(words, files) if words[0] == "lint" else _config(words, spec, files)
        printed = _on_stderr(notes)
        errors = f"\nOn standard error:\n\n```text\n{printed}```\n" if printed else ""
        return f"```console\n{command[0]}{output}```\n{errors}"

    return _BLOCK.sub(block, text)


def _on_stderr(notes: tuple[str, ...]) -> str:
    """The notes as the command line prints them."""
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        for note in notes:
            emit_note(note)
    return printed.getvalue()


def _plan_notes(spec: ImageSpec) -> tuple[str, ...]:
    """What the version matrix says about the spec's images."""
    if spec.job.runtime_version:
        return ()
    resolution = resolve(spec, load_matrix())
    notes = (note for variant in resolution.variants for note in variant.notes)
    return tuple(dict.fromkeys((*resolution.warnings, *notes)))


def _load(body: str) -> ImageSpec:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image.yaml"
        path.write_text(body)
        (path.parent / "trainer").mkdir()
        (path.parent / "trainer" / "task.py").touch()
        return load(path).spec


def images(spec: ImageSpec) -> dict[Role, Digest]:
    """Made-up digests, one per role, in the spec's own repository."""
    repository = parse_repository(f"{spec.registry}/{spec.name}")
    return {role: repository.digest("sha256:" + hashlib.sha256(role.encode()).hexdigest()) for role in spec.roles}


def _config(words: list[str], spec: ImageSpec | None, files: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    options = _options(words)
    target = Target(options["--target"]) if "--target" in options else None
    job: JobFile
    if "--from" in options:
        name = options["--from"]
        old = read_job(files[name], name, region=options.get("--region"), flags=options.get("--flags", ""))
        job = convert(old, JobOptions(version=VERSION))
    else:
        assert spec is not None, "a page's spec comes before its commands"
        given = JobOptions(version=VERSION, hosts=parse_hosts(options.get("--hosts", "")))
        if spec.job.runtime_version and spec.job.staging:
            given = replace(given, package_uri=staged_uri(spec, trainer_package(spec, TRAINER)))
        job = job_data(spec, {} if spec.job.runtime_version else images(spec), target or spec.job.target, given)
        job = replace(job, notes=(*_plan_notes(spec), *job.notes))
    if "--command" in words:
        return command_line(job.command) + "\n", job.notes
    return dump(job, Format(options.get("--format", "yaml"))), job.notes


def _lint(words: list[str], files: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    name = words[1]
    lines = [
        line
        for message in lint(files[name], name)
        for line in (str(message), *([f"  {message.hint}"] if message.hint else []))
    ]
    return "".join(f"{line}\n" for line in lines), ()


def _options(words: list[str]) -> dict[str, str]:
    assert words[0] == "config", words
    return {word: words[index + 1] for index, word in enumerate(words[:-1]) if word.startswith("--")}


def main() -> None:
    for page in PAGES:
        page.write_text(current(page.read_text()))


if __name__ == "__main__":
    main()
