r"""Untrusted text made safe for a terminal: no escape sequence, control or bidirectional character gets through.

Build logs, servers' messages and image names are written by others. A terminal obeys what they contain:
it moves the cursor, sets its title, reorders text (CVE-2021-42574). Colours are dropped; everything else that is not
a visible character becomes visible as `\x1b` or `\u202e`.
"""

from __future__ import annotations

import re
import unicodedata

_COLOUR_OR_CURSOR = re.compile(r"\x1b\[[0-9;:<=>?]*[ -/]*[@-~]")  # ECMA-48 section 5.4: CSI
_PLAIN = re.compile(r"[ -~]*\Z")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
LONGEST_LINE = 1000
LONGEST_FOREIGN = 300  # characters of foreign text in one message
_ESCAPE = r"(?s)\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?"
_LONG_WORD = r"[A-Za-z0-9+_=.~-]{40,}"
_DIGEST = r"[0-9a-f]{64}"
_NAMED = r"(?i)\b((?:password|passwd|secret|token|api[_-]?key)\w*\"?\s*[=:]\s*)\"?[^\s\",;]+"
_USER_IN_URL = r"(?<=://)[^/\s@]+@"


def printable(text: str, *, most: int = LONGEST_LINE) -> str:
    """One line of `text` as a terminal may show it, `most` characters of it at most.

    What a carriage return would have overwritten is left out, as a terminal would show it; a tab becomes a space.
    """
    text = text.rstrip("\r\n").rpartition("\r")[2]
    if len(text) > most:
        text = f"{text[:most]}… ({len(text)} characters)"
    if _PLAIN.match(text):
        return text
    text = _COLOUR_OR_CURSOR.sub("", text)
    return "".join(char if char.isascii() and char.isprintable() else _visible(char) for char in text)


def safe(text: str, *, most: int = LONGEST_LINE) -> str:
    """`text` as a terminal may show it, line by line as `printable` makes them; for messages of several lines."""
    return "\n".join(printable(line, most=most) for line in text.split("\n"))


def _visible(char: str) -> str:
    if char == "\t":
        return " "
    if unicodedata.category(char) in _INVISIBLE:
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


def clean(text: str, limit: int = LONGEST_FOREIGN) -> str:
    """One line without control characters, escape sequences and direction marks, cut at `limit` characters."""
    text = re.sub(_ESCAPE, "", text[: limit * 8])
    kept = "".join(" " if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"} else char for char in text)
    line = " ".join(kept.split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def masked(text: str, limit: int = LONGEST_FOREIGN) -> str:
    """`clean` with what could be a secret taken out: long words, users in URLs, and `password=…`. Digests stay."""
    line = re.sub(_USER_IN_URL, "…@", clean(text, limit * 4))
    line = re.sub(_NAMED, r"\1…", line)
    line = re.sub(_LONG_WORD, lambda word: word.group() if re.fullmatch(_DIGEST, word.group()) else "…", line)
    return line if len(line) <= limit else f"{line[:limit]}…"
