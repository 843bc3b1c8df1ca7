"""Dockerfile instructions with their variables put in, in the order a builder comes upon them.

Which instructions expand variables, and from what, is the Dockerfile reference's "Environment replacement":
ENV wins over ARG; an instruction sees the values from before it; RUN, CMD, ENTRYPOINT, SHELL and
HEALTHCHECK are left to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from training_imgtool.core.errors import InputError
from training_imgtool.dockerfile.mounts import platform_arg
from training_imgtool.dockerfile.parse import Dockerfile, DockerfileError, Instruction, Stage, global_args
from training_imgtool.dockerfile.substitution import expand

_LISTS = frozenset({"ADD", "COPY", "EXPOSE", "VOLUME"})
_SINGLE = frozenset({"STOPSIGNAL", "USER", "WORKDIR"})
_EXPANDED = _LISTS | _SINGLE | {"ARG", "ENV", "LABEL"}
_VARIABLE = re.compile(r"\$\{?(\w+)")
_EXPANDED_FLAGS = frozenset({"chown", "chmod"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """One instruction, ready to execute.

    Attributes:
        instruction: as parsed, for its name, JSON form, heredocs and line.
        flags: `--name=value`, values expanded where builders do; empty for a bare flag.
        words: of COPY, ADD, EXPOSE, VOLUME; one word for WORKDIR, USER, STOPSIGNAL; quotes gone.
        pairs: of ENV and LABEL; of ARG, those that have a value.
    """

    instruction: Instruction
    flags: Mapping[str, str]
    words: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The instruction's name."""
        return self.instruction.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The variables at one point of a stage: ENV (the base image's too) and the ARGs declared so far."""

    env: Mapping[str, str]
    args: Mapping[str, str]

    @property
    def variables(self) -> Mapping[str, str]:
        """What `$NAME` finds."""
        return {**self.args, **self.env}


def evaluate(dockerfile: Dockerfile, stage: Stage, base_env: Mapping[str, str]) -> tuple[Expanded, ...]:
    """Puts variables into the stage's instructions.

    Args:
        dockerfile: the file, for the ARGs before its first FROM.
        stage: one of its stages.
        base_env: the environment of the image that the stage starts from.

    Raises:
        DockerfileError: a word cannot be expanded; the message begins with `file:line`.
    """
    return walk(dockerfile, stage, Scope(env=base_env, args={}))[0]


def walk(dockerfile: Dockerfile, stage: Stage, scope: Scope) -> tuple[tuple[Expanded, ...], Scope]:
    """Evaluates as `evaluate`, and returns the scope at the stage's end too."""
    given = global_args(dockerfile.args)
    steps = []
    for instruction in stage.instructions:
        try:
            step = _evaluate(instruction, scope.variables, given)
        except InputError as error:
            raise DockerfileError(f"{dockerfile.file}:{instruction.line}: {error}", hint=error.hint) from error
        if step.name == "ENV":
            scope = Scope(env={**scope.env, **dict(step.pairs)}, args=scope.args)
        if step.name == "ARG":
            scope = Scope(env=scope.env, args={**scope.args, **dict(step.pairs)})
        steps.append(step)
    return tuple(steps), scope


def ambiguous_args(dockerfile: Dockerfile, stage: Stage, env: Mapping[str, str]) -> frozenset[str]:
    """Finds the variables that only BuildKit sees: ARGs of a stage below, and the platform's, such as TARGETARCH.

    Args:
        dockerfile: the file.
        stage: one of its stages.
        env: the environment that the stage begins with, which hides ARGs.
    """
    below = (step for other in dockerfile.below(stage) for step in other.instructions)
    names = {name for step in below if step.name == "ARG" for name, _ in step.pairs}
    names |= {name for step in stage.instructions if (name := platform_arg(step))}
    expanded = (step.raw for step in stage.instructions if step.name in _EXPANDED)
    return frozenset(name for text in expanded for name in _VARIABLE.findall(text) if name in names and name not in env)


def _evaluate(instruction: Instruction, variables: Mapping[str, str], given: Mapping[str, str]) -> Expanded:
    def put(word: str) -> str:
        return expand(word, variables, instruction.escape)

    name = instruction.name
    flags = {
        flag: put(value) if flag in _EXPANDED_FLAGS and value else value or "" for flag, value in instruction.flags
    }
    if name in _LISTS:
        return Expanded(instruction=instruction, flags=flags, words=tuple(put(word) for word in instruction.words))
    if name in _SINGLE:
        return Expanded(instruction=instruction, flags=flags, words=(put(instruction.text),))
    if name in {"ENV", "LABEL"}:
        pairs = tuple((put(key), put(value or "")) for key, value in instruction.pairs)
        return Expanded(instruction=instruction, flags=flags, pairs=pairs)
    if name == "ARG":
        values = {key: given.get(key) if value is None else put(value) for key, value in instruction.pairs}
        return Expanded(
            instruction=instruction,
            flags=flags,
            pairs=tuple((key, value) for key, value in values.items() if value is not None),
        )
    return Expanded(instruction=instruction, flags=flags)
