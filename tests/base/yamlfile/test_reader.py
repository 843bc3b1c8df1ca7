from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.other_user import as_nobody, open_folder
from training_imgtool.base.errors import InputError
from training_imgtool.base.yamlfile import tree
from training_imgtool.base.yamlfile.reader import MAX_BYTES, parse, read_bytes
from training_imgtool.base.yamlfile.tree import Items, Position, Scalar, Table


@pytest.fixture(params=["libyaml", "pure"], autouse=True)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both of PyYAML's readers: a wheel without libyaml must behave alike."""
    if request.param == "pure":
        monkeypatch.setattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return str(request.param)


def plain(node: tree.Node) -> Any:
    if isinstance(node, Table):
        return {key.text: plain(value) for key, value in node.entries}
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    return None if node.null else node.text


def refused(data: bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        parse(data, "f.yaml", what="spec")
    assert caught.value.exit_code == 3
    return caught.value


def test_scalars_are_text_with_places_and_quotes() -> None:
    root = parse(b"a: 2.10  # c\n'b': \"x\"\nc:\n  - on\n  - |\n    t\n", "f")
    (_, a), (b_key, b), (_, c) = root.entries
    assert a == Scalar(Position(1, 4), "2.10", quoted=False)
    assert b_key == Scalar(Position(2, 1), "b", quoted=True)
    assert b == Scalar(Position(2, 6), "x", quoted=True)
    assert isinstance(c, Items)
    assert c.items == (Scalar(Position(4, 5), "on", quoted=False), Scalar(Position(5, 5), "t\n", quoted=True))


def test_columns_count_characters_not_bytes() -> None:
    root = parse("{é𝄞: ü, b: c}\n".encode(), "f")
    assert [(key.at.column, key.text) for key, _ in root.entries] == [(2, "é𝄞"), (9, "b")]


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf", b"%YAML 1.1\n---\n", b"---\n", b"# comment\n\n"])
def test_harmless_beginnings(prefix: bytes) -> None:
    assert plain(parse(prefix + b"a: [1, {b: ~}, '']\n", "f")) == {"a": ["1", {"b": None}, ""]}


def test_keys_are_text_and_never_merged() -> None:
    assert plain(parse(b"{1: a, true: b, yes: c, 1.0: d, ? e : f, '<<': g}\n", "f")) == {
        "1": "a", "true": "b", "yes": "c", "1.0": "d", "e": "f", "<<": "g",
    }  # fmt: skip


def test_aliases_stand_for_what_they_name() -> None:
    assert plain(parse(b"a: &x {b: [c]}\nd: *x\ne: [*x, *x]\n", "f")) == {
        "a": {"b": ["c"]}, "d": {"b": ["c"]}, "e": [{"b": ["c"]}, {"b": ["c"]}],
    }  # fmt: skip


REFUSED = (
    (b"", "f.yaml: the spec is empty"),
    (b"---\n...\n", "f.yaml: the spec is empty"),
    (b"~\n", "f.yaml: the spec is empty"),
    (b"- a\n", "f.yaml:1:1: expected a mapping (`key: value` lines) at the top, found a list"),
    (b"\n  some text\n", "f.yaml:2:3: expected a mapping (`key: value` lines) at the top, found text"),
    (b"a: b\n---\nc: d\n", "f.yaml:2:1: a second document begins here"),
    (b"a: b\n...\nfoo\n", "f.yaml:3:1: not YAML: "),
    (b"\xff\xfea\x00", "f.yaml: the file is UTF-16 (byte 0)"),
    (b"a\x00:\x00", "f.yaml: a NUL at byte 1: this is not a text file in UTF-8"),
    (b"a: b\nc: \xe9t\xe9\n", "f.yaml:2:4: not UTF-8: byte 0xe9 at offset 8"),
    (b"a: b\nc: \x07\n", "f.yaml:2:4: the character U+0007 is not allowed"),
    ("a: b\u2028c: d\n".encode(), "f.yaml:1:5: the character U+2028 is not allowed"),
    (b"a:\n\tb: c\n", "f.yaml:2:1: not YAML: found character"),
    (b"a:\n  \tb: c\n", "f.yaml:2:3: not YAML: found character"),
    (b'a: "b\nc: d\n', "f.yaml:3:1: not YAML: found unexpected end of stream while scanning a quoted scalar, begun in"),
    (b"a: 'b\n", "f.yaml:2:1: not YAML: found unexpected end of stream"),
    (b"a: [b,\n  c\nd: e\n", "f.yaml:3:2: not YAML: "),
    (b"a: {b: c\n", "f.yaml:2:1: not YAML: "),
    (b"a: b: c\n", "f.yaml:1:5: not YAML: mapping values are not allowed"),
    (b"a:\n  b: c\n d: e\n", "f.yaml:3:2: not YAML: "),
    (b"a: @b\n", "f.yaml:1:4: not YAML: found character"),
    (b"a: *.txt\n", "f.yaml:1:5: not YAML: "),
    (b"a: *b\n", "f.yaml:1:4: no anchor &b above"),
    (b"a: &b c\nd: &b e\n", "f.yaml:2:4: the anchor &b is defined twice"),
    (b"a: &b [*b]\n", "f.yaml:1:8: the alias *b is inside its own anchor"),
    (b"a: 1\nb: 2\na: 3\n", "f.yaml:3:1: the key 'a' is already given in line 1"),
    (b"x: {b: 1, 'b': 2}\n", "f.yaml:1:11: the key 'b' is already given in line 1"),
    (b"AKIAIOSFODNN7EXAMPLE: 1\n" * 2, "f.yaml:2:1: the key (a secret) is already given in line 1"),
    (b"? [a]\n: b\n", "f.yaml:1:3: a key must be text, found a list"),
    (b"{{ a }}: b\n", "f.yaml:1:2: a key must be text, found a mapping"),
    (b"~: b\n", "f.yaml:1:1: a key is missing before ':'"),
    (b"a: &x {b: c}\nd:\n  <<: *x\n", "f.yaml:3:3: merge keys (`<<`) are not allowed"),
    (b"a: !!python/object/apply:os.system [touch /tmp/x]\n", "f.yaml:1:4: tags are not allowed, found '!!python/obj"),
    (b"a: !!str 2.10\n", "f.yaml:1:4: tags are not allowed, found '!!str'"),
    (b"a: !e!x y\n", "f.yaml:1:4: not YAML: found undefined tag handle"),
    (b"a: " + b"[" * 60 + b"]" * 60, "f.yaml:1:53: nested deeper than 50 levels"),
    (b"a: " + b"[" * 900, "f.yaml:1:53: nested deeper than 50 levels"),
    (b"a: " + b"[" * 100_000, "nest"),  # libyaml 0.2.6 stops at a depth of its own
    (b"a: [" + b"b," * 10_000 + b"]\n", "more than 10000 values (each alias counts as a copy)"),
)  # fmt: skip


@pytest.mark.parametrize(("data", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_refused_with_one_line(data: bytes, message: str) -> None:
    error = refused(data)
    assert message in str(error)
    assert str(error).startswith("f.yaml:")
    assert str(error).isprintable()


def test_a_billion_laughs_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    error = refused("\n".join(lines).encode())
    assert "more than 10000 values (each alias counts as a copy)" in str(error)


def test_aliases_count_towards_the_depth() -> None:
    lines = [f"a0: &a0 {'[' * 20}x{']' * 20}", f"a1: &a1 {'[' * 20}*a0{']' * 20}", f"a2: {'[' * 20}*a1{']' * 20}"]
    error = refused("\n".join(lines).encode())
    assert str(error).startswith("f.yaml:3:")
    assert "nested deeper than 50 levels" in str(error)


def test_the_line_and_a_caret_show_the_place() -> None:
    assert refused(b"a: b\nc:\n\td: e\n").details == ("→d: e", "^")
    assert refused(b"a: @b").details == ("a: @b", "   ^")
    assert refused(b'a: "b\n').details == ()
    line, caret = refused(b"a: [" + b"x, " * 100 + b"@y]\n").details
    assert line[caret.index("^")] == "@"
    assert len(line) <= 100


@pytest.mark.parametrize(
    "line", [b"A: ghp_abcdefghijklmnopqrst: b", b"DB_PASSWORD: hunter2: b", b"x: y: [--token=abcdefabcdef]"]
)
def test_a_line_with_a_secret_is_not_shown(line: bytes) -> None:
    assert refused(line).details == ()


def test_reading_never_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, cause in (
            ("fifo", "expected a file, found none"),
            ("folder", "expected a file, found a folder"),
            ("socket", "expected a file, found none"),
            ("nothing", "no such file"),
            ("loop", "too many levels of symbolic links"),
        ):
            with pytest.raises(InputError) as caught:
                read_bytes(tmp_path / name)
            assert str(caught.value) == f"{tmp_path / name}: {cause}"
    with pytest.raises(InputError, match="/dev/zero: expected a file, found none"):
        read_bytes(Path("/dev/zero"))


def test_a_file_may_have_a_mebibyte(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"#" * MAX_BYTES)
    assert len(read_bytes(path)) == MAX_BYTES
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(InputError, match="larger than 1048576 bytes"):
        read_bytes(path)


def test_an_unreadable_file_is_named() -> None:
    with open_folder() as folder:
        path = folder / "f"
        path.write_text("a: b\n")
        path.chmod(0)

        def read() -> str:
            try:
                read_bytes(path)
            except InputError as error:
                return str(error)
            return "read"

        assert as_nobody(read) == f"{path}: permission denied"
