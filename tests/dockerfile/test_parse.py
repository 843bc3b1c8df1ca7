from __future__ import annotations

import pytest

from training_imgtool.dockerfile.parse import DockerfileError, is_signal, nanoseconds, parse

WHOLE = """\
# syntax=docker/dockerfile:1.7
# escape=\\

ARG TAG=3.11 OS
ARG FULL=python:${TAG}-slim
FROM --platform=linux/amd64 ${FULL} AS Base
# a comment
RUN echo a; \\
    # inside
    echo b; \\

    echo c
ENV A=1 B="two words" \\
    C='$A'
ENV OLD  a b  c
LABEL "x y"="a\\"b"
from base as next
COPY --from=base --chown=1:2 --link /a "/b c" ./
COPY ["with space", "/to/"]
RUN --mount=type=cache,target=/c --network=none <<EOF cat
line # not a comment
  indented \\
EOF
COPY <<-'ONE' <<TWO /dest/
\tfirst
ONE
second
TWO
HEALTHCHECK --interval=5s CMD ["true"]
ONBUILD COPY a b
SHELL ["/bin/bash", "-c"]
CMD
ENTRYPOINT [not json]
EXPOSE 80/tcp 443
"""


def test_reads_every_form() -> None:
    file = parse(WHOLE)
    assert dict(file.directives) == {"syntax": "docker/dockerfile:1.7", "escape": "\\"}
    assert [arg.pairs for arg in file.args] == [(("TAG", "3.11"), ("OS", None)), (("FULL", "python:${TAG}-slim"),)]
    base, following = file.stages
    assert (base.name, base.base, base.platform, base.line) == ("base", "python:3.11-slim", "linux/amd64", 6)
    assert following.base == "base"
    run, env, old, label = base.instructions
    assert run.text == "echo a;     echo b;     echo c"
    assert run.line == 8
    assert run.raw.count("\n") == 5
    assert env.pairs == (("A", "1"), ("B", '"two words"'), ("C", "'$A'"))
    assert old.pairs == (("OLD", "a b  c"),)
    assert label.pairs == (('"x y"', '"a\\"b"'),)
    copy, json_copy, heredoc, files, health, onbuild, shell, cmd, entry, expose = following.instructions
    assert copy.flags == (("from", "base"), ("chown", "1:2"), ("link", None))
    assert (copy.flag("link"), copy.flag("chmod"), copy.words[-1]) == ("", None, "./")
    assert json_copy.sources == ("with space",)
    assert json_copy.json == ("with space", "/to/")
    assert heredoc.heredocs[0].text == "line # not a comment\n  indented \\\n"
    assert heredoc.flag("network") == "none"
    assert [(h.name, h.text, h.expands, h.chomps) for h in files.heredocs] == [
        ("ONE", "\tfirst\n", False, True),
        ("TWO", "second\n", True, False),
    ]
    assert files.sources == ()
    assert files.words[-1] == "/dest/"
    assert (health.text, health.flag("interval")) == ('CMD ["true"]', "5s")
    assert (onbuild.inner.name, onbuild.inner.words) == ("COPY", ("a", "b"))
    assert shell.json == ("/bin/bash", "-c")
    assert (cmd.text, cmd.json) == ("", None)
    assert entry.json is None
    assert expose.words == ("80/tcp", "443")


def test_raw_lines_make_the_file_again() -> None:
    file = parse(WHOLE)
    raws = [i.raw for i in file.args] + [s.raw + "".join(i.raw for i in s.instructions) for s in file.stages]
    kept = [line for line in "".join(raws).splitlines() if line]
    missing = [line for line in WHOLE.splitlines() if line and line not in kept]
    assert missing == [*WHOLE.splitlines()[:2], "# a comment"]


def test_stages_by_name_and_number() -> None:
    file = parse("FROM a AS one\nFROM one AS Two\nFROM two\n")
    assert file.stage("TWO").index == 1
    assert file.stage("2").base == "two"
    assert file.earlier("two", file.stages[2]) is file.stages[1]
    assert file.earlier("two", file.stages[1]) is None
    assert file.stages[2].label == "2"
    with pytest.raises(KeyError):
        file.stage("three")


def test_another_escape_character() -> None:
    file = parse('# escape=`\nFROM scratch\nENV A=C:\\dir `\n    B="`""\n')
    assert file.stages[0].instructions[0].pairs == (("A", "C:\\dir"), ("B", '"`""'))


def test_windows_lines_and_a_mark() -> None:
    file = parse("\ufeffFROM scratch\r\nRUN a \\\r\n  b\r\n")
    assert file.stages[0].instructions[0].text == "a   b"


def test_two_backslashes_do_not_continue() -> None:
    assert len(parse("FROM scratch\nRUN a \\\\\nRUN b\n").stages[0].instructions) == 2


