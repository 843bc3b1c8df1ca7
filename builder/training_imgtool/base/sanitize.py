r"""Makes foreign text (text that does not come from imgtool) safe for a terminal and for a message.

Build logs, servers' answers and image names are foreign text. A terminal obeys the control characters in such text: it
moves the cursor, sets its title, reorders text (CVE-2021-42574). The functions here drop colours and cursor movements,
and replace every other invisible character by its escape, such as `\x07` or `\u202e`.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_LINE = 1000  # characters
LONGEST_EXCERPT = 300  # characters of foreign text in one message
_PLAIN = re.compile(r"[ -~]*\Z")
_COLOUR_OR_CURSOR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # ECMA-48 section 5.4: CSI
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # Unicode categories
_LONG_WORD = r"[A-Za-z0-9+_=.~-]{40,}"
_DIGEST = r"[0-9a-f]{64}"
_NAMED_VALUE = (
    r"(?i)\b((?:password|passwd|secret|token|api[_-]?key)\w*\"?(?:\s*[=:]\s*|\s+"
    r"(?!(?:is|was|has|are|for|not|in|of|from|to|and|or|file|store|helper|expired|required|cannot|could|must)\b)))"
    r"\"?[^\s\",;]+"
)
_USER_IN_URL = r"(?<=://)[^/\s@]+@"


def sanitize_line(text: str, *, limit: int = LONGEST_LINE) -> str:
    """Returns one line of `text`, safe for a terminal.

    Leaves out text that a carriage return overwrites, turns a tab into a space, and cuts after `limit` characters.
    """
    text = text.rstrip("\r\n").rpartition("\r")[2]
    if len(text) > limit:
        text = f"{text[:limit]}… ({len(text)} characters)"
    return _make_visible(text).rstrip()


def sanitize_lines(text: str) -> str:
    """Applies `sanitize_line` to each line of a message."""
    return "\n".join(sanitize_line(line) for line in text.split("\n"))


def join_lines(text: str, limit: int = LONGEST_EXCERPT) -> str:
    """Returns foreign text for use within a message: one line, single spaces, at most `limit` characters."""
    line = " ".join(_make_visible(" ".join(text[: limit * 8].split())).split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def mask_secrets(text: str, limit: int = LONGEST_EXCERPT) -> str:
    """Returns `join_lines(text)` with `…` in place of possible secrets: passwords, logins in URLs, long words."""
    line = re.sub(_USER_IN_URL, "…@", join_lines(text, limit * 4))
    line = re.sub(_NAMED_VALUE, r"\1…", line)
    line = re.sub(_LONG_WORD, lambda word: word.group() if re.fullmatch(_DIGEST, word.group()) else "…", line)
    return line if len(line) <= limit else f"{line[:limit]}…"


def _make_visible(text: str) -> str:
    if _PLAIN.match(text):
        return text
    return "".join(map(_escape, _COLOUR_OR_CURSOR.sub("", text)))


def _escape(char: str) -> str:
    if char == "\t":
        return " "
    if unicodedata.category(char) in _INVISIBLE:
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char
