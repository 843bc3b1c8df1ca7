"""Same inputs, same digests: another user, another place, another registry, another release of Python."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.push_world import Base, Machine, Project, Wheels, check_whole, digests, document, make_base
from tests.other_python import DIFFERS, HERE_RELEASE, OTHER, OTHER_RELEASE, two_releases
from tests.other_user import NOBODY, open_folder
from tests.servers.registry_process import run_registry

pytestmark = pytest.mark.registry


class World:
    """A folder that everybody may enter, with wheels in it and registries on call."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.wheels = Wheels(folder / "wheels")
        self.wheels.add("extra", {"extra/__init__.py": DIFFERS, "single.py": b"x = 1\n"})

    def registry(self, name: str, base: Base) -> str:
        host = self._stack.enter_context(run_registry(self.folder / name)).host
        base.put(host)
        return host

    def machine(self, name: str, host: str, **env: str) -> Machine:
        made = Machine(self.folder / name, f"{host}/team", host, **env)
        made.give(self.wheels)
        return made


@pytest.fixture
def world() -> Iterator[World]:
    with open_folder() as folder, ExitStack() as stack:
        yield World(folder, stack)


def _away(world: World, host: str) -> Machine:
    """A machine of somebody else: nothing of it is as it was, but for the inputs."""
    machine = world.machine(
        "else where",
        host,
        HOME="/",
        TZ="Pacific/Chatham",
        LANG="tr_TR.UTF-8",
        LC_ALL="C",
        PYTHONHASHSEED="77",
        USER="nobody",
        TERM="dumb",
        COLUMNS="40",
    )
    if OTHER_RELEASE:
        machine.python(OTHER)  # the tests' own interpreter may lie where nobody else gets in
    if os.geteuid() == 0:
        start = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        machine.command = [*start, "sh", "-c", 'umask 077; exec "$@"', "sh", *machine.command]
    return machine


def _give_away(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.mark.parametrize("compression", ["gzip", pytest.param("zstd", marks=pytest.mark.long)])
def test_two_users_on_two_machines(world: World, compression: str) -> None:
    world.wheels.add("extra", {"extra/__init__.py": b"x = {'a', 'b'}\n" * 50, "single.py": b"x = 1\n"})
    base, more = make_base(), f"compression: {compression}\n"
    project = Project(world.folder / "project", world.wheels, base, name="one", more=more)
    here = world.machine("here", world.registry("r1", base)).push(project)
    host = world.registry("r2", base)
    copy = Project(world.folder / "deep/er/check out", world.wheels, base, name="one", more=more)
    for path in copy.folder.rglob("*.py"):
        path.chmod(0o604)  # Git keeps no more of a mode than whether a file is executable
        os.utime(path, (10**9, 10**9))
    machine = _away(world, host)
    if os.geteuid() == 0:
        _give_away(machine.root)
        _give_away(copy.folder)
    out, _ = machine.run("build", "--push", "--locked", str(copy.folder), cwd=Path("/"))
    there = dict(line.split(" ", 1) for line in out.splitlines())
    assert digests(there) == digests(here)
    check_whole(host, there.values())


@two_releases
def test_two_releases_of_python_and_one_registry(world: World) -> None:
    """What was made first counts, even when the stage is gone and only the tag of the variant's last one is left."""
    base = make_base()
    project = Project(world.folder / "project", world.wheels, base, name="one")
    host = world.registry("r1", base)
    here = world.machine("here", host).push(project)
    tags = world.folder / "r1/data/docker/registry/v2/repositories/team/one/_manifests/tags"
    for tag in [tag for tag in tags.iterdir() if not tag.name.startswith("packages-latest-")]:
        shutil.rmtree(tag)
    other = world.machine("other", host)
    other.python(OTHER)
    assert other.push(project) == here


def _bytecode(machine: Machine, project: Project) -> str:
    """What verify finds of the bytecode: `ok` where nothing is said of it."""
    process = machine.start("verify", "--role", "ps", "--json", cwd=project.folder)
    out, _ = process.communicate(timeout=120)
    (image,) = json.loads(out)["images"]
    return next((str(row["status"]) for row in image["checks"] if row["check"] == "bytecode"), "ok")


@pytest.mark.long
@two_releases
@pytest.mark.parametrize("release", [HERE_RELEASE, OTHER_RELEASE])
def test_the_release_that_the_base_names_compiles(world: World, release: str) -> None:
    """Docker's own images of Python say which they have; machines that have it too agree without a common registry."""
    base = make_base(env=[f"PYTHON_VERSION={release}"])
    project = Project(world.folder / "project", world.wheels, base, name="one")
    path = f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
    machine = world.machine("here", world.registry("r1", base), PATH=path)
    here = machine.push(project)
    assert _bytecode(machine, project) == "ok"
    other = world.machine("other", world.registry("r2", base), PATH=path)
    other.python(OTHER)
    assert digests(other.push(project)) == digests(here)
    assert _bytecode(other, project) == "ok"


@pytest.mark.long
@two_releases
def test_without_that_only_bytecode_differs(world: World) -> None:
    base = make_base()
    project = Project(world.folder / "project", world.wheels, base, name="one")
    hosts = [world.registry("r1", base), world.registry("r2", base)]
    other = world.machine("other", hosts[1])
    other.python(OTHER)
    images = [world.machine("here", hosts[0]).push(project), other.push(project)]
    layers = [document(host, found["ps"])["layers"] for host, found in zip(hosts, images, strict=True)]
    assert len(layers[0]) == len(layers[1])
    assert sum(a["digest"] != b["digest"] for a, b in zip(*layers, strict=True)) == 1
    assert _bytecode(other, project) == "ok"
    other.env["IMGTOOL_REGISTRY"] = f"{hosts[0]}/team"
    assert _bytecode(other, project) == "NOT PROVEN"
