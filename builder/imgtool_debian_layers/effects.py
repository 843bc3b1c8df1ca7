"""Effects of scripts that stand for themselves: folders, links, files, alternatives, and conditions."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from imgtool_debian_layers.base_system import Node, resolve
from imgtool_debian_layers.errors import NeedsAptError
from imgtool_debian_layers.scripts import Effect, EffectKind
from imgtool_debian_layers.unpack import Entry, Unpacking

_STAFF = "/etc/staff-group-for-usr-local"  # Debian Policy 9.1.2
_REPLACES = frozenset({EffectKind.LINK, EffectKind.FILE, EffectKind.COPY})
FOLDER = "/var/lib/dpkg/alternatives"
LINKS = "/etc/alternatives"


def replaced_path(effect: Effect) -> str:
    """Returns the path that an effect makes in place of a package's own file; empty when it makes none."""
    return effect.path if effect.kind in _REPLACES and not effect.keep else ""


def make_effect(effect: Effect, unpacking: Unpacking, contents: Mapping[str, bytes]) -> Iterator[Entry]:
    """Yields the entries of one effect.

    Args:
        effect: what a script does.
        unpacking: the image by now.
        contents: the files that effects copy.

    Raises NeedsAptError where the script would do something else on this base.
    """
    if effect.kind is EffectKind.ABSENT:
        pattern = effect.path
        conflict = next((path for path in unpacking.nodes if fnmatch.fnmatchcase(path, pattern)), None)
        if conflict:
            raise NeedsAptError(f"a script of a package works on {conflict}")
        return
    path = resolve(unpacking.nodes, effect.path)
    if effect.kind is EffectKind.PRESENT:
        if path not in unpacking.nodes:
            raise NeedsAptError(f"a script of a package makes {effect.path}, which is not there")
        return
    if path in unpacking.nodes:
        if effect.keep or effect.kind is EffectKind.LOCAL_FOLDER:
            return
        raise NeedsAptError(f"{effect.path}, which a script of a package makes, is there already")
    yield from unpacking.make(path, _make_node(effect, unpacking), _read_data(effect, contents))


def _make_node(effect: Effect, unpacking: Unpacking) -> Node:
    if effect.kind is EffectKind.LOCAL_FOLDER:
        staff = _STAFF in unpacking.nodes
        return Node("d", 0o2755 if staff else 0o755, *unpacking.find_owner("root:staff" if staff else "root:root"))
    owner = unpacking.find_owner(effect.owner)
    if effect.kind is EffectKind.FOLDER:
        return Node("d", effect.mode or 0o755, *owner)
    if effect.kind is EffectKind.LINK:
        return Node("l", 0o777, *owner, target=effect.target)
    return Node("f", effect.mode or 0o644, *owner)


def _read_data(effect: Effect, contents: Mapping[str, bytes]) -> bytes:
    if effect.kind is not EffectKind.COPY:
        return effect.text.encode()
    if effect.target not in contents:
        raise NeedsAptError(f"no package has {effect.target}, which a script copies")
    return contents[effect.target]


def make_alternatives(effects: Iterable[Effect], unpacking: Unpacking) -> Iterator[Entry]:
    """Yields the links and records of groups of alternatives, those of the base included.

    Raises NeedsAptError for a group that was changed by hand, and where update-alternatives would stop or remove.
    """
    groups: dict[str, Group] = {}
    for effect in effects:
        text = unpacking.system.text(f"{FOLDER}/{effect.name}")
        current = unpacking.system.nodes.get(f"{LINKS}/{effect.name}", Node("l")).target
        before = parse_group(text, effect.name, current) if text else Group(link=effect.path)
        group = groups.get(effect.name, before)
        links = {name: link for link, name, _ in effect.slaves}
        if group.link != effect.path or any(group.slaves.get(name, link) != link for name, link in links.items()):
            raise NeedsAptError(f"the alternatives of {effect.name} have other links in the image already")
        files = {name: file for _, name, file in effect.slaves}
        choice = Choice(path=effect.target, priority=effect.priority, slaves=files)
        groups[effect.name] = group.with_choice(choice, links)
    for name, group in groups.items():
        for alias, link, target in _list_links(name, group, unpacking):
            yield from unpacking.make_link(f"{LINKS}/{alias}", target)
            yield from unpacking.make_link(link, f"{LINKS}/{alias}")
        yield from unpacking.make(f"{FOLDER}/{name}", Node("f"), group.text().encode())


def _list_links(name: str, group: Group, unpacking: Unpacking) -> Iterator[tuple[str, str, str]]:
    """Yields name, link and target of the group's best choice, and of its slaves whose files are there."""
    nodes, best = unpacking.nodes, group.best
    if best is None:
        return
    slaves = ((alias, link, best.slaves.get(alias, "")) for alias, link in group.slaves.items())
    for alias, link, target in ((name, group.link, best.path), *slaves):
        place, is_there = resolve(nodes, link), bool(target) and resolve(nodes, f"{target}/.") in nodes
        present = nodes.get(place)
        if present is not None and (present.target != f"{LINKS}/{alias}" or not is_there):
            raise NeedsAptError(f"{link} is in the image already, where alternatives of {name} put a link")
        if is_there:
            yield alias, place, target
        elif alias == name:
            raise NeedsAptError(f"{target}, an alternative of {name}, is not there")


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
        """Adds a choice to the group, or replaces that of the same path; `slaves` are links by their names."""
        rows = {row.path: row for row in (*self.choices, choice)} | {choice.path: choice}
        first = [rows[self.best.path]] if self.best else []  # it stays unless another has a higher priority
        best = max((*first, *rows.values()), key=lambda row: row.priority)
        ordered = tuple(sorted(rows.values(), key=lambda row: row.path.encode()))
        every = {**self.slaves, **slaves}
        return replace(self, slaves={name: every[name] for name in sorted(every)}, choices=ordered, best=best)

    def text(self) -> str:
        """Writes the file: mode and links, an empty line, each choice with its priority and slaves, an empty line."""
        lines = ["auto", self.link]
        lines += [line for name, link in self.slaves.items() for line in (name, link)]
        for choice in (None, *self.choices):
            lines += [""] if choice is None else [choice.path, str(choice.priority)]
            lines += [] if choice is None else [choice.slaves.get(name, "") for name in self.slaves]
        return "\n".join([*lines, "", ""])


def parse_group(text: str, name: str, current: str) -> Group:
    """Reads the file of a group whose link leads to `current`.

    Raises NeedsAptError for one in manual mode, or of another form.
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
        raise NeedsAptError(message) from error
    best = next((choice for choice in choices if choice.path == current), None)
    if not whole or best is None:
        raise NeedsAptError(message)
    return Group(link=lines[1], slaves=slaves, choices=choices, best=best)
