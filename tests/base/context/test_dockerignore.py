from __future__ import annotations

import itertools

import pytest

from training_imgtool.base.context import dockerignore
from training_imgtool.base.context.dockerignore import Verdict, parse_dockerignore
from training_imgtool.base.errors import InputError


def ignored(patterns: str, path: str) -> bool:
    """What a walk down to `path` finds."""
    ignore = parse_dockerignore(patterns)
    verdict: Verdict | None = None
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        verdict = ignore.decide("/".join(parts[:count]), verdict)
    assert verdict is not None
    return verdict.ignored


@pytest.mark.parametrize(
    ("patterns", "path", "expected"),
    [
        ("a", "a", True),
        ("a", "b/a", False),
        ("a", "a/b", True),
        ("/a", "a", True),
        ("a /", "a", True),
        ("a|b", "a|b", True),
        ("./a", "a", True),
        ("b/../a", "a", True),
        ("../a", "a", False),
        ("*", "a/b/c", True),
        ("*.md", "d/x.md", False),
        ("*/*.md", "d/x.md", True),
        ("**/*.md", "a/b/x.md", True),
        ("**/x", "ax", False),
        ("**x", "a/bx", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a/**/z", "a/b/c/z", True),
        ("**", "anything/at/all", True),
        ("a?c", "a/c", False),
        ("[^a-c].txt", "b.txt", False),
        ("a\\*", "ab", False),
        ("a.b", "axb", False),
        ("a+(b)", "a+(b)", True),
        ("*\n!a", "a", False),
        ("*\n!a", "a/b", False),
        ("a\n!a/b", "a/b", False),
        ("!a\na", "a", True),
        ("*\n!d/*.txt\nd/no.txt", "d/no.txt", True),
        ("*\n!d/*.txt\nd/no.txt", "d/yes.txt", False),
        ("d\n!d/keep\nd*", "d/keep", False),  # the third was not asked for `d`, so it is not remembered
        ("! a\n", "a", False),
        ("# a\n #b", "a", False),
        ("# a\n #b", "#b", True),
        ("a\r\nb\r\n", "b", True),
        ("\ufeffa", "a", True),
        ("a[b", "a", None),
    ],
)
def test_patterns(patterns: str, path: str, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(InputError, match=r"\.dockerignore:1: "):
            ignored(patterns, path)
    else:
        assert ignored(patterns, path) is expected


@pytest.mark.parametrize(
    "text", ["a\n!\n", "a\n!/\n", "a\n! /\n", "a\n*|b\n", "a\n{a,b}*\n", "a\n[]\n", "a\n[a-]\n", "a\nb\\\n"]
)
def test_malformed_patterns_have_their_line(text: str) -> None:
    with pytest.raises(InputError, match=r"\.dockerignore:2: "):
        parse_dockerignore(text)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*c", "abc", True),
        ("a*/b", "a/c/b", False),
        ("a*b*c*d*e*/f", "axbxcxdxexxx/f", True),
        ("ab[e-g]", "abc", False),
        ("[\\]a]", "]", True),
        ("[\\-x]", "-", True),
        ("a?b", "a☺b", True),
        ("a[^a][^a][^a]b", "a☺b", False),
        ("[à-ü]*", "é", True),
    ],
)
def test_go_match(pattern: str, path: str, expected: bool) -> None:
    assert ignored(pattern, path) is expected


@pytest.mark.parametrize("pattern", ["[]a]", "[-]", "[x-]", "[-x]", "a\\", "[", "[^", "[^bc", "a["])
def test_go_match_refuses(pattern: str) -> None:
    with pytest.raises(InputError, match="is not a pattern"):
        parse_dockerignore(pattern)


def test_many_stars_take_no_time_and_match_as_few_do() -> None:
    stars, name = "*a" * 30, "a" * 200
    assert not ignored(f"**/{stars}b", f"trainer/{name}")
    assert ignored(f"**/{stars}", f"trainer/{name}")
    assert not ignored("**/a/" * 20 + "b", "a/" * 60)


@pytest.mark.parametrize(
    "pattern", ["**/*a*[b-d]*", "a/**/*/**/c?", "*/*/*", "**/x*/**/\\*", "*.*.*y", "**/b**/c*/**", "**/[[a]*b*"]
)
def test_each_way_to_match_gives_the_same_answer(pattern: str) -> None:
    letters = ["a", "b", "/", "c", "x", "*", "."]
    paths = ["".join(path) for size in range(1, 6) for path in itertools.product(letters, repeat=size)]
    step_by_step, regex = dockerignore._matcher(pattern), dockerignore._compile(dockerignore._translate(pattern))
    assert [bool(step_by_step(path)) for path in paths] == [regex.match(path) is not None for path in paths]
