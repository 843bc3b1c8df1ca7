"""What each instruction does to an image's run settings, the `config` object of its config.

The rules are those of Docker's builders (moby `builder/dockerfile/dispatchers.go`, BuildKit
`dockerfile2llb/convert.go`), which agree on everything here; where they do not, NeedsEngineError.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.links import DependsOnBaseError
from training_imgtool.dockerfile.evaluate import Expanded
from training_imgtool.dockerfile.parse import is_signal, nanoseconds
from training_imgtool.dockerfile.substitution import fields

Settings = Mapping[str, Any]
_Change = Callable[[Settings, Expanded], dict[str, Any]]
_SHELL = ["/bin/sh", "-c"]
_PORT = re.compile(r"(?P<first>\d{1,5})(?:-(?P<last>\d{1,5}))?(?:/(?P<protocol>tcp|udp|sctp))?\Z")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LONGEST = 2**63 - 1
_HEALTH_TIMES = {"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod"}


def apply(settings: Settings, step: Expanded, *, cmd_set: bool) -> dict[str, Any]:
    """Applies one instruction to the settings.

    Args:
        settings: before it; not changed.
        step: any instruction but COPY, ADD, RUN and FROM.
        cmd_set: whether this stage had a CMD before: without one, ENTRYPOINT drops the base's.

    Raises:
        NeedsEngineError: the instruction needs an engine.
    """
    if step.name == "ENTRYPOINT" and not cmd_set:
        settings = {key: value for key, value in settings.items() if key != "Cmd"}
    change = _CHANGES.get(step.name)
    if change is None:
        raise NeedsEngineError(f"line {step.instruction.line}: {step.name} needs an engine")
    return {**settings, **change(settings, step)}


def read_environment(settings: Settings) -> dict[str, str]:
    """Reads the variables of `Env`, in order."""
    return dict(pair.partition("=")[::2] for pair in settings.get("Env") or [])


def check_environment(settings: Settings) -> None:
    """Raises DependsOnBaseError for a base whose `Env` has a line that is no variable, or a variable twice."""
    env = settings.get("Env") or []
    names = [pair.partition("=")[0] for pair in env if not pair.startswith("=") and "=" in pair]
    if len({*names}) < len(env):
        raise DependsOnBaseError("the base's Env has a variable twice, or one without a value, which engines keep")


def with_path(settings: Settings) -> Settings:
    """Sets PATH where the base does not, as every builder does when a stage begins."""
    env = settings.get("Env") or []
    return settings if "PATH" in read_environment(settings) else {**settings, "Env": [*env, f"PATH={_DEFAULT_PATH}"]}


def resolve_working_folder(settings: Settings, path: str) -> str:
    """Resolves WORKDIR against the one before; writes it as BuildKit does, without a slash at the end."""
    return posixpath.normpath(posixpath.join("/", settings.get("WorkingDir") or "/", path))


def _apply_env(settings: Settings, step: Expanded) -> dict[str, Any]:
    variables = {**read_environment(settings), **dict(step.pairs)}
    return {"Env": [f"{name}={value}" for name, value in variables.items()]}


def _apply_label(settings: Settings, step: Expanded) -> dict[str, Any]:
    return {"Labels": {**(settings.get("Labels") or {}), **dict(step.pairs)}}


def _read_command(settings: Settings, step: Expanded) -> list[str]:
    if not step.instruction.json and (step.instruction.json is not None or not step.instruction.text):
        raise NeedsEngineError(f"line {step.instruction.line}: engines differ in what an empty {step.name} means")
    if step.instruction.json is not None:
        return list(step.instruction.json)
    return [*(settings.get("Shell") or _SHELL), step.instruction.text]


def _expose(settings: Settings, step: Expanded) -> dict[str, Any]:
    ports = dict(settings.get("ExposedPorts") or {})
    for word in step.words:
        match = _PORT.match(word)
        if match is None:
            raise NeedsEngineError(f"line {step.instruction.line}: EXPOSE {word} needs an engine")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if not first <= last <= 65535:
            raise NeedsEngineError(f"line {step.instruction.line}: EXPOSE {word} is not a range of ports")
        ports |= {f"{port}/{match['protocol'] or 'tcp'}": {} for port in range(first, last + 1)}
    return {"ExposedPorts": ports}


def _apply_volume(settings: Settings, step: Expanded) -> dict[str, Any]:
    for word in step.words:
        _require_value(step, word.strip())
    return {"Volumes": {**(settings.get("Volumes") or {}), **{word: {} for word in step.words}}}


def _apply_healthcheck(settings: Settings, step: Expanded) -> dict[str, Any]:
    kind, *rest = fields(step.instruction.text, 2)
    unknown = set(step.flags) - {*_HEALTH_TIMES, "retries"}
    if unknown:
        raise NeedsEngineError(f"line {step.instruction.line}: HEALTHCHECK --{min(unknown)} needs an engine")
    check: dict[str, Any] = {"Test": ["NONE"] if kind.upper() == "NONE" else _test(rest[0])}
    check |= {field: _read_nanoseconds(step, flag) for flag, field in _HEALTH_TIMES.items() if flag in step.flags}
    if "retries" in step.flags:
        check["Retries"] = int(step.flags["retries"])
    before = settings.get("Healthcheck") or {}
    if any(before.get(field) and field not in check for field in (*_HEALTH_TIMES.values(), "StartInterval", "Retries")):
        raise NeedsEngineError(
            f"line {step.instruction.line}: engines differ in what is left of the HEALTHCHECK before this one"
        )
    return {"Healthcheck": check}


def _test(text: str) -> list[str]:
    try:
        words = json.loads(text) if text.startswith("[") else None
    except ValueError:
        words = None
    return ["CMD", *words] if words else ["CMD-SHELL", text]


def _read_nanoseconds(step: Expanded, flag: str) -> int:
    duration = nanoseconds(step.flags[flag])
    if duration is None or duration > _LONGEST or duration != int(duration):
        raise NeedsEngineError(f"line {step.instruction.line}: HEALTHCHECK --{flag}: a duration that needs an engine")
    return int(duration)


def _require_value(step: Expanded, word: str) -> str:
    if not word:
        raise NeedsEngineError(f"line {step.instruction.line}: {step.name} is empty after its variables are expanded")
    return word


def _stop_signal(_: Settings, step: Expanded) -> dict[str, Any]:
    word = _require_value(step, step.words[0])
    if not is_signal(word):
        raise NeedsEngineError(f"line {step.instruction.line}: STOPSIGNAL {word}: not a signal that imgtool knows")
    return {"StopSignal": word}


def _set_line(field: str) -> _Change:
    return lambda settings, step: {field: _read_command(settings, step)}


def _apply_arg(settings: Settings, step: Expanded) -> dict[str, Any]:
    """Changes nothing; the classic builder and BuildKit disagree on whether ARG hides an ENV of its name."""
    variables = read_environment(settings)
    hiding = next((name for name, _ in step.pairs if name in variables), None)
    if hiding:
        raise NeedsEngineError(f"line {step.instruction.line}: ARG {hiding}: engines disagree on an ENV of this name")
    return {}


_CHANGES: dict[str, _Change] = {
    "ARG": _apply_arg,
    "CMD": _set_line("Cmd"),
    "ENTRYPOINT": _set_line("Entrypoint"),
    "ENV": _apply_env,
    "EXPOSE": _expose,
    "HEALTHCHECK": _apply_healthcheck,
    "LABEL": _apply_label,
    "SHELL": lambda _, step: {"Shell": list(step.instruction.json or _SHELL)},
    "STOPSIGNAL": _stop_signal,
    "USER": lambda _, step: {"User": _require_value(step, step.words[0])},
    "VOLUME": _apply_volume,
    "WORKDIR": lambda settings, step: {
        "WorkingDir": resolve_working_folder(settings, _require_value(step, step.words[0]))
    },
}
