"""What the instructions of a stage read."""

from __future__ import annotations

from training_imgtool.dockerfile.mounts import (
    context_sources,
    image_names,
    list_secrets,
    needed_stages,
)
from training_imgtool.dockerfile.parse import Instruction, parse

BASE = f"FROM example.com/base@sha256:{'a' * 64} AS base\n"


def instruction(text: str) -> Instruction:
    return parse(f"{BASE}{text}\n").stages[0].instructions[0]


def test_the_stages_that_a_stage_needs_count_and_no_others() -> None:
    text = f"{BASE}RUN <<E\nE\nFROM base AS left\nRUN a\nFROM {BASE.split()[1]} AS other\nFROM other AS right\n"
    dockerfile = parse(text)
    assert [stage.label for stage in needed_stages(dockerfile, dockerfile.stage("right"))] == ["other", "right"]


def test_what_a_run_mounts() -> None:
    run = instruction(
        "RUN --mount=type=secret,id=token --mount=type=secret,target=/run/pip.conf,required=false "
        "--mount=src=data,target=/data --mount=target=/all --mount=type=bind,from=base,target=/b "
        "--mount=type=cache,from=tools,target=/c --mount=type=secret,source=key,id=no,target=/k true"
    )
    secrets = [(mount.id, mount.optional) for mount in list_secrets(run)]
    assert secrets == [("token", False), ("pip.conf", True), ("key", False)]
    assert context_sources(parse(f"{BASE}{run.raw}").stages) == ("data", ".")
    assert image_names(run) == ("base", "tools")
