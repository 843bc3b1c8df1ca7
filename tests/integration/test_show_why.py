"""`imgtool show --why`: planted differences between the pushed image and what the spec says now, each by its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.servers.registry_process import run_registry

pytestmark = pytest.mark.registry


class World:
    """A project that was pushed once."""

    def __init__(self, folder: Path, host: str) -> None:
        self.wheels = Wheels(folder / "wheels")
        self.bases = [make_base(), make_base(seed=1)]
        self.bases[0].put(host)
        self.machine = Machine(folder / "machine", f"{host}/team", host)
        self.machine.give(self.wheels)
        self.project = Project(folder / "project", self.wheels, self.bases[0], more="env: {RATE: '0.1'}\n")
        self.project.write("trainer/run.sh", "echo\n")
        self.project.write("trainer/other.py", "print(1)\n")
        self.images = self.machine.push(self.project)

    def spec(self, old: str, new: str) -> None:
        path = self.project.folder / "image.yaml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def why(self, role: str = "worker") -> list[tuple[str, str | None, str | None]]:
        out, _ = self.machine.run("show", "--why", "--locked", "--json", cwd=self.project.folder)
        (row,) = [row for row in json.loads(out)["roles"] if row["role"] == role]
        assert row["image"] == self.images[role]
        found = [(one["name"], one["was"], one["now"]) for one in row["differences"]]
        return [one for one in found if "org.opencontainers.image" not in one[0]]


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("why")
    with run_registry(folder / "registry") as running:
        yield World(folder, running.host)


@pytest.fixture
def world(pushed: World) -> Iterator[World]:
    """The world; afterwards its files are what they were."""
    project, packages = pushed.project.folder, list(pushed.wheels.packages)
    kept = shutil.copytree(project, project.parent / "kept")
    yield pushed
    shutil.rmtree(project)
    kept.rename(project)
    pushed.wheels.packages[:] = packages
    pushed.project.base = pushed.bases[0]


def _wheel(world: World) -> None:
    world.wheels.add("numpy", version="1.26.5")
    world.project.lock()


def _base(world: World) -> None:
    world.project.base = world.bases[1]
    world.project.lock()


def _mode(world: World) -> None:
    (world.project.folder / "trainer/run.sh").chmod(0o755)


@pytest.mark.parametrize(
    ("change", "name", "then", "now"),
    [
        (
            lambda world: world.project.write("trainer/new.py", ""),
            "code /app/trainer/new.py",
            None,
            "644 0 e3b0c44298fc",
        ),
        (
            lambda world: (world.project.folder / "trainer/other.py").unlink(),
            "code /app/trainer/other.py",
            "644 9 ",
            None,
        ),
        (
            lambda world: world.project.write("trainer/other.py", "2"),
            "code /app/trainer/other.py",
            "644 9 ",
            "644 1 d4735e3a265e",
        ),
        (_mode, "code /app/trainer/run.sh", "644 ", "755 "),
        (_wheel, "wheels numpy", "1.26.4 ", "1.26.5 "),
        (_base, "base", "sha256:", "sha256:"),
        (lambda world: world.spec("RATE: '0.1'", "RATE: '0.2'"), "env RATE", "0.1", "0.2"),
        (lambda world: world.spec("job: {", "user: '1000'\njob: {"), "user", None, "1000"),
        (lambda world: world.spec("job: {", "compression: zstd\njob: {"), "compression", "gzip", "zstd"),
    ],
)
def test_a_difference_is_named(
    world: World, change: Callable[[World], object], name: str, then: str | None, now: str | None
) -> None:
    change(world)
    found = world.why()
    ((was, became),) = [(was, became) for other, was, became in found if other == name]
    for text, expected in ((was, then), (became, now)):
        assert (text is None) == (expected is None)
        assert text is None or text.startswith(str(expected))
    assert len(found) == 1, found


def test_what_is_no_part_of_the_key_is_no_difference(world: World) -> None:
    assert world.why() == []
    out, _ = world.machine.run("show", "--why", "--locked", cwd=world.project.folder)
    assert out.count("nothing differs") == 3
    world.project.write("trainer/task.py", "print(2)\n")
    out, _ = world.machine.run("show", "--why", "--locked", cwd=world.project.folder)
    assert out.count("  code /app/trainer/task.py: 644 ") == 3


def test_a_machine_that_pushed_nothing_says_so(world: World, tmp_path: Path) -> None:
    other = Machine(tmp_path / "other", world.machine.env["IMGTOOL_REGISTRY"], "127.0.0.1:9")
    _, said = other.run("show", "--why", "--locked", cwd=world.project.folder, code=2)
    assert "this machine has not pushed an image of this spec yet" in said
