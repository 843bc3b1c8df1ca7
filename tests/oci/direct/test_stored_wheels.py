"""Built wheels in the registry, by their sha256."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from tests.oci.direct.registry import Bench
from training_imgtool.model.lock import Wheel
from training_imgtool.oci.repository.stored_wheels import StoredWheels

pytestmark = pytest.mark.registry

BODY = b"wheel" * 1000
WHEEL = Wheel(
    name="dep",
    version="2.0",
    file="dep-2.0-py3-none-any.whl",
    sha256=hashlib.sha256(BODY).hexdigest(),
    size=len(BODY),
)


def test_a_kept_wheel_is_read_by_the_next_machine(pushing: Bench) -> None:
    path = pushing.folder / WHEEL.file
    path.write_bytes(BODY)
    stored = StoredWheels(pushing.registries, pushing.repository)
    assert stored.read(WHEEL) is None
    stored.keep(WHEEL, path)
    blocks = StoredWheels(pushing.again().registries, pushing.repository).read(WHEEL)
    assert blocks is not None
    assert b"".join(blocks) == BODY


def test_a_wheel_of_the_same_tag_is_another_one(pushing: Bench) -> None:
    path = pushing.folder / WHEEL.file
    path.write_bytes(BODY)
    stored = StoredWheels(pushing.registries, pushing.repository)
    stored.keep(WHEEL, path)
    assert stored.read(replace(WHEEL, sha256=f"{WHEEL.sha256[:32]}{'0' * 32}")) is None


def test_a_wheel_is_kept_once(pushing: Bench) -> None:
    path = pushing.folder / WHEEL.file
    path.write_bytes(BODY)
    StoredWheels(pushing.registries, pushing.repository).keep(WHEEL, path)
    pushing.proxy.clear()
    StoredWheels(pushing.registries, pushing.repository).keep(WHEEL, path)
    assert pushing.proxy.methods() == ["HEAD"]
