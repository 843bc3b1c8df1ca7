"""What a builder of buildx gets of a stage: its own Dockerfile, other images by digest, and no wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project
from training_imgtool.build.engine.builder_stages import builder_text
from training_imgtool.build.engine.split import copies_wheels, split_wheels
from training_imgtool.build.inputs import Inputs, RoleImage, prepare
from training_imgtool.core.errors import InputError
from training_imgtool.core.progress import silent
from training_imgtool.core.settings import from_environment
from training_imgtool.dockerfile.parse import parse
from training_imgtool.spec.load import load

BASE = f"example.com/base@sha256:{'a' * 64}"
HERE = "registry.internal:5000/team/demo@sha256:1"


def prepared(folder: Path, block: str, step: str) -> tuple[Inputs, RoleImage]:
    """The inputs of a project whose worker has a step in one block of its template, and the worker's image."""
    folder.mkdir()
    project = Project(folder)
    text = f'{{% extends "worker.Dockerfile.j2" %}}\n{{% block {block} %}}\n{step}\n{{% endblock %}}\n'
    project.write("own.j2", text)
    path = project.spec(SPEC.replace("  worker: {machine", "  worker: {template: own.j2, machine"))
    settings = from_environment({**project.env, "IMGTOOL_REGISTRY": "registry.example.com/team"})
    inputs = prepare(load(path), settings, silent)
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
