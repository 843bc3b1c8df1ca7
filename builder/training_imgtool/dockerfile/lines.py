"""The line level of Dockerfiles: directives, comments, continuations, heredocs and flags.

The rules are those of BuildKit's `frontend/dockerfile/parser`. What the instructions mean is `dockerfile.parse`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from training_imgtool.dockerfile.substitution import is_space, split_words

WITH_HEREDOCS = frozenset({"ADD", "COPY", "RUN"})
HEREDOC = re.compile(r"\d*<<(-?)([^<]+)\Z")
_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*\Z")
_DIRECTIVES = frozenset({"escape", "syntax", "check"})


class LineError(Exception):
    """Lines that cannot be read; carries the 1-based number of the first."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Heredoc:
    """One `<<NAME` with its text.

    `expands` is false when the name was quoted; `chomps` when it was `<<-`, so that leading tabs go.
    """

    name: str
    text: str
    expands: bool
    chomps: bool


@dataclass(frozen=True, slots=True)
class LogicalLine:
    """One instruction's text, its heredocs, where it begins (1-based), and its lines as they stand."""

    text: str
    heredocs: tuple[Heredoc, ...]
    number: int
    raw: str


def physical_lines(text: str) -> list[str]:
    r"""Returns the lines with their newlines, as Go's scanner sees them: only `\n` and `\r\n` end a line."""
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text.removeprefix("\ufeff").replace("\r\n", "\n"))


def directives(lines: list[str]) -> dict[str, str]:
    """Returns the parser directives at the top, such as `# escape=`; raises LineError when one is wrong."""
    values: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match = _DIRECTIVE.match(line.strip())
        name = match[1].lower() if match else ""
        if match is None or name not in _DIRECTIVES:
            break
        if name in values:
            raise LineError(number, f"the directive {name!r} is given twice")
        values[name] = match[2]
    if values.get("escape", "\\") not in ("\\", "`"):
        raise LineError(1, f"escape={values['escape']}: expected \\ or `")
    return values


def logical_lines(lines: list[str], escape: str) -> Iterator[LogicalLine]:
    """Joins continuation lines and takes heredocs along; raises LineError for a heredoc that never ends."""
    continued = re.compile(rf"(?<!{re.escape(escape)}){re.escape(escape)}[ \t]*\Z")
    at = 0
    while at < len(lines):
        start = at
        text = lines[at].rstrip("\n").lstrip()
        at += 1
        if not text or text.startswith("#"):
            continue
        joined = ""
        while (match := continued.search(text)) is not None:
            joined += text[: match.start()]
            text = ""
            while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
                at += 1  # comments and empty lines inside a continuation are skipped
            if at == len(lines):
                break
            text = lines[at].rstrip("\n")
            at += 1
        joined += text
        heredocs, at = _heredocs(joined, lines, at, escape, start + 1)
        yield LogicalLine(joined, heredocs, start + 1, "".join(lines[start:at]))


def _heredocs(text: str, lines: list[str], at: int, escape: str, number: int) -> tuple[tuple[Heredoc, ...], int]:
    """Returns the heredocs that an instruction's joined line opens, and the line after them."""
    words = split_words(text, escape)
    name = "".join(words[:1]).upper()
    if name == "ONBUILD":
        name = "".join(words[1:2]).upper()
    if name not in WITH_HEREDOCS:
        return (), at
    heredocs = []
    for word in words:
        match = HEREDOC.match(word)
        if match is None:
            continue
        chomps, end = bool(match[1]), match[2].replace("'", "").replace('"', "")
        body = ""
        while True:
            if at == len(lines):
                raise LineError(number, f"the heredoc {word} has no line {end!r} that ends it")
            line = lines[at]
            at += 1
            if (line.lstrip("\t") if chomps else line).rstrip("\n") == end:
                break
            body += line
        heredocs.append(Heredoc(end, body, expands=end == match[2], chomps=chomps))
    return tuple(heredocs), at


def split_flags(rest: str) -> tuple[tuple[tuple[str, str | None], ...], str]:
    """Takes `--name[=value]` words from the front; quotes and backslashes in them go."""
    flags: list[tuple[str, str | None]] = []
    at = 0
    while True:
        while at < len(rest) and is_space(rest[at]):
            at += 1
        if not rest.startswith("--", at):
            return tuple(flags), rest[at:]
        word, at = _flag_word(rest, at)
        if word == "--":
            return tuple(flags), rest[at:].strip()
        name, equals, value = word[2:].partition("=")
        flags.append((name, value if equals else None))


def _flag_word(rest: str, at: int) -> tuple[str, int]:
    word, quote = "", ""
    while at < len(rest) and (quote or not is_space(rest[at])):
        character = rest[at]
        at += 1
        if character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        elif character == "\\" and at < len(rest):
            word += rest[at]
            at += 1
        else:
            word += character
    return word, at
