"""`imgtool run --watch` with real containers: what a save starts is what a fresh run starts."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import CHECKOUT, Mnist
from tests.local.project import unique
from tests.local.watch_project import TASK, Watching, WatchProject, python_base
from tests.make.engines.support import private_engine, private_podman, settings, wait_for
from tests.other_user import NOBODY
from training_imgtool.make.engines.docker.connect import connect
from training_imgtool.make.engines.docker.engine import DockerEngine

pytestmark = [pytest.mark.engine, pytest.mark.registry]
Make = Callable[..., WatchProject]
ALONE = {"master": {"machine": "n1-standard-4"}}


@pytest.fixture
def project(engine: DockerEngine, tmp_path: Path) -> Iterator[Make]:
    made: list[WatchProject] = []

    def make(files: dict[str, str], **changes: Any) -> WatchProject:
        made.append(WatchProject(tmp_path, engine, files, **{"name": unique(tmp_path), "roles": ALONE, **changes}))
        return made[-1]

    yield make
    for one in made:
        left = one.left()
        one.remove()
        assert not left


@pytest.fixture
def watch() -> Iterator[Callable[..., Watching]]:
    begun: list[Watching] = []

    def begin(project: WatchProject, *arguments: str) -> Watching:
        begun.append(project.watch(*arguments))
        return begun[-1]

    yield begin
    for one in begun:
        one.end()


def test_a_save_starts_the_program_again_from_a_warm_process(project: Make, watch: Callable[..., Watching]) -> None:
    made = project({"trainer/task.py": TASK})
    running = watch(made)
    ended = running.wait("ended")
    assert ended["ok"], "".join(running.lines)
    first = running.printed()
    assert [line for line in first if line != "big loads"] == ["value 0"]
    made.write("trainer/values.py", "VALUE = 1\n")
    changed = running.wait("changed")
    assert (changed["files"], changed["how"]) == (["trainer/values.py"], "code")
    started = running.wait("started")
    assert (started["how"], started["cold"]) == ("code", [])
    assert running.wait("ended")["replicas"][0]["exit_code"] == 0
    assert running.printed() == ["big loads", "value 0", "value 1"]
    assert running.end() == 130


SERVER = "import sys, time\nfrom trainer import values\nprint('serves', values.VALUE, flush=True)\ntime.sleep(600)\n"
PAIR = {"master": {"machine": "n1-standard-4"}, "worker": {"machine": "n1-standard-4", "count": 2}}
BOTH = f"import os, socket\nimport big\nif 'worker' in socket.gethostname():\n    import trainer.server\n{TASK}"


@pytest.mark.long
def test_every_replica_starts_again_and_the_last_save_wins(project: Make, watch: Callable[..., Watching]) -> None:
    made = project({"trainer/task.py": BOTH, "trainer/server.py": SERVER}, roles=PAIR)
    running = watch(made, "--as", "local")
    for name in ("worker-0 | serves 0", "worker-1 | serves 0", "master   | value 0"):
        running.wait_for_line(name)
    for number in range(1, 13):
        made.write("trainer/values.py", f"VALUE = {number}\n")
        time.sleep(0.1 * (number % 4))
    for name in ("worker-0 | serves 12", "worker-1 | serves 12", "master   | value 12"):
        running.wait_for_line(name)
    assert not running.lines[-1].startswith("note: ")


@pytest.mark.long
@pytest.mark.parametrize("ps", [0, 1])
def test_what_others_connect_to_starts_first(project: Make, watch: Callable[..., Watching], ps: int) -> None:
    began = "open('/proc/self/stat').read().rpartition(')')[2].split()[19]"  # proc(5): in ticks; a print may be late
    task = f"{TASK}import time\nprint('at', {began}, flush=True)\ntime.sleep(600)\n"
    roles = {**PAIR, **({"ps": {"machine": "n1-highmem-2"}} if ps else {})}
    made = project({"trainer/task.py": task}, roles=roles)
    running = watch(made, "--as", "local")
    names = ["master", "worker-0", "worker-1", *(["ps-0"] if ps else [])]
    for number in range(3):
        wait_for(lambda: all(len(running.printed(name)) > 2 for name in names), 60)
        at = {name: float(running.printed(name)[-1].split()[1]) for name in names}
        chief = at.pop("master")
        assert (chief > max(at.values())) if ps else (chief < min(at.values())), (number, chief, at)
        running.lines.clear()
        made.write("trainer/values.py", f"VALUE = {number + 1}\n")


def test_an_error_in_the_spec_is_told_and_the_cluster_goes_on(project: Make, watch: Callable[..., Watching]) -> None:
    made = project({"trainer/task.py": "import trainer.server\n", "trainer/server.py": SERVER})
    running = watch(made)
    running.wait_for_line("serves 0")
    text = (made.folder / "image.yaml").read_text()
    made.write("image.yaml", text.replace('"name"', '"nmae"'))
    assert "nmae" in running.wait("failed")["error"]["message"]
    made.write("image.yaml", text)
    time.sleep(0.5)
    made.write("trainer/values.py", "VALUE = 5\n")
    running.wait_for_line("serves 5")
    assert sum("serves" in line for line in running.lines) == 2, "it was not started for the spec"


@pytest.mark.long
def test_what_cannot_be_forked_starts_cold_with_the_new_files(project: Make, watch: Callable[..., Watching]) -> None:
    made = project({"trainer/task.py": f"import sys\nsys.path.insert(0, '/app/trainer')\n{TASK}"})
    running = watch(made)
    running.wait("ended")
    made.write("trainer/task.py", f"import os\nos.environ.update(MODE=str(3))\n{TASK}")
    for number, cold in ((0, ["master"]), (1, []), (2, [])):
        made.write("trainer/values.py", f"VALUE = {number}\n")
        assert running.wait("ended")["ok"]
        assert any("starts cold: the program sets MODE before it imports big" in line for line in running.lines), cold
    assert [line for line in running.printed() if "value" in line] == [f"value {n}" for n in (0, 0, 1, 2)]


SHELL = {"master": {"machine": "n1-standard-4", "command": ["/bin/sh", "-c", "python -m trainer.task"]}}


@pytest.mark.parametrize("roles", [ALONE, SHELL], ids=["a deleted file", "no program of Python's"])
def test_what_no_container_can_take_makes_images(
    project: Make, watch: Callable[..., Watching], tmp_path: Path, roles: dict[str, Any]
) -> None:
    made = project({"trainer/old.py": "X = 1\n"}, roles=roles)
    running = watch(made)
    assert running.wait("ended")["ok"], "".join(running.lines)
    fresh = Path(shutil.copytree(made.folder, tmp_path / "fresh"))
    old = Path("trainer/old.py")
    (fresh / old).unlink() if roles is ALONE else (fresh / old).write_text("X = 2\n")
    made.build(fresh)
    (made.folder / old).unlink() if roles is ALONE else (made.folder / old).write_text("X = 2\n")
    assert running.wait("changed")["how"] == "images"
    assert running.wait("ended")["ok"], "".join(running.lines)
    assert running.printed().count("value 0") == 2


@pytest.mark.long
def test_a_program_that_fails_and_its_restart_by_the_service(project: Make, watch: Callable[..., Watching]) -> None:
    task = f"{TASK}import os, sys, pathlib\npath = pathlib.Path('/job/count')\n"
    task += "n = int(path.read_text()) if path.exists() else 0\npath.write_text(str(n + 1))\n"
    task += "sys.exit(200 if n < 2 else 0)\n"
    made = project({"trainer/task.py": task})
    running = watch(made, "--restart")
    ended = running.wait("ended")
    assert ended["ok"]
    assert (ended["replicas"][0]["restarts"], len(ended["deaths"])) == (2, 2)
    made.write("trainer/values.py", "raise ValueError('bad value')\n")
    failed = running.wait("ended")
    assert failed["error"]["code"] == 10
    assert any(line.endswith("ValueError: bad value") for line in failed["error"]["details"])


@pytest.mark.long
def test_a_rehearsed_kill(project: Make, watch: Callable[..., Watching]) -> None:
    made = project({"trainer/task.py": TASK + "import time\ntime.sleep(3)\n"})
    running = watch(made, "--as", "vertex", "--kill", "master@1s")
    for _ in range(2):
        ended = running.wait("ended")
        assert (ended["ok"], ended["deaths"][0]["exit_code"]) == (True, 137)
        made.write("trainer/values.py", "VALUE = 1\n")


@pytest.mark.long
@pytest.mark.parametrize("python", ["3.7", "3.8", "3.9", "3.10", "3.12", "3.13"])
def test_pythons_of_images(project: Make, watch: Callable[..., Watching], python: str) -> None:
    """The interpreter in the image counts, whatever the spec says."""
    made = project({}, base_python=python)
    running = watch(made)
    colds = []
    for number in (1, 2, 3):
        colds.append(running.wait("started")["cold"])
        assert running.wait("ended")["ok"], "".join(running.lines)
        made.write("trainer/values.py", f"VALUE = {number}\n")
    assert colds == [[], [], []]
    values = [line for line in running.printed() if line.startswith("value")]
    assert values[:3] == ["value 0", "value 1", "value 2"]


@pytest.mark.long
def test_a_user_who_is_not_root(project: Make, watch: Callable[..., Watching]) -> None:
    if os.geteuid():
        pytest.skip("only root gives a folder away")
    task = f"import os\nprint('left', os.listdir('/tmp'))\n{TASK}open('/tmp/left', 'w').close()\n"
    made = project({"trainer/task.py": task})
    made.job.mkdir()
    os.chown(made.job, NOBODY, NOBODY)
    running = watch(made)
    assert running.wait("ended")["ok"], "".join(running.lines)
    made.write("trainer/new.py", "X = 1\n")
    made.write("trainer/values.py", "from trainer.new import X as VALUE\n")
    assert running.wait("changed")["how"] == "code"
    assert running.wait("ended")["ok"]
    left = [line for line in running.printed() if line.startswith(("left", "value"))]
    assert left == ["left []", "value 0", "left []", "value 1"]


@contextmanager
def other_engine(version: str, engine: DockerEngine, folder: Path) -> Iterator[tuple[DockerEngine, str]]:
    """Another engine, with the base that this machine's has, and its DOCKER_HOST."""
    start = private_podman("127.0.0.1:1") if version == "podman5" else private_engine(version, options="")
    name = python_base(engine, "3.12")
    with start as private, closing(connect(settings(folder, DOCKER_HOST=private.host), timeout=20)) as other:
        with engine.api.ask("saving a base") as saving, other.api.ask("loading it") as loading:
            for _ in loading.load_image(b"".join(saving.get_image(name))):
                pass
        yield other, private.host


