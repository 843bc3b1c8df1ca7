"""Reads the settings of the machine that imgtool runs on, for the command line and for the Python interface."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace

from training_imgtool.base.settings import VARIABLES, Settings, find_unknown_variables, from_environment
from training_imgtool.model.secrets import parse_secret


def read_settings(environ: Mapping[str, str], note: Callable[[str], None], secrets: tuple[str, ...] = ()) -> Settings:
    """Reads the machine's settings from variables and from values of `--secret`; raises UsageError for a wrong value.

    `note` receives a line for each unknown variable that begins with `IMGTOOL_`.
    """
    settings = from_environment(environ)
    for name in find_unknown_variables(environ):
        close = difflib.get_close_matches(name, VARIABLES, n=1)
        note(f"{name} is no variable of imgtool{f': did you mean {close[0]}?' if close else ''}")
    return replace(settings, secrets=tuple(map(parse_secret, secrets))) if secrets else settings
