"""What one machine made, another takes over: across roles, specs, repositories and registries, and users."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.push_world import (
    ROLES,
    Machine,
    Project,
    Wheels,
    blobs_sent,
    check_whole,
    digests,
    document,
    lines,
    make_base,
)
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from tests.servers.registry_process import run_registry
from training_imgtool.model.targets import Target

pytestmark = pytest.mark.registry
ONE_ROLE = {Target.SKYPILOT}


class World:
    """A registry, a set of wheels, and machines that are called by name."""

    def __init__(self, folder: Path, proxy: FaultProxy) -> None:
        self.folder, self.proxy = folder, proxy
        self.base = make_base()
        self.base.put(proxy.upstream)
        self.wheels = Wheels(folder / "wheels")
        self.wheels.add("tensorflow_cpu", version="2.15.1", size=2_100_000)

    def project(self, folder: str, more: str = "", name: str = "") -> Project:
        return Project(self.folder / folder, self.wheels, self.base, name=name or folder, more=more)

    def machine(self, name: str, *, wheels: bool = False) -> Machine:
        made = Machine(self.folder / name, f"{self.proxy.host}/team", self.proxy.host)
        if wheels:
            made.give(self.wheels)
        return made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with run_registry(tmp_path / "registry") as running, FaultProxy(running.host) as proxy:
        yield World(tmp_path, proxy)


@pytest.mark.long
def test_another_spec_takes_nothing_of_this_one(world: World) -> None:
    """Its repository is its own: who may write to one decides nothing in the other."""
    world.machine("a", wheels=True).push(world.project("one"))
    world.proxy.clear()
    images = world.machine("b", wheels=True).push(world.project("two", more="  evaluator: {machine: n1-standard-4}\n"))
    assert list(images) == ["master", "worker", "ps", "evaluator"]
    check_whole(world.proxy.upstream, images.values())
    assert not [line for line in lines(world.proxy) if "/team/one/" in line], lines(world.proxy)


def test_tags_that_may_not_move_cost_the_wheels_of_the_next_change_only(world: World) -> None:
    refused = b'{"errors":[{"code":"TAG_INVALID","message":"tag immutability"}]}'
    latest = "/manifests/packages-latest-"
    world.proxy.add(Fault(action=Action.ANSWER, method="PUT", path=latest, status=400, body=refused, times=-1))
    project, machine = world.project("one"), world.machine("a", wheels=True)
    check_whole(world.proxy.upstream, machine.push(project).values())
    assert any(latest in line for line in lines(world.proxy))


def test_a_base_in_another_registry(world: World) -> None:
    """Its layers are streamed across once, however many roles there are, and never again."""
    base = make_base(size=3 << 20, seed=5)
    with run_registry(world.folder / "other") as other, FaultProxy(other.host) as source:
        base.put(other.host)
        project = Project(world.folder / "far", world.wheels, base, name="far")
        machine = Machine(world.folder / "a", f"{world.proxy.host}/team", source.host)
        machine.give(world.wheels)
        source.clear()
        world.proxy.clear()
        images = machine.push(project)
        check_whole(world.proxy.upstream, images.values())
        layer = document(world.proxy.upstream, images["ps"])["layers"][0]["digest"]
        reads = [exchange.path.endswith(layer) for exchange in source.log].count(True)
        assert reads == 2  # to copy it, and to look for the standard library
        assert blobs_sent(world.proxy.log).count(layer) == 1
        kept = sum(path.stat().st_size for path in machine.root.rglob("*") if path.is_file())
        assert kept < (5 << 20) + 500_000  # the wheels' 2 MiB, their layers' 2 MiB, and nothing of the base's 3 MiB
        project.write("trainer/task.py", "print('again')\n")
        source.clear()
        world.proxy.clear()
        machine.push(project)
        assert source.log == []
        assert layer not in blobs_sent(world.proxy.log)


def test_a_base_in_the_same_registry_is_mounted(world: World) -> None:
    images = world.machine("a", wheels=True).push(world.project("one"))
    layer = document(world.proxy.upstream, images["ps"])["layers"][0]["digest"]
    assert layer not in blobs_sent(world.proxy.log)
    mounted = [e for e in world.proxy.log if e.query.get("mount") == [layer] and e.upstream_status == 201]
    assert mounted
    reads = [e for e in world.proxy.log if e.method == "GET" and e.path.endswith(layer)]
    assert len(reads) == 1  # to look for the standard library


@pytest.mark.parametrize("refuses", [False, True])
def test_layers_that_this_machine_pushed_to_another_repository_are_mounted(world: World, refuses: bool) -> None:
    """Where the registry refuses that, they are sent."""
    machine = world.machine("a", wheels=True)
    first = machine.push(world.project("one", name="same"))
    world.proxy.clear()
    if refuses:
        world.proxy.add(Fault(action=Action.ANSWER, method="POST", path="mount=", status=401, times=-1))
    machine.env["IMGTOOL_REGISTRY"] += "/other"
    images = machine.push(world.project("two", name="same"))
    check_whole(world.proxy.upstream, images.values())
    assert digests(images) == digests(first)
    assert (world.proxy.bytes_up() > 2_000_000) is refuses, lines(world.proxy)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_base_of_another_host_is_mounted_from_another_repository(world: World, refuses: bool) -> None:
    """Once this machine has put its layers into the registry, nobody reads them again, unless it refuses to mount."""
    base = make_base(size=3 << 20, seed=6)
    with run_registry(world.folder / "other") as other, FaultProxy(other.host) as source:
        base.put(other.host)
        machine = Machine(world.folder / "a", f"{world.proxy.host}/team", source.host)
        machine.give(world.wheels)
        first = machine.push(Project(world.folder / "one", world.wheels, base, name="one"))
        layer = document(world.proxy.upstream, first["ps"])["layers"][0]["digest"]
        source.clear()
        world.proxy.clear()
        if refuses:
            world.proxy.add(Fault(action=Action.ANSWER, method="POST", path="mount=", status=401, times=-1))
        second = machine.push(Project(world.folder / "two", world.wheels, base, name="two"))
        check_whole(world.proxy.upstream, second.values())
        assert any(exchange.path.endswith(layer) for exchange in source.log) is refuses
        assert (layer in blobs_sent(world.proxy.log)) is refuses
        assert (world.proxy.bytes_up() < 1_000_000) is not refuses


@pytest.mark.long
@pytest.mark.parametrize("rounds", [1, 5])
def test_several_machines_push_one_spec_at_once(world: World, rounds: int) -> None:
    """As jobs of a CI matrix do. docker-registry refuses manifests now and then meanwhile, for blobs that it has."""
    project = world.project("one")
    machines = [world.machine(f"m{number}", wheels=True) for number in range(6)]

    def push(number: int) -> dict[str, str]:
        return machines[number].push(project, "--role", ROLES[number % len(ROLES)])

    for number in range(rounds):  # each with new keys
        world.wheels.add("extra", version=f"1.{number}")
        project.lock()
        for machine in machines:
            machine.give(world.wheels)
        with ThreadPoolExecutor(len(machines)) as pool:
            pushed = list(pool.map(push, range(len(machines))))
        assert pushed[:3] == pushed[3:]
        check_whole(world.proxy.upstream, [image for images in pushed for image in images.values()])


@pytest.mark.parametrize(
    "targets",
    [
        pytest.param((Target.AI_PLATFORM, Target.SKYPILOT, Target.ECI), id="three"),
        pytest.param(tuple(Target), id="every", marks=pytest.mark.long),
    ],
)
def test_one_spec_has_one_digest_per_role_for_every_target(world: World, targets: tuple[Target, ...]) -> None:
    """Each is made anew, on a machine and in a repository of its own; where a target takes one role, of the worker."""
    project, alone = world.project("targets"), world.project("alone", name="targets")
    text = (project.folder / "image.yaml").read_text()
    alone.write(
        "image.yaml", "".join(line for line in text.splitlines(True) if "master:" not in line and "ps:" not in line)
    )
    alone.lock()
    found: dict[str, set[str]] = {role: set() for role in ROLES}
    for target in targets:
        machine = Machine(world.folder / f"for-{target}", f"{world.proxy.host}/{target}", world.proxy.host)
        machine.give(world.wheels)
        taken = alone if target in ONE_ROLE else project
        settings = [f"job.target={target}"]
        if target is Target.ECI:  # the one service that shares no type of machine with others
            settings += [f"roles.{role}.machine=4-8Gi" for role in ROLES]
        images = machine.push(taken, *(word for setting in settings for word in ("--set", setting)))
        assert len(images) == (1 if taken is alone else len(ROLES))
        for role, image in images.items():
            found[role].add(image.partition("@")[2])
    assert [len(digests) for digests in found.values()] == [1, 1, 1]


def test_the_tag_of_each_role_is_verified_though_roles_share_an_image(world: World) -> None:
    project, machine = world.project("shared"), world.machine("one", wheels=True)
    images = machine.push(project)
    assert len({*images.values()}) == 1
    machine.run("verify", "--locked", cwd=project.folder)
    shown, _ = machine.run("show", "--locked", "--json", cwd=project.folder)
    (tag,) = [role["tag"] for role in json.loads(shown)["roles"] if role["role"] == "worker"]
    path, _, name = tag.partition("/")[2].partition(":")
    manifest = document(world.proxy.host, images["worker"])
    body = json.dumps({**manifest, "annotations": {"another": "image"}}).encode()
    put = urllib.request.Request(f"http://{world.proxy.host}/v2/{path}/manifests/{name}", body, method="PUT")
    put.add_header("Content-Type", manifest["mediaType"])
    urllib.request.urlopen(put, timeout=10).close()
    _, said = machine.run("verify", "--locked", cwd=project.folder, code=10)
    assert "worker: manifest: found annotations differ" in said
    assert "master: manifest" not in said