@pytest.mark.long
@pytest.mark.parametrize("version", ["engine28", "podman5"])
def test_other_engines(version: str, engine: DockerEngine, tmp_path: Path) -> None:
    with other_engine(version, engine, tmp_path) as (other, host):
        made = WatchProject(tmp_path, other, {}, base_python="3.12", builds=True, name="demo", roles=ALONE)
        made.env["DOCKER_HOST"] = host
        running = made.watch()
        try:
            running.wait("started")
            assert running.wait("ended")["ok"], "".join(running.lines)
            made.write("trainer/values.py", "import sys\nVALUE = 3\nsys.stdout.write('no end')\nsys.exit(7)\n")
            assert running.wait("started")["cold"] == [], "".join(running.lines)
            ended = running.wait("ended")
        finally:
            code = running.end()
        assert ended["replicas"][0]["exit_code"] == 7
        assert running.printed()[-1] == "no end"
        assert (code, made.left()) == (130, [])


ENDS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]


@pytest.mark.long
def test_nothing_is_left_whenever_it_ends(project: Make, tmp_path: Path) -> None:
    """At random moments; after a SIGKILL the next run tidies up."""
    made = project({"trainer/task.py": BOTH, "trainer/server.py": SERVER}, roles=PAIR)
    chosen = random.Random(5)
    files = sorted(path.name for path in Path("/dev/shm").iterdir())
    for number in range(12):
        made.write("trainer/values.py", "VALUE = 0\n")  # of which there are images
        before = made.left()  # of a run that SIGKILL ended, until one comes so far
        running = made.watch("--as", "local")
        deadline = time.monotonic() + chosen.uniform(0, 8)
        while time.monotonic() < deadline:
            if any(line.startswith("[run]") for line in running.lines):
                made.write("trainer/values.py", f"VALUE = {number}\n# {time.monotonic()}\n")
            time.sleep(chosen.uniform(0, 2))
        how = chosen.choice(ENDS)
        code = running.end(how)
        assert code in {128 + how, -how}, (number, how, code, running.lines)
        if how != signal.SIGKILL:
            assert {*made.left()} <= {*before}, (number, how, running.lines)
    made.write("trainer/values.py", "VALUE = 0\n")
    last = made.watch("--as", "local")
    last.wait("started")
    assert last.end() == 130
    assert not made.left()
    assert sorted(path.name for path in Path("/dev/shm").iterdir()) == files


