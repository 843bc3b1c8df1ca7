"""Names, numbers and dates at the edge of what engines take: an image has them as the spec says, or no push does."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.push_world import Base, Machine, Project, Wheels, wrap_layer
from tests.make.engines.support import BUSYBOX, private_engine
from tests.servers.registry_process import run_registry

pytestmark = [pytest.mark.registry, pytest.mark.engine, pytest.mark.slow]

_PART = "/".join(["d" * 250] * 14)


def _path(length: int) -> str:
    """A path of so many bytes."""
    return f"/{_PART}/" + "/".join(["e" * 49] * 20)[: length - len(_PART) - 3] + "x"


TARGETS = (
    *("/opt/.wh.venv", "/etc/.wh.os-release", "/bin/.wh.busybox", "/etc/.wh..wh..opq", "/srv/.wh.x", "/srv/.wh.."),
    *("/bin/.wh.sh", "/srv/.wh.", "/srv/.wh..wh..plnk", "/srv/.wh.d/x", "/srv/.wh", "/srv/a.wh.b", "/srv/..wh.x"),
    *(
        "/srv/.wH.x",
        "/srv/.wh_x",
        "/srv/-",
        "/srv/-rf",
        "/srv/@",
        "/srv/+",
        "/srv/...",
        "/srv/.x",
        "/srv/..a",
        "/srv/a..",
    ),
    *(f"/srv/{'a' * size}" for size in (100, 101, 154, 155, 156, 254, 255, 256, 257, 4096)),
    *(f"/srv/{'a' * size}/x" for size in (255, 256)),
    *map(_path, (3600, 3700, 3838, 3839, 3840, 3841, 3900, 4000, 4090, 4095, 4096, 4097, 4200)),
    *("/srv/a/", "/srv/x/y/z/", "/PaxHeaders/entry", "/srv/%s", "/srv/a b"),
)
NAMES = (
    "é" * 127,
    "é" * 100,
    "e\u0301",
    "a b",
    "$(x)",
    "'",
    '"',
    "\\",
    "x#y",
    "*",
    "name\u00a0x",
    "日本",
    "-",
    "~x",
    "a:b",
)
USERS = ("0", "1", "65534", "65535", "4294967", "2147483647", "2147483648", "4294967295", "99999999999", "1:2147483648")
DATES = ("0", "1", "315619200", "4294967295", "8589934591", "8589934592", "99999999999", "999999999999")
CASES = (
    *(("target", target) for target in TARGETS),
    *(("name", name) for name in NAMES),
    *(("user", user) for user in USERS),
    *(("date", date) for date in DATES),
)
SAMPLE = {TARGETS[0], TARGETS[25], _path(3839), "é" * 127, "2147483647", "8589934591"}


@dataclass
class World:
    """An engine, and a machine that pushes to a registry and loads into the engine."""

    folder: Path
    host: str
    docker: str
    plain: frozenset[str] = frozenset()

    def try_case(self, kind: str, value: str) -> str:
        """Pushes, loads and looks at an image; `refused`, or what is in the container."""
        name = f"c{abs(hash((kind, value)))}"
        project = Project(self.folder / name, Wheels(self.folder / "wheels"), _base())
        project.write("one", "edge")
        more = {"target": f"files: {{one: '{value}'}}\n", "user": f'user: "{value}"\n'}.get(kind, "")
        (project.folder / "image.yaml").write_text((project.folder / "image.yaml").read_text() + more)
        if kind == "name":
            project.write(f"trainer/{value}", "edge")
        env = {"DOCKER_HOST": self.docker, **({"SOURCE_DATE_EPOCH": value} if kind == "date" else {})}
        machine = Machine(self.folder / f"{name}-machine", f"{self.host}/{name}", self.host, **env)
        machine.give(project.wheels)
        try:
            project.lock()
            pushed = machine.start("push", "--role", "worker", "--no-check", cwd=project.folder)
        except Exception:  # noqa: BLE001 - the spec is refused when it is read
            return "refused"
        said = pushed.communicate(timeout=100)[1].decode()
        if pushed.returncode in {2, 3}:
            return "refused"
        assert pushed.returncode == 0, said
        out, _ = machine.run("build", "--locked", "--role", "worker", "--no-check", cwd=project.folder)
        return self._look(out.split()[1], kind, value)

    def _look(self, image: str, kind: str, value: str) -> str:
        run = ["docker", "-H", self.docker]
        words = [*run, "run", "--rm", "--entrypoint", "/bin/busybox", "--network=none", image, "id", "-u"]
        who = subprocess.run(words, capture_output=True, text=True, check=False)
        assert who.returncode == 0, who.stderr
        created = subprocess.check_output([*run, "create", "--network=none", image, "x"], text=True).strip()
        data = subprocess.check_output([*run, "export", created])
        subprocess.run([*run, "rm", created], check=True, capture_output=True)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            names = {member.name: member for member in tar}
            assert names.keys() >= self.plain
            if kind == "user":
                assert who.stdout.strip() == value.partition(":")[0]
            if kind in {"target", "name"}:
                place = f"app/trainer/{value}" if kind == "name" else value.strip("/")
                place += "/one" if value.endswith("/") else ""
                content = tar.extractfile(names[place])
                assert content is not None
                assert content.read() == b"edge"
            if kind == "date":
                assert names["app/trainer/task.py"].mtime == int(value or 0) or value == "0"
        if not self.plain:
            self.plain = frozenset(names) - {"app/trainer/plain"}
        return "equal"


def _base() -> Base:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in (("bin/busybox", BUSYBOX.read_bytes()), ("bin/sh", b"x"), ("etc/os-release", b"ID=x\n")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
        for name in ("bin/", "etc/", "opt/", "srv/", "usr/", "usr/local/", "usr/local/bin/"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return wrap_layer(buffer.getvalue(), {"Cmd": ["sh"]})


@pytest.fixture(scope="module", params=["", pytest.param("engine28", marks=pytest.mark.long)], ids=["20.10", "28"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if not BUSYBOX.is_file():
        pytest.skip("no /bin/busybox (apt install busybox-static)")
    folder = tmp_path_factory.mktemp("world")
    with run_registry(folder / "registry") as running:
        _base().put(running.host)
        if request.param:
            daemon = {"features": {"containerd-snapshotter": True}}
            with private_engine(request.param, options="", daemon=daemon) as engine:
                made = World(folder, running.host, engine.host)
                assert made.try_case("name", "plain") == "equal"
                yield made
        else:
            made = World(folder, running.host, os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
            assert made.try_case("name", "plain") == "equal"
            yield made


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param(*case, marks=[] if case[1] in SAMPLE else pytest.mark.long, id=ascii(case[1])[:40])
        for case in CASES
    ],
)
def test_what_is_pushed_is_what_the_engine_has(world: World, kind: str, value: str) -> None:
    assert world.try_case(kind, value) in {"equal", "refused"}
