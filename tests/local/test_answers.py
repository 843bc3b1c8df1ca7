"""A warm container's output, parted into answers and what programs print."""

from __future__ import annotations

import random

import pytest

from training_imgtool.base.errors import InputError
from training_imgtool.local.answers import Answer, AnswerReader, Process, cut_last
from training_imgtool.make.engines.docker.containers import Ended

TOKEN = "\x1eimgtool 12"
ENDED = Ended(exit_code=3, out_of_memory=False, fault="")


def line(state: str, number: int = 1) -> bytes:
    return f'{TOKEN} {{"state": "{state}", "number": {number}}}\n'.encode()


def read(blocks: list[bytes]) -> tuple[bytes, list[Answer]]:
    shown, answers = bytearray(), list[Answer]()
    reader = AnswerReader(TOKEN, shown.extend, answers.append)
    for block in blocks:
        reader.feed(block)
    return bytes(shown), answers


def test_an_answer_counts_once_both_streams_have_brought_it() -> None:
    shown, answers = read(
        [line("started"), b"one\n", line("started"), b"two", line("ended"), b" three\n", line("ended")]
    )
    assert shown == b"one\ntwo three\n"
    assert [answer["state"] for answer in answers] == ["started", "ended"]
    assert read([line("started"), b"x", line("ended")])[1] == []


@pytest.mark.parametrize("seed", range(20))
def test_blocks_may_end_anywhere(seed: int) -> None:
    chosen = random.Random(seed)
    data = b"".join(
        [line("ready", 0), b"a\x1e\n", line("ready", 0), b"\x1eimgtool no\n", line("cold"), b"z", line("cold")]
    )
    cuts = sorted(chosen.sample(range(len(data)), 12))
    blocks = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    shown, answers = read(blocks)
    assert shown == b"a\x1e\n\x1eimgtool no\nz"
    assert [answer["state"] for answer in answers] == ["ready", "cold"]


def test_what_comes_between_two_answers_is_shown_at_once() -> None:
    assert read([b"no line's end"])[0] == b"no line's end"
    assert read([b"perhaps an answer: \x1eimg"])[0] == b"perhaps an answer: "


def test_the_end_of_the_last_program() -> None:
    output = b"old\n" + line("ended", 1) + b"more\n" + line("started", 2) + b"new\nend" + line("ended", 2)
    assert cut_last(output, TOKEN) == b"new\nend"
    assert cut_last(b"many\nlines\n" + line("ended", 2), TOKEN) == b"many\nlines\n"


def test_a_process_prints_until_it_ends() -> None:
    process = Process(1)
    process.print(b"one")
    process.print(b"")
    assert process.wait(0) is None
    process.end(ENDED)
    process.end(InputError("later"))
    assert list(process.output()) == [b"one"]
    assert process.wait() == ENDED


def test_a_process_whose_end_is_unknown() -> None:
    process = Process(1)
    process.end(InputError("gone"))
    with pytest.raises(InputError, match="gone"):
        process.wait()
