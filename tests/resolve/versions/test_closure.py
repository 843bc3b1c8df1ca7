"""Installed packages from metadata: and what `pip check` says."""

from __future__ import annotations

import pytest

from training_imgtool.resolve.versions.closure import Package, find_broken, is_same_version
from training_imgtool.resolve.versions.markers import marker_environment

LINUX = marker_environment("3.11", "linux/amd64")


def _packages(*entries: tuple[str, str, tuple[str, ...]]) -> tuple[Package, ...]:
    return tuple(Package(name=name, version=version, requires=needs) for name, version, needs in entries)


@pytest.mark.parametrize(
    ("requirement", "version", "complaint"),
    [
        ("numpy>=1.20", "1.26.4", None),
        ("numpy (<2,>=1.20)", "1.26.4", None),
        ("Numpy>=2", "1.26.4", "a 1 requires Numpy>=2, but 1.26.4 is there"),
        ("numpy>=1.27", "1.27.0rc1", "a 1 requires numpy>=1.27, but 1.27.0rc1 is there"),
        ("numpy<2", "2.0.0rc1", "a 1 requires numpy<2, but 2.0.0rc1 is there"),
        ("numpy!=1.26.*", "1.26.4", "a 1 requires numpy!=1.26.*, but 1.26.4 is there"),
        ("absent", "1.0", "a 1 requires absent, which is not there"),
        ("absent; extra == 'gpu'", "1.0", None),
        ("absent; sys_platform == 'win32'", "1.0", None),
        ("absent; python_version < '3.9'", "1.0", None),
        ("absent; python_version >= '3.9'", "1.0", "a 1 requires absent, which is not there"),
        ("absent; platform_machine != 'arm64' and platform_machine != 'aarch64'", "1", "a 1 requires absent, which is"),
        ("not a requirement (>", "1.0", None),
    ],
)
def test_pip_check(requirement: str, version: str, complaint: str | None) -> None:
    found = list(find_broken(_packages(("a", "1", (requirement,)), ("numpy", version, ())), LINUX))
    assert len(found) == (0 if complaint is None else 1)
    if complaint:
        assert found[0].startswith(complaint)


def test_extras_that_somebody_asks_for_count() -> None:
    needs = ("absl", "cudnn==9 ; extra == 'gpu'", "big[more] ; extra == 'all'", "nccl ; extra == 'more'")
    packages = _packages(("big", "1", needs), ("absl", "1", ()))
    assert not list(find_broken(packages, LINUX))
    assert list(find_broken(packages, LINUX, wanted=("big[gpu]>0",))) == [
        "big[gpu] 1 requires cudnn, which is not there"
    ]
    assert list(find_broken(packages, LINUX, wanted=("big[all]",))) == ["big[more] 1 requires nccl, which is not there"]
    assert list(find_broken(packages, LINUX, wanted=("big==2", "own"), own={"own"})) == [
        "the spec requires big==2, but 1 is there"
    ]


@pytest.mark.parametrize(
    ("python", "fits"), [(">=3.9", True), ("<3.11", False), (">=3.11.4", True), ("==3.10.*", False), ("junk", True)]
)
def test_a_package_for_another_python(python: str, *, fits: bool) -> None:
    package = Package(name="a", version="1", requires_python=python)
    assert list(find_broken([package], LINUX)) == ([] if fits else [f"a 1 requires Python {python}"])


def test_tensorflow_cpu_stands_for_tensorflow() -> None:
    packages = _packages(("tf-keras", "2.15.0", ("tensorflow<2.16,>=2.15",)), ("tensorflow-cpu", "2.15.1", ()))
    assert not list(find_broken(packages, LINUX, provided={"tensorflow": "tensorflow-cpu"}))
    older = _packages(("tf-keras", "2.16.0", ("tensorflow>=2.16",)), ("tensorflow-cpu", "2.15.1", ()))
    assert "2.15.1 is there" in next(find_broken(older, LINUX, provided={"tensorflow": "tensorflow-cpu"}))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("1.0", "1.0.0", True), ("2.1-rc1", "2.1rc1", True), ("1.0", "1.0+cu12", False), ("weird", "weird", True)],
)
def test_versions_are_compared_as_pip_does(one: str, other: str, *, same: bool) -> None:
    assert is_same_version(one, other) is same
