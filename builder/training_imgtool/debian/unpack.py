"""Where the files of packages come to lie in an image, as dpkg unpacks them.

dpkg follows the links that a base has in place of folders (`/lib` to `usr/lib`), leaves folders that exist as they are,
leaves out what `path-exclude` names, and stops where two packages have the same file.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.debian.base_system import BaseSystem, Node, resolve
from training_imgtool.debian.formats.package_file import PackedFile
from training_imgtool.direct.layers.tar_writer import Item
from training_imgtool.direct.layers.tarhead import Entry, Kind

_KINDS = {"d": Kind.FOLDER, "f": Kind.FILE, "l": Kind.LINK, "h": Kind.HARD_LINK}
_TOPS = frozenset({"bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "opt", "run", "sbin", "srv", "usr", "var"})
_CLOSED = ("/opt/venv/", "/run/")  # what the next stages make, and what engines mount
_WILDCARD = re.compile(r"[*?\[\\]")


@dataclass(slots=True)
class Unpacking:
    """The base's paths with those of the packages that were placed so far.

    Attributes:
        system: the base.
        replaced: paths that a script or imgtool writes instead of the package.
        nodes: every path of the image by now.
        placed: the paths that packages brought, with the bytes of libraries left out.
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

    def place(self, package: str, file: PackedFile) -> Iterator[Item]:
        """Yields the entries of a file, the folders above it included that nobody has; nothing for what stays as it is.

        Raises NeedsEngineError where dpkg would replace something, or stop.
        """
        if file.path == "/" or self._is_left_out(file):
            return
        path = resolve(self.nodes, file.path)
        if path.split("/")[1] not in _TOPS or (file.kind != "d" and f"{path}/".startswith(_CLOSED)):
            raise NeedsEngineError(f"the package {package} has {file.path}")
        present = self.nodes.get(path)
        if file.kind == "d":
            if present is None:
                yield from self.make(path, Node("d", file.mode, *self._owner_of_file(package, file)))
            elif present.kind != "d" and not self._leads_to_folder(path):
                raise NeedsEngineError(f"{file.path} is a folder in the package {package}, and a file in the base")
            return
        if path in self.replaced:
            return
        if present is not None:
            raise NeedsEngineError(f"{file.path} of the package {package} is in the image already")
        kind = "l" if file.kind == "l" else "f"
        if file.kind == "h" and resolve(self.nodes, file.target) not in self.placed:
            raise NeedsEngineError(
                f"{file.path} of the package {package} is a link to {file.target}, which is left out"
            )
        target = resolve(self.nodes, file.target).lstrip("/") if file.kind == "h" else file.target
        node = Node(kind, file.mode, *self._owner_of_file(package, file), target=target if kind == "l" else "")
        yield from self.make(path, node, file.data, hard_link=target if file.kind == "h" else "")

    def make(self, path: str, node: Node, data: bytes = b"", *, hard_link: str = "") -> Iterator[Item]:
        """Yields the entries of a new path, and of the folders above it that nobody has."""
        above = posixpath.dirname(path)
        if above not in self.nodes:
            yield from self.make(above, Node("d", 0o755))
        self.nodes[path] = self.placed[path] = node
        kind = Kind.HARD_LINK if hard_link else _KINDS[node.kind]
        size = len(data) if kind is Kind.FILE else 0
        entry = Entry(
            path=path.lstrip("/"),
            kind=kind,
            mode=0o777 if kind is Kind.LINK else node.mode,
            size=size,
            target=hard_link or node.target,
            uid=node.uid,
            gid=node.gid,
        )
        yield Item(entry, data=data)

    def find_owner(self, text: str) -> tuple[int, int]:
        """Looks up the numbers of `USER:GROUP` in the base; raises NeedsEngineError for a name that it lacks."""
        user, _, group = text.partition(":")
        try:
            return self._find_id(user, self._users), self._find_id(group, self._groups)
        except KeyError as error:
            raise NeedsEngineError(f"the base has no user or group {error}") from error

    def _owner_of_file(self, package: str, file: PackedFile) -> tuple[int, int]:
        try:
            return self.find_owner(file.owner)
        except NeedsEngineError as error:
            raise NeedsEngineError(f"the package {package} has {file.path} of {file.owner}: {error.message}") from error

    def _find_id(self, name: str, names: Mapping[str, int]) -> int:
        return names[name] if name in names or not name.isdigit() else int(name)

    def _leads_to_folder(self, path: str) -> bool:
        node = self.nodes.get(resolve(self.nodes, f"{path}/."))
        return node is not None and node.kind == "d"

    def _is_left_out(self, file: PackedFile) -> bool:
        """Returns whether dpkg skips a path: the last filter that matches counts (dpkg(1), --path-exclude)."""
        skip = False
        for include, pattern in self._filters:
            if fnmatch.fnmatchcase(file.path, pattern):
                skip = not include
        if not skip or file.kind not in "dl":
            return skip
        fixed = (_WILDCARD.split(pattern)[0].rstrip("/") for include, pattern in self._filters if include)
        return not any(file.path.startswith(prefix) for prefix in fixed)


def _read_path_filters(system: BaseSystem) -> Iterator[tuple[bool, str]]:
    """Yields the filters of dpkg's configuration in the order in which dpkg reads them: True to include.

    Raises NeedsEngineError for an option that may change what dpkg installs.
    """
    for path in (*system.below("/etc/dpkg/dpkg.cfg.d"), "/etc/dpkg/dpkg.cfg"):
        if not re.fullmatch(r"[\w-]+", posixpath.basename(path)) and path != "/etc/dpkg/dpkg.cfg":
            continue  # dpkg reads names of letters, digits, `_` and `-` only
        for line in (line.strip() for line in system.text(path).splitlines()):
            if not line or line.startswith("#"):
                continue
            name, _, value = (part.strip() for part in re.sub(r"\s*[=\s]\s*", "=", line, count=1).partition("="))
            if name in {"path-exclude", "path-include"}:
                yield name == "path-include", value.strip("\"'")
            elif name not in {"no-debsig", "log", "force-unsafe-io"} and line != "force-confold":
                raise NeedsEngineError(f"{path} of the base has the option {name}")


def _parse_ids(text: str) -> dict[str, int]:
    rows = (line.split(":") for line in text.splitlines())
    return {row[0]: int(row[2]) for row in rows if len(row) > 2 and row[2].isdigit()}
