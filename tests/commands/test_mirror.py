"""`imgtool mirror`: the copies of a lock's bases and wheels, in a real registry and a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests import plans
from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.registry.support import clients, config, image, layer, machine
from tests.servers.registry_process import run_registry
from training_imgtool.commands.mirror import check_target, mirror_bases, mirror_setting, mirror_wheels
from training_imgtool.core.errors import UsageError, VerificationError
from training_imgtool.core.progress import silent
from training_imgtool.core.reference import parse_repository
from training_imgtool.pipeline.current_lock import digest_of
from training_imgtool.plan import Lock
from training_imgtool.registry.manifests import OCI_MANIFEST
from training_imgtool.wheels.store import WheelStore

pytestmark = pytest.mark.registry
CONTENT = b"a layer of a base"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The registry that stands for Docker Hub, and the user's own."""
    with run_registry(tmp_path / "hub") as hub, run_registry(tmp_path / "own") as own:
        yield hub.host, own.host


def _lock(digest: str) -> Lock:
    variants = (replace(plans.locked(base="python:3.11-slim-bookworm"), base_digest=digest),)
    return Lock(inputs="", platform="linux/amd64", variants=variants)


def test_a_base_is_copied_by_digest_and_found_through_the_mirror(hosts: tuple[str, str], tmp_path: Path) -> None:
    hub, own = hosts
    settings = machine(tmp_path, IMGTOOL_MIRRORS=f"docker.io={hub}")
    source = parse_repository(f"{hub}/library/python")
    body = image(layer(CONTENT))
    with clients(settings) as registries:
        registry = registries.at(source)
        registry.upload(source, layer(CONTENT), lambda: iter((CONTENT,)))
        registry.upload(source, config(), lambda: iter((b"{}",)))
        digest = registry.put_manifest(source.tag("3.11-slim-bookworm"), OCI_MANIFEST, body)
        bases = mirror_bases(_lock(digest), settings, f"{own}/mirror", silent)
        (copy,) = (base.copy for base in bases)
        assert str(copy) == f"{own}/mirror/library/python@{digest}"
        assert registries.at(copy.repository).head(copy.repository.tag("3.11-slim-bookworm")) == digest
        assert b"".join(registries.at(copy.repository).blob(copy.repository, layer(CONTENT))) == CONTENT
    assert mirror_setting(bases, f"{own}/mirror") == f"docker.io={own}/mirror"
    with clients(machine(tmp_path, IMGTOOL_MIRRORS=mirror_setting(bases, f"{own}/mirror"))) as registries:
        assert registries.source(parse_repository("docker.io/library/python")) == copy.repository


def test_the_tag_of_a_copy_names_every_platform(hosts: tuple[str, str], tmp_path: Path) -> None:
    """A spec of two platforms has a lock for each; whichever was copied last, both are found by the tag."""
    hub, own = hosts
    settings = machine(tmp_path, IMGTOOL_MIRRORS=f"docker.io={hub}")
    source = parse_repository(f"{hub}/library/python")
    digests = {}
    with clients(settings) as registries:
        registry = registries.at(source)
        registry.upload(source, layer(CONTENT), lambda: iter((CONTENT,)))
        for platform in ("linux/amd64", "linux/arm64"):
            content = json.dumps(dict(zip(("os", "architecture"), platform.split("/"), strict=True))).encode()
            registry.upload(source, config(content), partial(iter, (content,)))
            body = image(layer(CONTENT), config_content=content)
            digests[platform] = registry.put_manifest(source.tag("here"), OCI_MANIFEST, body)
    for platform in (*digests, *digests):
        mirror_bases(replace(_lock(digests[platform]), platform=platform), settings, own, silent)
    with clients(machine(tmp_path, IMGTOOL_MIRRORS=f"docker.io={own}")) as registries:
        base = "python:3.11-slim-bookworm"
        assert {platform: digest_of(base, platform, registries) for platform in digests} == digests
        tag = registries.source(parse_repository("docker.io/library/python")).tag("3.11-slim-bookworm")
        assert len(registries.at(tag.repository).manifest(tag).document["manifests"]) == 2


def test_wheels_lie_in_the_folder_under_their_names(tmp_path: Path) -> None:
    wheel = plans.wheel("numpy", "1.26.4", data=b"the wheel")
    index = tmp_path / "index"
    index.mkdir()
    (index / wheel.file).write_bytes(b"the wheel")
    installer = plans.wheel("pip", "24.3.1", data=b"pip")
    (index / installer.file).write_bytes(b"pip")
    locked = replace(plans.locked(wheels=(wheel,)), installer=installer)
    lock = Lock(inputs="", platform="linux/amd64", variants=(locked,))
    settings = machine(tmp_path, UV_FIND_LINKS=str(index), UV_DEFAULT_INDEX=f"file://{tmp_path}/none")
    own = tmp_path / "own"
    own.mkdir()
    copied = mirror_wheels(lock, own, WheelStore(settings), silent)
    assert copied == (wheel.file, installer.file)
    assert {path.name: path.read_bytes() for path in own.iterdir()} == {
        wheel.file: b"the wheel",
        installer.file: b"pip",
    }
    (index / wheel.file).write_bytes(b"not that!")
    other = machine(tmp_path / "other", UV_FIND_LINKS=str(index), UV_DEFAULT_INDEX=f"file://{tmp_path}/none")
    (tmp_path / "own2").mkdir()
    with pytest.raises(VerificationError):
        mirror_wheels(lock, tmp_path / "own2", WheelStore(other), silent)


def test_wheels_come_from_where_a_build_takes_them(tmp_path: Path) -> None:
    """Such as a folder that the spec's requirements name, from whatever folder imgtool runs in."""
    wheels = Wheels(tmp_path / "project/vendor")
    (tmp_path / "project/requirements.txt").write_text("--find-links vendor\n")
    project = Project(tmp_path / "project", wheels, make_base(), more="requirements: requirements.txt\n")
    out, err = Machine(tmp_path / "machine", "127.0.0.1:9/team", "127.0.0.1:9").run(
        "mirror", "--locked", "--wheels", "own", project.folder, cwd=tmp_path
    )
    assert out == ""
    assert {path.name for path in (tmp_path / "own").iterdir()} == {path.name for path in wheels.folder.iterdir()}
    assert f"UV_FIND_LINKS={tmp_path}/own finds the 3 wheels there" in err


@pytest.mark.parametrize("text", ["", "UPPER CASE", "host/a//b"])
def test_a_target_that_no_registry_has(text: str) -> None:
    with pytest.raises(UsageError, match="--to"):
        check_target(text)
