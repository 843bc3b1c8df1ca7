"""Registries that live as long as the test session, each with a fault proxy per test in front."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.oci.registry.support import Clock, Events, clients, config, image, layer, machine
from tests.servers.certificates import make_certificate
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry
from tests.servers.token_server import TokenServer
from training_imgtool.base.reference import Repository, parse_repository
from training_imgtool.base.settings import Settings
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import OCI_MANIFEST, Descriptor


@pytest.fixture(scope="session")
def registry_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry-data")


@pytest.fixture(scope="session")
def plain_registry(tmp_path_factory: pytest.TempPathFactory, registry_data: Path) -> Iterator[str]:
    with run_registry(tmp_path_factory.mktemp("plain"), data=registry_data) as running:
        yield running.host


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def tls_registry(tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]) -> Iterator[str]:
    with run_registry(tmp_path_factory.mktemp("tls"), tls=certificate) as running:
        yield running.host


@pytest.fixture(scope="session")
def _token_server(certificate: tuple[Path, Path]) -> Iterator[TokenServer]:
    with TokenServer(*certificate, users={"ann": "correct-horse", "reader": "battery"}) as server:
        yield server


@pytest.fixture(scope="session")
def token_registry(tmp_path_factory: pytest.TempPathFactory, _token_server: TokenServer) -> Iterator[str]:
    with run_registry(tmp_path_factory.mktemp("token"), auth=_token_server.registry_auth()) as running:
        yield running.host


@pytest.fixture
def token_server(_token_server: TokenServer) -> TokenServer:
    """The token server in its first state."""
    _token_server.requests.clear()
    _token_server.lifetime, _token_server.age, _token_server.status = 300, 0, 200
    _token_server.rights = {"": set(), "ann": {"pull", "push"}, "reader": {"pull"}}
    return _token_server


@dataclass
class Bench:
    """A registry behind a fault proxy, and a client that waits for nothing."""

    proxy: FaultProxy
    registries: Registries
    repository: Repository
    settings: Settings
    clock: Clock
    events: Events

    @property
    def registry(self) -> Registry:
        return self.registries.at(self.repository)

    def push_image(self, content: bytes, tag: str = "one") -> tuple[str, Descriptor]:
        """Pushes an image of one layer; returns the manifest's digest and the layer's descriptor."""
        one = layer(content)
        self.registry.upload(self.repository, one, lambda: iter((content,)))
        self.registry.upload(self.repository, config(), lambda: iter((b"{}",)))
        return self.registry.put_manifest(self.repository.tag(tag), OCI_MANIFEST, image(one)), one


@pytest.fixture
def bench(plain_registry: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The plain registry, with a repository of the test's own."""
    clock, events = Clock(), Events()
    settings = machine(tmp_path)
    name = request.node.name.lower().replace("[", "-").replace("]", "").strip("-_")
    name = "".join(char if char.isalnum() else "-" for char in name).strip("-").replace("--", "-")
    with FaultProxy(plain_registry) as proxy, clients(settings, clock, events) as registries:
        yield Bench(proxy, registries, parse_repository(f"{proxy.host}/test/{name}"), settings, clock, events)
