"""What an engine gets of a stage: for buildx the Dockerfile with the ARGs that an image cannot pass on."""

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
from training_imgtool.pipeline.engine.buildx_engine import repeat_arguments
from training_imgtool.pipeline.engine.engines import Engines
from training_imgtool.pipeline.inputs import Inputs, RoleImage, prepare
from training_imgtool.pipeline.request import BuildOptions, BuildRun
from training_imgtool.registry.connect import connect
from training_imgtool.spec.load import load

if TYPE_CHECKING:
    from training_imgtool.engines import Engine


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


def test_a_step_of_the_template_starts_from_imgtools_own_wheels(tmp_path: Path) -> None:
    _, image = prepared(tmp_path / "a", "packages_extra", "ARG X=1\nRUN echo a")
    _, plain = prepared(tmp_path / "b", "before_code", "")
    lower, upper = image.dockerfile.stage("venv"), image.dockerfile.stage("packages")
    assert [step.name for step in lower.instructions] == ["COPY", "ENV"]
    assert [step.name for step in upper.instructions] == ["ARG", "RUN"]
    assert upper.base == "venv"
    assert image.keys["venv"] == plain.keys["packages"]
    assert "venv" not in plain.keys


def test_the_arguments_of_the_stages_below_follow_from(tmp_path: Path) -> None:
    _, image = prepared(tmp_path / "a", "system_extra", "ARG A=1 \\\n  B=2\nRUN echo $A")
    text, lines = repeat_arguments(image, image.dockerfile.stage("packages"))
    before, after = image.text.split("FROM system AS packages\n")
    assert text == f"{before}FROM system AS packages\nARG A=1 \\\n  B=2\n{after}"
    rendered = image.text.splitlines()
    assert [rendered[line - 1] for line in lines] == text.splitlines()
    assert repeat_arguments(image, image.dockerfile.stage("system"))[0] == image.text


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
