"""Reads Dockerfiles: the whole syntax of the Dockerfile reference, to frozen values.

The rules of lines, comments, continuations, directives, flags and heredocs are those of BuildKit's
`frontend/dockerfile/parser`. Nothing is expanded here; `dockerfile.evaluate` does that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from training_imgtool.core.errors import InputError
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

if TYPE_CHECKING:
    from decimal import Decimal

NAMES = frozenset(
    """ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL
    USER VOLUME WORKDIR""".split()  # noqa: SIM905 - a table of words reads best so
)
_JSON_FORM = frozenset({"ADD", "CMD", "COPY", "ENTRYPOINT", "RUN", "SHELL", "VOLUME"})
_WITH_FLAGS = frozenset({"ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"})
_MAY_BE_EMPTY = frozenset({"CMD", "ENTRYPOINT"})
_STAGE_NAME = re.compile(r"[a-z][a-z0-9._-]*\Z")
_HEALTH_TIMES = frozenset({"interval", "timeout", "start-period", "start-interval"})
_REPEATED_FLAGS = frozenset({"exclude", "mount"})
_FLAGS_WITH_VALUE = frozenset({"chmod", "chown", "exclude", "from", "mount", "platform"})

_SIGNAL = (
    r"(?:SIG)?(?:ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS"
    r"|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR[12]|VTALRM|WINCH|XCPU|XFSZ"
    r"|RTM(?:IN(?:\+(?:[1-9]|1[0-5]))?|AX(?:-(?:[1-9]|1[0-4]))?))"
)
_PART = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_DURATION = rf"\+?(?:{_PART})+"
_US, _MS, _S = 10**3, 10**6, 10**9
_UNITS = {"ns": 1, "us": _US, "µs": _US, "μs": _US, "ms": _MS, "s": _S, "m": 60 * _S, "h": 3600 * _S}
_SHORTEST = _MS  # nanoseconds; engines refuse a shorter duration of a health check


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
    escape: str

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


def check_values(instruction: Instruction) -> None:
    """Refuses flags and values that no engine takes; raises InputError."""
    names = [flag for flag, _ in instruction.flags if flag not in _REPEATED_FLAGS]
    for flag in names:
        if names.count(flag) > 1:
            raise InputError(f"{instruction.name}: --{flag} is given twice")
    for flag, value in instruction.flags:
        if flag != flag.lower():
            raise InputError(f"{instruction.name}: --{flag}: the names of flags are in lower case")
        if value is None and flag in _FLAGS_WITH_VALUE:
            raise InputError(f"{instruction.name}: --{flag} has no value: expected --{flag}=VALUE")
    check = {"HEALTHCHECK": _check_healthcheck, "STOPSIGNAL": _check_stop_signal, "VOLUME": _check_volume}
    if instruction.name in check:
        check[instruction.name](instruction)


def _check_healthcheck(instruction: Instruction) -> None:
    kind, *rest = fields(instruction.text, 2)
    if kind.upper() not in {"NONE", "CMD"}:
        raise InputError("HEALTHCHECK: expected NONE or CMD")
    if kind.upper() == "NONE" and (rest or instruction.flags):
        raise InputError("HEALTHCHECK NONE takes neither flags nor arguments")
    if kind.upper() == "CMD" and (not rest or json_words(rest[0]) == ()):
        raise InputError("HEALTHCHECK CMD needs a command")
    retries = instruction.flag("retries")
    if retries is not None and not re.fullmatch(r"\+?0*[1-9]\d{0,8}", retries):
        raise InputError(f"HEALTHCHECK --retries={retries}: expected a number from 1 on")
    for flag, value in instruction.flags:
        duration = nanoseconds(value or "") if flag in _HEALTH_TIMES else _SHORTEST
        if duration is None or duration < _SHORTEST:
            raise InputError(f"HEALTHCHECK --{flag}={value or ''}: expected a duration from 1ms on, such as 30s")


def _check_stop_signal(instruction: Instruction) -> None:
    text = instruction.text
    if not set(text) & set("$'\"\\") and not is_signal(text):
        raise InputError(
            f"STOPSIGNAL {text}: no signal of Linux", hint="expected a name such as SIGTERM, or a number from 1 on"
        )


def _check_volume(instruction: Instruction) -> None:
    if not instruction.words or not all(word.strip() for word in instruction.words):
        raise InputError("VOLUME: an empty path")


def json_words(rest: str) -> tuple[str, ...] | None:
    """Returns the JSON form's words; None when it is a shell form. An array of other things than text is an error."""
    if not rest.startswith("["):
        return None
    try:
        words, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    if rest[end:].strip():
        raise InputError(
            f"{rest[:60]}: a JSON form with text after it: Docker 20.10 drops the text, BuildKit takes it for shell",
            hint="begin a shell test with `test` instead of `[`",
        )
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"{rest[:60]}: a JSON form holds only strings")
    return tuple(words)


def is_signal(text: str) -> bool:
    """Returns whether engines take `text` for a signal: a number from 1 on, or a name (moby/sys `signal`)."""
    return int(text) > 0 if text.isascii() and text.isdecimal() else re.fullmatch(_SIGNAL, text.upper()) is not None


def nanoseconds(text: str) -> Decimal | None:
    """Returns Go's `time.ParseDuration`, such as `1m30s`; None for what is none, and for what is negative."""
    from decimal import Decimal

    if text in {"0", "+0"}:
        return Decimal(0)
    if not re.fullmatch(_DURATION, text):
        return None
    return sum((Decimal(number) * _UNITS[unit] for number, unit in re.findall(_PART, text)), Decimal(0))
