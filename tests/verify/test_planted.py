"""Faults that somebody with the right to push plants in images: `verify` ends with an error for every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.verify.planted.attached import Attached, attach_bundle, attached_faults
from tests.verify.planted.documents import document_faults
from tests.verify.planted.indexes import index_faults
from tests.verify.planted.layers import layer_faults
from tests.verify.planted.world import Forgery, World, open_world
from training_imgtool.oci.attest import cyclonedx
from training_imgtool.oci.registry.manifests import OCI_MANIFEST
from training_imgtool.verify.findings import Accepted

_SAMPLE = 12  # of each place, in `make test`
AMOUNTS = ["sample", pytest.param("all", marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An image without attestations: one that is missing would be named before anything else."""
    with open_world(tmp_path_factory.mktemp("plain")) as made:
        yield made


def _find_passing(world: World, faults: dict[str, Callable[[World], None]], amount: str) -> Iterable[str]:
    """The names of the faults that nobody notices."""
    names = list(faults)
    for name in names if amount == "all" else names[:: len(names) // _SAMPLE]:
        with world.undone():
            faults[name](world)
            if world.complaints() == "":
                yield name
    assert world.complaints() == ""


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("place", ["layers", "documents"])
def test_a_fault_of_the_image(plain: World, place: str, amount: str) -> None:
    def plant(world: World, name: str) -> None:
        forgery = Forgery(world)
        faults[name](forgery)
        forgery.put()

    faults = layer_faults() if place == "layers" else document_faults()
    planted = {name: lambda world, name=name: plant(world, name) for name in faults}
    assert list(_find_passing(plain, planted, amount)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", AMOUNTS)
def test_a_fault_of_the_index(tmp_path: Path, amount: str) -> None:
    with open_world(tmp_path, several=True) as world:
        assert list(_find_passing(world, index_faults(), amount)) == []


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("referrers", [False, True], ids=["tag", "api"])
def test_a_fault_of_what_is_attached(tmp_path: Path, amount: str, *, referrers: bool) -> None:
    def plant(world: World, name: str) -> None:
        attached = Attached(world)
        faults[name](attached)
        attached.write_list()

    with open_world(tmp_path, attested=True, referrers=referrers) as world:
        faults = attached_faults(by_tag=not referrers)
        planted = {name: lambda world, name=name: plant(world, name) for name in faults}
        assert list(_find_passing(world, planted, amount)) == []  # type: ignore[arg-type]
        with world.undone():
            attached = Attached(world)
            attach_bundle(attached)
            attached.write_list()
            assert world.complaints() == ""  # a signature of cosign 3
            attach_bundle(
                attached, lambda _, statement: statement.update(predicateType="https://slsa.dev/provenance/v1")
            )
            attached.write_list()
            assert "not proven: attached by others: " in world.complaints()
            assert world.complaints(frozenset({Accepted.ATTACHED})) == ""


def test_documents_of_another_version_are_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = cyclonedx.describe_variant

    def say_more(*args: Any) -> dict[str, Any]:
        bill = describe(*args)
        return bill | {"components": [*bill["components"], {"type": "library", "name": "pip"}]}

    with open_world(tmp_path, attested=True) as world:
        monkeypatch.setattr(cyclonedx, "describe_variant", say_more)
        assert "another bill of materials" in world.complaints()
        monkeypatch.setattr("training_imgtool.make.attach.FORMAT", "next")
        assert "not proven: written by another version of imgtool" in world.complaints()
        assert "another version" in world.complaints(frozenset({Accepted.ATTACHED}))  # everyone can write this word
        assert world.complaints(frozenset({Accepted.VERSION})) == ""


def test_cosigns_tag_names_the_provenance_and_no_other_document_of_ours(tmp_path: Path) -> None:
    with open_world(tmp_path, attested=True) as world:
        attached = Attached(world)
        digest = attached.own(cyclonedx.MEDIA_TYPE)[0]
        world.put_manifest(world.manifests[digest][1], OCI_MANIFEST, attached.att_tag)
        assert "under cosign's tag" in world.complaints(frozenset(Accepted))
