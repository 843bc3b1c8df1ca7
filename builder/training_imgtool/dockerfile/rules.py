"""What a rendered Dockerfile may not contain, whatever its template says: nothing that moves, nothing unnamed."""

from __future__ import annotations

import re

from training_imgtool.core.errors import InputError
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.dockerfile.lines import LineError, directives, physical_lines
from training_imgtool.dockerfile.mounts import list_mounts
from training_imgtool.dockerfile.parse import Dockerfile, DockerfileError, Instruction, Stage

_FRONTEND = r"(?:docker\.io/)?docker/dockerfile(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?\Z"


def check_directives(text: str, file: str) -> None:
    """Refuses foreign frontends and another escape character; raises DockerfileError."""
    try:
        values = directives(physical_lines(text))
    except LineError as error:
        raise DockerfileError(f"{file}:{error.line}: {error}") from error
    syntax = values.get("syntax")
    if syntax is not None and not re.match(_FRONTEND, syntax):
        raise DockerfileError(
            f"{file}:1: syntax={syntax}: a frontend is a program that runs the build",
            hint="only docker/dockerfile is allowed",
        )
    if values.get("escape", "\\") != "\\":
        raise DockerfileError(f"{file}:1: escape=`: the quoting filters need the usual backslash")


def check_rules(dockerfile: Dockerfile) -> None:
    """Refuses images without a digest, ADD from the network, and mounts of what a variable names.

    Raises:
        DockerfileError: with `file:line`, and what to do instead.
    """
    for stage in dockerfile.stages:
        try:
            line = stage.line
            _check_image(stage.base, dockerfile, stage)
            for instruction in stage.instructions:
                line = instruction.line
                _check(instruction, dockerfile, stage)
        except InputError as error:
            raise DockerfileError(f"{dockerfile.file}:{line}: {error}", hint=error.hint) from error


def _check(instruction: Instruction, dockerfile: Dockerfile, stage: Stage) -> None:
    if instruction.name in {"ADD", "COPY"}:
        source = instruction.flag("from")
        if source is not None:
            _check_image(source, dockerfile, stage)
        if instruction.name == "ADD" and instruction.takes_variable:
            raise InputError("ADD with a variable may fetch from an address", hint="COPY takes variables")
        for word in instruction.sources:
            if "://" in word or word.startswith("git@"):
                raise InputError(
                    f"ADD {word}: "
                    + (
                        "imgtool fetches nothing"
                        if instruction.flag("checksum")
                        else "what lies behind an address can change"
                    ),
                    hint="put the file in the context, or fetch it in a RUN that checks its hash",
                )
    _check_mounts(instruction, dockerfile, stage)
    if instruction.name == "ONBUILD":
        _check(instruction.inner, dockerfile, stage)


def _check_mounts(instruction: Instruction, dockerfile: Dockerfile, stage: Stage) -> None:
    for flag, value in instruction.flags:
        for part in (value or "").split(",") if flag == "mount" else ():
            key, _, source = part.partition("=")
            if key.strip().lower() == "from":  # BuildKit lowers keys
                _check_image(source, dockerfile, stage)
    for mount in list_mounts(instruction):
        if "$" in (mount.id if mount.kind == "secret" else mount.source if mount.reads_context else ""):
            raise InputError(
                f"{instruction.name} --mount={mount.text}: a variable names what the step reads",
                hint="write the path in the context, or the secret's id, as it is",
            )


def _check_image(reference: str, dockerfile: Dockerfile, stage: Stage) -> None:
    if reference == "scratch" or dockerfile.earlier(reference, stage) is not None:
        return
    if not isinstance(parse_reference(reference), Digest):
        raise InputError(
            f"{reference} is neither a stage above nor an image by digest",
            hint="a tag can be moved: write REPOSITORY:TAG@sha256:…",
        )
