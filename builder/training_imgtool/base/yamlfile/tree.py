"""A YAML document as a tree of nodes with positions.

The limits on size and depth apply to the tree with all aliases expanded, so a walk over the tree is always short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from training_imgtool.base.errors import InputError
from training_imgtool.base.secret_text import detect_secret

MAX_NODES = 10_000
MAX_DEPTH = 50
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})  # YAML 1.1 and the 1.2 core schema agree on these


class Position(NamedTuple):
    """A position in a file: line and column, in characters, from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value's text as typed, but without quotes, escapes and folding."""

    at: Position
    text: str
    quoted: bool

    @property
    def null(self) -> bool:
        """Whether the text is one of YAML's words for nothing: an empty value, `~`, `null`."""
        return not self.quoted and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    at: Position
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping: each key once, in the order of the file."""

    at: Position
    entries: tuple[tuple[Scalar, Node], ...]


Node = Scalar | Items | Table


def to_plain(node: Node) -> Any:
    """Turns a tree into dictionaries, lists and texts as typed, so that 3.10 does not become 3.1."""
    if isinstance(node, Table):
        return {key.text: to_plain(value) for key, value in node.entries}
    if isinstance(node, Items):
        return [to_plain(item) for item in node.items]
    return node.text


class _Frame:
    """A list or mapping whose end the parser has not reached."""

    __slots__ = ("anchor", "at", "before", "children", "height", "is_table", "keys")

    def __init__(self, at: Position, *, is_table: bool, anchor: str | None, before: int) -> None:
        self.at = at
        self.is_table = is_table
        self.anchor = anchor
        self.before = before  # nodes in the whole tree before this one
        self.children: list[Node] = []
        self.keys: dict[str, Scalar] = {}
        self.height = 0


@dataclass(frozen=True, slots=True)
class _Anchored:
    node: Node
    size: int  # nodes below this one, with aliases expanded
    height: int


class TreeBuilder:
    """Makes nodes from PyYAML's events, without recursion; raises InputError for what a spec may not contain."""

    def __init__(self, name: str) -> None:
        self.root: Node | None = None
        self._name = name
        self._documents = 0
        self._nodes = 0
        self._open: list[_Frame] = []
        self._anchors: dict[str, _Anchored | None] = {}  # None while its node is still open

    def take(self, event: Any) -> None:
        """Processes one event of PyYAML; raises InputError."""
        kind = type(event).__name__
        at = Position(event.start_mark.line + 1, event.start_mark.column + 1)
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise self._refusal_error(
                    at, "a second document begins here", "one file holds one document: delete `---`"
                )
        elif kind == "AliasEvent":
            self._alias(event.anchor, at)
        elif kind == "ScalarEvent":
            self._begin(event, at)
            self._add(Scalar(at, event.value, bool(event.style)), event.anchor, size=1, height=0)
        elif kind in {"SequenceStartEvent", "MappingStartEvent"}:
            self._begin(event, at)
            is_table = kind == "MappingStartEvent"
            if len(self._open) >= MAX_DEPTH:
                raise self._refusal_error(at, f"nested deeper than {MAX_DEPTH} levels", None)
            self._open.append(_Frame(at, is_table=is_table, anchor=event.anchor, before=self._nodes - 1))
        elif kind in {"SequenceEndEvent", "MappingEndEvent"}:
            frame = self._open.pop()
            children = frame.children
            pairs: Any = zip(children[::2], children[1::2], strict=True)
            node = Table(frame.at, tuple(pairs)) if frame.is_table else Items(frame.at, tuple(children))
            self._add(node, frame.anchor, size=self._nodes - frame.before, height=frame.height)

    def _begin(self, event: Any, at: Position) -> None:
        """Counts a node toward the limit of nodes; refuses tags."""
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")[:60]
            raise self._refusal_error(
                at, f"tags are not allowed, found {tag!r}", "write the value without it; quote text"
            )
        self._count(1, at)
        if event.anchor is not None:
            if event.anchor in self._anchors:
                raise self._refusal_error(at, f"the anchor &{event.anchor} is defined twice", None)
            self._anchors[event.anchor] = None

    def _count(self, nodes: int, at: Position) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            hint = "write args and env in a file that the trainer reads"
            raise self._refusal_error(at, f"more than {MAX_NODES} values (each alias counts as a copy)", hint)

    def _alias(self, anchor: str, at: Position) -> None:
        if anchor not in self._anchors:
            raise self._refusal_error(at, f"no anchor &{anchor} above", "quote a value that begins with '*'")
        anchored = self._anchors[anchor]
        if anchored is None:
            raise self._refusal_error(at, f"the alias *{anchor} is inside its own anchor", None)
        self._count(anchored.size, at)
        if len(self._open) + anchored.height > MAX_DEPTH:
            raise self._refusal_error(at, f"nested deeper than {MAX_DEPTH} levels", None)
        self._add(anchored.node, None, size=anchored.size, height=anchored.height, at=at)

    def _add(self, node: Node, anchor: str | None, *, size: int, height: int, at: Position | None = None) -> None:
        """Adds a finished node to the open list or mapping, or makes it the root."""
        if anchor is not None:
            self._anchors[anchor] = _Anchored(node, size, height)
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        if frame.is_table and len(frame.children) % 2 == 0:
            self._check_key(node, frame.keys, at or node.at)
        frame.children.append(node)
        frame.height = max(frame.height, height + 1)

    def _check_key(self, node: Node, keys: dict[str, Scalar], at: Position) -> None:
        if not isinstance(node, Scalar):
            kind = "a list" if isinstance(node, Items) else "a mapping"
            raise self._refusal_error(
                at, f"a key must be text, found {kind}", "quote a value that begins with '{' or '['"
            )
        if node.null:
            raise self._refusal_error(at, "a key is missing before ':'", None)
        if node.text == "<<" and not node.quoted:
            raise self._refusal_error(at, "merge keys (`<<`) are not allowed", "write the keys out")
        if node.text in keys:
            first = keys[node.text].at
            name = "(a secret)" if detect_secret(node.text) else repr(node.text[:60])
            raise self._refusal_error(at, f"the key {name} is already given in line {first.line}", "keep one of them")
        keys[node.text] = node

    def _refusal_error(self, at: Position, what: str, hint: str | None) -> InputError:
        return InputError(f"{self._name}:{at.line}:{at.column}: {what}", hint=hint)
