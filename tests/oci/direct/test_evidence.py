"""Exit 0 means that every blob is in the registry, whether the registry looks for it or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.oci.direct.registry import image_of
from tests.oci.registry.support import clients, machine
from tests.servers.memory_registry import MemoryRegistry, Refusal, like_distribution, like_ecr, with_code
from training_imgtool.base.errors import RegistryRefusedError, VerificationError
from training_imgtool.base.progress import silent
from training_imgtool.base.reference import Digest, Repository, parse_repository
from training_imgtool.oci.image.image import DirectImage
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.registry.failures import BlobUnknownError
from training_imgtool.oci.repository.publish import Publisher

LAYERS = tuple(b"layer %d" % number for number in range(5))
LAX: Refusal | None = None
REFUSALS = pytest.mark.parametrize("refusal", [LAX, like_distribution, like_ecr], ids=["lax", "distribution", "ECR"])


@dataclass
class World:
    """A registry, to which each push is a run of its own."""

    registry: MemoryRegistry
    folder: Path
    sent: tuple[LayerSource, ...] = ()  # layers that a manifest of the repository names
    repository: Repository = field(init=False)

    def __post_init__(self) -> None:
        self.repository = parse_repository(f"{self.registry.host}/team/demo")

    def push(self, *layers: bytes, tag: str = "one", base: DirectImage | None = None) -> Digest:
        """Pushes; what it says is there must be there."""
        self.registry.clear()
        publisher = Publisher(clients(machine(self.folder)), self.repository, silent, self.folder / "cache")
        publisher.expect(layer.descriptor for layer in self.sent)
        image = image_of(*layers, config=tag.encode(), base=base.layers if base else ())
        try:
            digest = publisher.publish(image, self.repository.tag(tag), "worker", self.repository)
        finally:
            publisher.close(wait=True)
        self.sent = image.layers
        assert self.registry.broken() == []
        return digest


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    with MemoryRegistry() as registry:

        def made(refusal: Refusal | None = LAX) -> World:
            registry.refusal = refusal
            return World(registry, tmp_path)

        yield made


@REFUSALS
def test_a_change_asks_once_for_each_blob_that_it_does_not_send(world: Callable[..., World], refusal: Refusal) -> None:
    here = world(refusal)
    here.push(*LAYERS)
    here.push(*LAYERS, b"changed", tag="two")
    assert here.registry.counted() == {
        "HEAD blobs": len(LAYERS),
        "POST blobs": 2,
        "PUT blobs": 2,
        "PUT manifests": 1,
    }


@REFUSALS
@pytest.mark.parametrize("lost", [2, None], ids=["a layer", "everything"])
def test_what_a_registry_lost_is_sent(world: Callable[..., World], refusal: Refusal, lost: int | None) -> None:
    here = world(refusal)
    here.push(*LAYERS)
    if lost is None:
        here.registry.wipe()
    else:
        here.registry.lose(image_of(*LAYERS).layers[lost].descriptor.digest)
    here.push(*LAYERS, b"changed", tag="two")


@REFUSALS
def test_a_registry_that_promises_blobs_that_it_lacks(world: Callable[..., World], refusal: Refusal) -> None:
    here = world(refusal)
    here.push(b"first", tag="first")
    here.registry.promises = True
    here.push(*LAYERS)


def test_a_damaged_blob_is_sent_again_or_named(world: Callable[..., World]) -> None:
    here = world()
    here.push(*LAYERS)
    damaged = image_of(*LAYERS).layers[2].descriptor.digest
    blobs = here.registry.blobs["team/demo"]
    blobs[damaged] = b"lay"
    here.push(*LAYERS)
    assert blobs[damaged] == LAYERS[2]
    blobs[damaged] = b""
    here.registry.keeps = True
    with pytest.raises(VerificationError, match=r"still has a damaged copy: .* the registry sent 0 bytes"):
        here.push(*LAYERS, b"changed", tag="two")


def test_a_blob_that_goes_after_the_question_is_sent(world: Callable[..., World]) -> None:
    here = world(like_distribution)
    here.push(*LAYERS)
    lost = [image_of(*LAYERS).layers[2].descriptor.digest]

    def find_missing(path: str, body: bytes) -> list[str]:
        while lost:
            here.registry.lose(lost.pop())
        return MemoryRegistry._missing(here.registry, path, body)

    here.registry._missing = find_missing  # type: ignore[method-assign]
    here.push(*LAYERS, b"changed", tag="two")
    assert here.registry.counted()["PUT manifests"] == 2  # refused, and taken


def test_a_refusal_of_what_was_sent_is_final(world: Callable[..., World]) -> None:
    here = world(with_code("MANIFEST_INVALID"))
    lost = image_of(b"never pushed")
    with pytest.raises(BlobUnknownError) as caught:
        here.push(b"own", base=lost)
    assert caught.value.digests == (lost.layers[0].descriptor.digest,)
    here.registry._missing = lambda *_: ["x"]  # type: ignore[method-assign] # refuses whatever comes
    with pytest.raises(RegistryRefusedError, match="MANIFEST_INVALID"):
        here.push(b"own")
    assert here.registry.counted()["PUT manifests"] == 1
