"""`imgtool show --why`: planted differences between a pushed image and what the spec says now, each by its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.direct.wheels import make_wheel
from tests.integration.push_world import PIP_SCRIPT, Machine, Project, Wheels, make_base
from tests.integration.verify_world import open_toy
from tests.servers.registry_process import run_registry

pytestmark = pytest.mark.registry
TEMPLATE = """\
{% extends "worker.Dockerfile.j2" %}
{% block after_code %}
ENV MODE="fast"
EXPOSE 6006
{% endblock %}
"""
MORE = "env: {LEARNING_RATE: '0.1'}\nexclude: [numpy/tests]\n"


class World:
    """A project that was pushed once, and a machine that has only its cache and the registry."""

    def __init__(self, folder: Path, host: str) -> None:
        self.wheels = Wheels(folder / "wheels")
        self.wheels.add(
            "numpy", {"numpy/__init__.py": b"", "numpy/tests/a.py": b"", "numpy/f2py/b.py": b""}, version="1.26.4"
        )
        self.wheels.add("absl_py")
        self.bases = [make_base(), make_base(seed=1)]
        for base in reversed(self.bases):
            base.put(host)
        self.machine = Machine(folder / "machine", f"{host}/{folder.name.replace('_', '-').lower()}", host)
        self.machine.give(self.wheels)
        self.project = Project(folder / "project", self.wheels, self.bases[0], more=MORE)
        write = self.project.write
        write("trainer/task.py", "".join(f"print({number})\n" for number in range(20)))
        write("trainer/data.csv", "a,b\n1,2\n3,4\n")
        write("trainer/run.sh", "#!/bin/sh\necho\n")
        write("trainer/conf/old.json", "{}\n")
        write("trainer/other.py", "print(1)\n")
        write("own.j2", TEMPLATE)
        write("extra/more.txt", "more\n")
        (self.project.folder / "trainer/blob.bin").write_bytes(b"\0\1\2")
        (self.project.folder / "trainer/current").symlink_to("data.csv")
        self.images = self.machine.push(self.project)

    def spec(self, old: str, new: str) -> None:
        """Changes the spec's text."""
        path = self.project.folder / "image.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def add(self, line: str) -> None:
        """Adds a line to the spec."""
        self.spec("job: {", f"{line}\njob: {{")

    def why(self, *arguments: str, role: str = "worker") -> list[str]:
        out, _ = self.machine.run("show", "--why", *arguments, "--locked", "--json", cwd=self.project.folder)
        (row,) = [row for row in json.loads(out)["roles"] if row["role"] == role]
        self.notes: list[str] = row["notes"]
        return [difference["text"] for difference in row["differences"]]


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("why")
    with run_registry(folder / "registry") as running:
        yield World(folder, running.host)


@pytest.fixture
def world(pushed: World) -> Iterator[World]:
    """The world; afterwards its files are what they were."""
    root, packages = pushed.project.folder.parent, list(pushed.wheels.packages)
    for name in ("project", "wheels"):
        shutil.copytree(root / name, root / f"{name}.kept", symlinks=True)
    yield pushed
    for name in ("project", "wheels"):
        shutil.rmtree(root / name)
        (root / f"{name}.kept").rename(root / name)
    pushed.wheels.packages[:] = packages
    pushed.project.base = pushed.bases[0]


def _line(world: World) -> None:
    path = world.project.folder / "trainer/task.py"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:5], "print('a')\n", "print('b')\n", *lines[6:]]))


