"""What a push says of itself at its end: how many bytes it sent and reused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project
from tests.servers.fault_proxy import FaultProxy

pytestmark = pytest.mark.registry


@pytest.fixture
def machine(tmp_path: Path, proxy: FaultProxy, project: Project) -> Machine:
    made = Machine(tmp_path / "one", f"{proxy.host}/{tmp_path.name.replace('_', '-').lower()}", proxy.host)
    made.give(project.wheels)
    return made


def _notes(machine: Machine, project: Project, *arguments: str) -> list[str]:
    _, err = machine.run("push", "--locked", "--progress", "plain", *arguments, cwd=project.folder)
    return [line.removeprefix("note: ") for line in err.splitlines() if line.startswith("note: ")]


def test_each_push_says_what_it_sent_and_reused(machine: Machine, project: Project) -> None:
    (first,) = _notes(machine, project)
    assert re.fullmatch(r"sent [\d.]+ kB, reused 50\.\d kB that the registry had", first)
    assert _notes(machine, project) == []
    project.write("trainer/task.py", 'print("training")\nprint("more")\n')
    (line,) = _notes(machine, project)
    amounts = re.fullmatch(r"sent ([\d.]+) kB, reused ([\d.]+) kB that the registry had", line)
    assert amounts
    assert float(amounts[1]) < 10 < float(amounts[2])


def test_json_has_the_bytes_of_what_was_pushed(machine: Machine, project: Project) -> None:
    machine.push(project)
    project.write("trainer/new.py", "")
    out, _ = machine.run("push", "--locked", "--json", cwd=project.folder)
    assert all(0 < image["sent"] < image["size"] for image in json.loads(out)["images"])
    found = json.loads(machine.run("push", "--json", cwd=project.folder)[0])["images"][0]
    assert (found["size"], found["sent"]) == (None, None)
