"""Exit 0 means that every blob is in the registry, whether the registry looks for it or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.direct.registry import image_of
from tests.registry.support import clients, machine
from tests.servers.memory_registry import MemoryRegistry, Refusal, like_distribution, like_ecr, with_code
from training_imgtool.core.errors import RegistryRefusedError, VerificationError
from training_imgtool.core.progress import silent
from training_imgtool.core.reference import Digest, Repository, parse_repository
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.direct.registry.state import RepositoryState
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.failures import BlobUnknownError

LAYERS = tuple(b"layer %d" % number for number in range(5))
LAX: Refusal | None = None
ONLY_THE_FIRST: Refusal = lambda missing: like_distribution(missing[:1])  # noqa: E731


@dataclass
class World:
    """A registry, and machines of which each call of `process` is a new run."""

    registry: MemoryRegistry
    folder: Path
    use_cache: bool = True
    machine: str = "one"
    sent: tuple[LayerSource, ...] = ()  # layers that a manifest of the repository names
    repository: Repository = field(init=False)
    registries: Registries = field(init=False)

    def __post_init__(self) -> None:
        self.repository = parse_repository(f"{self.registry.host}/team/demo")

    def state(self) -> RepositoryState:
        self.registry.clear()
        self.registries = clients(machine(self.folder))
        return RepositoryState(self.registries, self.repository, self.folder / self.machine, use_cache=self.use_cache)

    def push(self, *layers: bytes, tag: str = "one", base: DirectImage | None = None) -> Digest:
        """Pushes in a run of its own; what it says is there must be there."""
        state = self.state()
        publisher = Publisher(self.registries, state, silent)
        publisher.expect(layer.descriptor for layer in self.sent if self.use_cache)
        image = image_of(*layers, config=tag.encode(), base=base.layers if base else ())
        try:
            digest = publisher.publish(image, self.repository.tag(tag), "worker", self.repository)
        finally:
            publisher.close(wait=True)
        self.sent = image.layers
        assert self.registry.broken() == []
        return digest

    def find(self, tag: str = "one") -> Digest | None:
        return self.state().find(self.repository.tag(tag))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    with MemoryRegistry() as registry:

        def made(refusal: Refusal | None) -> World:
            registry.refusal = refusal
            return World(registry, tmp_path)

        yield made


@pytest.mark.parametrize(
    ("refusal", "heads"),
    [(like_distribution, 0), (like_ecr, 0), (LAX, 5), (ONLY_THE_FIRST, 5), (with_code("MANIFEST_INVALID"), 5)],
    ids=["distribution", "ECR", "accepts anything", "names one blob", "another code"],
)
def test_a_change_asks_for_the_other_blobs_only_where_the_registry_does_not(
    world: Callable[..., World], refusal: Refusal, heads: int
) -> None:
    here = world(refusal)
    here.push(*LAYERS)
    here.push(*LAYERS, b"changed", tag="two")
    counted = here.registry.counted()
    assert counted == {"POST blobs": 2, "PUT blobs": 2, "PUT manifests": 1} | ({"HEAD blobs": heads} if heads else {})
    here.find("two")
    expected = {"HEAD manifests": 1, "GET manifests": 1} | ({"HEAD blobs": 7} if heads else {})
    assert here.registry.counted() == expected


def test_no_answer_to_the_trial_means_no(world: Callable[..., World]) -> None:
    """As where the login may not put a manifest that no tag names: every blob is asked for."""
    here = world(with_code("DENIED", 403))
    here.push(*LAYERS)
    here.push(*LAYERS, b"changed", tag="two")
    assert here.registry.counted()["HEAD blobs"] == len(LAYERS)
    here.find("two")
    assert here.registry.counted()["HEAD blobs"] == len(LAYERS) + 2


@pytest.mark.parametrize("refusal", [LAX, like_distribution, like_ecr], ids=["lax", "distribution", "ECR"])
def test_a_registry_that_lost_everything(world: Callable[..., World], refusal: Refusal) -> None:
    here = world(refusal)
    here.push(*LAYERS)
    here.registry.wipe()
    assert here.find() is None
    here.push(*LAYERS)
    assert here.find() is not None


@pytest.mark.parametrize("refusal", [LAX, like_distribution, like_ecr], ids=["lax", "distribution", "ECR"])
def test_a_registry_that_lost_a_layer(world: Callable[..., World], refusal: Refusal) -> None:
    here = world(refusal)
    here.push(*LAYERS)
    here.registry.lose(image_of(*LAYERS).layers[2].descriptor.digest)
    here.push(*LAYERS, b"changed", tag="two")


@pytest.mark.parametrize("refusal", [LAX, like_distribution], ids=["lax", "distribution"])
def test_a_registry_that_promises_blobs_that_it_lacks(world: Callable[..., World], refusal: Refusal) -> None:
    here = world(refusal)
    here.push(b"first", tag="first")
    here.registry.promises = True
    here.push(*LAYERS)


def test_a_damaged_blob_is_sent_again_or_named(world: Callable[..., World]) -> None:
    here = world(LAX)
    here.push(*LAYERS)
    damaged = image_of(*LAYERS).layers[2].descriptor.digest
    blobs = here.registry.blobs["team/demo"]
    blobs[damaged] = b"lay"
    assert here.find() is None
    here.push(*LAYERS)
    assert blobs[damaged] == LAYERS[2]
    blobs[damaged] = b""
    here.registry.keeps = True
    with pytest.raises(VerificationError, match=r"keeps the damaged blob that it has: .* the registry sent 0 bytes"):
        here.push(*LAYERS, b"changed", tag="two")


def test_without_the_cache_a_damaged_blob_is_named_by_a_registry_that_checks(world: Callable[..., World]) -> None:
    here = world(like_distribution)
    here.push(*LAYERS)
    here.registry.blobs["team/demo"][image_of(*LAYERS).layers[2].descriptor.digest] = b"lay"
    here.registry.keeps = True
    here.use_cache = False
    with pytest.raises(VerificationError, match="keeps the damaged blob that it has"):
        here.push(*LAYERS)


def test_an_image_whose_layer_is_gone_is_not_found(world: Callable[..., World]) -> None:
    here = world(LAX)
    here.push(*LAYERS)
    here.registry.lose(image_of(*LAYERS).layers[2].descriptor.digest)
    assert here.find() is None
    here.push(*LAYERS)
    assert here.find() is not None


@pytest.mark.parametrize("status", [400, 404, 422])
@pytest.mark.parametrize("code", ["BLOB_UPLOAD_UNKNOWN", "LAYERS_NOT_FOUND", "MANIFEST_INVALID", "MANIFEST_UNKNOWN"])
def test_any_refusal_of_assumed_blobs_sends_them(world: Callable[..., World], code: str, status: int) -> None:
    here = world(with_code(code, status))
    here.push(*LAYERS)
    here.registry.lose(image_of(*LAYERS).layers[0].descriptor.digest)
    here.push(*LAYERS, b"changed", tag="two")
    assert here.registry.counted()["PUT manifests"] == 2  # refused, and taken


def test_a_refusal_of_what_was_sent_is_final(world: Callable[..., World]) -> None:
    here = world(LAX)
    here.registry.refusal = with_code("MANIFEST_INVALID")
    lost = image_of(b"never pushed")
    with pytest.raises(BlobUnknownError) as caught:
        here.push(b"own", base=lost)
    assert caught.value.digests == (lost.layers[0].descriptor.digest,)
    here.registry._missing = lambda *_: ["x"]  # type: ignore[method-assign] # refuses whatever comes
    with pytest.raises(RegistryRefusedError, match="MANIFEST_INVALID"):
        here.push(b"own")
    assert here.registry.counted()["PUT manifests"] == 1


def test_the_trial_leaves_nothing_and_is_made_once_per_version(world: Callable[..., World]) -> None:
    here = world(LAX)
    here.push(b"one")
    assert min(here.registry.manifests["team/demo"]) == "one"
    assert len(here.registry.manifests["team/demo"]) == 2  # the tag and its digest
    assert here.registry.counted()["PUT manifests"] == 2
    here.push(b"two", tag="two")
    assert here.registry.counted()["PUT manifests"] == 1
    here.registry.software = "tests/2"
    here.push(b"three", tag="three")
    assert here.registry.counted()["PUT manifests"] == 2  # the answer of the version before tells nothing
    here.push(b"four", tag="four")
    assert here.registry.counted()["PUT manifests"] == 1
    here.machine = "another"
    here.push(b"five", tag="five")
    assert here.registry.counted()["PUT manifests"] == 2


def test_a_registry_that_no_longer_checks_is_not_believed_after_its_update(world: Callable[..., World]) -> None:
    here = world(like_distribution)
    here.push(*LAYERS)
    here.registry.refusal, here.registry.software = LAX, "tests/2"
    here.registry.lose(image_of(*LAYERS).layers[2].descriptor.digest)
    assert here.find() is None
    here.push(*LAYERS, b"changed", tag="two")


@pytest.mark.parametrize("refusal", [LAX, like_distribution, like_ecr], ids=["lax", "distribution", "ECR"])
def test_finding_an_image_writes_nothing(world: Callable[..., World], refusal: Refusal) -> None:
    here = world(refusal)
    here.push(*LAYERS)
    here.machine = "another that has seen nothing"
    for _ in range(2):
        assert here.find() is not None
        assert here.registry.counted() == {"HEAD manifests": 1, "GET manifests": 1, "HEAD blobs": 6}


def test_a_registry_that_deletes_nothing_has_one_untagged_manifest_more(world: Callable[..., World]) -> None:
    here = world(LAX)
    here.registry.deletes = False
    for name in ("one", "two", "three"):
        here.machine = name
        evidence = here.state()
        here.registry.manifests.setdefault("team/demo", {})
        assert evidence.registry_checks() is False
    assert [name[:7] for name in here.registry.manifests["team/demo"]] == ["sha256:"]


def test_without_the_cache_every_blob_is_asked_for(world: Callable[..., World]) -> None:
    here = world(like_distribution)
    here.push(*LAYERS)
    here.use_cache = False
    here.push(*LAYERS)
    assert here.registry.counted()["POST blobs"] == 6  # each asks and would begin an upload
    assert here.registry.counted()["PUT blobs"] == 0
