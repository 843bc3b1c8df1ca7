"""`imgtool prune --registry`: what nothing needs goes, everything else stays whole, on registries of several kinds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.push_world import Machine, Project, Wheels, check_whole, digests, make_base
from tests.registry.support import machine as settings_of
from tests.servers.memory_registry import MemoryRegistry
from tests.servers.registry_process import CRANE, WITH_REFERRERS, run_crane, run_registry, run_with_referrers
from training_imgtool.core.reference import Digest, parse_reference, parse_repository
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.referrers import list_referrers

MORE = "env: {{OTHER: {name}}}\n"


@dataclass
class World:
    """Two specs of one repository, in one Git repository, and a machine that pushes them."""

    folder: Path
    host: str
    machine: Machine
    project: Project
    other: Project
    pushes: list[dict[str, str]]
    data: Path | None = None

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
        subprocess.run(["git", *identity, *arguments], cwd=self.folder, check=True, capture_output=True)

    def push(self, text: str, *arguments: str) -> dict[str, str]:
        """Changes a line, commits and pushes."""
        self.project.write("trainer/task.py", f"print({text!r})\n")
        self.git("add", "-A")
        self.git("commit", "-m", text)
        self.pushes.append(self.machine.push(self.project, *arguments))
        return self.pushes[-1]

    def prune(self, *arguments: str | Path, code: int = 0, timeout: float = 120) -> dict[str, Any]:
        command = ("prune", "--registry", "--json", *arguments)
        out, err = self.machine.run(*command, cwd=self.project.folder, code=code, timeout=timeout)
        answer = json.loads(out)
        return answer["repositories"][0] if not code else {**answer["error"], "said": err}

    def present(self) -> list[bool]:
        """Whether each push is still there, all roles alike."""
        with Registries(settings_of(self.folder)) as registries:
            client = registries.at(self.host)
            return [self._is_there(client, push) for push in self.pushes]

    def _is_there(self, client: Any, push: dict[str, str]) -> bool:
        found = {
            client.head(parse_repository(ref.partition("@")[0]).digest(ref.partition("@")[2])) for ref in push.values()
        }
        there = found & set(digests(push).values())
        assert not there or there == found, "some roles of a push are there and others are not"
        return bool(there)

    def tags(self) -> tuple[str, ...]:
        with Registries(settings_of(self.folder)) as registries:
            return registries.at(self.host).list_tags(parse_repository(f"{self.host}/team/demo"))


def _world(tmp_path: Path, host: str) -> World:
    base = make_base()
    base.put(host)
    wheels = Wheels(tmp_path / "wheels")
    project = Project(tmp_path / "git/one", wheels, base)
    other = Project(tmp_path / "git/two", wheels, base, more=MORE.format(name="x"))
    machine = Machine(tmp_path / "machine", f"{host}/team", host)
    machine.give(wheels)
    world = World(tmp_path / "git", host, machine, project, other, [])
    world.git("init", "-q")
    world.git("add", "-A")
    world.git("commit", "-qm", "start")
    return world


@pytest.fixture(
    params=[
        "docker-registry",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("list in a tag", "referrers API", "crane")),
    ]
)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "docker-registry":
        with run_registry(tmp_path / "registry") as running:
            yield _world(tmp_path, running.host)
        return
    if request.param == "crane":
        if shutil.which(CRANE) is None:
            pytest.skip("crane is not installed")
        with run_crane(tmp_path / "crane") as host:
            yield _world(tmp_path, host)
        return
    with MemoryRegistry(referrers=2 if request.param == "referrers API" else 0) as server:
        server.page = 4
        yield _world(tmp_path, server.host)


@pytest.mark.registry
def test_what_nothing_needs_goes_and_the_rest_stays_whole(world: World, tmp_path: Path) -> None:
    named = world.push("named", "--tag", "mine")
    world.push("named as imgtool names", "--role", "worker", "--tag", f"release-{'0' * 32}")
    used = world.push("used by a job")
    old = [world.push(f"old {number}") for number in range(3)]
    last = [world.push(f"last {number}") for number in range(2)]
    world.pushes.append(others := world.machine.push(world.other))
    job = tmp_path / "config.yaml"
    job.write_text("\n".join(used.values()))
    before = world.tags()
    options = ("--keep", "2", "--keep-used-by", job)
    plan = world.prune(*options)
    assert world.tags() == before  # a dry run
    assert {one["digest"] for one in plan["gone"]} == {digest for push in old for digest in digests(push).values()}
    assert plan["bytes"] > 0
    assert plan["kept"]["named by a tag of yours"] == 4
    assert plan["kept"]["the stage that the next change begins with"] == 1
    done = world.prune(*options, "--delete")
    assert (done["gone"], done["tags"]) == (plan["gone"], plan["tags"])
    assert world.present() == [True, True, True, False, False, False, True, True, True]
    check_whole(world.host, [reference for push in (named, used, *last, others) for reference in push.values()])
    assert len(before) - len(world.tags()) == plan["tags"]
    hexes = {digest.removeprefix("sha256:") for push in old for digest in digests(push).values()}
    assert not [tag for tag in world.tags() if re.sub(r"^sha256-|\..*$", "", tag) in hexes]
    assert world.prune(*options)["gone"] == []
    assert world.machine.push(world.project) == last[-1]  # found


@pytest.mark.long
@pytest.mark.registry
def test_garbage_collection_takes_nothing_of_a_live_image(tmp_path: Path) -> None:
    with run_registry(tmp_path / "registry") as running:
        world = _world(tmp_path, running.host)
        for number in range(4):
            world.push(f"change {number}")
        freed = world.prune("--keep", "1", "--delete")["bytes"]
        size = _size(tmp_path / "registry/data")
        command = ["docker-registry", "garbage-collect", str(tmp_path / "registry/config.yml")]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        assert size - _size(tmp_path / "registry/data") >= freed
        check_whole(running.host, world.pushes[-1].values())
        assert _count_attached(world, world.pushes[-1]) == [2] * 3


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("data") if path.is_file())


@dataclass
class Many:
    """Pushes of three specs in turn, and five job files that name some of them."""

    world: World
    specs: tuple[Project, ...]
    pushed: list[list[dict[str, str]]]
    live: list[dict[str, str]]
    options: list[str | Path]

    def prune(self, code: int = 0) -> list[dict[str, Any]]:
        """Prunes for each spec; docker-registry reads all tags for each deletion."""
        return [
            self.world.prune(spec.folder, *self.options, "--delete", code=code, timeout=2400) for spec in self.specs
        ]

    def check(self, attached: int) -> None:
        """Live images are whole and found, with so many attestations; of the others none is there."""
        check_whole(self.world.host, [reference for push in self.live for reference in push.values()])
        for project, pushes in zip(self.specs, self.pushed, strict=True):
            assert self.world.machine.push(project) == pushes[-1]  # found
        kept = {digest for push in self.live for digest in digests(push).values()}
        assert self.world.present() == [set(digests(push).values()) <= kept for push in self.world.pushes]
        for push in self.live:
            assert _count_attached(self.world, push) == [attached] * 3


def _push_many(world: World, folder: Path, count: int) -> Many:
    third = Project(folder / "git/three", world.project.wheels, world.project.base, more=MORE.format(name="y"))
    specs = (world.project, world.other, third)
    pushed: list[list[dict[str, str]]] = [[], [], []]
    for number in range(count):
        which = number % len(specs)
        specs[which].write("trainer/task.py", f"print({number})\n")
        world.git("add", "-A")
        world.git("commit", "-m", f"change {number}")
        pushed[which].append(world.machine.push(specs[which]))
    used = [pushed[0][0], pushed[0][count // 25], pushed[1][3], pushed[1][count // 5], pushed[2][count // 8]]
    options: list[str | Path] = ["--keep", "3"]
    for number, push in enumerate(used):
        (folder / f"job-{number}.yaml").write_text("\n".join(push.values()))
        options += ["--keep-used-by", folder / f"job-{number}.yaml"]
    world.pushes = [push for pushes in pushed for push in pushes]
    return Many(world, specs, pushed, [*used, *(push for pushes in pushed for push in pushes[-3:])], options)


def _count_attached(world: World, push: dict[str, str]) -> list[int]:
    """How many attestations each role has that can be read whole."""
    counts = []
    with Registries(settings_of(world.folder)) as registries:
        client = registries.at(world.host)
        for reference in push.values():
            subject = parse_reference(reference)
            assert isinstance(subject, Digest)
            attached = list_referrers(client, subject)
            found = [client.manifest(subject.repository.digest(one.descriptor.digest)) for one in attached]
            assert all(client.has_blob(subject.repository, blob) for one in found for blob in one.layers)
            counts.append(len(found))
    return counts


def _count(world: World, data: Path) -> tuple[int, int, int]:
    """Tags, manifests and bytes of docker-registry."""
    manifests = sum(1 for _ in data.rglob("_manifests/revisions/sha256/*/link"))
    return len(world.tags()), manifests, _size(data)


HOW_MANY = pytest.mark.parametrize(
    "pushes", [pytest.param(100, marks=pytest.mark.long), pytest.param(500, marks=pytest.mark.campaign)]
)


@HOW_MANY
@pytest.mark.registry
def test_many_pushes_and_the_collections_of_docker_registry(
    pushes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "registry/data"
    with run_registry(tmp_path / "registry") as running:
        many = _push_many(_world(tmp_path, running.host), tmp_path, pushes)
        sizes = [_count(many.world, data)]
        many.prune()
        many.check(attached=2)
        sizes.append(_count(many.world, data))
        for option in ((), ("--delete-untagged",)):
            command = ["docker-registry", "garbage-collect", *option, str(tmp_path / "registry/config.yml")]
            subprocess.run(command, check=True, capture_output=True, timeout=600)
            many.check(attached=1 if option else 2)  # the provenance has a tag, and the bill of materials has none
            sizes.append(_count(many.world, data))
    with capsys.disabled():
        print(f"\n{pushes} pushes: tags, manifests, bytes: pushed, pruned, collected, untagged too: {sizes}")
    assert all(after < before * 50 / pushes for before, after in zip(sizes[0][:2], sizes[-1][:2], strict=True))
    assert sizes[2][2] < sizes[0][2]


@HOW_MANY
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run_crane, id="plain", marks=pytest.mark.skipif(not shutil.which(CRANE), reason="no crane")),
        pytest.param(
            run_with_referrers,
            id="referrers",
            marks=pytest.mark.skipif(not WITH_REFERRERS.exists(), reason="scripts/services up referrers"),
        ),
    ],
)
def test_many_pushes_to_cranes_registry(
    run: Callable[[Path], AbstractContextManager[str]], pushes: int, tmp_path: Path
) -> None:
    with run(tmp_path / "crane") as host:
        many = _push_many(_world(tmp_path, host), tmp_path, pushes)
        many.prune()
        many.check(attached=2)


@HOW_MANY
def test_many_pushes_to_a_registry_that_forbids_deletion(pushes: int, tmp_path: Path) -> None:
    with MemoryRegistry() as server:
        server.deletes = False
        many = _push_many(_world(tmp_path, server.host), tmp_path, pushes)
        assert all("HTTP 405" in error["message"] for error in many.prune(code=6))
        assert all(many.world.present())
        server.deletes = True
        many.prune()
        many.check(attached=2)


@pytest.mark.long
def test_another_specs_images_stay_even_with_the_same_file_name(tmp_path: Path) -> None:
    with MemoryRegistry() as server:
        world = _world(tmp_path, server.host)
        world.pushes.append(world.machine.push(world.other))
        world.other.write("trainer/task.py", "print('changed')\n")
        world.pushes.append(world.machine.push(world.other))
        world.push("mine")
        plan = world.prune("--keep", "0", "--delete")
        assert plan["gone"] == []
        assert world.present() == [True] * 3
        own = world.prune(world.other.folder, "--keep", "0", "--delete")  # the first push of the other spec is old now
        assert {one["digest"] for one in own["gone"]} == set(digests(world.pushes[0]).values())


@pytest.mark.long
def test_a_stage_goes_with_the_last_image_that_begins_with_its_layers(tmp_path: Path) -> None:
    with MemoryRegistry() as server:
        world = _world(tmp_path, server.host)
        world.push("before")
        old = {tag for tag in world.tags() if re.fullmatch("packages-[0-9a-f]{32}", tag)}
        world.project.wheels.add("extra", size=1000)
        world.project.lock()
        world.machine.give(world.project.wheels)
        world.push("after")
        used = tmp_path / "used.yaml"
        used.write_text(world.pushes[0]["worker"])
        world.prune("--keep", "0", "--keep-used-by", used, "--delete")
        assert old <= set(world.tags())
        world.prune("--keep", "0", "--delete")
        assert not old & set(world.tags())
        check_whole(world.host, world.pushes[1].values())


def test_an_image_without_provenance_stays(tmp_path: Path) -> None:
    with MemoryRegistry() as server:
        world = _world(tmp_path, server.host)
        world.machine.env["IMGTOOL_ATTESTATIONS"] = "off"
        world.push("first")
        world.push("second")
        plan = world.prune("--keep", "0", "--delete")
        assert plan["gone"] == []
        assert plan["kept"]["without provenance"] == 3


def test_a_registry_that_does_not_delete(tmp_path: Path) -> None:
    with MemoryRegistry() as server:
        server.deletes = False
        world = _world(tmp_path, server.host)
        world.push("first")
        world.push("second")
        error = world.prune("--keep", "1", "--delete", code=6)
        assert "refused (HTTP 405 UNSUPPORTED" in error["message"]
        assert "storage.delete.enabled" in error["hint"]
        assert world.present() == [True, True]


@pytest.mark.long
def test_a_registry_that_says_that_it_deleted(tmp_path: Path) -> None:
    with MemoryRegistry() as server:
        world = _world(tmp_path, server.host)
        world.push("first")
        world.push("second")
        server.forgets_to_delete = True
        error = world.prune("--keep", "1", "--delete", code=6)
        assert "accepted its deletion and still has it" in error["message"]


def test_without_git_nothing_is_old_unasked(tmp_path: Path) -> None:
    with MemoryRegistry() as server:
        world = _world(tmp_path, server.host)
        world.push("first")
        (world.folder / ".git").rename(tmp_path / "gone")
        error = world.prune(code=2)
        assert "in no Git repository" in error["message"]
        world.project.write("trainer/task.py", "print('second')\n")
        world.pushes.append(world.machine.push(world.project))
        assert len(world.prune("--keep", "0", "--delete")["gone"]) == 3
        assert world.present() == [False, True]


@pytest.mark.parametrize("arguments", [("--delete",), ("--keep-used-by", "x"), ("--registry", "--all")])
def test_options_that_do_not_fit(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    machine = Machine(tmp_path / "machine", "127.0.0.1:9/team", "127.0.0.1:9")
    machine.run("prune", *arguments, cwd=tmp_path, code=2)
