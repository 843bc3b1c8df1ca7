"""Which dialect a host speaks, and what follows from it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.oci.registry.support import Events, config, image, layer, machine, quick_retry
from tests.servers.memory_registry import SERVER_DIALECTS, MemoryRegistry
from training_imgtool.base.http.client import Answer
from training_imgtool.base.reference import Repository, parse_repository
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.dialects import DIALECTS, STANDARD, Dialect, find_dialect
from training_imgtool.oci.registry.failures import RepositoryMissingError, make_error
from training_imgtool.oci.registry.manifests import OCI_MANIFEST
from training_imgtool.oci.registry.session import find_origin


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("docker.io", "docker-hub"),
        ("us-docker.pkg.dev", "google"),
        ("europe-west1-docker.pkg.dev", "google"),
        ("gcr.io", "google"),
        ("eu.gcr.io", "google"),
        ("evilgcr.io", "standard"),
        ("us-docker.pkg.dev.evil.com", "standard"),
        ("gcr.io:443", "standard"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "ecr"),
        ("public.ecr.aws", "ecr-public"),
        ("ghcr.io", "github"),
        ("ghcr.io.example.com", "standard"),
        ("team.azurecr.io", "azure"),
        ("azurecr.io", "standard"),
        ("127.0.0.1:5000", "standard"),
    ],
)
def test_who_speaks_what(host: str, name: str) -> None:
    assert find_dialect(host).name == name


def test_docker_hub_answers_elsewhere() -> None:
    assert find_origin("docker.io", find_dialect("docker.io"), ()).url == "https://registry-1.docker.io:443"
    assert find_origin("ghcr.io", find_dialect("ghcr.io"), ()).url == "https://ghcr.io:443"


ALL = pytest.mark.parametrize("dialect", [STANDARD, *DIALECTS], ids=lambda dialect: dialect.name)
CONTENT = b"content"


@dataclass
class World:
    """A registry in memory that speaks a dialect, and clients with a login that believe its hosts speak it."""

    server: MemoryRegistry
    registries: Registries

    def push(self, repository: Repository) -> str:
        """Pushes an image of one layer."""
        registry = self.registries.at(repository)
        registry.upload(repository, layer(CONTENT), lambda: iter((CONTENT,)))
        registry.upload(repository, config(), lambda: iter((b"{}",)))
        return registry.put_manifest(repository.tag("one"), OCI_MANIFEST, image(layer(CONTENT)))


@contextmanager
def speaking(dialect: Dialect, folder: Path) -> Iterator[World]:
    settings = machine(folder, DOCKER_CONFIG=str(folder))
    with MemoryRegistry(dialect=dialect.name) as server:
        hosts = (server.host, server.host.replace("127.0.0.1", "localhost"))
        login = {"auth": base64.b64encode(b"ann:pw").decode()}
        (folder / "config.json").write_text(json.dumps({"auths": dict.fromkeys(hosts, login)}))
        here = replace(dialect, hosts=hosts, api_host=None)
        with Registries(settings, Events(), retry=quick_retry(), dialects=(here,)) as registries:
            yield World(server, registries)


def test_the_test_server_speaks_every_dialect() -> None:
    assert set(SERVER_DIALECTS) == {dialect.name for dialect in (STANDARD, *DIALECTS)}


@ALL
def test_an_image_is_pushed_and_read(dialect: Dialect, tmp_path: Path) -> None:
    with speaking(dialect, tmp_path) as world:
        repository = parse_repository(f"{world.server.host}/team/demo")
        world.server.blobs["team/demo"] = {}
        digest = world.push(repository)
        assert world.registries.at(repository).manifest(repository.tag("one")).digest == digest
        unasked = [
            asked for asked in world.server.requests if asked.headers.get("authorization", "").startswith("Basic ")
        ]
        if dialect.asks_first:
            assert [asked.target.partition("?")[0] for asked in unasked] == ["/token"]


@pytest.mark.parametrize("name", [name for name, here in SERVER_DIALECTS.items() if here.unasked])
def test_a_registry_that_asks_first_is_found_out_where_no_row_names_it(name: str, tmp_path: Path) -> None:
    """One request more than with the row: the login that nobody asked for."""
    dialect = next(row for row in DIALECTS if row.name == name)
    with speaking(replace(dialect, asks_first=False), tmp_path) as world:
        repository = parse_repository(f"{world.server.host}/team/demo")
        assert world.registries.at(repository).head(repository.tag("one")) is None
        sent = [asked.headers.get("authorization", "none").partition(" ")[0] for asked in world.server.requests]
        assert sent == ["Basic", "none", "Basic", "Bearer"]


@ALL
def test_a_mount_from_another_host_saves_the_content(dialect: Dialect, tmp_path: Path) -> None:
    with speaking(dialect, tmp_path) as world:
        source = parse_repository(f"{world.server.host.replace('127.0.0.1', 'localhost')}/team/base")
        target = parse_repository(f"{world.server.host}/team/demo")
        world.server.blobs |= {"team/base": {}, "team/demo": {}}
        world.push(source)
        world.server.clear()
        world.registries.copy_blob(source, layer(CONTENT), target)
        sent = [asked.method for asked in world.server.requests if asked.body == CONTENT]
        assert sent == ([] if dialect.mounts_between_hosts else ["PUT"])
        assert world.server.blobs["team/demo"] == {layer(CONTENT).digest: CONTENT}


@ALL
def test_a_repository_that_is_not_there(dialect: Dialect, tmp_path: Path) -> None:
    with speaking(dialect, tmp_path) as world:
        repository = parse_repository(f"{world.server.host}/team/new")
        if SERVER_DIALECTS[dialect.name].creates_repositories:
            assert world.push(repository)
            return
        with pytest.raises(RepositoryMissingError) as caught:
            world.push(repository)
        assert caught.value.hint == dialect.missing_hint.format(host=world.server.host)


@pytest.mark.parametrize(
    ("host", "command"),
    [
        ("eu.gcr.io", "gcloud auth configure-docker eu.gcr.io"),
        ("1.dkr.ecr.eu-west-1.amazonaws.com", "aws ecr get-login-password"),
        ("team.azurecr.io", "az acr login --name team.azurecr.io"),
        ("registry.example.com", "docker login registry.example.com"),
    ],
)
def test_who_is_not_logged_in_is_told_the_cloud_s_own_command(host: str, command: str) -> None:
    refused = Answer("GET", f"https://{host}/v2/", 401, {}, (), b"")
    assert f"`{command}" in str(make_error(refused, host=host, dialect=find_dialect(host), doing="reading").hint)
