"""What redirections, tools and CI leave in a flat project changes no image, or is named in one clear word.

The images are pushed once; each test begins with a copy of that project, does one thing to it, and asks for the job
file. Either it names the same digests, or imgtool says which file stands in the way, and what to do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.push_world import SPEC, Machine, Project, Wheels, make_base
from tests.local.test_report import RUN
from tests.servers.registry_process import run_registry
from training_imgtool.base.context.own_files import JOB_MARK
from training_imgtool.local.report import render

pytestmark = pytest.mark.registry
SAME, ADDED = "same digests", "imgtool show --why"
CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n"


@dataclass
class World:
    machine: Machine
    folder: Path
    images: list[str]

    def shell(self, command: str, folder: Path) -> None:
        """Has bash do something in a session of its own, as a terminal or a step of CI has."""
        env = {**self.machine.env, "SHELL": "/bin/bash"}
        words = ["setsid", "--wait", "bash", "-c", command]
        done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def check(self, folder: Path, name: str, word: str) -> None:
        if word == SAME:
            out, _ = self.machine.run("config", "--locked", cwd=folder)
            assert [image for image in self.images if image in out] == self.images
            return
        _, said = self.machine.run("config", "--locked", cwd=folder, code=3)
        assert word in said
        said, _ = self.machine.run("show", "--why", "--locked", cwd=folder)
        assert f"code /app/{name}" in said


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("litter")
    project = Project(root / "flat", Wheels(root / "wheels"), make_base())
    shutil.rmtree(project.folder / "trainer")
    project.write("task.py", 'print("training")\n')
    spec = SPEC.format(name="demo", more="").replace("{source: trainer, module: trainer.task}", "task.py")
    project.write("image.yaml", spec)
    project.lock()
    with run_registry(root / "registry") as running:
        make_base().put(running.host)
        machine = Machine(root / "machine", f"{running.host}/litter", running.host)
        machine.give(project.wheels)
        yield World(machine, project.folder, sorted(machine.push(project).values()))


@pytest.fixture
def folder(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.folder, tmp_path / "flat"))


WAYS = [  # a command line, the file that it leaves, what imgtool says of it later
    ("imgtool push > push.txt", "push.txt", ADDED),
    ("echo '*.log' > .dockerignore; imgtool push > push.log 2>&1", "push.log", SAME),
    ("imgtool push --json > images.json", "images.json", SAME),
    ("imgtool config -o config.yaml", "config.yaml", SAME),
    ("imgtool config > job.yaml", "job.yaml", SAME),
    ("imgtool build --output oci:layout", "layout/index.json", SAME),
    ("imgtool build --push -q; imgtool render -o rendered", "rendered", ADDED),
]


@pytest.mark.parametrize(
    ("command", "name", "word"),
    [pytest.param(*way, id=way[0]) for way in WAYS],
)
def test_what_a_command_leaves(world: World, folder: Path, command: str, name: str, word: str) -> None:
    """While the command runs, and for the next one."""
    world.shell(command, folder)
    assert (folder / name).exists()
    if "imgtool push" in command:
        written = (folder / name).read_text()
        assert all(image in written for image in world.images), written
    world.check(folder, name, word)
    if word == SAME and " -o " in command:  # no shell empties these before they run once more
        world.shell(command, folder)
        world.check(folder, name, word)


FILES = [  # a path and its text, which change no image
    (".github/workflows/images.yml", "name: images\n"),
    (".cache/imgtool/wheels/ab/x.whl", "x"),
    (".cache/pip/http-v2/a", "x"),
    ("sub@tmp/durable-1/script.sh", "x"),
    (".terraform/providers/x", "x"),
    # tests, linters, Python
    (".pytest_cache/v/cache/lastfailed", "{}"),
    (".coverage", "x"),
    ("htmlcov/index.html", "x"),
    ("venv/pyvenv.cfg", "home = /usr\n"),
    ("uv-cache/CACHEDIR.TAG", CACHE_TAG),
    ("__pycache__/task.cpython-311.pyc", "x"),
    (".ipynb_checkpoints/task-checkpoint.ipynb", "{}"),
    ("node_modules/a/index.js", "x"),
    # editors and systems
    (".task.py.swp", "x"),
    ("task.py~", "x"),
    ("#task.py#", "x"),
    (".DS_Store", "x"),
    (".nfs000000001", "x"),
    # training on this machine
    (f"job/{JOB_MARK}", ""),
    ("run.html", render(RUN, ())),
    ("logs/train/events.out.tfevents.1700000000.host", "x"),
    ("wandb/run-20240101_000000-ab/run-ab.wandb", "x"),
]


def _leave(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_what_tools_leave(world: World, folder: Path) -> None:
    """Beside each other: imgtool would name the one that stands in the way."""
    for name, text in FILES:
        _leave(folder, name, text)
    world.check(folder, "", SAME)


def test_a_name_that_the_spec_names_is_wanted(world: World, folder: Path) -> None:
    """Only what lies in a folder by itself is taken for a tool's."""
    (folder / ".github").mkdir()
    (folder / "task.py").rename(folder / ".github/task.py")
    spec = (folder / "image.yaml").read_text().replace("trainer: task.py", "trainer: .github/task.py")
    (folder / "image.yaml").write_text(spec)
    out, _ = world.machine.run("show", "--json", cwd=folder)
    assert json.loads(out)
