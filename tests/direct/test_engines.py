"""A push by an engine is done when the registry answers for the image, whatever the engine says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from tests.direct.registry import Bench
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.progress import silent
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.engines.docker.engine import DockerEngine
from training_imgtool.pipeline.engine.engines import push_tag

pytestmark = pytest.mark.registry
OTHER = "sha256:" + "ab" * 32


@dataclass
class _Engine:
    """Pushes an image of the bench and says `named`."""

    bench: Bench
    named: str | None = None

    def push(self, tag: Tag, *_: Any, **__: Any) -> str | None:
        _publish(self.bench, self.bench.image(b"layer"), tag)
        return self.named


def _publish(bench: Bench, image: DirectImage, tag: Tag) -> None:
    publisher = Publisher(bench.registries, bench.repository, silent)
    publisher.publish(image, tag, "worker", bench.repository)
    publisher.close()


def _pushed(bench: Bench, image_id: str, named: str | None = None) -> Digest:
    engine = cast("DockerEngine", _Engine(bench, named))
    return push_tag(engine, image_id, bench.repository.tag("one"), bench.registries, silent, subject="worker")


@pytest.mark.parametrize("named", [None, OTHER])
def test_the_tag_names_the_image_whatever_the_engine_says(pushing: Bench, named: str | None) -> None:
    image = pushing.image(b"layer")
    assert _pushed(pushing, image.config_descriptor.digest, named).digest == image.digest


def test_an_image_id_that_is_the_manifests_digest(pushing: Bench) -> None:
    """As with Docker's containerd image store."""
    image = pushing.image(b"layer")
    assert _pushed(pushing, image.digest).digest == image.digest


@pytest.mark.parametrize("by", ["name", "ID"])
def test_the_tag_moved_and_the_image_is_there(pushing: Bench, by: str) -> None:
    other = pushing.image(b"other", config=b'{"a": 1}')
    _publish(pushing, other, pushing.repository.tag("two"))
    image_id, named = (other.config_descriptor.digest, other.digest) if by == "name" else (other.digest, None)
    assert _pushed(pushing, image_id, named).digest == other.digest


@pytest.mark.parametrize("named", [None, OTHER])
def test_the_tag_names_another_image(pushing: Bench, named: str | None) -> None:
    with pytest.raises(VerificationError, match="the registry has another image there"):
        _pushed(pushing, OTHER, named)


def test_nothing_is_there(pushing: Bench) -> None:
    class Lying(_Engine):
        def push(self, *_: Any, **__: Any) -> str | None:
            return self.named

    image = pushing.image(b"layer")
    engine = cast("DockerEngine", Lying(pushing, image.digest))
    with pytest.raises(VerificationError, match="does not have the image"):
        push_tag(engine, image.digest, pushing.repository.tag("none"), pushing.registries, silent, subject="worker")
