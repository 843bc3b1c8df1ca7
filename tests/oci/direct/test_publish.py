"""Pushing: every blob once, as few questions as possible, and no belief in what proved wrong."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial

import pytest

from tests.oci.direct.registry import Bench
from training_imgtool.base.errors import LocalFileError
from training_imgtool.base.progress import silent
from training_imgtool.oci.registry.failures import BlobUnknownError
from training_imgtool.oci.repository.publish import Publisher

pytestmark = pytest.mark.registry
SMALL, LARGE = b"small", b"large" * 300_000


@pytest.fixture
def publisher(pushing: Bench) -> Iterator[Publisher]:
    made = _publisher(pushing)
    yield made
    made.close()


def _publisher(bench: Bench) -> Publisher:
    bench.proxy.clear()
    return Publisher(bench.registries, bench.repository, silent, bench.cache)


def _push(bench: Bench, layer: bytes) -> list[str]:
    """Pushes as a process of its own does; the methods of its requests."""
    publisher = _publisher(bench)
    image = bench.image(layer)
    pushed = publisher.publish(image, bench.repository.tag("one"), "worker", bench.repository)
    publisher.close()
    assert bench.registries.at(bench.repository).head(pushed) == image.digest
    return bench.proxy.methods()[:-1]


def test_a_small_blob_is_asked_for_and_begun_in_one_request(pushing: Bench) -> None:
    assert sorted(_push(pushing, SMALL)) == ["POST", "POST", "PUT", "PUT", "PUT"]
    assert all("mount" in exchange.query for exchange in pushing.proxy.log if exchange.method == "POST")


def test_a_large_blob_is_asked_for_first(pushing: Bench) -> None:
    assert Counter(_push(pushing, LARGE)) == {"HEAD": 1, "POST": 2, "PUT": 3}


@pytest.mark.parametrize("named", [False, True])
def test_roles_side_by_side_send_what_they_share_once(pushing: Bench, publisher: Publisher, named: bool) -> None:
    """Also if a manifest of the repository names what is gone."""
    start = threading.Barrier(6)
    publisher.expect(layer.descriptor for layer in pushing.image(SMALL, LARGE).layers if named)
    pushing.proxy.delay = 0.02

    def role(number: int) -> None:
        image = pushing.image(SMALL, LARGE, config=b"%d" % number)
        start.wait()
        publisher.publish(image, pushing.repository.tag(f"role-{number}"), "role", pushing.repository)

    threads = [threading.Thread(target=role, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(pushing.opened) == sorted((LARGE[:20].decode(), SMALL.decode()))
    assert Counter(pushing.proxy.methods())["PUT"] == 2 + 6 + 6


def test_a_layer_is_under_way_before_the_image_is_known(pushing: Bench, publisher: Publisher) -> None:
    image = pushing.image(LARGE)
    publisher.send(image.layers[0], "early")
    publisher.publish(image, pushing.repository.tag("one"), "worker", pushing.repository)
    assert len(pushing.opened) == 1


def test_what_only_the_caller_can_mend_is_the_callers(pushing: Bench, publisher: Publisher) -> None:
    """Layers below, in the same repository, that are not there."""
    lost = pushing.layer(b"never pushed").descriptor
    image = pushing.image(SMALL, base=(lost,))
    with pytest.raises(BlobUnknownError) as caught:
        publisher.publish(image, pushing.repository.tag("one"), "worker", pushing.repository)
    assert caught.value.digests == (lost.digest,)
    assert pushing.opened in ([], [SMALL.decode()])  # the role's own layer goes up once at most


def test_a_layer_that_cannot_be_read_fails_the_image(pushing: Bench, publisher: Publisher) -> None:
    image = pushing.image(LARGE)

    def broken() -> Iterator[bytes]:
        raise LocalFileError("the disk is gone")

    object.__setattr__(image.layers[0], "open", broken)
    with pytest.raises(LocalFileError, match="the disk is gone"):
        publisher.publish(image, pushing.repository.tag("one"), "worker", pushing.repository)
    assert pushing.registries.at(pushing.repository).head(pushing.repository.tag("one")) is None


def test_whoever_waits_for_a_blob_that_nobody_sends_any_more_is_told(pushing: Bench, publisher: Publisher) -> None:
    image = pushing.image(*(b"%d" % number * 20 for number in range(40)))
    begun, goes_on = threading.Event(), threading.Event()

    def wait(read: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
        begun.set()
        goes_on.wait(20)
        yield from read()

    for layer in image.layers:
        object.__setattr__(layer, "open", partial(wait, layer.open))
    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(publisher.publish, image, pushing.repository.tag("one"), "worker", pushing.repository)
        assert begun.wait(20)
        publisher.close()
        goes_on.set()
        with pytest.raises((CancelledError, RuntimeError)):  # the latter while it still hands blobs over
            task.result(20)
