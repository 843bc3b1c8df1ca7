"""Stages on BuildKit by buildx: found by another machine, no wheels for the builder, secrets nowhere, failures.

`scripts/services up engine28 buildx` fetches the programs.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.project import NO_ENGINE
from tests.integration.buildkit_world import (
    BuildKitWorld,
    buildkit_world,
)
from tests.make.engines.support import wait_for

pytestmark = [pytest.mark.registry, pytest.mark.slow, pytest.mark.long]

TOKEN = "cat /run/secrets/token > /tmp/copy; rm /tmp/copy; echo begun > /begun"
WITH_TOKEN = "secrets: {token: {}}\n"


@pytest.fixture(scope="module", params=["remote", "docker"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildKitWorld]:
    with buildkit_world(tmp_path_factory.mktemp("world"), request.param) as made:
        yield made


def test_stages_are_run_once_and_found_by_a_second_machine(world: BuildKitWorld, tmp_path: Path) -> None:
    world.write_lines(TOKEN, later=["ls /opt/venv > /listing"], more=WITH_TOKEN)
    sent = world.proxy.received
    first = world.push("--secret", "id=token,env=TOKEN", "--progress", "plain", env={"TOKEN": "0123456"})
    for stage in ("run cpu", "setup cpu"):
        pushed = [line for line in first.err.splitlines() if line.startswith(f"[{stage}] pushed")]
        assert len(pushed) == 1, first.err
    assert world.proxy.received - sent < 100_000
    assert not world.proxy.seen
    fresh: dict[str, str | None] = {"IMGTOOL_CACHE": str(tmp_path), "DOCKER_HOST": NO_ENGINE, "PATH": "/usr/bin:/bin"}
    second = world.push("--secret", "id=token,env=TOKEN", env=fresh)
    assert world.project.images(second) == world.project.images(first)
    world.write_lines(TOKEN, more=WITH_TOKEN)
    third = world.run("push", "--secret", "id=token,env=TOKEN", env=fresh)  # a new image on a stage that exists
    assert world.project.images(third)["worker"] != world.project.images(first)["worker"]
    assert "needs an engine" not in third.err


def test_a_template_is_built_whole_from_the_whole_context(world: BuildKitWorld) -> None:
    world.project.write("notes.txt", "read")
    world.write_template(after_code=f"COPY code/notes.txt /notes\nRUN cat /notes; echo {time.time_ns()}")
    ended = world.push("--role", "worker", "--progress", "plain")
    assert "[worker] | read" in ended.err
    assert "[worker] pushed" in ended.err
    assert world.proxy.seen == {*world.proxy.needles}
    world.proxy.seen.clear()


def test_a_secret_that_only_the_finished_image_shows(world: BuildKitWorld) -> None:
    """Also to the run that finds that image."""
    world.write_template(after_code="ENV A=xhunter2hunter2\nENV DB_PASSWORD=${A#x}")
    for _ in range(2):
        ended = world.push("--role", "worker", code=10)
        assert "worker: the Env of the pushed image, built from own.j2, contains a credential" in ended.err
        assert "change the credential, delete" in ended.err
        assert "hunter2" not in ended.err.partition("Error: ")[2]
    world.proxy.seen.clear()


def test_changed_code_of_the_same_length_reaches_the_image(world: BuildKitWorld) -> None:
    """BuildKit compares names, sizes and times of files with those of the last build, and not what is in them."""
    for code in ("print('aaaa')\n", "print('bbbb')\n"):
        world.project.write("trainer/task.py", code)
        world.write_template(after_code=f"RUN cat /app/trainer/task.py; echo {time.time_ns()}")
        assert f"[worker] | {code}" in world.push("--progress", "plain").err
    world.proxy.seen.clear()


def test_secrets_of_any_bytes_arrive_and_are_nowhere(world: BuildKitWorld) -> None:
    mark = f"canary-{time.time_ns()}"
    values = {
        "lines": f"first-{mark}\n\n  $two \"{mark}\" 'x' \n".encode(),
        "binary": bytes(range(256)) + mark.encode() + b"\xff\n\xc3",
        "large": f"{mark}:".encode() + b"0123456789abcdef" * 6_250,
        "empty": b"",
        "word": b"python",
    }
    folder = world.project.root / 'secrets, "quoted"'
    folder.mkdir(exist_ok=True)
    steps, options = [], []
    for name, value in values.items():
        (folder / name).write_bytes(value)
        steps.append(f"echo {name} $(busybox sha256sum < /run/secrets/{name}) from python3; echo {mark}x")
        place = str(folder / name).replace('"', '""')
        options += ["--secret", f'id={name},"src={place}"']
    world.write_lines(*steps, more=f"secrets: {json.dumps({name: {} for name in values})}\n")
    err = world.push(*options, "--progress", "plain").err
    for name, value in values.items():
        assert f"[run cpu] | {name} {hashlib.sha256(value).hexdigest()} - from python3" in err
    for path in folder.iterdir():
        path.unlink()
    assert "printed a secret" not in err
    for part in (f"first-{mark}", f'"{mark}"', f"{mark}:0123"):
        assert part not in err
        assert _files_with(world, part) == []


def _files_with(world: BuildKitWorld, text: str) -> list[Path]:
    """The files of the user, the registry, the builder and the machine's memory that contain a text."""
    places = [world.project.root.parent, world.engine.folder, Path("/dev/shm")]
    files = [Path(folder, name) for place in places for folder, _, names in os.walk(place) for name in names]
    return [path for path in files if path.is_file() and _holds(path, text.encode())]