@pytest.mark.long
@pytest.mark.network
def test_tensorflow_is_imported_once_per_replica(mnist: Mnist, tmp_path: Path) -> None:
    """images/mnist: a master with a worker and a parameter server, each forked from a process that has TensorFlow."""
    folder = tmp_path / "mnist"
    shutil.copytree(CHECKOUT / "images/mnist", folder, ignore=shutil.ignore_patterns("job"))
    env = {**os.environ, **mnist.env}
    running = Watching(folder, tmp_path / "job", env, "--workers", "1", "--", "--epochs=1")
    try:
        running.wait("ended", 600)
        code = folder / "trainer/task.py"
        for number in range(2):
            code.write_text(
                code.read_text().replace("def main(", f'print("edit {number}", flush=True)\n\n\ndef main(', 1)
            )
            started = running.wait("started", 120)
            ended = running.wait("ended", 300)
            assert (started["how"], started["cold"], ended["ok"]) == ("code", [], True), "".join(running.lines[-40:])
    finally:
        running.end()
    printed = [" ".join(line.split()[:2]) for line in running.printed() if line.startswith(("edit", "accuracy"))]
    assert [line.partition(" ")[0] for line in printed] == ["accuracy", "edit", "accuracy", "edit", "edit", "accuracy"]
    assert min(float(line.split()[1]) for line in printed if line.startswith("accuracy")) > 0.5
