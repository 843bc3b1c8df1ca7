"""What an engine gets of a stage: for buildx the Dockerfile with the ARGs that an image cannot pass on."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.engines.support import settings
from tests.faults.project import SPEC, Project
from tests.registry.support import Events, clients, config, layer
from tests.registry.support import image as image_of
from tests.servers.memory_registry import MemoryRegistry
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.progress import Done, Outcome, Progress, Step, silent
from training_imgtool.core.reference import Digest, Tag, parse_repository
from training_imgtool.core.settings import Settings, from_environment
from training_imgtool.engines.buildx.solve import Solve, Solved
from training_imgtool.pipeline.direct_builder import DirectBuilder
from training_imgtool.pipeline.engine import engine as engine_module
from training_imgtool.pipeline.engine.engine import Engine, repeat_arguments
from training_imgtool.pipeline.inputs import Inputs, RoleImage, prepare
from training_imgtool.pipeline.parents import StageParents
from training_imgtool.pipeline.request import BuildOptions, BuildRun
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.registry.manifests import OCI_INDEX, OCI_MANIFEST, sha256_digest
from training_imgtool.spec.load import load

if TYPE_CHECKING:
    from training_imgtool.direct.registry.publish import Publisher


def prepared(folder: Path, block: str, step: str) -> tuple[Inputs, RoleImage]:
    """The inputs of a project whose worker has a step in one block of its template, and the worker's image."""
    folder.mkdir()
    project = Project(folder)
    text = f'{{% extends "base.Dockerfile.j2" %}}\n{{% block {block} %}}\n{step}\n{{% endblock %}}\n'
    project.write("own.j2", text)
    path = project.spec(SPEC.replace("  worker: {machine", "  worker: {template: own.j2, machine"))
    machine = from_environment({**project.env, "IMGTOOL_REGISTRY": "registry.example.com/team"})
    inputs = prepare(load(path), machine, silent)
    return inputs, inputs.images[1]


def test_a_step_of_the_template_starts_from_imgtools_own_wheels(tmp_path: Path) -> None:
    _, image = prepared(tmp_path / "a", "packages_extra", "ARG X=1\nRUN echo a")
    _, plain = prepared(tmp_path / "b", "before_code", "")
    lower, upper = image.dockerfile.stage("venv"), image.dockerfile.stage("packages")
    assert [step.name for step in lower.instructions] == ["COPY", "ENV"]
    assert [step.name for step in upper.instructions] == ["ARG", "RUN"]
    assert upper.base == "venv"
    assert image.keys["venv"] == plain.keys["packages"]
    assert "venv" not in plain.keys


def test_what_a_template_copies_beside_the_code_is_in_the_context(tmp_path: Path) -> None:
    inputs, _ = prepared(tmp_path / "a", "before_code", "COPY own.j2 /notes")
    assert "own.j2" in inputs.context.paths()
    plain, _ = prepared(tmp_path / "b", "before_code", "")
    assert "own.j2" not in plain.context.paths()


def test_the_arguments_of_the_stages_below_follow_from(tmp_path: Path) -> None:
    _, image = prepared(tmp_path / "a", "system_extra", "ARG A=1 \\\n  B=2\nRUN echo $A")
    text, lines = repeat_arguments(image, image.dockerfile.stage("packages"))
    before, after = image.text.split("FROM system AS packages\n")
    assert text == f"{before}FROM system AS packages\nARG A=1 \\\n  B=2\n{after}"
    rendered = image.text.splitlines()
    assert [rendered[line - 1] for line in lines] == text.splitlines()
    assert repeat_arguments(image, image.dockerfile.stage("system"))[0] == image.text


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
    inputs, _ = prepared(tmp_path / "a", "system_extra", "RUN echo a")
    options = BuildOptions(push=True, builder=option)
    named = replace(settings(tmp_path), builder=machine)
    run = BuildRun(inputs=inputs, options=options, settings=named, progress=silent)
    with connect(run.settings, silent) as registries, Engine(run, registries) as stages:
        assert stages.is_there()


OTHER_HOST = "other.example"
BODY, OTHER = image_of(layer(b"1")), image_of(layer(b"2"), config_content=b'{"os":"linux"}')
INDEX = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()


