"""`imgtool show --tree`: layers with their sizes, who shares them, and what the last change sent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, document
from tests.servers.fault_proxy import FaultProxy

pytestmark = pytest.mark.registry


@pytest.fixture
def machine(tmp_path: Path, proxy: FaultProxy, project: Project) -> Machine:
    made = Machine(tmp_path / "one", f"{proxy.host}/{tmp_path.name.replace('_', '-').lower()}", proxy.host)
    made.give(project.wheels)
    return made


def test_the_tree_has_each_blob_once_with_the_roles_that_have_it(
    machine: Machine, project: Project, proxy: FaultProxy
) -> None:
    _, err = machine.run("show", "--tree", "--locked", cwd=project.folder, code=3)
    assert "has no image of this spec" in err
    machine.push(project)
    project.write("trainer/task.py", "print('other')\n")
    images = machine.push(project)
    out, _ = machine.run("show", "--tree", "--locked", "--json", cwd=project.folder)
    (tree,) = json.loads(out)["platforms"]
    for row in tree["images"]:
        manifest = document(proxy.host, images[row["role"]])
        blobs = {blob["digest"]: blob["size"] for blob in (manifest["config"], *manifest["layers"])}
        mine = {layer["digest"]: layer["size"] for layer in tree["layers"] if row["role"] in layer["roles"]}
        assert mine == blobs
        assert (row["image"], row["size"], row["current"]) == (images[row["role"]], sum(blobs.values()), True)
    new = {layer["text"].split(" ")[0] for layer in tree["layers"] if layer["new"]}
    assert new == {"COPY", "the"}
    assert next(layer["roles"] for layer in tree["layers"] if layer["new"]) == ["master", "worker", "ps"]


def test_the_tree_as_text(machine: Machine, project: Project) -> None:
    machine.push(project)
    project.write("trainer/task.py", "print('other')\n")
    machine.push(project)
    out, _ = machine.run("show", "--tree", "--locked", cwd=project.folder)
    assert re.search(r"^master, worker, ps share: [\d.]+ kB$", out, re.MULTILINE)
    assert re.search(r"^├ +50\.\d kB  base python:3\.11-slim-bookworm, 1 of 1$", out, re.MULTILINE)
    assert re.search(r"^├ +[\d.]+ kB  /opt/venv: small-\d", out, re.MULTILINE)
    assert re.search(r"^└ +\d+ B  COPY trainer/ /app/trainer/  ← sent by the last change$", out, re.MULTILINE)
    assert re.search(r"^the last change sent 4 of \d+ blobs, [\d.]+ kB", out, re.MULTILINE)
    project.write("trainer/task.py", "print('not pushed')\n")
    out, _ = machine.run("show", "--tree", "--locked", cwd=project.folder)
    assert "worker is not pushed: this is its last image; imgtool show --why\n" in out
    _, err = machine.run("show", "--tree", "--why", "--locked", cwd=project.folder, code=2)
    assert "two things" in err
