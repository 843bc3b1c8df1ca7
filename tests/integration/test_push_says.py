"""What a push says of itself at its end: what changed in each role, how large the images are, what was sent."""

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


def test_each_push_says_what_changed_and_what_it_sent(machine: Machine, project: Project) -> None:
    first, sent = _notes(machine, project)
    assert re.fullmatch(r"master, worker, ps: the first image that this machine pushes here, image of [\d.]+ kB", first)
    assert re.fullmatch(r"sent [\d.]+ kB, reused 50\.\d kB that the registry had", sent)
    assert len([*machine.cache.glob("inputs/*.json")]) == 3 + 1  # the roles' own, and the files that they share
    assert _notes(machine, project) == []
    project.write("trainer/task.py", 'print("training")\nprint("more")\n')
    path = project.folder / "image.yaml"
    path.write_text(path.read_text().replace("ps: {", "ps: {env: {A: '1'}, "))
    lines = _notes(machine, project)
    assert [line.partition(", image of")[0] for line in lines[:2]] == [
        "master, worker: trainer/task.py 1 line added, 0 removed",
        "ps: env A added: 1; trainer/task.py 1 line added, 0 removed",
    ]
    amounts = re.fullmatch(r"sent ([\d.]+) kB, reused ([\d.]+) kB that the registry had", lines[2])
    assert amounts
    assert float(amounts[1]) < 10 < float(amounts[2])


def test_json_has_the_changes_and_the_bytes_of_what_was_pushed(machine: Machine, project: Project) -> None:
    machine.push(project)
    for number in range(5):
        project.write(f"trainer/new{number}.py", "")
    out, err = machine.run("push", "--locked", "--json", cwd=project.folder)
    images = json.loads(out)["images"]
    assert [image["changes"] for image in images] == [[f"trainer/new{n}.py added, 0 lines" for n in range(5)]] * 3
    assert all(0 < image["sent"] < image["size"] for image in images)
    before = re.search(r"and 2 more \(imgtool show --why (sha256:[0-9a-f]{64})\)", err)
    assert before
    why, _ = machine.run("show", "--why", before[1], "--locked", cwd=project.folder)
    assert why.count("added, 0 lines") == 5
    found = json.loads(machine.run("push", "--json", cwd=project.folder)[0])["images"][0]
    assert (found["size"], found["sent"], found["changes"]) == (None, None, None)


def test_a_damaged_note_costs_only_what_it_would_say(machine: Machine, project: Project) -> None:
    machine.push(project)
    for path in machine.cache.glob("inputs/*.json"):
        path.write_text("{}")
    project.write("trainer/task.py", "print(2)\n")
    assert _notes(machine, project)[0].startswith("master, worker, ps: other inputs, image of ")
    for path in machine.cache.glob("pushed/*.json"):
        path.write_text("{}")
    project.write("trainer/task.py", "print(3)\n")
    assert "the first image that this machine pushes here" in _notes(machine, project)[0]


def test_progress_decides_the_form_of_what_a_push_says(machine: Machine, project: Project) -> None:
    _, err = machine.run("push", "--locked", "--progress", "json", cwd=project.folder)
    notes = [record["text"] for record in map(json.loads, err.splitlines()) if record["event"] == "note"]
    assert notes[-1].startswith("sent ")
    project.write("trainer/task.py", "print(2)\n")
    assert machine.run("push", "--locked", "--progress", "quiet", cwd=project.folder)[1] == ""
