"""Reads `imgtool/config.toml`, which contains the settings of a person or a machine, not those of a project."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.errors import LocalFileError, UsageError

_PATHS = ("ca_file", "cache")
_TABLES = ("mirrors", "debian_mirrors", "builder_registries")
_TEXTS = ("registry", "builder", "cache_size", "engine", "progress", "torch_index")
KEYS = (*_TEXTS, *_PATHS, "insecure_registries", *_TABLES)


@dataclass(frozen=True, slots=True)
class Given:
    """A setting: its value, as an environment variable would contain it, and its source (`file:line`, or a name)."""

    text: str
    place: str


def read_user_config(environ: Mapping[str, str]) -> Mapping[str, Given]:
    """Maps the variable of each setting to the setting; raises UsageError, or LocalFileError for an unreadable file."""
    home = environ.get("HOME") or "/nonexistent"
    path = Path(environ.get("XDG_CONFIG_HOME") or f"{home}/.config") / "imgtool/config.toml"
    if not os.path.isfile(path):  # noqa: PTH113 - Path's raises where another user's home cannot be read
        return {}
    from training_imgtool.base.toml import parse_toml  # imported late: it takes a while, and few machines have the file

    found = {}
    try:
        text = path.read_text(encoding="utf-8")
        document = parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{path}: not TOML: {error}") from error
    except OSError as error:
        raise LocalFileError(f"{path}: cannot be read: {error.strerror}") from error
    for key, value in document.items():
        begin = re.search(rf"(?m)^[ \t]*\[?[ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*[\]=.]", text)
        place = f"{path}:{text.count(chr(10), 0, begin.start() if begin else 0) + 1}"
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the keys are {', '.join(KEYS)}"
            raise UsageError(f"{place}: unknown key {key!r}", hint=hint)
        kind, what = (dict, "table") if key in _TABLES else (list, "list") if key[:2] == "in" else (str, "text")
        parts = (
            [*value.items()]
            if isinstance(value, dict)
            else [[one] for one in value]
            if isinstance(value, list)
            else [[value]]
        )
        if not isinstance(value, kind) or not all(
            isinstance(word, str) and word.strip() for part in parts for word in part
        ):
            raise UsageError(f"{place}: {key}: expected a {what} without empty strings, found {value!r}")
        shown = ",".join("=".join(part) for part in parts)
        shown = str(path.parent / re.sub(r"^~(?=/)", lambda _: home, shown)) if key in _PATHS else shown
        found[f"IMGTOOL_{key.upper()}"] = Given(shown, place)
    return found
