"""Groups of alternatives as update-alternatives(1) of dpkg keeps them: the text of /var/lib/dpkg/alternatives/NAME."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from training_imgtool.core.errors import NeedsEngineError

FOLDER = "/var/lib/dpkg/alternatives"
LINKS = "/etc/alternatives"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One file that a group may lead to; `slaves` has further files by the names of their links."""

    path: str
    priority: int
    slaves: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group in automatic mode: its link, the links of its slaves by their names, and the choices by path.

    `best` is the choice that the link leads to.
    """

    link: str
    slaves: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    best: Choice | None = None

    def with_choice(self, choice: Choice, slaves: Mapping[str, str]) -> Group:
        """The group with one more choice, or another of the same path; `slaves` are links by their names."""
        rows = {row.path: row for row in (*self.choices, choice)} | {choice.path: choice}
        first = [rows[self.best.path]] if self.best else []  # it stays unless another has a higher priority
        best = max((*first, *rows.values()), key=lambda row: row.priority)
        ordered = tuple(sorted(rows.values(), key=lambda row: row.path.encode()))
        every = {**self.slaves, **slaves}
        return replace(self, slaves={name: every[name] for name in sorted(every)}, choices=ordered, best=best)

    def text(self) -> str:
        """The file: mode and links, an empty line, each choice with its priority and slaves, an empty line."""
        lines = ["auto", self.link]
        lines += [line for name, link in self.slaves.items() for line in (name, link)]
        for choice in (None, *self.choices):
            lines += [""] if choice is None else [choice.path, str(choice.priority)]
            lines += [] if choice is None else [choice.slaves.get(name, "") for name in self.slaves]
        return "\n".join([*lines, "", ""])


def parse_group(text: str, name: str, current: str) -> Group:
    """Reads the file of a group whose link leads to `current`.

    Raises NeedsEngineError for one in manual mode, or of another form.
    """
    message = f"the base's alternatives of {name} were chosen by hand, or are damaged"
    lines = text.split("\n")
    try:
        end = lines.index("", 2)
        slaves = dict(zip(lines[2:end:2], lines[3:end:2], strict=True))
        rows, size = lines[end + 1 : -2], 2 + len(slaves)
        whole = lines[0] == "auto" and lines[-2:] == ["", ""] and not len(rows) % size
        choices = tuple(
            Choice(
                path=rows[at],
                priority=int(rows[at + 1]),
                slaves={slave: path for slave, path in zip(slaves, rows[at + 2 : at + size], strict=True) if path},
            )
            for at in range(0, len(rows), size)
        )
    except (ValueError, IndexError) as error:
        raise NeedsEngineError(message) from error
    best = next((choice for choice in choices if choice.path == current), None)
    if not whole or best is None:
        raise NeedsEngineError(message)
    return Group(link=lines[1], slaves=slaves, choices=choices, best=best)
