"""Certificates of single registries, in the folders of Docker and Podman."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oci.registry.support import clients, machine
from tests.servers.certificates import make_certificate
from tests.servers.scripted import Reply, ScriptedServer
from training_imgtool.base.errors import CredentialsError, LocalFileError, RegistryRefusedError
from training_imgtool.base.http.addresses import origin_of
from training_imgtool.base.http.pool import HostCertificates, find_certificates
from training_imgtool.base.reference import parse_reference

DIGEST = f"sha256:{'1' * 64}"
FOUND = Reply(200, b"", {"Docker-Content-Digest": DIGEST})
Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def server_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_certificate(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def client_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_certificate(tmp_path_factory.mktemp("client"), name="somebody")


@pytest.fixture
def strict(server_pair: Pair, client_pair: Pair) -> Iterator[ScriptedServer]:
    """A registry that wants a client certificate."""
    with ScriptedServer([FOUND], tls=server_pair, clients=client_pair[0]) as server:
        yield server


def lay(folder: Path, host: str, files: dict[str, Path], place: str = "docker") -> Path:
    home = folder / ".config" / place / "certs.d" / host
    home.mkdir(parents=True)
    for name, source in files.items():
        shutil.copy(source, home / name)
    return home


def head(folder: Path, host: str, **environ: str) -> str | None:
    ref = parse_reference(f"{host}/a/b:c")
    with clients(machine(folder, **environ)) as registries:
        return registries.at(ref.repository).head(ref)


@pytest.mark.parametrize("place", ["docker", "containers"])
def test_an_authority_and_a_client_certificate(
    strict: ScriptedServer, server_pair: Pair, client_pair: Pair, tmp_path: Path, place: str
) -> None:
    files = {"ca.crt": server_pair[0], "client.cert": client_pair[0], "client.key": client_pair[1]}
    lay(tmp_path, strict.host, files, place)
    assert head(tmp_path, strict.host) == DIGEST


def test_an_authority_is_trusted_beside_the_machines(
    strict: ScriptedServer, server_pair: Pair, client_pair: Pair, tmp_path: Path
) -> None:
    lay(tmp_path, strict.host, {"client.cert": client_pair[0], "client.key": client_pair[1]})
    assert head(tmp_path, strict.host, IMGTOOL_CA_FILE=str(server_pair[0])) == DIGEST


def test_without_a_client_certificate_the_error_names_the_folder(
    strict: ScriptedServer, server_pair: Pair, tmp_path: Path
) -> None:
    lay(tmp_path, strict.host, {"ca.crt": server_pair[0]})
    with pytest.raises(CredentialsError, match="asks for a client certificate") as caught:
        head(tmp_path, strict.host)
    assert f"/etc/docker/certs.d/{strict.host}" in (caught.value.hint or "")


def test_another_hosts_authority_does_not_count(server_pair: Pair, tmp_path: Path) -> None:
    with ScriptedServer([FOUND], tls=server_pair) as server:
        lay(tmp_path, "127.0.0.1:1", {"ca.crt": server_pair[0]})
        with pytest.raises(RegistryRefusedError, match="not trusted") as caught:
            head(tmp_path, server.host)
    assert f"/etc/docker/certs.d/{server.host}/ca.crt" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"ca.crt": b"no certificate"}, "ca.crt: not a PEM file"),
        ({"client.cert": b"no certificate", "client.key": b"no key"}, "client.cert: not a PEM file"),
        ({"client.cert": b"x"}, "client: expected a client certificate NAME.cert and its key NAME.key"),
        ({"other.key": b"x"}, "other: expected a client certificate NAME.cert and its key NAME.key"),
    ],
)
def test_files_that_are_no_certificates(server_pair: Pair, tmp_path: Path, files: dict[str, bytes], says: str) -> None:
    with ScriptedServer([FOUND], tls=server_pair) as server:
        home = lay(tmp_path, server.host, {})
        for name, data in files.items():
            (home / name).write_bytes(data)
        with pytest.raises(LocalFileError, match=says):
            head(tmp_path, server.host)


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("https://registry.example.com", ("registry.example.com", "registry.example.com:443")),
        ("https://registry.example.com:8443", ("registry.example.com:8443",)),
        ("https://[::1]:5000", ("[::1]:5000",)),
    ],
)
def test_the_folder_of_a_host(tmp_path: Path, url: str, names: tuple[str, ...]) -> None:
    for name in names:
        file = tmp_path / name / "ca.crt"
        file.parent.mkdir()
        file.touch()
        assert find_certificates((tmp_path / "none", tmp_path), origin_of(url)) == HostCertificates((file,))
        shutil.rmtree(file.parent)
    (tmp_path / "registry.example.com:9").mkdir()
    assert find_certificates((tmp_path,), origin_of(url)) == HostCertificates()
