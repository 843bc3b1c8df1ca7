"""`imgtool mirror`: the copies of a lock's bases and wheels, in a real registry and a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import plans
from tests.registry.support import clients, config, image, layer, machine
from tests.servers.registry_process import run_registry
from training_imgtool.commands.mirror import checked_target, mirror_bases, mirror_setting, mirror_wheels
from training_imgtool.core.errors import UsageError, VerificationError
from training_imgtool.core.progress import silent
from training_imgtool.core.reference import parse_repository
from training_imgtool.plan import Lock
from training_imgtool.registry.manifests import OCI_MANIFEST

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
    copied = mirror_wheels(lock, tmp_path / "own", settings, silent)
    assert {file.file: file.sha256 for file in copied} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "own").iterdir()
    }
    (index / wheel.file).write_bytes(b"not that!")
    other = machine(tmp_path / "other", UV_FIND_LINKS=str(index), UV_DEFAULT_INDEX=f"file://{tmp_path}/none")
    with pytest.raises(VerificationError):
        mirror_wheels(lock, tmp_path / "own2", other, silent)


@pytest.mark.parametrize("text", ["", "UPPER CASE", "host/a//b"])
def test_a_target_that_no_registry_has(text: str) -> None:
    with pytest.raises(UsageError, match="--to"):
        checked_target(text)
