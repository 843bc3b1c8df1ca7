"""What only BuildKit executes, and what such an instruction reads."""

from __future__ import annotations

import pytest

from training_imgtool.dockerfile.mounts import (
    buildkit_syntax,
    classic_refusal,
    context_sources,
    find_run_after_volume,
    image_names,
    list_secrets,
    needed_stages,
    podman_refusal,
)
from training_imgtool.dockerfile.parse import Instruction, parse

BASE = f"FROM example.com/base@sha256:{'a' * 64} AS base\n"


def instruction(text: str) -> Instruction:
    return parse(f"{BASE}{text}\n").stages[0].instructions[0]


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ("RUN true", None),
        ("COPY --chown=1:1 a /a", None),
        ("COPY --from=base /a /a", None),
        ("RUN --mount=type=cache,target=/c true", "line 2: RUN --mount"),
        ("RUN --network=host true", "line 2: RUN --network"),
        ("RUN <<EOF\ntrue\nEOF", "line 2: RUN with a heredoc"),
        ("COPY <<EOF /a\ntrue\nEOF", "line 2: COPY with a heredoc"),
        ("COPY --link a /a", "line 2: COPY --link"),
        ("HEALTHCHECK --retries=3 CMD true", None),
        ("ARG A TARGETARCH", "line 2: ARG TARGETARCH"),
        ("ARG TARGETARCH=amd64", None),
    ],
)
def test_syntax_that_only_buildkit_has(text: str, syntax: str | None) -> None:
    assert buildkit_syntax(parse(f"{BASE}{text}\n"), "base") == syntax


def test_a_syntax_directive_is_for_buildkit() -> None:
    assert buildkit_syntax(parse(f"# syntax=docker/dockerfile:1\n{BASE}RUN true\n"), "base") == "line 1: # syntax="


def test_the_stages_that_a_stage_needs_count_and_no_others() -> None:
    text = f"{BASE}RUN <<E\nE\nFROM base AS left\nRUN a\nFROM {BASE.split()[1]} AS other\nFROM other AS right\n"
    dockerfile = parse(text)
    assert buildkit_syntax(dockerfile, "left") == "line 2: RUN with a heredoc"
    assert buildkit_syntax(dockerfile, "right") is None
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


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("COPY --chmod=600 code/a.txt /a", False),
        ("COPY --chmod=600 code/*.txt /a/", False),
        ("COPY --chmod=750 code/sub/ /a", True),
        ("COPY --chmod=750 code/s* /a", True),
        ("COPY --chmod=750 . /a", True),
        ("COPY --chmod=750 $X /a", True),
        ("ADD --chmod=750 code /a", True),
        ("COPY --from=base --chmod=750 /x /a", True),
        ("COPY --exclude=*.csv code /a", True),
        ("COPY code /a", False),
        ("RUN --mount=type=cache,target=/c true", False),
    ],
)
def test_what_podman_makes_otherwise_is_named(text: str, refused: bool) -> None:
    found = podman_refusal(instruction(text), {".", "code", "code/sub"})
    assert (found is not None) is refused
    assert found is None or "--exclude" in found or "--chmod" in found


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("COPY code/link /x/", True),
        ("ADD ./code/l* code/a.txt /x/", True),
        ("COPY code /x", False),
        ("COPY code/sub/link /x", False),
        ("COPY * /x/", False),
        ("COPY --from=base /code/link /x/", False),
        ("RUN cat code/link", False),
    ],
)
def test_the_classic_builder_gets_no_link(text: str, refused: bool) -> None:
    assert (classic_refusal(instruction(text), {"code/link"}) is not None) is refused


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("RUN one\nVOLUME /data\nCOPY a /a", None),
        ("VOLUME /data\nRUN one", 3),
        ("VOLUME /data\nFROM base AS upper\nENV A=1\nRUN one", 5),
        ("VOLUME /data\nFROM scratch\nCOPY --from=base /a /a\nRUN one", None),
    ],
)
def test_a_step_behind_a_volume(text: str, line: int | None) -> None:
    file = parse(f"{BASE}{text}\n")
    found = find_run_after_volume(file, file.stages[-1])
    assert (found.line if found else None) == line
