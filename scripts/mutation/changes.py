"""Finds the single decisions of a module's source, each with the text that decides otherwise."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_OPERATORS = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_COUNTING = (ast.Compare, ast.Slice, ast.Subscript, ast.Return)  # elsewhere a number is a size or a limit
_LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Change:
    """One other decision: the bytes from `start` to `end` of the source become `text`."""

    line: int
    kind: str
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Returns the source with this change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def find_changes(source: bytes) -> list[Change]:
    """Returns every change of a module's source, in the order of its lines; a few do not compile."""
    found = _Finder(source).changes(ast.parse(source), None)
    return sorted(set(found), key=lambda change: (change.start, change.end, change.kind, change.text))


def draw_changes(sources: Mapping[str, bytes], seed: int) -> list[tuple[str, Change]]:
    """Returns every change of all modules in an order that the seed decides.

    The place of a change depends on its module and on what it changes, not on where: when the source changes
    elsewhere, a seed still draws the same decisions.
    """
    ranked = []
    for module, source in sources.items():
        seen: Counter[tuple[str, ...]] = Counter()
        for change in find_changes(source):
            what = (module, change.kind, source[change.start : change.end].decode(), change.text)
            rank = hashlib.sha256("\0".join((str(seed), *what, str(seen[what]))).encode()).hexdigest()
            seen[what] += 1
            ranked.append((rank, module, change))
    return [(module, change) for _, module, change in sorted(ranked, key=lambda row: row[0])]


def compiles(source: bytes) -> bool:
    """Whether a source is one."""
    try:
        compile(source, "", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _counts(parent: ast.AST | None) -> bool:
    return isinstance(parent, _COUNTING) or (isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add | ast.Sub))


class _Finder:
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def changes(self, node: ast.AST, parent: ast.AST | None) -> Iterator[Change]:
        """Yields what can be changed in a node and below it; messages, types and decorators decide nothing."""
        yield from self._decisions(node)
        yield from self._values(node, parent)
        yield from self._parts(node)
        for name, value in ast.iter_fields(node):
            if isinstance(node, ast.Raise) or name in {"annotation", "returns", "decorator_list", "pattern"}:
                continue
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield from self.changes(child, node)

    def _decisions(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from self._other_operator(left, operator, right)
            case ast.BoolOp(op=operator, values=values):
                here, there = (" and ", " or ") if isinstance(operator, ast.And) else (" or ", " and ")
                yield self._change(node, "swapped", f"({there.join(self._texts(values))})")
                for value in values:
                    rest = [one for one in values if one is not value]
                    yield self._change(node, "dropped operand", f"({here.join(self._texts(rest))})")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._change(node, "not negated", f"({self._text(operand)})")
            case ast.If(test=test) if "TYPE_CHECKING" in self._text(test):
                return
            case ast.If(test=test) | ast.IfExp(test=test):
                yield self._change(test, "never", "False")
                if not (isinstance(node, ast.If) and isinstance(node.body[-1], _LEAVES) and not node.orelse):
                    yield self._change(test, "always", "True")
            case ast.comprehension(ifs=tests):
                yield from (self._change(test, "no filter", "True") for test in tests)
            case ast.Raise(exc=ast.expr()):
                yield self._change(node, "removed raise", "pass")

    def _values(self, node: ast.AST, parent: ast.AST | None) -> Iterator[Change]:
        match node:
            case ast.Constant(value=bool(value)):
                yield self._change(node, "other constant", str(not value))
            case ast.Constant(value=int(value)) if _counts(parent):
                yield self._change(node, "other constant", f"({value + 1})")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self._change(node, "returned None", "return None")

    def _parts(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Call(func=function, args=arguments, keywords=keywords):
                for dropped in (one for one in keywords if one.arg):
                    rest = self._texts(one for one in (*arguments, *keywords) if one is not dropped)
                    yield self._change(
                        node, f"dropped {dropped.arg}=", f"{self._text(function)}({', '.join(rest)})", after=dropped
                    )
            case ast.List(elts=parts) | ast.Tuple(elts=parts) if isinstance(node.ctx, ast.Load) and len(parts) > 1:
                if isinstance(node, ast.List) or any(isinstance(part, ast.Starred) for part in parts):
                    left, right = ("[", "]") if isinstance(node, ast.List) else ("(", ",)")
                    for lost in parts:
                        rest = self._texts(part for part in parts if part is not lost)
                        yield self._change(node, "dropped element", f"{left}{', '.join(rest)}{right}", after=lost)
            case ast.Dict(keys=keys, values=values):
                pairs = [
                    f"{self._text(key)}: {self._text(value)}" if key else f"**{self._text(value)}"
                    for key, value in zip(keys, values, strict=True)
                ]
                for number, value in enumerate(values):
                    rest = [pair for place, pair in enumerate(pairs) if place != number]
                    yield self._change(node, "dropped entry", f"{{{', '.join(rest)}}}", after=value)

    def _other_operator(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Iterator[Change]:
        old, new = _OPERATORS[type(operator)]
        start, end = self._place(left)[1], self._place(right)[0]
        between = self._source[start:end].decode()
        text, count = re.subn(re.escape(old).replace(r"\ ", r"\s+"), new, between, count=1)
        if count:
            yield Change(left.end_lineno or left.lineno, "other comparison", start, end, text)

    def _change(self, node: ast.AST, kind: str, text: str, *, after: ast.AST | None = None) -> Change:
        place = after or node
        return Change(place.lineno, kind, *self._place(node), text)  # type: ignore[attr-defined]

    def _place(self, node: ast.AST) -> tuple[int, int]:
        lines = self._lines
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._place(node)
        text = self._source[start:end].decode()
        return text if isinstance(node, ast.keyword | ast.Starred | ast.Name | ast.Attribute) else f"({text})"

    def _texts(self, nodes: Iterator[ast.AST] | list[ast.expr]) -> list[str]:
        return [self._text(node) for node in nodes]