def _wheel(name: str, version: str, **more: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.wheels.add(name, version=version, **more)  # type: ignore[arg-type]
        world.project.lock()

    return change


def _drop(world: World) -> None:
    world.wheels.packages[:] = [path for path in world.wheels.packages if "absl" not in path.name]
    world.project.lock()


def _other_base(world: World) -> None:
    world.project.base = world.bases[1]
    world.project.lock()


def _own_base(world: World) -> None:
    world.project.use_base("docker.io/library/python:3.11-slim-bookworm", world.bases[1])


def _python(world: World) -> None:
    world.spec('python: "3.11"', 'python: "3.10"')
    world.project.lock()


def _release(world: World) -> None:
    world.spec("2.15.1", "2.15.0")
    files = {"tensorflow/__init__.py": b"__version__ = '2.15.0'\n"}
    _wheel("tensorflow_cpu", "2.15.0", files=files)(world)


def _relock(world: World) -> None:
    path = world.project.folder / "image.lock"
    assert path.exists()
    world.add("trim: false")
    world.project.lock()


def _requirements(world: World) -> None:
    world.project.write("requirements.txt", "numpy\nabsl-py\n")
    world.add("requirements: requirements.txt")
    world.project.lock()


def _template(world: World) -> None:
    world.add("template: own.j2")


def _pip(world: World) -> None:
    files = {"pip/__init__.py": b"", "pip/_internal/operations/install/wheel.py": PIP_SCRIPT.encode()}
    before, world.wheels.pip = world.wheels.pip, make_wheel(world.wheels.folder, "pip", files, version="24.4")
    world.project.lock()
    world.wheels.pip = before


def _debian(world: World) -> None:
    world.add("system_packages: [git]")
    world.project.lock()


def _platform(world: World) -> None:
    world.add("platform: linux/arm64")
    world.project.lock()


def _write(name: str, text: str) -> Callable[[World], None]:
    return lambda world: world.project.write(name, text)


def _path(name: str, change: Callable[[Path], object]) -> Callable[[World], None]:
    return lambda world: (change(world.project.folder / name), None)[1]


def _spec(old: str, new: str) -> Callable[[World], None]:
    return lambda world: world.spec(old, new)


def _more(line: str) -> Callable[[World], None]:
    return lambda world: world.add(line)


def _relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("run.sh")


def _link_to_file(path: Path) -> None:
    path.unlink()
    path.write_text("a file\n")


PLANTED: dict[str, tuple[Callable[[World], None], list[str]]] = {
    "a changed line": (_line, ["trainer/task.py 2 lines added, 1 removed"]),
    "line endings": (
        _path("trainer/data.csv", lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))),
        ["line endings of trainer/data.csv: LF → CRLF"],
    ),
    "a missing last line feed": (
        _path("trainer/data.csv", lambda path: path.write_text("a,b\n1,2\n3,4")),
        ["trainer/data.csv 1 line added, 1 removed"],
    ),
    "a stray file": (_write("trainer/out.log", "x\ny\n"), ["trainer/out.log added, 2 lines"]),
    "a deleted file": (_path("trainer/conf/old.json", Path.unlink), ["trainer/conf/old.json removed"]),
    "a renamed file": (
        _path("trainer/run.sh", lambda path: path.rename(path.with_name("start.sh"))),
        ["trainer/run.sh is trainer/start.sh now"],
    ),
    "a mode": (_path("trainer/run.sh", lambda path: path.chmod(0o755)), ["mode of trainer/run.sh 644 → 755"]),
    "a link's target": (_path("trainer/current", _relink), ["link trainer/current: data.csv → run.sh"]),
    "a file in a link's place": (
        _path("trainer/current", _link_to_file),
        ["trainer/current was a link and is a file"],
    ),
    "a binary file": (
        _path("trainer/blob.bin", lambda path: path.write_bytes(b"\0\1\2\3")),
        ["trainer/blob.bin changed, 3 → 4 bytes"],
    ),
    "an empty folder": (_path("trainer/empty", Path.mkdir), ["trainer/empty added, a folder"]),
    "a .dockerignore": (_write(".dockerignore", "**/*.csv\n"), ["trainer/data.csv removed"]),
    "env": (_spec("'0.1'", "'0.01'"), ["env LEARNING_RATE 0.1 → 0.01"]),
    "env of one role": (
        _spec("worker: {machine", "worker: {env: {DEBUG: '1'}, machine"),
        ["env DEBUG added: 1"],
    ),
    "no env": (_spec("env: {LEARNING_RATE: '0.1'}\n", ""), ["env LEARNING_RATE removed, was 0.1"]),
    "user": (_more("user: '1000'"), ["user added: 1000"]),
    "name": (_spec("name: demo", "name: demo2"), ["label org.opencontainers.image.title demo-worker → demo2-worker"]),
    "the program": (
        _spec("module: trainer.task", "module: trainer.other"),
        [
            "entry point /opt/venv/bin/python -m trainer.task → /opt/venv/bin/python -m trainer.other",
        ],
    ),
    "the working folder": (
        _spec("{source: trainer, module: trainer.task}", "{source: trainer, module: trainer.task, workdir: trainer}"),
        ["env PYTHONPATH added: /app", "working folder /app → /app/trainer"],
    ),
    "an included folder": (
        _spec("module: trainer.task}", "module: trainer.task, include: [extra]}"),
        ["env PYTHONPATH added: /app/extra", "extra/more.txt added, 1 line"],
    ),
    "a package's version": (_wheel("numpy", "1.26.5"), ["numpy 1.26.4 → 1.26.5"]),
    "another file of a version": (
        _wheel("absl_py", "1.0", size=10),
        ["absl-py 1.0: another file of this version"],
    ),
    "a package more": (_wheel("wandb", "0.16.0"), ["wandb 0.16.0 added"]),
    "a package less": (_drop, ["absl-py 1.0 removed"]),
    "TensorFlow": (_release, ["tensorflow-cpu 2.15.1 → 2.15.0"]),
    "the base's digest": (_other_base, ["base python:3.11-slim-bookworm: sha256:"]),
    "Python": (_python, ["python 3.11 → 3.10", "base python:3.11-slim-bookworm → python:3.10-slim-bookworm"]),
    "left out": (
        _spec("exclude: [numpy/tests]", "exclude: [numpy/tests, numpy/f2py]"),
        ["numpy/f2py of a package is left out"],
    ),
    "no longer left out": (
        _spec("exclude: [numpy/tests]\n", ""),
        ["numpy/tests of a package is no longer left out"],
    ),
    "compression": (_more("compression: zstd"), ["compression gzip → zstd"]),
    "a template": (
        _template,
        ["template worker.Dockerfile.j2 → own.j2", "env MODE added: fast", 'ExposedPorts added: {"6006/tcp": {}}'],
    ),
    "pip": (_pip, ["stage wheels"]),
    "a Debian package": (_debian, ["system package git added"]),
    "the platform": (_platform, ["platform linux/amd64 → linux/arm64"]),
    "args": (_spec("job: {", "args: [--epochs=3]\njob: {"), []),
    "the order of requirements": (_requirements, []),
    "the lock's text": (_relock, []),
    "comments": (_spec("roles:\n", "# a word\nroles:\n"), []),
}


