"""Writes the links and records that update-alternatives makes for groups of alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from imgtool_debian_layers.base_system import Node, resolve
from imgtool_debian_layers.errors import NeedsAptError
from imgtool_debian_layers.scripts import Effect
from imgtool_debian_layers.unpack import Entry, Unpacking

_FOLDER = "/var/lib/dpkg/alternatives"
_LINKS = "/etc/alternatives"


def make_alternatives(effects: Iterable[Effect], unpacking: Unpacking) -> Iterator[Entry]:
    """Yields the links and records of groups of alternatives, including those of the base.

    Raises NeedsAptError for a group that somebody changed by hand, and if update-alternatives would fail or delete a
    file.
    """
    groups: dict[str, Group] = {}
    for effect in effects:
        text = unpacking.system.text(f"{_FOLDER}/{effect.name}")
        current = unpacking.system.nodes.get(f"{_LINKS}/{effect.name}", Node("l")).target
        before = parse_group(text, effect.name, current) if text else Group(link=effect.path)
        group = groups.get(effect.name, before)
        links = {name: link for link, name, _ in effect.slaves}
        if group.link != effect.path or any(group.slaves.get(name, link) != link for name, link in links.items()):
            raise NeedsAptError(f"the image already has alternatives of {effect.name} with other links")
        files = {name: file for _, name, file in effect.slaves}
        groups[effect.name] = group.with_choice(effect.target, Choice(effect.priority, files), links)
    for name, group in groups.items():
        for alias, link, target in _list_links(name, group, unpacking):
            yield from unpacking.make_link(f"{_LINKS}/{alias}", target)
            yield from unpacking.make_link(link, f"{_LINKS}/{alias}")
        yield from unpacking.make(f"{_FOLDER}/{name}", Node("f"), group.text().encode())


def _list_links(name: str, group: Group, unpacking: Unpacking) -> Iterator[tuple[str, str, str]]:
    """Yields name, link and target for the group's best choice, and for each slave of that choice whose file exists."""
    nodes, files = unpacking.nodes, group.choices[group.best].slaves
    slaves = ((alias, link, files.get(alias, "")) for alias, link in group.slaves.items())
    for alias, link, target in ((name, group.link, group.best), *slaves):
        place, is_there = resolve(nodes, link), bool(target) and resolve(nodes, f"{target}/.") in nodes
        present = nodes.get(place)
        if present is not None and (present.target != f"{_LINKS}/{alias}" or not is_there):
            raise NeedsAptError(f"the image already has {link}, where the alternatives of {name} put a link")
        if is_there:
            yield alias, place, target
        elif alias == name:
            raise NeedsAptError(f"the image lacks {target}, an alternative of {name}")


@dataclass(frozen=True, slots=True)
class Choice:
    """A file that the group's link may point to; `slaves` maps the names of further links to their files."""

    priority: int
    slaves: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of alternatives in automatic mode.

    Attributes:
        link: the path of its link.
        slaves: the paths of further links, by name.
        choices: the files that the link may point to, by path.
        best: the path that the link points to.
    """

    link: str
    slaves: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    best: str = ""

    def with_choice(self, path: str, choice: Choice, slaves: Mapping[str, str]) -> Group:
        """Adds a choice to the group, or replaces the choice with the same path; `slaves` maps names to links."""
        choices = {**self.choices, path: choice}
        first = [self.best] if self.best else []  # the best choice stays unless another one has a higher priority
        best = max((*first, *choices), key=lambda path: choices[path].priority)
        links = {**self.slaves, **slaves}
        return Group(
            link=self.link,
            slaves={name: links[name] for name in sorted(links)},
            choices={path: choices[path] for path in sorted(choices, key=str.encode)},
            best=best,
        )

    def text(self) -> str:
        """Formats the group's file: mode, links, an empty line, each choice with priority and slaves, an empty line."""
        lines = ["auto", self.link]
        for name, link in self.slaves.items():
            lines += [name, link]
        lines.append("")
        for path, choice in self.choices.items():
            lines += [path, str(choice.priority), *(choice.slaves.get(name, "") for name in self.slaves)]
        return "\n".join([*lines, "", ""])


def parse_group(text: str, name: str, current: str) -> Group:
    """Reads the file of a group whose link points to `current`.

    Raises NeedsAptError for a group in manual mode, and for a file in another format.
    """
    message = f"the base's alternatives of {name} were chosen by hand, or are damaged"
    lines = text.split("\n")
    try:
        end = lines.index("", 2)
        slaves = dict(zip(lines[2:end:2], lines[3:end:2], strict=True))
        rows, size = lines[end + 1 : -2], 2 + len(slaves)
        whole = lines[0] == "auto" and lines[-2:] == ["", ""] and not len(rows) % size
        choices = {
            rows[at]: Choice(
                int(rows[at + 1]),
                {slave: path for slave, path in zip(slaves, rows[at + 2 : at + size], strict=True) if path},
            )
            for at in range(0, len(rows), size)
        }
    except (ValueError, IndexError) as error:
        raise NeedsAptError(message) from error
    if not whole or current not in choices:
        raise NeedsAptError(message)
    return Group(link=lines[1], slaves=slaves, choices=choices, best=current)
