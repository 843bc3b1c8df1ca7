"""Makes the entries for those effects of scripts that concern one path: folders, links, files, and conditions."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping

from imgtool_debian_layers.base_system import Node, resolve
from imgtool_debian_layers.errors import NeedsAptError
from imgtool_debian_layers.scripts import Effect, EffectKind
from imgtool_debian_layers.unpack import Entry, Unpacking

_STAFF = "/etc/staff-group-for-usr-local"  # Debian Policy 9.1.2
_REPLACES = frozenset({EffectKind.LINK, EffectKind.FILE, EffectKind.COPY})


def replaced_path(effect: Effect) -> str:
    """Returns the path that an effect writes in place of a package's file; empty if the effect writes no such path."""
    return effect.path if effect.kind in _REPLACES and not effect.keep else ""


def make_effect(effect: Effect, unpacking: Unpacking, contents: Mapping[str, bytes]) -> Iterator[Entry]:
    """Yields the entries of one effect.

    Args:
        effect: what a script does.
        unpacking: the image as it is now.
        contents: the files that effects copy.

    Raises NeedsAptError if the script would do something else on this base.
    """
    if effect.kind is EffectKind.ABSENT:
        pattern = effect.path
        conflict = next((path for path in unpacking.nodes if fnmatch.fnmatchcase(path, pattern)), None)
        if conflict:
            raise NeedsAptError(f"a script of a package would change or use {conflict}")
        return
    path = resolve(unpacking.nodes, effect.path)
    if effect.kind is EffectKind.PRESENT:
        if path not in unpacking.nodes:
            raise NeedsAptError(f"the image lacks {effect.path}, which a script of a package would make")
        return
    if path in unpacking.nodes:
        if effect.keep or effect.kind is EffectKind.LOCAL_FOLDER:
            return
        raise NeedsAptError(f"the image already has {effect.path}, which a script of a package makes")
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
        raise NeedsAptError(f"no package has {effect.target}, which a script of a package copies")
    return contents[effect.target]
