from __future__ import annotations

import pytest

from training_imgtool.oci.registry.auth.challenges import (
    Challenge,
    parse_challenges,
    parse_scope,
    pull,
    push,
    scope_texts,
)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push"',
            [
                Challenge(
                    "bearer",
                    {
                        "realm": "https://auth.docker.io/token",
                        "service": "registry.docker.io",
                        "scope": "repository:a/b:pull,push",
                    },
                )
            ],
        ),
        ('Basic realm="x"', [Challenge("basic", {"realm": "x"})]),
        (
            'Basic realm="a b", charset="UTF-8", Bearer realm="https://t/",error="invalid_token"',
            [
                Challenge("basic", {"realm": "a b", "charset": "UTF-8"}),
                Challenge("bearer", {"realm": "https://t/", "error": "invalid_token"}),
            ],
        ),
        (
            "BEARER Realm=https://t/token , Service=x",
            [Challenge("bearer", {"realm": "https://t/token", "service": "x"})],
        ),
        (r'Bearer realm="a\"b\\c"', [Challenge("bearer", {"realm": r'a"b\c'})]),
        ("Negotiate, Basic realm=x", [Challenge("negotiate"), Challenge("basic", {"realm": "x"})]),
        ("Negotiate", [Challenge("negotiate")]),
        ("", []),
        ('Bearer realm="unclosed', [Challenge("bearer")]),
        ("=,=,\x00", []),
        (",,, Basic realm=x,,", [Challenge("basic", {"realm": "x"})]),
    ],
)
def test_r24_challenges(header: str, expected: list[Challenge]) -> None:
    found = parse_challenges([header])
    assert list(found)[: len(expected)] == expected
    assert all(not challenge.parameters.get("realm") for challenge in found[len(expected) :])


def test_r24_several_headers() -> None:
    found = parse_challenges(['Basic realm="b"', 'Bearer realm="t"'])
    assert [challenge.scheme for challenge in found] == ["basic", "bearer"]


def test_r24_a_huge_header_takes_no_time() -> None:
    assert parse_challenges(["a=" * 1_000_000]) is not None
    assert parse_challenges(['Bearer x="' + "\\" * 1_000_000]) is not None


def test_scopes_are_written_sorted_and_once_per_repository() -> None:
    assert scope_texts(push("b/c") | pull("a")) == ("repository:a:pull", "repository:b/c:pull,push")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repository:a/b:pull", {"a/b:pull"}),
        ("repository:a:pull,push repository:b:pull", {"a:pull", "a:push", "b:pull"}),
        ("repository:host:5000/a:pull", {"host:5000/a:pull"}),
        ("registry:catalog:*", set()),
        ("", set()),
        ("repository::pull", set()),
        ("nonsense", set()),
    ],
)
def test_scopes_are_read(text: str, expected: set[str]) -> None:
    assert parse_scope(text) == expected
