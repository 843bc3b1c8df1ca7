"""Effects of scripts that stand for themselves: folders, links, files, alternatives, and conditions."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.debian.base_system import Node, resolve
from training_imgtool.debian.formats.alternatives import FOLDER, LINKS, Choice, Group, parse_group
from training_imgtool.debian.scripts import Effect, EffectKind
from training_imgtool.debian.unpack import Unpacking
from training_imgtool.direct.layers.splice import Item

_STAFF = "/etc/staff-group-for-usr-local"  # Debian Policy 9.1.2
_REPLACES = frozenset({EffectKind.LINK, EffectKind.FILE, EffectKind.COPY})


def replaced_path(effect: Effect) -> str:
    """The path that an effect makes in place of a package's own file; empty when it makes none."""
    return effect.path if effect.kind in _REPLACES and not effect.keep else ""


def make_effect(effect: Effect, unpacking: Unpacking, contents: Mapping[str, bytes]) -> Iterator[Item]:
    """The entries of one effect.

    Args:
        effect: what a script does.
        unpacking: the image by now.
        contents: the files that effects copy.

    Raises NeedsEngineError where the script would do something else on this base.
    """
    if effect.kind is EffectKind.ABSENT:
        pattern = effect.path
        conflict = next((path for path in unpacking.nodes if fnmatch.fnmatchcase(path, pattern)), None)
        if conflict:
            raise NeedsEngineError(f"a script of a package works on {conflict}")
        return
    path = resolve(unpacking.nodes, effect.path)
    if effect.kind is EffectKind.PRESENT:
        if path not in unpacking.nodes:
            raise NeedsEngineError(f"a script of a package makes {effect.path}, which is not there")
        return
    if path in unpacking.nodes:
        if effect.keep or effect.kind is EffectKind.LOCAL_FOLDER:
            return
        raise NeedsEngineError(f"{effect.path}, which a script of a package makes, is there already")
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
        raise NeedsEngineError(f"no package has {effect.target}, which a script copies")
    return contents[effect.target]


def make_alternatives(effects: Iterable[Effect], unpacking: Unpacking) -> Iterator[Item]:
    """The links and records of groups of alternatives, those of the base included.

    Raises NeedsEngineError for a group that was changed by hand, and where update-alternatives would stop or remove.
    """
    groups: dict[str, Group] = {}
    for effect in effects:
        text = unpacking.system.text(f"{FOLDER}/{effect.name}")
        current = unpacking.system.nodes.get(f"{LINKS}/{effect.name}", Node("l")).target
        before = parse_group(text, effect.name, current) if text else Group(link=effect.path)
        group = groups.get(effect.name, before)
        links = {name: link for link, name, _ in effect.slaves}
        if group.link != effect.path or any(group.slaves.get(name, link) != link for name, link in links.items()):
            raise NeedsEngineError(f"the alternatives of {effect.name} have other links in the image already")
        files = {name: file for _, name, file in effect.slaves}
        choice = Choice(path=effect.target, priority=effect.priority, slaves=files)
        groups[effect.name] = group.with_choice(choice, links)
    for name, group in groups.items():
        data = group.text().encode()
        for alias, link, target in _list_links(name, group, unpacking):
            yield from unpacking.make(f"{LINKS}/{alias}", Node("l", 0o777, target=target))
            yield from unpacking.make(link, Node("l", 0o777, target=f"{LINKS}/{alias}"))
        yield from unpacking.make(f"{FOLDER}/{name}", Node("f", 0o644), data)


def _list_links(name: str, group: Group, unpacking: Unpacking) -> Iterator[tuple[str, str, str]]:
    """Name, link and target of the group's best choice, and of its slaves whose files are there."""
    nodes, best = unpacking.nodes, group.best
    if best is None:
        return
    slaves = ((alias, link, best.slaves.get(alias, "")) for alias, link in group.slaves.items())
    for alias, link, target in ((name, group.link, best.path), *slaves):
        place, is_there = resolve(nodes, link), bool(target) and resolve(nodes, f"{target}/.") in nodes
        present = nodes.get(place)
        if present is not None and (present.target != f"{LINKS}/{alias}" or not is_there):
            raise NeedsEngineError(f"{link} is in the image already, where alternatives of {name} put a link")
        if is_there:
            yield alias, place, target
        elif alias == name:
            raise NeedsEngineError(f"{target}, an alternative of {name}, is not there")
