"""docs/tutorial.md is what happens: its commands run, with a TensorFlow of one file, and print what the page shows.

Numbers, hashes and the registry's name may differ; words, order and files may not. Progress comes from several threads,
so only the lines that the page shows are looked for, in any order.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.faults.base import put_base
from tests.faults.project import Project, small_wheels
from tests.servers.registry_process import run_registry
from tests.servers.simple_index import SimpleIndex, serving

pytestmark = pytest.mark.registry

PAGE = Path(__file__).resolve().parent.parent / "docs/tutorial.md"
_VARIES = (
    (r"127\.0\.0\.1:\d+(?:/tutorial)?", "REGISTRY"),
    (r"\b[0-9a-f]{12,64}\b", "HASH"),
    (r"\b\d+(?:\.\d+)? ?(?:MB|kB|bytes|s\b)", "SIZE"),
    (r"\b\d+ (wheels?|layers?|steps?)\b", "N"),
    (r"^(  wheels +)\d+,", r"\1N,"),
)


def steps() -> list[tuple[str, list[str]]]:
    """The page's commands, each with the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def normalised(line: str) -> str:
    """A line without what differs from machine to machine."""
    for pattern, text in _VARIES:
        line = re.sub(pattern, text, line, flags=re.MULTILINE)
    return line.rstrip()


def split(lines: list[str]) -> tuple[list[str], set[str]]:
    """Results, notes and warnings in their order; progress without one."""
    plain = [normalised(line) for line in lines]
    return [line for line in plain if not line.startswith("[")], {line for line in plain if line.startswith("[")}


def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    index = SimpleIndex()
    for wheel in small_wheels():
        index.add(wheel.name.split("-")[0].replace("_", "-"), wheel.name, wheel.read_bytes())
    project = Project(tmp_path)
    (tmp_path / "registry").mkdir()
    with run_registry(tmp_path / "registry") as registry, serving(index):
        put_base(registry.host)
        environ = {
            **project.env,
            "UV_INDEX_URL": index.url,
            "IMGTOOL_REGISTRY": f"{registry.host}/tutorial",
            "IMGTOOL_MIRRORS": f"docker.io={registry.host}",
        }
        folder = project.folder
        commands = steps()
        assert [command.split()[1] for command, _ in commands if command.startswith("imgtool")] == [
            *("init", "lock", "show", "push", "push", "push", "config")
        ]
        for command, shown in commands:
            if command.startswith("cd "):
                folder /= command.removeprefix("cd ")
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout
            lines, progress = split(done.stdout.splitlines())
            expected, expected_progress = split(shown)
            assert lines == expected, command
            assert expected_progress <= progress, command
