"""Certificates as update-ca-certificates and OpenSSL lay them out; this machine's own are the examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imgtool_debian_layers import BaseSystem, Entry, NeedsAptError, Node
from imgtool_debian_layers.certificates import SHIPPED, hash_subject, make_bundle, make_configuration, make_links
from imgtool_debian_layers.database import InstalledPackage
from imgtool_debian_layers.layer import Installation
from imgtool_debian_layers.package_file import PackedFile
from imgtool_debian_layers.scripts import Effect, EffectKind
from imgtool_debian_layers.unpack import Unpacking
from tests.debian_layers.packages import system

_EXAMPLES = [*Path("/etc/ssl/certs").glob("*.pem")]
pytestmark = pytest.mark.skipif(not _EXAMPLES, reason="this machine has no /etc/ssl/certs")


def test_certificates_have_the_names_that_openssl_gives_them() -> None:
    links = [path for path in _EXAMPLES[0].parent.glob("*.0") if re.fullmatch(r"[0-9a-f]{8}\.0", path.name)]
    for path in filter(Path.exists, links):
        assert path.name == f"{hash_subject(path.read_bytes())}.0"


def test_the_bundle_and_its_links_come_in_the_order_of_the_configuration() -> None:
    data = _EXAMPLES[0].read_bytes().rstrip(b"\n")
    shipped = {f"{SHIPPED}mozilla/{name}.crt": data for name in ("b (x), y", "A", "é")}
    assert make_configuration(shipped).decode().splitlines()[-3:] == [
        "mozilla/A.crt",
        "mozilla/b (x), y.crt",
        "mozilla/é.crt",
    ]
    assert make_bundle(shipped) == 3 * (data + b"\n")
    links = dict(make_links(shipped))
    digest = hash_subject(data)
    assert links["/etc/ssl/certs/b_=x=__y.pem"] == f"{SHIPPED}mozilla/b (x), y.crt"
    assert [links[f"/etc/ssl/certs/{digest}.{number}"] for number in range(3)] == ["A.pem", "b_=x=__y.pem", "é.pem"]
    with pytest.raises(NeedsAptError, match="cannot read this certificate"):
        dict(make_links({f"{SHIPPED}bad.crt": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}))


def test_a_first_installation_of_certificates_makes_all_of_its_files() -> None:
    data = _EXAMPLES[0].read_bytes()
    package = InstalledPackage("ca-certificates", "amd64", Path(), {}, {}, ())
    file = PackedFile(f"{SHIPPED}x.crt", "f", 0o644, "root:root", data=data)

    def install(base: BaseSystem) -> dict[str, Entry]:
        installation = Installation(Unpacking(base), lambda _: None)
        made = [*installation.unpack(package, file), *installation.apply((Effect(EffectKind.CERTIFICATES),))]
        return {entry.path: entry for entry in made}

    layer = install(system())
    assert layer["etc/ca-certificates.conf"].data.endswith(b"\nx.crt\n")
    assert layer["etc/ssl/certs/ca-certificates.crt"].data == data
    assert layer["etc/ssl/certs/x.pem"].node == Node("l", 0o777, target=f"{SHIPPED}x.crt")
    assert layer[f"etc/ssl/certs/{hash_subject(data)}.0"].node.target == "x.pem"
    with pytest.raises(NeedsAptError, match=r"the base has /etc/ssl/certs/own\.pem"):
        install(system(nodes={"/etc/ssl/certs/own.pem": Node("f")}))
