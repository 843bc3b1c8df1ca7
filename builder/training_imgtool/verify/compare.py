"""Compares every path above the base with what the lock, the code and the base's digest put there.

The image is never asked: what it must have comes from `expected_image`, what it has from its layers.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from training_imgtool.direct.layers.tar_reader import FILE, FOLDER, LINK
from training_imgtool.direct.tree import PLAIN, Attributes
from training_imgtool.verify.expected_files import CopiedFiles
from training_imgtool.verify.facts import Expected, Node, Tree

_VENV = "opt/venv"
_BYTECODE = re.compile(r"(?P<folder>(?:.*/)?)__pycache__/(?P<name>[^/]+?)\.cpython-\d+(?:\.opt-\d)?\.pyc\Z")

_UNPROVEN = "bytecode", "is not what this machine makes of its source"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One image's paths beside those that it must have.

    Attributes:
        tree: what its layers hold.
        made: what this machine makes of the lock and the code; None if it cannot.
        copied: what COPY puts there, by the context.
        base: the folders of the base with mode and owner, as far as its layers were read.
    """

    tree: Tree
    made: Expected | None
    copied: CopiedFiles
    base: Mapping[str, Attributes] = field(default_factory=dict)

    @cached_property
    def whole(self) -> bool:
        """Whether every path is known; else only those of the wheels and of COPY are."""
        return self.made is not None and self.made.whole

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """What must be there. Of copied files that an engine puts there, only the content is known."""
        nodes = dict(self.made.nodes) if self.made else {}
        if not self.whole:
            for path, text in self.copied.files.items():
                link = text.startswith("->")
                nodes[path] = Node(LINK if link else FILE, None, text.removeprefix("->") if link else text)
        return nodes

    @cached_property
    def complaints(self) -> Mapping[str, tuple[str, ...]]:
        """The differences, by the check that they belong to: wheels, bytecode, trainer or base."""
        found: dict[str, list[str]] = {"wheels": [], "bytecode": [], "trainer": [], "base": []}
        for path in sorted({*self.nodes, *self.tree.nodes}):
            if complaint := self._judge(path, self.nodes.get(path), self.tree.nodes.get(path)):
                check, text = complaint
                found[check].append(f"/{path} {text}")
        wanted = self.made.removed if self.made else frozenset()
        for path, layer in sorted(self.tree.removed.items()):
            if path not in wanted and not self._may_be_run(path, layer):
                found[self._name_check(path)].append(f"/{path} is removed by layer {layer + 1}")
        found["base"] += [f"/{path} of the base is still there" for path in sorted(wanted - self.tree.removed.keys())]
        return {check: tuple(texts) for check, texts in found.items()}

    @cached_property
    def unpredicted(self) -> int:
        """How many files only an engine can make, since a RUN of the Dockerfile may have put them there."""
        return sum(path not in self.nodes and node.kind != FOLDER for path, node in self.tree.nodes.items())

    @cached_property
    def bytecode(self) -> int:
        """How many files of bytecode the environment has."""
        return sum(path.startswith(f"{_VENV}/") and path.endswith(".pyc") for path in self.tree.nodes)

    def _judge(self, path: str, wanted: Node | None, there: Node | None) -> tuple[str, str] | None:
        """Names the check that a path's difference belongs to, and says what differs; None if nothing does."""
        check, of_bytecode = self._name_check(path), self._stands_for_source(path)
        if there is None:
            return None if self._may_lack(path) else (check, "is missing")
        if wanted is None:
            return self._judge_extra(path, there, check, of_bytecode=of_bytecode)
        if (wanted.kind, wanted.content) == (there.kind, there.content):
            if wanted.kind == FOLDER and wanted.attributes is None:  # only what is below it is known
                wanted = replace(wanted, attributes=self.base.get(path, PLAIN))
            return _compare_attributes(check, wanted, there)
        if of_bytecode:
            return _UNPROVEN
        origin = {"trainer": "the context", "wheels": "its wheel"}.get(check, "what the Dockerfile puts there")
        return check, f"is a link to {there.content}" if there.kind == LINK else f"differs from {origin}"

    def _judge_extra(self, path: str, there: Node, check: str, *, of_bytecode: bool) -> tuple[str, str] | None:
        if self._is_parent(path, there) or self._may_be_run(path, there.layer):
            return None
        if of_bytecode:
            return _UNPROVEN
        text = {"wheels": "belongs to no wheel", "trainer": "is not in the context"}.get(check)
        return check, text or f"of layer {there.layer + 1} is put there by no instruction"

    def _name_check(self, path: str) -> str:
        if path == _VENV or path.startswith(f"{_VENV}/"):
            return "wheels"
        copied = path in self.copied.files or any(f"{path}/".startswith(f"{top}/") for top in self.copied.folders)
        return "trainer" if copied else "base"

    def _stands_for_source(self, path: str) -> bool:
        """Returns whether a path is that of bytecode in the environment whose source belongs there."""
        match = _BYTECODE.match(path) if path.startswith(f"{_VENV}/") else None
        return match is not None and f"{match['folder']}{match['name']}.py" in self.nodes

    def _may_lack(self, path: str) -> bool:
        """Returns whether an image works without a path: it takes time to compile again, and no more."""
        folder = path.startswith(f"{_VENV}/") and path.endswith("/__pycache__")
        return folder or self._stands_for_source(path)

    @cached_property
    def _parents(self) -> frozenset[str]:
        return frozenset({"", *(folder for path in self.nodes for folder in _list_parents(path))})

    def _is_parent(self, path: str, there: Node) -> bool:
        """Returns whether a folder is one that an engine lists because of what is below it, with nothing of its own."""
        return there.kind == FOLDER and (
            there.attributes is None
            or (path.removesuffix("/__pycache__") in self._parents and there.attributes == self.base.get(path, PLAIN))
        )

    @cached_property
    def _first_copied(self) -> int:
        """The lowest layer with a file of the wheels or of COPY; what lies in those below it, a RUN can have made."""
        known = (node.layer for path, node in self.tree.nodes.items() if path in self.nodes and node.kind != FOLDER)
        return min(known, default=0)

    def _may_be_run(self, path: str, layer: int) -> bool:
        """Returns whether a RUN of the Dockerfile, or a COPY that nobody predicts, may have put something at a path."""
        if self.whole:
            return False
        if path == _VENV or path.startswith(f"{_VENV}/"):
            return self.made is None
        if any(path == prefix or path.startswith(f"{prefix}/") for prefix in self.copied.unclear):
            return True
        return self.copied.runs or (self.copied.any_run and layer < self._first_copied)


def _list_parents(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def _compare_attributes(check: str, wanted: Node, there: Node) -> tuple[str, str] | None:
    ours, theirs = wanted.attributes, there.attributes
    if ours is None or theirs is None or ours == theirs:
        return None
    if wanted.kind == LINK and (ours.uid, ours.gid) == (theirs.uid, theirs.gid):
        return None  # a link's mode means nothing
    has, must = (f"mode {item.mode:04o} of {item.uid}:{item.gid}" for item in (theirs, ours))
    return check, f"has {has}, not {must}"