class _World:
    """A stage of a project that a builder runs, which reaches the registry as registry.internal over plain HTTP."""

    def __init__(self, folder: Path, server: MemoryRegistry, registries: Registries, monkeypatch: Any) -> None:
        monkeypatch.setattr(engine_module, "Buildx", _Builder)
        self.inputs, self.image = prepared(folder / "project", "packages_extra", "RUN echo a")
        at_builder = f"{server.host}=http://registry.internal"
        machine = settings(folder, IMGTOOL_BUILDER_REGISTRIES=at_builder)
        self.events = Events()
        self.run = BuildRun(
            inputs=self.inputs,
            options=BuildOptions(push=True, builder="remote", no_cache=True),
            settings=machine,
            progress=self.events,
        )
        self.registry = registries.at(repository := parse_repository(f"{server.host}/team/demo"))
        self.below, self.tag = repository.digest(f"sha256:{'b' * 64}"), repository.tag("packages-1")
        self.engine = Engine(self.run, registries)
        self.builder = cast("_Builder", self.engine._open())

    def image_of(self, image: RoleImage, label: str) -> Digest:
        assert (image, label) == (self.image, "venv")
        return self.below

    def push(self) -> Digest:
        return self.engine.push(self.image, "packages", self.tag, self)


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
    assert (solve.subject, solve.target, solve.platform) == ("packages cpu", "packages", "linux/amd64")
    assert (solve.name, solve.plain_http) == ("registry.internal/team/demo:packages-1", True)
    assert {name: str(digest) for name, digest in solve.images.items()} == {
        "venv": f"registry.internal/team/demo@{world.below.digest}"
    }
    assert {host: (login.username, login.password) for host, login in solve.logins.items()} == {
        "registry.internal": ("ann", "pw")
    }
    assert (solve.no_cache, solve.secrets, solve.hidden, solve.frontend) == (True, (), (), None)
    assert [rendered for rendered in solve.dockerfile.splitlines() if "RUN echo a" in rendered]
    assert len(solve.lines) == len(solve.dockerfile.splitlines())
    done = [event for event in world.events.all if isinstance(event, Done)]
    assert [(event.subject, event.outcome, event.text) for event in done] == [
        ("packages cpu", Outcome.PUSHED, str(pushed))
    ]


def test_a_whole_image_is_its_whole_dockerfile(world: _World) -> None:
    world.registry.put_manifest(world.tag, OCI_MANIFEST, BODY)
    world.engine._run = replace(world.run, options=replace(world.run.options, engine="buildx"))
    world.push()
    (solve,) = world.builder.asked
    assert (solve.dockerfile, solve.target, dict(solve.images)) == (world.image.text, world.image.label, {})
    assert solve.lines == tuple(range(1, len(world.image.text.splitlines()) + 1))


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
    assert {str(digest) for digest in solve.images.values()} == {str(world.below)}
    assert solve.logins.keys() == {"registry.internal", OTHER_HOST}


@pytest.mark.parametrize(("host", "frontend"), [("docker.io", None), ("", "registry.internal/docker/dockerfile:1.7")])
def test_a_builder_gets_the_frontend_by_the_name_that_it_has_there(
    world: _World, host: str, frontend: str | None
) -> None:
    world.registry.put_manifest(world.tag, OCI_MANIFEST, BODY)
    syntax = {"syntax": f"{host or world.tag.repository.registry}/docker/dockerfile:1.7"}
    world.image = replace(world.image, dockerfile=replace(world.image.dockerfile, directives=syntax))
    world.push()
    assert world.builder.asked[0].frontend == frontend


def test_nothing_is_appended_to_what_an_engine_pushed(world: _World) -> None:
    repository = world.tag.repository
    world.registry.upload(repository, config(), lambda: iter([b"{}"]))

    def push(_: RoleImage, label: str, tag: Tag, *__: Any, **___: Any) -> Digest:
        assert label == "packages"
        world.registry.put_manifest(tag, OCI_MANIFEST, BODY)
        return repository.digest(sha256_digest(BODY))

    registries = cast("Registries", SimpleNamespace(at=lambda _: world.registry))
    publisher = cast("Publisher", SimpleNamespace(repository=repository, expect=lambda _: None))
    engine = cast("Engine", SimpleNamespace(require=lambda *_: None, push=push))
    builder = DirectBuilder(world.run)
    parents = StageParents(world.run, registries, builder, publisher, engine)
    assert parents.image_of(world.image, "packages").digest == sha256_digest(BODY)
    assert not [event for event in world.events.all if isinstance(event, Step)]


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
