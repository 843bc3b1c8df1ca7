"""Reads Dockerfiles: the whole syntax of the Dockerfile reference, to frozen values.

The rules of lines, comments, continuations, directives, flags and heredocs are those of BuildKit's
`frontend/dockerfile/parser`. Nothing is expanded here; `dockerfile.evaluate` does that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from training_imgtool.core.errors import InputError
from training_imgtool.dockerfile.checks import check_values, json_words
from training_imgtool.dockerfile.lines import (
    HEREDOC,
    Heredoc,
    LineError,
    directives,
    logical_lines,
    physical_lines,
    split_flags,
)
from training_imgtool.dockerfile.substitution import expand, fields, has_variable, raw_pairs, split_words

NAMES = frozenset(
    """ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL
    USER VOLUME WORKDIR""".split()  # noqa: SIM905 - a table of words reads best so
)
_JSON_FORM = frozenset({"ADD", "CMD", "COPY", "ENTRYPOINT", "RUN", "SHELL", "VOLUME"})
_WITH_FLAGS = frozenset({"ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"})
_MAY_BE_EMPTY = frozenset({"CMD", "ENTRYPOINT"})
_STAGE_NAME = re.compile(r"[a-z][a-z0-9._-]*\Z")


class DockerfileError(InputError):
    """A Dockerfile that no builder would take; the message begins with `file:line`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction.

    Attributes:
        name: upper case.
        flags: `--name=value` in order; the value of `--link` is None.
        text: the rest, continuation lines joined, without flags.
        json: the words of a JSON form; None for a shell form.
        heredocs: of RUN, COPY, ADD.
        line: of its first line in the file, 1-based.
        raw: its lines as they stand, each with its newline, comments in between included.
        escape: the file's escape character.
    """

    name: str
    flags: tuple[tuple[str, str | None], ...]
    text: str
    json: tuple[str, ...] | None
    heredocs: tuple[Heredoc, ...]
    line: int
    raw: str
    escape: str = "\\"

    def flag(self, name: str) -> str | None:
        """Returns the value of the last `--name=…`; empty for a bare `--name`; None when it is not there."""
        values = [value or "" for flag, value in self.flags if flag == name]
        return values[-1] if values else None

    @property
    def words(self) -> tuple[str, ...]:
        """The JSON form's words, else the text split at spaces, quotes kept."""
        return self.json if self.json is not None else tuple(fields(self.text))

    @property
    def sources(self) -> tuple[str, ...]:
        """What COPY or ADD takes, heredocs left out; quotes gone. A word with a variable may be anything: it is `.`."""
        words = (word for word in self.words[:-1] if not HEREDOC.match(word))
        return tuple("." if has_variable(word, self.escape) else expand(word, {}, self.escape) for word in words)

    @property
    def takes_variable(self) -> bool:
        """Whether a variable decides what COPY or ADD takes."""
        return any(has_variable(word, self.escape) for word in self.words[:-1] if not HEREDOC.match(word))

    @property
    def pairs(self) -> tuple[tuple[str, str | None], ...]:
        """The names and values of ENV, LABEL and ARG (None for an ARG without a value); not expanded."""
        if self.name == "ARG":
            words = (word.partition("=") for word in split_words(self.text, self.escape))
            return tuple((name, value if equals else None) for name, equals, value in words)
        return raw_pairs(self.text, self.escape)

    @property
    def inner(self) -> Instruction:
        """The instruction inside ONBUILD."""
        return _instruction(self.text, (), self.line, self.raw, self.escape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One FROM and what follows it."""

    name: str | None  # lower case, as builders compare it
    index: int
    base: str  # what FROM names, global ARGs put in
    platform: str | None
    instructions: tuple[Instruction, ...]
    line: int
    raw: str

    @property
    def label(self) -> str:
        """Its name, else its number: what a dictionary of stages is keyed by."""
        return self.name or str(self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dockerfile:
    """A whole file. `args` are the ARGs before the first FROM, `directives` such as escape and syntax."""

    file: str
    args: tuple[Instruction, ...]
    stages: tuple[Stage, ...]
    directives: Mapping[str, str]

    def stage(self, name: str) -> Stage:
        """Returns the stage called `name`, or with that number; raises KeyError when there is none."""
        wanted = name.lower()
        for stage in self.stages:
            if wanted in (stage.name, str(stage.index)):
                return stage
        raise KeyError(name)

    def earlier(self, reference: str, before: Stage) -> Stage | None:
        """Finds the stage above `before` that `FROM` or `--from` means by `reference`; None when it means an image."""
        wanted = reference.lower()
        for stage in reversed(self.stages[: before.index]):
            if wanted in (stage.name, str(stage.index)):
                return stage
        return None

    def below(self, stage: Stage) -> tuple[Stage, ...]:
        """Returns the stages that a stage starts from, the lowest first."""
        stages: list[Stage] = []
        while (earlier := self.earlier(stage.base, stage)) is not None:
            stages.insert(0, stage := earlier)
        return tuple(stages)


@lru_cache(maxsize=64)
def parse(text: str, *, file: str = "Dockerfile") -> Dockerfile:
    """Parses a Dockerfile; raises DockerfileError that begins with `file:line`."""
    lines = physical_lines(text)
    try:
        directive_values = directives(lines)
        escape = directive_values.get("escape", "\\")
        logical = tuple(logical_lines(lines, escape))
    except LineError as error:
        raise DockerfileError(f"{file}:{error.line}: {error}") from error
    instructions = []
    for line in logical:
        try:
            instructions.append(_instruction(line.text, line.heredocs, line.number, line.raw, escape))
        except InputError as error:
            raise DockerfileError(f"{file}:{line.number}: {error}", hint=error.hint) from error
    return _group_stages(tuple(instructions), directive_values, file)


@lru_cache(maxsize=512)  # roles share most lines, and a role's text is read with its key too
def _instruction(joined: str, heredocs: tuple[Heredoc, ...], line: int, raw: str, escape: str) -> Instruction:
    parts = fields(joined, 2)
    name = parts[0].upper() if parts else ""
    if name not in NAMES:
        raise DockerfileError(
            f"unknown instruction {parts[0] if parts else ''!r}", hint="did the line above lose its `\\`?"
        )
    rest = parts[1].strip() if len(parts) > 1 else ""
    flags, rest = split_flags(rest)
    if flags and name not in _WITH_FLAGS:
        raise DockerfileError(f"{name}: --{flags[0][0]} is a flag, and {name} takes none")
    if not rest and name not in _MAY_BE_EMPTY:
        raise DockerfileError(f"{name} needs an argument")
    words = json_words(rest) if name in _JSON_FORM else None
    instruction = Instruction(
        name=name, flags=flags, text=rest, json=words, heredocs=heredocs, line=line, raw=raw, escape=escape
    )
    _check(instruction)
    return instruction


def _check(instruction: Instruction) -> None:
    """Refuses what every builder refuses while parsing."""
    name = instruction.name
    if name in {"COPY", "ADD"} and len(instruction.words) < 2:
        raise DockerfileError(f"{name} needs a source and a destination")
    if name in {"ENV", "LABEL"} and not all(key for key, _ in instruction.pairs):
        raise DockerfileError(f"{name}: an empty name")
    if name == "ARG" and not all(key for key, _ in instruction.pairs):
        raise DockerfileError("ARG: an empty name")
    if name == "SHELL" and not instruction.json:
        raise DockerfileError('SHELL needs a JSON array, such as ["/bin/sh", "-c"]')
    check_values(instruction)
    if name == "ONBUILD" and instruction.inner.name in {"ONBUILD", "FROM", "MAINTAINER"}:
        raise DockerfileError(f"ONBUILD {instruction.inner.name} is not allowed")


def _group_stages(instructions: tuple[Instruction, ...], directive_values: Mapping[str, str], file: str) -> Dockerfile:
    """Groups instructions into stages, global ARGs put into FROM."""
    first = next((n for n, instruction in enumerate(instructions) if instruction.name == "FROM"), len(instructions))
    args = instructions[:first]
    for instruction in args:
        if instruction.name != "ARG":
            raise DockerfileError(
                f"{file}:{instruction.line}: {instruction.name} before the first FROM: only ARG is allowed there"
            )
    if first == len(instructions):
        raise DockerfileError(f"{file}: no FROM")
    starts = [n for n, instruction in enumerate(instructions) if instruction.name == "FROM"]
    variables = global_args(args)
    stages: list[Stage] = []
    for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(instructions)], strict=True)):
        try:
            stage = _stage(index, instructions[start], instructions[start + 1 : end], variables)
        except InputError as error:
            raise DockerfileError(f"{file}:{instructions[start].line}: {error}", hint=error.hint) from error
        if stage.name is not None and any(stage.name == other.name for other in stages):
            raise DockerfileError(f"{file}:{stage.line}: the stage {stage.name!r} appears twice")
        stages.append(stage)
    return Dockerfile(file=file, args=args, stages=tuple(stages), directives=directive_values)


def global_args(args: tuple[Instruction, ...]) -> dict[str, str]:
    """Returns the values of the ARGs before the first FROM that have one."""
    variables: dict[str, str] = {}
    for instruction in args:
        variables |= {
            name: expand(value, variables, instruction.escape) for name, value in instruction.pairs if value is not None
        }
    return variables


def _stage(
    index: int, start: Instruction, instructions: tuple[Instruction, ...], variables: Mapping[str, str]
) -> Stage:
    words = fields(start.text)
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
        raise DockerfileError(f"FROM {start.text}: expected IMAGE or IMAGE AS NAME")
    name = words[2].lower() if len(words) == 3 else None
    if name is not None and not _STAGE_NAME.match(name):
        raise DockerfileError(f"{name!r} is not a stage's name: expected a letter, then letters, digits, '.', '_', '-'")
    base = expand(words[0], variables, start.escape)
    if not base:
        raise DockerfileError(f"FROM {words[0]} is empty after its variables are expanded")
    platform = start.flag("platform")
    return Stage(
        name=name,
        index=index,
        base=base,
        platform=expand(platform, variables, start.escape) if platform else None,
        instructions=instructions,
        line=start.line,
        raw=start.raw,
    )
