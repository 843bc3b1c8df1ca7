"""What a builder of buildx gets of a stage: its own Dockerfile, other images by digest, and no wheels."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tests.engines.support import settings
from tests.faults.project import SPEC, Project
from training_imgtool.core.errors import InputError
from training_imgtool.core.progress import silent
from training_imgtool.core.settings import from_environment
from training_imgtool.dockerfile.parse import parse
from training_imgtool.pipeline.engine.buildx_engine import builder_text, name_frontend
from training_imgtool.pipeline.engine.engines import Engines
from training_imgtool.pipeline.engine.split import copies_wheels, split_wheels
from training_imgtool.pipeline.inputs import Inputs, RoleImage, prepare
from training_imgtool.pipeline.request import BuildOptions, BuildRun
from training_imgtool.registry.connect import connect
from training_imgtool.spec.load import load

if TYPE_CHECKING:
    from training_imgtool.engines import Engine

BASE = f"example.com/base@sha256:{'a' * 64}"
HERE = "registry.internal:5000/team/demo@sha256:1"


def prepared(folder: Path, block: str, step: str) -> tuple[Inputs, RoleImage]:
    """The inputs of a project whose worker has a step in one block of its template, and the worker's image."""
    folder.mkdir()
    project = Project(folder)
    text = f'{{% extends "worker.Dockerfile.j2" %}}\n{{% block {block} %}}\n{step}\n{{% endblock %}}\n'
    project.write("own.j2", text)
    path = project.spec(SPEC.replace("  worker: {machine", "  worker: {template: own.j2, machine"))
    machine = from_environment({**project.env, "IMGTOOL_REGISTRY": "registry.example.com/team"})
    inputs = prepare(load(path), machine, silent)
    return inputs, inputs.images[1]


def test_a_step_after_the_wheels_is_cut_off(tmp_path: Path) -> None:
    inputs, image = prepared(tmp_path / "a", "packages_extra", "ARG X=1\nRUN echo a")
    split = split_wheels(inputs, image, "packages")
    lower, upper = split.dockerfile.stage("packages-wheels"), split.dockerfile.stage("packages")
    assert [step.name for step in lower.instructions] == ["COPY"]
    assert [step.name for step in upper.instructions] == ["ENV", "ARG", "RUN"]
    assert (lower.base, upper.base) == ("system", "packages-wheels")
    assert {name: split.keys[name] for name in image.keys} == image.keys
    assert [stage.index for stage in split.dockerfile.stages] == list(range(len(split.dockerfile.stages)))
    inputs, image = prepared(tmp_path / "b", "packages_extra", "ARG X=1\nRUN echo b")
    other = split_wheels(inputs, image, "packages")
    assert other.keys["packages-wheels"] == split.keys["packages-wheels"]
    assert other.keys["packages"] != split.keys["packages"]


@pytest.mark.parametrize("label", ["system", "worker"])
def test_a_stage_without_wheels_stays_whole(tmp_path: Path, label: str) -> None:
    inputs, image = prepared(tmp_path / "a", "before_code", "RUN echo a")
    assert split_wheels(inputs, image, label) is image


def test_what_takes_wheels_from_the_context(tmp_path: Path) -> None:
    _, image = prepared(tmp_path / "a", "before_code", "RUN echo a")
    taking = {stage.label for stage in image.dockerfile.stages if any(map(copies_wheels, stage.instructions))}
    assert taking == {"wheels"}


def test_the_text_for_a_builder() -> None:
    text = f"""\
# syntax=docker/dockerfile:1
ARG A=1
FROM {BASE} AS base
ARG B=$A
RUN true
FROM base AS mine
# a comment
COPY --from=base \\
  /a /b
RUN --mount=type=bind,from=base,source=/from=base2,target=/x \\
  --mount=type=bind,from=base,source=/from=base2,target=/x2 echo from=base
"""
    dockerfile = parse(text)
    sent, lines = builder_text(dockerfile, dockerfile.stage("mine"), {"base": HERE})
    assert sent.splitlines() == [
        "# syntax=docker/dockerfile:1",
        "ARG A=1",
        f"FROM {HERE} AS mine",
        "ARG B=$A",
        f"COPY --from={HERE} \\",
        "  /a /b",
        f"RUN --mount=type=bind,from={HERE},source=/from=base2,target=/x \\",
        f"  --mount=type=bind,from={HERE},source=/from=base2,target=/x2 echo from=base",
    ]
    assert lines == (1, 2, 6, 4, 8, 9, 10, 11)


def test_a_quoted_name_cannot_be_replaced() -> None:
    dockerfile = parse(f'FROM {BASE} AS base\nFROM base AS mine\nRUN --mount=type=bind,"from=base",target=/x true\n')
    stage = dockerfile.stage("mine")
    with pytest.raises(InputError, match="without quotes"):
        builder_text(dockerfile, stage, {"base": HERE, '"from': HERE})


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("RUN <<EOF\ntouch /made\nEOF", "RUN with a heredoc"),
        ("COPY --exclude=*.csv trainer /data", "COPY --exclude"),
        ("ADD --unpack=false trainer/task.py /data", "ADD --unpack"),
    ],
)
def test_what_dockers_classic_builder_would_leave_out_is_refused(tmp_path: Path, step: str, says: str) -> None:
    inputs, _ = prepared(tmp_path / "a", "system_extra", step)
    run = BuildRun(inputs=inputs, options=BuildOptions(), settings=settings(tmp_path), progress=silent)
    docker = cast("Engine", SimpleNamespace(refuses_unknown=False))
    with connect(run.settings, silent) as registries, Engines(run, registries, docker) as stages:
        with pytest.raises(InputError, match=rf"Dockerfile:\d+: {says} needs BuildKit") as caught:
            stages.build_all(inputs.images)
        assert "--engine buildx" in str(caught.value.hint)


def test_a_builder_reaches_the_frontend_by_its_own_name(tmp_path: Path) -> None:
    dockerfile = parse(f"# syntax=docker/dockerfile:1.7\nFROM {BASE}\n")
    for registries, name in (
        ({}, "docker.io/docker/dockerfile:1.7"),
        ({"docker.io": "http://m:5000/hub"}, "m:5000/hub/docker/dockerfile:1.7"),
    ):
        named = name_frontend(dockerfile, registries)
        assert builder_text(named, named.stages[0], {BASE: BASE})[0] == f"# syntax={name}\nFROM {BASE}\n"
    plain = parse(f"FROM {BASE}\n")
    assert name_frontend(plain, {"docker.io": "m:5000"}) is plain