@pytest.mark.parametrize(
    "planted", [pytest.param(name, marks=pytest.mark.long if at % 3 else ()) for at, name in enumerate(PLANTED)]
)
def test_each_planted_difference_is_named_and_nothing_else(world: World, planted: str) -> None:
    change, expected = PLANTED[planted]
    change(world)
    said = world.why(world.images["worker"])
    assert len(said) == len(expected), said
    assert all(line.startswith(start) for line, start in zip(said, expected, strict=True)), said


def _say(world: World, *arguments: str, code: int = 0) -> str:
    out, err = world.machine.run("show", *arguments, "--locked", cwd=world.project.folder, code=code)
    return out + err


def test_what_was_pushed_last_counts_where_no_image_is_named(world: World) -> None:
    _line(world)
    assert "has no image no-such-tag" in _say(world, "--why", "no-such-tag", code=6)
    said = _say(world, "--why", "--progress", "quiet")
    rows = [f"{role}: {name}, pushed last from this machine" for role, name in world.images.items()]
    assert [line for line in said.splitlines() if not line.startswith(" ")] == rows
    assert said.count("  trainer/task.py 2 lines added, 1 removed\n") == 3


@pytest.mark.long
def test_tags_and_job_files_name_an_image_of_each_role(world: World, tmp_path: Path) -> None:
    folder = world.project.folder
    world.machine.push(world.project, "--tag", "v1")
    world.machine.run("config", "--locked", "-o", "config.yaml", cwd=folder)
    _line(world)
    for named in ("v1", "config.yaml"):
        assert _say(world, "--why", named).count("trainer/task.py 2 lines added, 1 removed") == 3
    assert "master: no image here, only of worker\n" in _say(world, "--why", "worker-v1")
    other = Machine(
        tmp_path / "other", world.machine.env["IMGTOOL_REGISTRY"], world.machine.env["IMGTOOL_MIRRORS"][10:]
    )
    out, _ = other.run("show", "--why", "--locked", cwd=folder)
    assert out.count(", config.yaml\n") == 3
    (folder / "config.yaml").unlink()
    _, err = other.run("show", "--why", "--locked", cwd=folder, code=2)
    assert "this machine has pushed no image" in err
    assert "image.yaml" in _say(world, "--why", "image.yaml", code=2)


