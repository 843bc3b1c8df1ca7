"""Reads and changes an image's run settings (the object `config` in the image's config), as instructions do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_imgtool.base.errors import NeedsEngineError

Settings = Mapping[str, Any]
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def read_environment(settings: Settings) -> dict[str, str]:
    """Returns the variables of `Env`, in order."""
    return dict(pair.partition("=")[::2] for pair in settings.get("Env") or [])


def check_environment(settings: Settings) -> None:
    """Raises NeedsEngineError if the base's `Env` contains an item that is not NAME=VALUE, or a variable twice."""
    env = settings.get("Env") or []
    names = [pair.partition("=")[0] for pair in env if not pair.startswith("=") and "=" in pair]
    if len({*names}) < len(env):
        raise NeedsEngineError("the base's Env contains a variable twice, or a name without a value")


def with_path(settings: Settings) -> Settings:
    """Sets PATH if the base does not set PATH, as every builder does at the start of a stage."""
    env = settings.get("Env") or []
    return settings if "PATH" in read_environment(settings) else {**settings, "Env": [*env, f"PATH={_DEFAULT_PATH}"]}


def with_env(settings: Settings, variables: Mapping[str, str]) -> Settings:
    """Sets variables as the instruction ENV does; a variable that exists keeps its position in the list."""
    if not variables:
        return settings
    every = {**read_environment(settings), **variables}
    return {**settings, "Env": [f"{name}={value}" for name, value in every.items()]}


def with_labels(settings: Settings, labels: Mapping[str, str]) -> Settings:
    """Adds labels."""
    return {**settings, "Labels": {**(settings.get("Labels") or {}), **labels}}


def with_entrypoint(settings: Settings, words: tuple[str, ...]) -> Settings:
    """Sets the entry point and removes the base's CMD."""
    return {**{key: value for key, value in settings.items() if key != "Cmd"}, "Entrypoint": list(words)}
