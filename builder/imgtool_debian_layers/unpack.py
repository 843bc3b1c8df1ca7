"""Places the files of packages in an image as dpkg unpacks them.

dpkg follows links that a base has instead of folders (`/lib` to `usr/lib`), does not change folders that exist, skips
the paths that `path-exclude` names, and fails where two packages have the same file.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from imgtool_debian_layers.base_system import BaseSystem, Node, resolve
from imgtool_debian_layers.errors import NeedsAptError
from imgtool_debian_layers.package_file import PackedFile

_TOPS = frozenset({"bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "srv", "usr", "var"})
_WITHOUT_EFFECT = frozenset({"no-debsig", "log", "force-unsafe-io", "force-confold"})  # options of dpkg
_WILDCARD = re.compile(r"[*?\[\\]")


class Entry(NamedTuple):
    """An entry of the layer: the path relative to the root, the node, and the content if the node is a file.

    The target of a hard link is also relative to the root. A node of the kind `w` has the path `.wh.NAME` and deletes
    NAME.
    """

    path: str
    node: Node
    data: bytes = b""


@dataclass(slots=True)
class Unpacking:
    """The paths of the base, and of the packages that are placed so far.

    Attributes:
        system: the base.
        replaced: paths that a script writes instead of the package.
        nodes: every path of the image so far.
        placed: the paths of the packages.
    """

    system: BaseSystem
    replaced: frozenset[str] = frozenset()
    nodes: dict[str, Node] = field(init=False)
    placed: dict[str, Node] = field(default_factory=dict)
    _filters: tuple[tuple[bool, str], ...] = field(init=False)
    _users: Mapping[str, int] = field(init=False)
    _groups: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = dict(self.system.nodes)
        self._filters = tuple(_read_path_filters(self.system))
        self._users = _parse_ids(self.system.text("/etc/passwd"))
        self._groups = _parse_ids(self.system.text("/etc/group"))

    def place(self, package: str, file: PackedFile) -> Iterator[Entry]:
        """Yields the entries of a file and of its missing parent folders; yields nothing if dpkg would change nothing.

        Raises NeedsAptError if dpkg would replace a file or fail.
        """
        if file.path == "/" or self._is_left_out(file):
            return
        path = resolve(self.nodes, file.path)
        top = path.split("/")[1]
        if top not in _TOPS and not (top == "run" and file.kind == "d"):  # engines mount something at /run
            raise NeedsAptError(f"the package {package} has the path {file.path}, where imgtool puts no files")
        present = self.nodes.get(path)
        if file.kind == "d":
            if present is None:
                yield from self.make(path, Node("d", file.mode, *self._owner_of_file(package, file)))
            elif present.kind != "d" and not self._leads_to_folder(path):
                raise NeedsAptError(f"{file.path} is a folder in the package {package}, but a file in the base")
        elif path not in self.replaced:
            if present is not None:
                raise NeedsAptError(f"{file.path} of the package {package} already exists in the image")
            yield from self.make(path, self._make_node(package, file), file.data)

    def make(self, path: str, node: Node, data: bytes = b"") -> Iterator[Entry]:
        """Yields the entries of a new path and of its missing parent folders."""
        above = posixpath.dirname(path)
        if above not in self.nodes:
            yield from self.make(above, Node("d", 0o755))
        self.nodes[path] = self.placed[path] = node
        yield Entry(path.lstrip("/"), node, data)

    def make_link(self, path: str, target: str) -> Iterator[Entry]:
        """Yields the entries of a new symbolic link that root owns."""
        return self.make(path, Node("l", 0o777, target=target))

    def write(self, path: str, data: bytes, mode: int = 0o644) -> Iterator[Entry]:
        """Yields the entries of a file. A file that the base already has keeps its mode and owner."""
        present = self.system.nodes.get(path)
        return self.make(path, present if present is not None and present.kind == "f" else Node("f", mode), data)

    def find_owner(self, text: str) -> tuple[int, int]:
        """Looks up the IDs of `USER:GROUP` in the base; raises NeedsAptError for a name that the base lacks."""
        user, _, group = text.partition(":")
        try:
            return _find_id(user, self._users), _find_id(group, self._groups)
        except KeyError as error:
            raise NeedsAptError(f"the base has no user or group {error}") from error

    def _make_node(self, package: str, file: PackedFile) -> Node:
        target = file.target
        if file.kind == "h":
            path = resolve(self.nodes, target)
            if path not in self.placed:
                raise NeedsAptError(f"{file.path} of the package {package} is a link to {target}, which is excluded")
            target = path.lstrip("/")
        mode = 0o777 if file.kind == "l" else file.mode
        return Node(file.kind, mode, *self._owner_of_file(package, file), target=target)

    def _owner_of_file(self, package: str, file: PackedFile) -> tuple[int, int]:
        try:
            return self.find_owner(file.owner)
        except NeedsAptError as error:
            raise NeedsAptError(f"{file.path} of the package {package} is {file.owner}'s: {error.message}") from error

    def _leads_to_folder(self, path: str) -> bool:
        node = self.nodes.get(resolve(self.nodes, f"{path}/."))
        return node is not None and node.kind == "d"

    def _is_left_out(self, file: PackedFile) -> bool:
        """Returns whether dpkg skips a path; the last filter that matches decides (dpkg(1), --path-exclude)."""
        skip = False
        for include, pattern in self._filters:
            if fnmatch.fnmatchcase(file.path, pattern):
                skip = not include
        if not skip or file.kind not in "dl":
            return skip
        fixed = (_WILDCARD.split(pattern)[0].rstrip("/") for include, pattern in self._filters if include)
        return not any(file.path.startswith(prefix) for prefix in fixed)


def _read_path_filters(system: BaseSystem) -> Iterator[tuple[bool, str]]:
    """Yields the filters of dpkg's configuration in the order in which dpkg reads them; True means include.

    Raises NeedsAptError for an option that may change what dpkg installs.
    """
    for path in (*system.below("/etc/dpkg/dpkg.cfg.d"), "/etc/dpkg/dpkg.cfg"):
        if not re.fullmatch(r"[\w-]+", posixpath.basename(path)) and path != "/etc/dpkg/dpkg.cfg":
            continue  # dpkg reads only files whose names consist of letters, digits, `_` and `-`
        for line in (line.strip() for line in system.text(path).splitlines()):
            if not line or line.startswith("#"):
                continue
            name, _, value = (part.strip() for part in re.sub(r"\s*[=\s]\s*", "=", line, count=1).partition("="))
            if name in {"path-exclude", "path-include"}:
                yield name == "path-include", value.strip("\"'")
            elif name not in _WITHOUT_EFFECT:
                raise NeedsAptError(f"{path} of the base sets the option {name}, which may change what dpkg installs")


def _parse_ids(text: str) -> dict[str, int]:
    rows = (line.split(":") for line in text.splitlines())
    return {row[0]: int(row[2]) for row in rows if len(row) > 2 and row[2].isdigit()}


def _find_id(name: str, names: Mapping[str, int]) -> int:
    return names[name] if name in names or not name.isdigit() else int(name)