def test_an_image_without_attestations_tells_of_files_and_settings_only(world: World) -> None:
    world.machine.env["IMGTOOL_ATTESTATIONS"] = "off"
    try:
        world.spec("name: demo", "name: bare")
        images = world.machine.push(world.project)
    finally:
        del world.machine.env["IMGTOOL_ATTESTATIONS"]
    _line(world)
    _wheel("numpy", "1.26.5")(world)
    assert world.why(images["worker"]) == ["trainer/task.py 2 lines added, 1 removed"]
    assert "packages and parameters are not compared" in world.notes[0]


@pytest.mark.long
@pytest.mark.engine
def test_an_image_that_an_engine_made(registry_address: str, services_env: dict[str, str], tmp_path: Path) -> None:
    """Its history has other words: the config tells its settings, with variables expanded."""
    with open_toy(registry_address, services_env, tmp_path) as toy:
        machine = Machine(tmp_path / "engine", "", "", **{**services_env, **toy.env})
        machine.env |= {"DOCKER_HOST": services_env.get("DOCKER_HOST", "unix:///var/run/docker.sock")}
        spec, template, task = (toy.folder / name for name in ("image.yaml", "own.j2", "trainer/task.py"))
        lines = 'ENV A="b c" MORE="$PATH:/x"\nRUN touch /etc/made'
        block = f'{{% extends "master.Dockerfile.j2" %}}\n{{% block before_code %}}\n{lines}\n{{% endblock %}}\n'
        template.write_text(block)
        spec.write_text(
            spec.read_text().replace("env: {", "env: {X: 'a b', Y: '2', ") + "template: own.j2\nuser: '1000'\n"
        )
        machine.run("push", "--locked", cwd=toy.folder)

        def why() -> list[str]:
            out, _ = machine.run("show", "--why", "--locked", "--json", cwd=toy.folder)
            return [difference["text"] for difference in json.loads(out)["roles"][0]["differences"]]

        assert why() == []
        task.write_text(f"{task.read_text()}x = 1\n")
        spec.write_text(spec.read_text().replace("'a b'", "'a c'").replace("Y: '2'", "Z: '3'").replace("1000", "1001"))
        template.write_text(block.replace("b c", "b d").replace("/etc/made", "/etc/other"))
        assert why() == [
            *("env A b c → b d", "env X a b → a c", "env Y removed, was 2", "env Z added: 3", "user 1000 → 1001"),
            "trainer/task.py 1 line added, 0 removed",
            *("step removed: RUN touch /etc/made", "step added: RUN touch /etc/other"),
        ]
