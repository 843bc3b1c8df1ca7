"""Parses the TOML of users' files in bounded time and depth."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MOST_PARTS = 20  # of a key; the time that tomllib needs for a key grows with the square of their number
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"""(?<![\w"'-]){_PART}(?:\.[ \t]*+{_PART}){{{_MOST_PARTS}}}""")


def parse_toml(text: str) -> dict[str, Any]:
    """Parses a TOML document.

    Raises ValueError if the text is not TOML, or has a key that is too long or a value that is nested too deep.
    """
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("a value is nested too deep") from None
