"""Which texts of dpkg a base's layers hold, read as engines unpack them."""

from __future__ import annotations

import json

import pytest

from imgtool_debian_layers import BaseSystem, LayerFile, NeedsAptError, Node, read_base, read_document

STATUS = "var/lib/dpkg/status"


def file(path: str, content: bytes = b"") -> LayerFile:
    return LayerFile(path, Node("f"), len(content), lambda: content)


def link(path: str, target: str, kind: str = "h") -> LayerFile:
    return LayerFile(path, Node(kind, target=target), 0, bytes)


def folder(path: str) -> LayerFile:
    return LayerFile(path, Node("d", 0o755), 0, bytes)


def test_a_text_may_be_a_hard_link_to_another() -> None:
    base = read_base([[file(STATUS, b"Package: a\n"), link("var/lib/dpkg/arch", STATUS)]])
    assert base.texts == {f"/{STATUS}": b"Package: a\n", "/var/lib/dpkg/arch": b"Package: a\n"}


def test_a_hard_link_to_what_is_not_read_needs_apt() -> None:
    with pytest.raises(NeedsAptError, match="/var/lib/dpkg/status of the base is a hard link to /srv/status"):
        read_base([[file("srv/status"), link(STATUS, "srv/status")]])


@pytest.mark.parametrize("name", [f"/{STATUS}", f"./{STATUS}", f"../{STATUS}"])
def test_every_spelling_of_a_path_counts(name: str) -> None:
    base = read_base([[file(STATUS, b"Package: a\n")], [file(name, b"Package: b\n")]])
    assert base.text(f"/{STATUS}") == "Package: b\n"


@pytest.mark.parametrize(
    "upper",
    [
        file("etc/apt/.wh.sources.list"),
        file("etc/apt/.wh..wh..opq"),
        file("etc/.wh.apt"),
        link("etc/apt", "/srv", "l"),
        folder("etc/apt/sources.list"),
        file("etc/apt/sources.list", bytes(9 << 20)),
    ],
    ids=lambda upper: f"{upper.path}-{upper.node.kind}",
)
def test_what_an_upper_layer_removes_or_replaces_is_gone(upper: LayerFile) -> None:
    lower = [folder("etc/apt"), file("etc/apt/sources.list", b"deb x")]
    assert read_base([lower]).texts
    assert not read_base([lower, [upper]]).texts


def test_a_system_is_the_same_after_json() -> None:
    base = read_base([[folder("etc"), link("lib", "usr/lib", "l"), file("etc/passwd", b"root:\xff\n")]])
    assert read_document(json.loads(json.dumps(base.document()))) == base
    assert base == BaseSystem(dict(base.nodes), dict(base.texts))
