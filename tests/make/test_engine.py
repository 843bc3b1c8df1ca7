"""What a builder of buildx gets of a stage, and what its word counts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults.project import SPEC, Project
from tests.make.engines.support import settings
from tests.oci.registry.support import Events, clients, layer
from tests.oci.registry.support import image as image_of
from tests.servers.memory_registry import MemoryRegistry
from training_imgtool.base.errors import VerificationError
from training_imgtool.base.progress import Done, Outcome, Progress
from training_imgtool.base.reference import Digest, parse_repository
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.make.engines import engine as engine_module
from training_imgtool.make.engines.buildx.request import Solve
from training_imgtool.make.engines.buildx.solve import Solved
from training_imgtool.make.engines.engine import Engine
from training_imgtool.make.request import BuildOptions, BuildRun
from training_imgtool.model.load import load
from training_imgtool.model.recipe.recipe import Stage
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import OCI_INDEX, OCI_MANIFEST, sha256_digest
from training_imgtool.plan.inputs import Inputs, RoleImage, prepare


def prepared(folder: Path) -> tuple[Inputs, RoleImage]:
    """The inputs of a project with a line for after the packages, and the worker's image."""
    folder.mkdir()
    project = Project(folder)
    path = project.spec(SPEC + "run_after_packages: [echo a]\n")
    machine = from_environment({**project.env, "IMGTOOL_REGISTRY": "registry.example.com/team"})
    inputs = prepare(load(path), Machine.open(machine))
    return inputs, inputs.images[1]


class _Builder:
    """Stands for buildx: keeps what it was asked to run, and says that it pushed `solved`."""

    name = "builder"

    def __init__(self, settings: Settings, name: str | None) -> None:
        del settings
        assert name == "remote"
        self.asked: list[Solve] = []
        self.solved = Solved(digest=sha256_digest(BODY), config=None)

    def run(self, solve: Solve, progress: Progress) -> Solved:
        del progress
        self.asked.append(solve)
        return self.solved

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(("option", "machine"), [(None, "remote"), ("remote", "another"), ("remote", None)])
def test_the_builder_is_the_command_line_s_else_the_machine_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str | None, machine: str | None
) -> None:
    monkeypatch.setattr(engine_module, "Buildx", _Builder)
    inputs, _ = prepared(tmp_path / "a")
    options = BuildOptions(push=True, builder=option)
    named = replace(settings(tmp_path), builder=machine)
    with Machine.open(named) as opened, Engine(BuildRun(inputs=inputs, options=options, machine=opened)) as stages:
        stages.require("packages", "a reason")


OTHER_HOST = "other.example"
BODY, OTHER = image_of(layer(b"1")), image_of(layer(b"2"), config_content=b'{"os":"linux"}')
INDEX = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()


class _World:
    """A stage of a project that a builder runs, which reaches the registry as registry.internal over plain HTTP."""

    def __init__(self, folder: Path, server: MemoryRegistry, registries: Registries, monkeypatch: Any) -> None:
        monkeypatch.setattr(engine_module, "Buildx", _Builder)
        self.inputs, self.image = prepared(folder / "project")
        at_builder = f"{server.host}=http://registry.internal"
        machine = settings(folder, IMGTOOL_BUILDER_REGISTRIES=at_builder)
        self.events = Events()
        self.run = BuildRun(
            inputs=self.inputs,
            options=BuildOptions(push=True, builder="remote", no_cache=True),
            machine=Machine(machine, self.events, registries),
        )
        self.registry = registries.at(repository := parse_repository(f"{server.host}/team/demo"))
        self.below, self.tag = repository.digest(f"sha256:{'b' * 64}"), repository.tag("packages-1")
        self.engine = Engine(self.run)
        self.builder = cast("_Builder", self.engine._open())

    @property
    def setup(self) -> Stage:
        """The stage with the line."""
        return self.image.stages[-2]

    def push(self) -> Digest:
        return self.engine.run_stage(self.image, self.setup, self.tag, self.below)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_World]:
    with MemoryRegistry() as server:
        folder = tmp_path / "docker"
        folder.mkdir()
        auth = {"auth": base64.b64encode(b"ann:pw").decode()}
        (folder / "config.json").write_text(json.dumps({"auths": {server.host: auth, OTHER_HOST: auth}}))
        with clients(settings(tmp_path, DOCKER_CONFIG=str(folder))) as registries:
            yield _World(tmp_path, server, registries, monkeypatch)


