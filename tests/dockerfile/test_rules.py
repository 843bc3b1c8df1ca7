from __future__ import annotations

import pytest

from training_imgtool.dockerfile.parse import DockerfileError, parse
from training_imgtool.dockerfile.rules import check_directives, check_rules

DIGEST = "@sha256:" + "ab" * 32


@pytest.mark.parametrize(
    "text",
    [
        f"FROM python:3{DIGEST}\n",
        f"FROM 127.0.0.1:5000/x{DIGEST} AS a\nFROM a\nCOPY --from=0 /a /b\nCOPY --from=a /a /b\n",
        "FROM scratch\nADD local.tar /x\nCOPY a b /c/\n",
        f"FROM scratch\nCOPY --from=alpine{DIGEST} /a /b\nRUN --mount=type=cache,id=$X,target=/x true\n",
        f"ARG BASE=python:3{DIGEST}\nFROM $BASE\n",
    ],
)
def test_what_is_pinned_passes(text: str) -> None:
    check_rules(parse(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM python:3\n", "Dockerfile:1: python:3 is neither a stage above nor an image by digest"),
        ("FROM python\n", "Dockerfile:1: python is neither"),
        ("FROM scratch\nFROM later\nFROM scratch AS later\n", "Dockerfile:2: later is neither"),
        ("FROM scratch\nCOPY --from=alpine:3 /a /b\n", "Dockerfile:2: alpine:3 is neither"),
        ("FROM scratch\nCOPY --from=1 /a /b\n", "Dockerfile:2: 1 is neither"),
        ("FROM scratch\nRUN --mount=type=bind,from=alpine,target=/a true\n", "Dockerfile:2: alpine is neither"),
        ("FROM scratch\nRUN --mount=type=bind,From=alpine,target=/a true\n", "Dockerfile:2: alpine is neither"),
        (
            "FROM scratch\nARG D\nRUN --mount=src=$D,target=/d true\n",
            "Dockerfile:3: RUN --mount=src=$D,target=/d: a var",
        ),
        ("FROM scratch\nRUN --mount=type=secret,id=${X} true\n", "a variable names what the step reads"),
        ("FROM scratch\nONBUILD COPY --from=alpine /a /b\n", "Dockerfile:2: alpine is neither"),
        ("FROM scratch\nADD https://x.example/a /a\n", "Dockerfile:2: ADD https://x.example/a"),
        ("FROM scratch\nENV X=https://x.example/a\nADD $X /a\n", "Dockerfile:3: ADD with a variable may fetch"),
        ("FROM scratch\nADD git@x.example:a/b.git /a\n", "Dockerfile:2: ADD git@x.example:a/b.git"),
        ('FROM scratch\nADD ["http://x.example/a", "/a"]\n', "Dockerfile:2: ADD http://x.example/a"),
        ("FROM scratch\nONBUILD ADD https://x.example/a /a\n", "Dockerfile:2: ADD https://x.example/a"),
        ("FROM UPPER/case\n", "Dockerfile:1: 'UPPER/case': 'UPPER/case' is not a repository path"),
    ],
)
def test_what_moves_is_refused(text: str, message: str) -> None:
    with pytest.raises(DockerfileError) as caught:
        check_rules(parse(text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "syntax", ["docker/dockerfile", "docker/dockerfile:1", f"docker.io/docker/dockerfile:1.7{DIGEST}"]
)
def test_dockers_own_frontend_passes(syntax: str) -> None:
    check_directives(f"# syntax={syntax}\nFROM a\n", "f")


@pytest.mark.parametrize(
    "text",
    [
        "# syntax=evil/dockerfile:1\n",
        "# syntax=docker/dockerfile-upstream:master\n",
        "#SYNTAX = x\n",
        "# escape=`\n",
        "# escape=x\n",
    ],
)
def test_other_frontends_and_escapes_do_not(text: str) -> None:
    with pytest.raises(DockerfileError, match=r"^f:1: "):
        check_directives(text, "f")
