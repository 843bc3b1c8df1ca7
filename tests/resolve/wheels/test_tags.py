"""Which wheel fits best, as pip would choose."""

from __future__ import annotations

import pytest

from training_imgtool.resolve.wheels.wheel_tags import choose_wheel, machine_of, name_uv_platform

CASES = [
    ("3.10", "linux/amd64", "2.36", ["a-1-py3-none-any.whl", "a-1-cp310-cp310-manylinux_2_17_x86_64.whl"], 1),
    ("3.10", "linux/amd64", "2.36", ["a-1-cp38-abi3-manylinux_2_28_x86_64.whl", "a-1-py3-none-any.whl"], 0),
    ("3.10", "linux/amd64", "2.36", ["a-1-cp311-abi3-manylinux_2_28_x86_64.whl", "a-1-py3-none-any.whl"], 1),
    (
        "3.10",
        "linux/amd64",
        "2.36",
        ["a-1-cp310-cp310-manylinux2014_x86_64.whl", "a-1-cp310-cp310-manylinux_2_34_x86_64.whl"],
        1,
    ),
    (
        "3.10",
        "linux/amd64",
        "2.31",
        ["a-1-cp310-cp310-manylinux2014_x86_64.whl", "a-1-cp310-cp310-manylinux_2_34_x86_64.whl"],
        0,
    ),
    ("3.7", "linux/amd64", "2.36", ["a-1-cp37-cp37m-manylinux1_x86_64.whl", "a-1-cp37-cp37-manylinux1_x86_64.whl"], 0),
    (
        "3.8",
        "linux/amd64",
        "2.36",
        ["a-1-cp38-cp38m-manylinux1_x86_64.whl", "a-1-cp38-cp38-manylinux2010_x86_64.whl"],
        1,
    ),
    (
        "3.10",
        "linux/arm64",
        "2.36",
        ["a-1-cp310-cp310-manylinux2014_x86_64.whl", "a-1-cp310-cp310-manylinux2014_aarch64.whl"],
        1,
    ),
    ("3.10", "linux/amd64", "2.36", ["a-1-1-py3-none-any.whl", "a-1-2-py3-none-any.whl"], 1),
    ("3.10", "linux/amd64", "2.36", ["a-1-py2.py3-none-any.whl", "a-1-cp310-none-any.whl"], 1),
    (
        "3.10",
        "linux/amd64",
        "2.36",
        ["a-1-py2-none-any.whl", "a-1-cp310-cp310-musllinux_1_2_x86_64.whl", "a-1-cp310-cp310-win_amd64.whl"],
        None,
    ),
    ("3.10", "linux/amd64", "2.36", ["not a wheel.whl", "a-1-py3-none-any.whl"], 1),
    ("3.10", "linux/amd64", "2.36", ["a-1-py3-none-manylinux2010_x86_64.whl"], 0),
    ("3.10", "linux/amd64", "2.36", [], None),
]


@pytest.mark.parametrize(("python", "platform", "glibc", "files", "best"), CASES)
def test_best(*, python: str, platform: str, glibc: str, files: list[str], best: int | None) -> None:
    expected = None if best is None else files[best]
    assert choose_wheel(files, python, platform, glibc) == expected
    assert choose_wheel(files[::-1], python, platform, glibc) == expected


@pytest.mark.parametrize(
    ("platform", "glibc", "name"),
    [
        ("linux/amd64", "2.36", "x86_64-manylinux_2_36"),
        ("linux/amd64", "2.27", "x86_64-manylinux_2_17"),
        ("linux/amd64", "2.41", "x86_64-manylinux_2_40"),
        ("linux/arm64/v8", "2.35", "aarch64-manylinux_2_35"),
    ],
)
def test_the_platform_in_uv_s_words(platform: str, glibc: str, name: str) -> None:
    assert name_uv_platform(platform, glibc) == name


def test_unknown_platform() -> None:
    with pytest.raises(KeyError):
        machine_of("linux/s390x")