def test_what_a_builder_gets_of_a_stage(world: _World) -> None:
    world.registry.put_manifest(world.tag, OCI_MANIFEST, BODY)
    pushed = world.push()
    assert (str(world.tag.repository), pushed.digest) == (str(pushed.repository), sha256_digest(BODY))
    assert world.push() == pushed
    (solve,) = world.builder.asked
    assert (solve.subject, solve.is_whole, solve.platform) == ("setup cpu", False, "linux/amd64")
    assert (solve.name, solve.plain_http) == ("registry.internal/team/demo:packages-1", True)
    assert solve.dockerfile == f"FROM registry.internal/team/demo@{world.below.digest}\n{world.setup.text}"
    assert 'RUN ["/bin/sh", "-ec", "echo a"]' in solve.dockerfile
    assert {host: (login.username, login.password) for host, login in solve.logins.items()} == {
        "registry.internal": ("ann", "pw")
    }
    assert (solve.no_cache, solve.secrets, solve.hidden) == (True, (), ())
    done = [event for event in world.events.all if isinstance(event, Done)]
    assert [(event.subject, event.outcome, event.text) for event in done] == [
        ("setup cpu", Outcome.PUSHED, str(pushed))
    ]


def test_what_another_run_pushed_meanwhile_is_taken(world: _World) -> None:
    world.registry.put_manifest(world.tag, OCI_MANIFEST, BODY)
    world.engine._run = replace(world.run, options=replace(world.run.options, no_cache=False))
    assert world.push().digest == sha256_digest(BODY)
    assert not world.builder.asked
    (found,) = [event for event in world.events.all if isinstance(event, Done)]
    assert (found.outcome, found.text) == (Outcome.FOUND, f"{world.tag}: another run has pushed it")


def test_a_builder_logs_in_where_its_images_are(world: _World) -> None:
    world.registry.put_manifest(world.tag, OCI_MANIFEST, BODY)
    world.below = parse_repository(f"{OTHER_HOST}/team/demo").digest(world.below.digest)
    world.push()
    (solve,) = world.builder.asked
    assert solve.dockerfile.startswith(f"FROM {world.below}\n")
    assert solve.logins.keys() == {"registry.internal", OTHER_HOST}


@pytest.mark.parametrize(
    ("body", "digest", "config", "says"),
    [
        (BODY, OTHER, None, f"the registry has {sha256_digest(BODY)}"),
        (BODY, OTHER, b"{}", None),
        (BODY, OTHER, b"x", f"the registry has {sha256_digest(BODY)}"),
        (INDEX, OTHER, b"{}", "the registry has an index of several images"),
        (None, BODY, b"{}", "the registry does not have the image"),
    ],
)
def test_what_a_builder_says_is_asked_of_the_registry(
    world: _World, body: bytes | None, digest: bytes, config: bytes | None, says: str | None
) -> None:
    if body is not None:
        world.registry.put_manifest(world.tag, OCI_INDEX if body == INDEX else OCI_MANIFEST, body)
    named = None if config is None else sha256_digest(config)
    world.builder.solved = Solved(digest=sha256_digest(digest), config=named)
    if says is None:
        assert world.push().digest == sha256_digest(body or b"")
    else:
        with pytest.raises(VerificationError) as caught:
            world.push()
        assert says in str(caught.value)
