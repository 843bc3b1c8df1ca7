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
