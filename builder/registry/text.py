"""Foreign text made fit for a message: no terminal escapes, no markup, no secrets, a sane length."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 300  # characters of foreign text in one message
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_LONG_WORD = re.compile(r"[A-Za-z0-9+_=.~-]{40,}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAMED = re.compile(r"\b((?:password|passwd|secret|token|api[_-]?key)\w*\"?\s*[=:]\s*)\"?[^\s\",;]+", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]+@")


def clean(text: str, limit: int = LONGEST) -> str:
    """One line without control characters, escape sequences and direction marks, cut at `limit` characters."""
    text = _ESCAPE.sub("", text[: limit * 8])
    kept = "".join(" " if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"} else char for char in text)
    line = " ".join(kept.split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def masked(text: str, limit: int = LONGEST) -> str:
    """`clean` with what could be a secret taken out: long words, users in URLs, and `password=…`. Digests stay."""
    line = _USER_IN_URL.sub("…@", clean(text, limit * 4))
    line = _NAMED.sub(r"\1…", line)
    line = _LONG_WORD.sub(lambda word: word.group() if _DIGEST.fullmatch(word.group()) else "…", line)
    return line if len(line) <= limit else f"{line[:limit]}…"
