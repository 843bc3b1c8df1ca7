"""What a new lock takes over from the one before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.resolve.lock.test_lockfile import CPU, LOCK
from training_imgtool.base.errors import UsageError
from training_imgtool.model.lock import Lock, LockedVariant, Wheel
from training_imgtool.resolve.lock.carry_over import NOTHING_CARRIED_OVER, Renewal


def _with(locked: LockedVariant, name: str, **versions: str) -> LockedVariant:
    wheels = tuple(
        Wheel(name=package, version=version, file=f"{package}-{version}-py3-none-any.whl", sha256="0" * 64, size=1)
        for package, version in versions.items()
    )
    return replace(locked, variant=replace(locked.variant, name=name, base=f"{name}:1"), wheels=wheels)


def _lock() -> Lock:
    variants = (_with(CPU, "gpu", numpy="1.0", keras="2.0"), _with(CPU, "cpu", numpy="1.1", six="3"))
    return replace(LOCK, variants=variants)


def test_versions_and_bases_are_kept() -> None:
    lock = _lock()
    kept = Renewal().carry_over(lock, lock.platform)
    installer = {"pip": lock.variants[0].installer.version}
    assert kept.versions("gpu") == {"numpy": "1.0", "keras": "2.0", **installer}
    assert kept.versions("cpu") == {"numpy": "1.1", "six": "3", **installer}
    assert kept.bases == {f"{name}:1": lock.variants[0].base_digest for name in ("gpu", "cpu")}


def test_a_variant_that_is_new_takes_after_the_others() -> None:
    lock = _lock()
    kept = Renewal().carry_over(lock, lock.platform)
    assert {**kept.versions("tpu")} == {"numpy": "1.0", "keras": "2.0", "six": "3", "pip": kept.versions("gpu")["pip"]}


def test_a_base_of_another_platform_has_another_digest() -> None:
    kept = Renewal().carry_over(_lock(), "linux/arm64")
    assert kept.bases == {}
    assert kept.versions("gpu")["numpy"] == "1.0"


def test_one_package_anew() -> None:
    lock = _lock()
    kept = Renewal(packages=frozenset({"numpy"})).carry_over(lock, lock.platform)
    assert set(kept.versions("gpu")) == {"keras", "pip"}
    assert set(kept.versions("cpu")) == {"six", "pip"}
    assert kept.bases


def test_everything_anew() -> None:
    lock = _lock()
    assert Renewal(everything=True).carry_over(lock, lock.platform) == NOTHING_CARRIED_OVER
    assert not NOTHING_CARRIED_OVER.versions("gpu")


def test_a_package_that_the_lock_does_not_have() -> None:
    lock = _lock()
    with pytest.raises(UsageError, match=r"the lock has no package nmupy") as caught:
        Renewal(packages=frozenset({"nmupy", "numpy"})).carry_over(lock, lock.platform)
    assert "requirements" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("renewal", "asks"),
    [(Renewal(), False), (Renewal(everything=True), True), (Renewal(packages=frozenset("a")), True)],
)
def test_whether_it_asks_for_anything(renewal: Renewal, asks: bool) -> None:
    assert bool(renewal) is asks
