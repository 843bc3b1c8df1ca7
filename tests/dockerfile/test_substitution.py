from __future__ import annotations

import pytest

from training_imgtool.dockerfile.evaluate import ambiguous_args, evaluate
from training_imgtool.dockerfile.parse import DockerfileError, parse
from training_imgtool.dockerfile.substitution import SubstitutionError, expand, raw_pairs, split_words

VARIABLES = {"a": "A", "empty": "", "n_1": "N"}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("$a", "A"),
        ("${a}b", "Ab"),
        ("$ab", ""),
        ("x$", "x$"),
        ("$-x", "x"),
        ("$1x", "x"),
        ("${n_1}", "N"),
        ("${a:-d}", "A"),
        ("${no:-d}", "d"),
        ("${empty:-d}", "d"),
        ("${empty-d}", ""),
        ("${no:-${a}}", "A"),
        ("${no:-'}'}", "}"),
        ("${a:+s}", "s"),
        ("${empty:+s}", ""),
        ("${empty+s}", "s"),
        ("${no:+s}", ""),
        (r"\$a", "$a"),
        (r"'$a'", "$a"),
        (r'"$a"', "A"),
        (r'"\$a\"\\\x"', r'$a"\\x'),
        (r"a\ b", "a b"),
        ("end\\", "end"),
        ("'a'\"b\"c", "abc"),
        ('"#"', "#"),
    ],
)
def test_expands(word: str, value: str) -> None:
    assert expand(word, VARIABLES, "\\") == value


@pytest.mark.parametrize("word", ["${", "${}", "${:x}", "${a", "'a", '"a', "${a#x}", "${a/x/y}", "${no:?gone}"])
def test_refuses_words(word: str) -> None:
    with pytest.raises(SubstitutionError):
        expand(word, VARIABLES, "\\")


def test_splits_and_pairs() -> None:
    assert split_words("a  'b c'\\ d \"e \\\" f\" ''", "\\") == ("a", "'b c'\\ d", '"e \\" f"', "''")
    assert raw_pairs('A=1 B="x y"', "\\") == (("A", "1"), ("B", '"x y"'))
    assert raw_pairs("A x  y", "\\") == (("A", "x  y"),)


def test_a_stage_in_order() -> None:
    file = parse(
        "ARG G=g\nFROM base AS s\nARG G\nARG L=$G-l\nENV X=$L X2=$X\nENV L=env\nENV Y=$L Z='$L'\n"
        "WORKDIR /w/$Y\nCOPY --chown=$G:$G --from=$G $L '$L' \"d$Y\"\nLABEL $L=$PATH\nRUN echo $L\nUSER ${U:-u}\n"
    )
    steps = {step.instruction.line: step for step in evaluate(file, file.stages[0], {"PATH": "/bin", "X": "old"})}
    assert steps[5].pairs == (("X", "g-l"), ("X2", "old"))
    assert steps[7].pairs == (("Y", "env"), ("Z", "$L"))
    assert steps[8].words == ("/w/env",)
    assert steps[9].flags == {"chown": "g:g", "from": "$G"}
    assert steps[9].words == ("env", "$L", "denv")
    assert steps[10].pairs == (("env", "/bin"),)
    assert steps[11].words == ()
    assert steps[12].words == ("u",)


def test_json_words_are_expanded_too() -> None:
    file = parse('FROM base\nCOPY ["$A b", "/c"]\n')
    assert evaluate(file, file.stages[0], {"A": "a"})[0].words == ("a b", "/c")


def test_an_error_names_its_line() -> None:
    file = parse("FROM base\nWORKDIR ${a#b}\n", file="w.Dockerfile")
    with pytest.raises(DockerfileError, match=r"w\.Dockerfile:2: "):
        evaluate(file, file.stages[0], {})


@pytest.mark.parametrize(
    ("below", "text", "env", "names"),
    [
        ("ARG X=1\nENV Y=2", "ENV Z=$X$Y", {}, {"X"}),
        ("ARG X=1", "ARG X\nCOPY ${X:-a} /", {}, {"X"}),
        ("ARG X=1\nENV X=$X", "ENV Z=$X", {"X": "1"}, set()),
        ("ARG X=1", "RUN echo $X", {}, set()),
        ("ARG X=1", "ENV Z=$XY", {}, set()),
        ("ENV A=1", "ARG TARGETOS\nENV Z=$TARGETOS", {}, {"TARGETOS"}),
        ("ENV A=1", "ARG TARGETOS=linux\nENV Z=$TARGETOS", {}, set()),
    ],
)
def test_args_of_a_stage_below(below: str, text: str, env: dict[str, str], names: set[str]) -> None:
    dockerfile = parse(f"FROM scratch AS a\n{below}\nFROM a AS b\nFROM b AS c\n{text}\n")
    assert ambiguous_args(dockerfile, dockerfile.stage("c"), env) == names