def _holds(path: Path, needle: bytes) -> bool:
    """Whether a file, or what it inflates to, contains the bytes."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    if data.startswith(b"\x1f\x8b"):
        try:
            data += gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return needle in data
    return needle in data


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("echo oh no; exit 7", 4, "ended with exit code 7"),
        ("echo full; exec busybox sh -c 'echo cp: No space left on device >&2; exit 1'", 5, "a disk is full"),
    ],
)
def test_a_line_that_fails(world: BuildKitWorld, line: str, code: int, says: str) -> None:
    world.write_lines(line)
    assert says in world.push(code=code).err


@pytest.mark.parametrize(
    ("flag", "code", "says"),
    [
        ("--network=host", 4, "network.host is not allowed"),
        ("--security=insecure", 3, "unknown flag: --security"),  # Docker 20.10's frontend; newer ones ask for more
    ],
)
def test_a_template_that_wants_more_than_a_builder_gives(world: BuildKitWorld, flag: str, code: int, says: str) -> None:
    world.write_template(system_extra=f"RUN {flag} true")
    assert says in world.push(code=code).err


def test_a_builder_that_does_not_exist_or_answer(world: BuildKitWorld) -> None:
    world.write_lines(f"echo {time.time_ns()}")
    assert 'no builder "nosuch" found' in world.run("push", "--builder", "nosuch", code=5).err
    world.buildx("create", "--name", "dead", "--driver", "remote", "tcp://127.0.0.1:9")
    assert "builder dead does not answer" in world.run("push", "--builder", "dead", code=5).err
    world.buildx("rm", "dead")
    world.push()


def test_a_builder_that_is_killed_in_the_middle(world: BuildKitWorld) -> None:
    world.write_lines(f"echo {time.time_ns()}; echo begun; sleep 6")
    command = world.engine_command()
    arguments = ("push", *world.options)
    with world.project.under_way(*arguments, before=world.before) as process:
        assert process.stderr is not None
        err = b""
        while b"| begun" not in err:
            line = process.stderr.readline()
            assert line, err
            err += line
        world.engine.kill()
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 5, err + rest
    assert b"stopped while this ran" in rest
    world.restart(command)
    world.push()


def test_an_interrupted_push_ends_the_builders_work(world: BuildKitWorld) -> None:
    mark = str(time.time_ns())
    world.write_lines(f"echo {mark}; echo begun; sleep 50")
    with world.project.under_way("push", *world.options, before=world.before) as process:
        assert process.stderr is not None
        while b"| begun" not in (line := process.stderr.readline()):
            assert line
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 143
    running = ["pgrep", "-f", f"echo {mark}"]
    assert wait_for(lambda: subprocess.run(running, check=False, capture_output=True).returncode == 1, 20)
