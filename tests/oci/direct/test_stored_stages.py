"""Stages and bases in a registry and on disk: one request at most, and nothing believed that is not whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oci.direct.registry import Bench, image_of
from training_imgtool.base.errors import RegistryRefusedError, VerificationError
from training_imgtool.base.json_cache import make_file_name, read_cached, write_cached
from training_imgtool.base.progress import silent
from training_imgtool.base.reference import Tag, parse_repository
from training_imgtool.oci.repository.publish import Publisher
from training_imgtool.oci.repository.stored_stages import (
    StoredStages,
    as_stage,
    make_stored,
    tag_of_stage,
)

pytestmark = pytest.mark.registry


def _tag(bench: Bench) -> Tag:
    return tag_of_stage(bench.repository, "packages", "0123456789abcdef" * 4)


def _file(bench: Bench) -> Path:
    return bench.cache / "stages" / make_file_name(str(_tag(bench)))


def _push(bench: Bench, *, inline: bool) -> Tag:
    image = bench.image(b"layer", config=b'{"os": "linux", "architecture": "amd64"}')
    publisher = Publisher(bench.registries, bench.repository, silent, bench.cache)
    publisher.publish(as_stage(image, {}) if inline else image, _tag(bench), "packages", bench.repository)
    publisher.close()
    bench.proxy.clear()
    return _tag(bench)


def test_a_stage_is_named_by_its_key() -> None:
    tag = tag_of_stage(parse_repository("example.com/team/one"), "packages", "0123456789abcdef" * 4)
    assert str(tag) == "example.com/team/one:packages-0123456789abcdef0123456789abcdef"


def test_a_stage_has_the_same_digest_in_each_release() -> None:
    """Else a new release puts every stage again, and two that run beside each other put theirs in turns."""
    stage = as_stage(image_of(b"layer", config=b'{"os": "linux"}'), {"note": "é"})
    assert stage.digest == "sha256:67a2094f4b441b47331856b84f136c446fc9fd0806301cf4df466254b9b4ec1a"


@pytest.mark.parametrize(("inline", "requests"), [(True, 1), (False, 2)])
def test_a_stage_is_one_request_of_each_run_because_others_can_move_its_tag(
    pushing: Bench, inline: bool, requests: int
) -> None:
    tag = _push(pushing, inline=inline)
    for expected in (requests, requests):
        pushing.proxy.clear()
        stage = StoredStages(pushing.registries, pushing.cache).stage(tag)
        assert stage is not None
        assert json.loads(stage.config)["os"] == "linux"
        assert [layer.size for layer in stage.manifest.layers] == [5]
        assert pushing.proxy.methods() == ["GET"] * expected


def test_no_such_stage(pushing: Bench) -> None:
    assert StoredStages(pushing.registries, pushing.cache).stage(_tag(pushing)) is None
    assert not _file(pushing).exists()


def test_what_was_just_pushed_is_not_asked_for_until_it_is_forgotten(pushing: Bench) -> None:
    stages = StoredStages(pushing.registries, pushing.cache)
    stored = make_stored(as_stage(pushing.image(b"layer"), {}), pushing.repository)
    stages.keep(_tag(pushing), stored)
    assert stages.stage(_tag(pushing)) == stored
    assert pushing.proxy.log == []
    stages.forget(_tag(pushing))
    assert stages.stage(_tag(pushing)) is None
    stages.forget(_tag(pushing))


def test_a_config_is_never_believed_against_its_manifest(pushing: Bench) -> None:
    stored = make_stored(as_stage(pushing.image(b"layer"), {}), pushing.repository)
    with pytest.raises(VerificationError, match="the manifest names another config"):
        StoredStages(pushing.registries, pushing.cache).keep(_tag(pushing), replace(stored, config=b"[]"))


def test_inline_data_that_is_not_the_config_is_left(pushing: Bench) -> None:
    image = pushing.image(b"layer", config=b'{"os": "linux", "architecture": "amd64"}')
    lying = as_stage(replace(image, config=b"evil"), {})
    publisher = Publisher(pushing.registries, pushing.repository, silent, pushing.cache)
    publisher.publish(replace(lying, config=image.config), _tag(pushing), "packages", pushing.repository)
    publisher.close()
    stage = StoredStages(pushing.registries, pushing.cache).stage(_tag(pushing))
    assert stage is not None
    assert stage.config == image.config


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _changed(path: Path) -> None:
    write_cached(path, {**read_cached(path), "config": "e30="})


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_cut, _changed, _emptied])
def test_a_damaged_file_is_asked_for_again(pushing: Bench, harm: object) -> None:
    tag = _push(pushing, inline=True)
    whole = StoredStages(pushing.registries, pushing.cache).stage(tag)
    assert whole is not None
    StoredStages(pushing.registries, pushing.cache).keep(tag, whole)
    harm(_file(pushing))  # type: ignore[operator]
    pushing.proxy.clear()
    assert StoredStages(pushing.registries, pushing.cache).stage(tag) == whole
    assert pushing.proxy.methods() == ["GET"]


def test_a_base_is_read_once(pushing: Bench) -> None:
    tag = _push(pushing, inline=False)
    digest = pushing.repository.digest(pushing.registries.at(pushing.repository).head(tag) or "")
    pushing.proxy.clear()
    stages = StoredStages(pushing.registries, pushing.cache)
    assert stages.base(digest, "linux/amd64") == stages.base(digest, "linux/amd64")
    assert pushing.proxy.methods() == ["GET", "GET"]
    with pytest.raises(RegistryRefusedError, match="the registry does not have it") as caught:
        stages.base(pushing.repository.digest(f"sha256:{'0' * 64}"), "linux/amd64")
    assert "`imgtool lock --upgrade` to lock the image" in (caught.value.hint or "")
