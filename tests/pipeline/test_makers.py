"""Who made which stage of an image, as its provenance says: by the plan and by the image's history."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.pipeline.test_buildx_engine import prepared
from training_imgtool.dockerfile.install_step import compile_command
from training_imgtool.pipeline.attach import Trace, list_makers, read_trace
from training_imgtool.pipeline.inputs import Inputs, RoleImage

BASE = {"created_by": "CMD [python3]", "comment": "buildkit.dockerfile.v0"}
OWN = {"created_by": "COPY trainer", "comment": "imgtool"}
CLASSIC = {"created_by": "/bin/sh -c true"}
BUILDKIT = {"created_by": "RUN /bin/sh -c true # buildkit", "comment": "buildkit.dockerfile.v0"}


Projects = Callable[[str | None], tuple[Inputs, RoleImage]]


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Prepares a project whose worker has a RUN in a block of its template, each once."""
    folder = tmp_path_factory.mktemp("makers")
    return cache(
        lambda block: prepared(folder / str(block), block or "before_code", "RUN echo a" if block else "ENV A=1")
    )


@pytest.mark.parametrize(
    ("block", "trace", "engine"),
    [
        (None, Trace(direct=True, builder=False), set()),
        ("system_extra", Trace(direct=True, builder=False), {"system"}),
        ("system_extra", Trace(direct=True, builder=True), {"system"}),
        ("packages_extra", Trace(direct=True, builder=False), {"system", "wheels", "venv", "packages"}),
        ("packages_extra", Trace(direct=True, builder=True), {"packages"}),
        ("before_code", Trace(direct=False, builder=True), {"worker"}),
        ("before_code", Trace(direct=False, builder=False), {"system", "wheels", "packages", "worker"}),
        (None, Trace(direct=True, builder=True, compiled=True), {"packages"}),
    ],
)
def test_which_stages_an_engine_ran(projects: Projects, block: str | None, trace: Trace, engine: set[str]) -> None:
    made = list_makers(*projects(block), trace)
    assert list(made)[-2:] == ["packages", "worker"]
    assert {label for label, by_engine in made.items() if by_engine} == engine & set(made)


def test_what_a_history_tells(projects: Projects) -> None:
    _, image = projects(None)

    def read(*lines: dict[str, Any]) -> Trace:
        return read_trace(image, {"history": [BASE, *lines]})

    compiled = {**BUILDKIT, "created_by": f"RUN /bin/sh -c {compile_command(image.plan.locked)} # buildkit"}
    assert read(OWN, OWN) == Trace(direct=True, builder=True)  # the base's builder, and no stage of an engine
    assert read(CLASSIC, OWN) == Trace(direct=True, builder=False)
    assert read(BUILDKIT, OWN) == Trace(direct=True, builder=True)
    assert read(OWN, BUILDKIT) == Trace(direct=False, builder=True)
    assert read(CLASSIC) == Trace(direct=False, builder=False)
    assert read(CLASSIC, OWN, compiled, OWN) == Trace(direct=True, builder=False, compiled=True)
    assert read(OWN, CLASSIC, compiled) == Trace(direct=False, builder=True)  # no line of imgtool's is below it
    assert read_trace(image, {}) == Trace(direct=False, builder=False)
