"""Direct pushes with the real TensorFlow: what a change costs, here and on machines that have nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import CHECKOUT
from tests.integration.push_world import Machine, blobs_sent, document, lines
from tests.servers.fault_proxy import FaultProxy

# Requests of three roles after a change of code: 14 for the images, 6 for the attestations of each. A machine without
# state sends two more.
CHANGED = 32
CHANGED_ELSEWHERE = 34
pytestmark = [pytest.mark.registry, pytest.mark.network, pytest.mark.slow]
HOME = Path(os.environ.get("IMGTOOL_CACHE") or Path.home() / ".cache/imgtool")


class Place:
    """images/mnist in a folder of its own, and machines behind a proxy."""

    def __init__(self, folder: Path, proxy: FaultProxy) -> None:
        self.folder, self.proxy = folder, proxy
        self.spec = folder / "mnist"
        ours = shutil.ignore_patterns("__pycache__", "*.lock", "config.yaml", "job")
        shutil.copytree(CHECKOUT / "images/mnist", self.spec, ignore=ours)

    def machine(self, name: str, *, wheels: bool) -> Machine:
        """A machine; with `wheels` it uses this machine's wheel cache, else it cannot get any."""
        made = Machine(self.folder / name, f"{self.proxy.host}/tf/{self.folder.name}", self.proxy.host)
        if wheels:
            (HOME / "wheels").mkdir(parents=True, exist_ok=True)
            made.cache.mkdir()
            (made.cache / "wheels").symlink_to(HOME / "wheels")
            del made.env["UV_INDEX_URL"]
            made.env |= {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_"))}
        return made

    def push(self, machine: Machine, spec: Path | None = None) -> dict[str, str]:
        """`imgtool build --push`, the log beginning with it."""
        self.proxy.clear()
        out, _ = machine.run("build", "--push", "--engine=direct", cwd=spec or self.spec, timeout=500)
        return dict(line.split(" ", 1) for line in out.splitlines())

    def version(self, name: str) -> None:
        """Asks for another TensorFlow; the lock is renewed by the next run."""
        path = self.spec / "image.yaml"
        text = path.read_text()
        was = next(line for line in text.splitlines() if line.startswith("tensorflow:"))
        path.write_text(text.replace(was, f'tensorflow: "{name}"'))

    def code(self, text: str) -> None:
        """Changes one line of the trainer."""
        path = self.spec / "trainer/task.py"
        path.write_text(f"{path.read_text()}# {text}\n")

    def check_light(self, images: dict[str, str], most: int = 128 << 10) -> None:
        """Nothing but code, configs, manifests, and what is said of the 48 wheels of each image moved."""
        code = document(self.proxy.upstream, images["worker"])["layers"][-1]["size"]
        assert self.proxy.bytes_up() - code < most, lines(self.proxy)
        assert self.proxy.bytes_down() < most, lines(self.proxy)


@pytest.fixture(scope="module")
def place(registry_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(f"tf{os.getpid()}")
    with FaultProxy(registry_address) as proxy:
        yield Place(folder, proxy)


@pytest.fixture(scope="module")
def pushed(place: Place) -> dict[str, str]:
    """The first push, by a machine that has the wheels or fetches them."""
    return place.push(place.machine("first", wheels=True))


def test_everything_goes_up_once(place: Place, pushed: dict[str, str]) -> None:
    sent = blobs_sent(place.proxy.log)
    assert len(sent) == len({*sent})
    assert place.proxy.bytes_up() > 150 << 20
    assert not (place.folder / "first/cache/layers/blobs").exists() or _size(place.folder / "first/cache") < 100 << 20


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_one_line_changed_on_a_machine_that_has_nothing(place: Place, pushed: dict[str, str]) -> None:
    place.code("once more")
    machine = place.machine("second", wheels=False)
    images = place.push(machine)
    assert len(place.proxy.log) <= CHANGED_ELSEWHERE, lines(place.proxy)
    place.check_light(images)
    layers = [document(place.proxy.upstream, found["ps"])["layers"] for found in (pushed, images)]
    assert layers[0][:-1] == layers[1][:-1]
    place.code("and again")
    place.push(machine)
    assert len(place.proxy.log) <= CHANGED
    place.push(machine)
    assert sorted(place.proxy.methods()) == ["GET"] * 3 + ["HEAD"] * 3


@pytest.mark.long
def test_a_new_patch_version_on_a_machine_that_has_nothing(place: Place, pushed: dict[str, str]) -> None:
    """Another machine pushed it before, with other code."""
    first = place.machine("renewed", wheels=True)
    place.version("2.15.0")
    before = place.push(first)
    assert place.proxy.bytes_up() > 150 << 20  # TensorFlow is new; the other layers are
    place.code("on another machine")
    machine = place.machine("fourth", wheels=False)
    images = place.push(machine)
    place.check_light(images)
    assert len(place.proxy.log) <= CHANGED_ELSEWHERE
    assert not list(machine.root.rglob("*.whl"))
    layers = [document(place.proxy.upstream, found["master"])["layers"] for found in (before, images)]
    assert layers[0][:-1] == layers[1][:-1]