def test_a_directive_after_anything_else_is_a_comment() -> None:
    assert parse("# hello\n# escape=`\nFROM a\n").directives == {}
    assert parse("\n# escape=`\nFROM a\n").directives == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Dockerfile: no FROM"),
        ("# only\n", "Dockerfile: no FROM"),
        ("ARG A=1\n", "Dockerfile: no FROM"),
        ("RUN a\nFROM b\n", "Dockerfile:1: RUN before the first FROM"),
        ("FROM a\nFORM b\n", "Dockerfile:2: unknown instruction 'FORM'"),
        ("FROM a AS\n", "Dockerfile:1: FROM a AS: expected IMAGE or IMAGE AS NAME"),
        ("FROM a AS 1b\n", "Dockerfile:1: '1b' is not a stage's name"),
        ("FROM a AS b\nFROM c AS B\n", "Dockerfile:2: the stage 'b' appears twice"),
        ("FROM $X\n", "Dockerfile:1: FROM $X is empty"),
        ("FROM a\nENV A\n", "Dockerfile:2: 'A' has no value"),
        ("FROM a\nENV A=1 B\n", "Dockerfile:2: 'B' has no '='"),
        ("FROM a\nENV =1\n", "Dockerfile:2: ENV: an empty name"),
        ("FROM a\nCOPY a\n", "Dockerfile:2: COPY needs a source and a destination"),
        ("FROM a\nRUN\n", "Dockerfile:2: RUN needs an argument"),
        ('FROM a\nCMD ["a", 1]\n', "holds only strings"),
        ('FROM a\nRUN [ "$X" ] || true\n', "a JSON form with text after it"),
        ("FROM a\nSHELL bash\n", "Dockerfile:2: SHELL needs a JSON array"),
        ("FROM a\nRUN <<EOF\nx\n", "Dockerfile:2: the heredoc <<EOF has no line 'EOF'"),
        ("FROM a\nHEALTHCHECK foo\n", "Dockerfile:2: HEALTHCHECK: expected NONE or CMD"),
        ("FROM a\nHEALTHCHECK NONE x\n", "Dockerfile:2: HEALTHCHECK NONE takes neither"),
        ("FROM a\nHEALTHCHECK CMD\n", "Dockerfile:2: HEALTHCHECK CMD needs a command"),
        ("FROM a\nHEALTHCHECK CMD []\n", "Dockerfile:2: HEALTHCHECK CMD needs a command"),
        ("FROM a\nHEALTHCHECK --interval=0s CMD x\n", "Dockerfile:2: HEALTHCHECK --interval=0s: expected a duration"),
        ("FROM a\nHEALTHCHECK --timeout=500us CMD x\n", "Dockerfile:2: HEALTHCHECK --timeout=500us"),
        ("FROM a\nHEALTHCHECK --start-period=-3s CMD x\n", "Dockerfile:2: HEALTHCHECK --start-period=-3s"),
        ("FROM a\nHEALTHCHECK --retries=0 CMD x\n", "Dockerfile:2: HEALTHCHECK --retries=0: expected a number"),
        ("FROM a\nHEALTHCHECK --retries=-1 CMD x\n", "Dockerfile:2: HEALTHCHECK --retries=-1"),
        ("FROM a\nHEALTHCHECK --retries=abc CMD x\n", "Dockerfile:2: HEALTHCHECK --retries=abc"),
        ("FROM a\nHEALTHCHECK --retries=1 --retries=2 CMD x\n", "Dockerfile:2: HEALTHCHECK: --retries is given twice"),
        ("FROM a\nCOPY --chown=1 --chown=2 a b\n", "Dockerfile:2: COPY: --chown is given twice"),
        ("FROM a\nSTOPSIGNAL BOGUS\n", "Dockerfile:2: STOPSIGNAL BOGUS: no signal of Linux"),
        ("FROM a\nSTOPSIGNAL 0\n", "Dockerfile:2: STOPSIGNAL 0: no signal"),
        ('FROM a\nVOLUME [""]\n', "Dockerfile:2: VOLUME: an empty path"),
        ("FROM a\nRUN\u00a0x\n", "Dockerfile:2: unknown instruction 'RUN\\xa0x'"),
        ("FROM a\nONBUILD FROM b\n", "Dockerfile:2: ONBUILD FROM is not allowed"),
        ("# escape=x\nFROM a\n", "Dockerfile:1: escape=x"),
        ("# escape=`\n# escape=`\nFROM a\n", "Dockerfile:2: the directive 'escape' is given twice"),
    ],
)
def test_refuses_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(DockerfileError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_no_break_space_is_a_character_of_a_word() -> None:
    copy = parse("FROM a\nCOPY a\u00a0b  c\tb\n").stages[0].instructions[0]
    assert copy.words == ("a\u00a0b", "c", "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1h2m3.5s", 3_723_500_000_000), (".5s", 5 * 10**8), ("+1.ms", 10**6), ("3µs", 3000), ("5", None), ("s", None)],
)
def test_durations_are_gos(text: str, expected: int | None) -> None:
    assert nanoseconds(text) == expected


def test_signals() -> None:
    for text in ("SIGTERM", "term", "9", "SIGRTMIN+15", "RTMAX-1"):
        assert is_signal(text), text
    for text in ("", "SIG", "SIGRTMIN+16", "0", "-9", "SIGUNUSED"):
        assert not is_signal(text), text
