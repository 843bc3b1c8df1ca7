"""Which images a command needs of the registry, and what it says of those that are not there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.registry.support import Events, image, layer, machine
from tests.servers.memory_registry import MemoryRegistry
from training_imgtool.attest import cosign
from training_imgtool.core.errors import InputError, VerificationError
from training_imgtool.core.reference import Digest, Tag, parse_repository
from training_imgtool.pipeline.find import only_signed, require_images
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_MANIFEST


def test_only_the_wanted_images_are_required(tmp_path: Path) -> None:
    with MemoryRegistry() as server, Registries(machine(tmp_path)) as registries:
        repository = parse_repository(f"{server.host}/team/image")
        roles = [SimpleNamespace(role=role, tag=(tag := repository.tag(role)), registry_tag=tag) for role in ("a", "b")]
        digest = registries.at(repository).put_manifest(roles[0].tag, OCI_MANIFEST, image(layer(b"1")))
        inputs = cast("Any", SimpleNamespace(images=tuple(roles), spec_file=SimpleNamespace(path="image.yaml")))
        wanted = cast("Any", (roles[0],))
        found = require_images(inputs, registries, Events(), wanted)
        assert found == {"a": repository.digest(digest)}
        with pytest.raises(InputError, match=r"1 of 2 images .* are not in the registry: b") as caught:
            require_images(inputs, registries, Events())
        assert caught.value.details == (f"b: {repository.tag('b')}",)


def test_a_signature_is_checked_of_what_is_there_and_missing_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that nobody made has no signature to check, and is not named as unsigned."""
    repository = parse_repository("127.0.0.1:9/team/image")
    digests = {word: repository.digest("sha256:" + word[0] * 64) for word in ("a signed", "b unsigned")}
    checked: list[str] = []

    class Program:
        def check(self, digest: Digest, _: object) -> None:
            checked.append(digest.digest[7])
            if digest == digests["b unsigned"]:
                raise VerificationError(f"{digest} has no signature")

    monkeypatch.setattr(cosign, "find_cosign", lambda _: Program())
    monkeypatch.setattr(cosign, "find_signatory", lambda _: "somebody")
    unsigned: list[Tag] = []
    spec_file = cast("Any", SimpleNamespace(spec=SimpleNamespace(signature="cosign.pub")))
    answers = {repository.tag("a"): digests["a signed"], repository.tag("b"): digests["b unsigned"]}
    find = only_signed(answers.get, spec_file, cast("Any", None), Events(), unsigned)
    assert [find(repository.tag(name)) for name in "abc"] == [digests["a signed"], None, None]
    assert (checked, unsigned) == (["a", "b"], [repository.tag("b")])
