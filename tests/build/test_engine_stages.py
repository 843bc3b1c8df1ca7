"""A push by an engine is done when the registry answers for the image, whatever the engine says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from tests.direct.registry import Bench
from training_imgtool.build.engine_stages import push_tag
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.progress import silent
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.direct.registry.evidence import Evidence
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.engines import Engine

pytestmark = pytest.mark.registry
OTHER = "sha256:" + "ab" * 32


@dataclass
class _Engine:
    """Pushes an image of the bench and says `named`."""

    bench: Bench
    named: str | None = None

    def push(self, tag: Tag, *_: Any, **__: Any) -> str | None:
        evidence = Evidence(self.bench.registries, self.bench.repository, self.bench.cache)
        publisher = Publisher(self.bench.registries, evidence, silent)
        publisher.publish(self.bench.image(b"layer"), tag, "worker", self.bench.repository)
        publisher.close()
        return self.named


def _pushed(bench: Bench, image_id: str, named: str | None = None) -> Digest:
    engine = cast("Engine", _Engine(bench, named))
    return push_tag(engine, image_id, bench.repository.tag("one"), bench.registries, silent, subject="worker")


def test_an_engine_that_names_no_digest(pushing: Bench) -> None:
    image = pushing.image(b"layer")
    assert _pushed(pushing, image.config_descriptor.digest).digest == image.digest


def test_the_tag_names_another_image(pushing: Bench) -> None:
    with pytest.raises(VerificationError, match=r"not the image sha256:ab.* that was pushed"):
        _pushed(pushing, OTHER)


def test_a_digest_that_the_registry_does_not_have(pushing: Bench) -> None:
    with pytest.raises(VerificationError, match="does not have the image"):
        _pushed(pushing, pushing.image(b"layer").config_descriptor.digest, named=OTHER)
