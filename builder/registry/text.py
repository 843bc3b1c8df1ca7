"""Foreign text made fit for a message: no terminal escapes, no markup, no secrets, a sane length."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 300  # characters of foreign text in one message
_ESCAPE = r"(?s)\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?"
_LONG_WORD = r"[A-Za-z0-9+_=.~-]{40,}"
_DIGEST = r"[0-9a-f]{64}"
_NAMED = r"(?i)\b((?:password|passwd|secret|token|api[_-]?key)\w*\"?\s*[=:]\s*)\"?[^\s\",;]+"
_USER_IN_URL = r"(?<=://)[^/\s@]+@"


def clean(text: str, limit: int = LONGEST) -> str:
    """One line without control characters, escape sequences and direction marks, cut at `limit` characters."""
    text = re.sub(_ESCAPE, "", text[: limit * 8])
    kept = "".join(" " if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"} else char for char in text)
    line = " ".join(kept.split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def masked(text: str, limit: int = LONGEST) -> str:
    """`clean` with what could be a secret taken out: long words, users in URLs, and `password=…`. Digests stay."""
    line = re.sub(_USER_IN_URL, "…@", clean(text, limit * 4))
    line = re.sub(_NAMED, r"\1…", line)
    line = re.sub(_LONG_WORD, lambda word: word.group() if re.fullmatch(_DIGEST, word.group()) else "…", line)
    return line if len(line) <= limit else f"{line[:limit]}…"
