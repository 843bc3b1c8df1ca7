"""An image of a registry beside the one that this machine makes: whatever differs is named, and nothing else is."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import zstandard

from tests.direct.builds import Maker
from training_imgtool.context.context import scan
from training_imgtool.core.errors import VerificationError
from training_imgtool.direct.image.image import DirectImage, dump_document
from training_imgtool.registry.manifests import Descriptor, parse_manifest, sha256_digest
from training_imgtool.verify.compare import Stored, compare_image
from training_imgtool.verify.findings import Accepted, Finding, Status

LINES = "COPY a /app/a\nCOPY b /app/b\nCOPY c /srv/c\nENV A=2\nUSER 1000\n"
EVIL = b"import os\nos.write(2, b'evil')\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> DirectImage:
    """An image of three layers; the last one stands for bytecode."""
    folder = tmp_path_factory.mktemp("context")
    for name in "abc":
        (folder / name).mkdir()
        (folder / name / "task.py").write_text(f"print('{name}')\n" * 2000)
        (folder / name / "model.py").write_text("layers = 2\n")
    image = Maker(scan(folder), tmp_path_factory.mktemp("cache"))(LINES, oci=True)
    first, second, last = image.layers
    return replace(image, layers=(first, second, replace(last, is_bytecode=True)))


@dataclass
class Store:
    """What a registry has: a manifest, a config and blobs, to be tampered with."""

    made: DirectImage
    manifest: dict[str, Any] = field(init=False)
    config: dict[str, Any] = field(init=False)
    blobs: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.manifest = json.loads(self.made.manifest)
        self.config = json.loads(self.made.config)
        self.blobs |= {layer.descriptor.digest: b"".join(layer.open()) for layer in self.made.layers}

    def archive(self, number: int) -> bytes:
        """The tar of a layer of ours."""
        return gzip.decompress(self.blobs[self.manifest["layers"][number]["digest"]])

    def put_layer(self, number: int, data: bytes, archive: bytes | None = None) -> None:
        """Puts a blob in the place of a layer; with `archive`, the config has its diff ID."""
        digest = sha256_digest(data)
        self.blobs[digest] = data
        self.manifest["layers"][number] |= {"digest": digest, "size": len(data)}
        if archive is not None:
            self.config["rootfs"]["diff_ids"][number] = sha256_digest(archive)

    def put_archive(self, number: int, archive: bytes) -> None:
        """Puts another archive in the place of a layer, as somebody would who knows the formats."""
        self.put_layer(number, gzip.compress(archive, mtime=0), archive)

    def name_config(self) -> None:
        """Has the manifest name the config as it is now."""
        body = dump_document(self.config)
        self.manifest["config"] |= {"digest": sha256_digest(body), "size": len(body)}

    def compare(self, *, body: bytes | None = None, config: bytes | None = None, alike: bool = True) -> list[Finding]:
        """The findings; a manifest that the client itself refuses is one."""
        data = body or dump_document(self.manifest)
        try:
            manifest = parse_manifest(data, self.made.manifest_type, "the image")
        except VerificationError as error:
            return [Finding(check="manifest", status=Status.MISMATCH, found=str(error))]
        stored = Stored(manifest=manifest, blob=self._read, config=lambda: config or dump_document(self.config))
        return list(compare_image(stored, self.made, compiles_alike=lambda: alike))

    def _read(self, blob: Descriptor) -> Iterator[bytes]:
        data = self.blobs[blob.digest]
        if len(data) != blob.size:  # as the registry's client does
            raise VerificationError(f"{blob.short} has {len(data)} bytes")
        return (data[at : at + 999] for at in range(0, len(data), 999))


def fails(findings: list[Finding]) -> str:
    """What the mismatches say; empty when there are none."""
    return "; ".join(f"{one.check}: {one.found}" for one in findings if one.status is Status.MISMATCH)


def test_the_same_image_passes_and_no_blob_is_read(made: DirectImage) -> None:
    store = Store(made)
    store.blobs.clear()
    findings = store.compare()
    assert {finding.status for finding in findings} == {Status.OK}
    assert [finding.check for finding in findings] == ["base", "layers", "config", "manifest"]


def _compress(data: bytes, level: int, strategy: int) -> bytes:
    engine = zlib.compressobj(level, zlib.DEFLATED, 31, 9, strategy)
    return engine.compress(data) + engine.flush()


@pytest.mark.parametrize("level", range(10))
@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY])
def test_layers_that_another_library_compressed_pass(made: DirectImage, level: int, strategy: int) -> None:
    store = Store(made)
    for number in (1, 2, 3):
        store.put_layer(number, _compress(store.archive(number), level, strategy))
    findings = store.compare()
    assert fails(findings) == ""
    assert "3 of them compressed otherwise" in findings[1].found


def test_bytecode_of_another_release_is_not_proven(made: DirectImage) -> None:
    store = Store(made)
    store.put_archive(3, store.archive(3).replace(b"layers = 2", b"layers = 3"))
    store.name_config()
    findings = store.compare(alike=False)
    (unproven,) = (finding for finding in findings if finding.status is not Status.OK)
    assert (unproven.status, unproven.accepted_as) == (Status.UNPROVEN, Accepted.BYTECODE)
    assert "/srv/c/model.py differs" in fails(store.compare(alike=True))


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    rows = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in rows:
        yield from _places(value, (*path, name))


def _edits(document: Any) -> Iterator[Any]:
    """Every value of a document gone, doubled, of another type or changed; every object with a key more."""
    for path in list(_places(document)):
        for edit in (_drop, _double, _retype, _change, _add):
            copy = json.loads(json.dumps(document))
            if edit(copy, path) and copy != document:
                yield copy


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def _drop(document: Any, path: tuple[Any, ...]) -> bool:
    if path:
        del _at(document, path[:-1])[path[-1]]
    return bool(path)


def _double(document: Any, path: tuple[Any, ...]) -> bool:
    parent = _at(document, path[:-1]) if path else None
    if isinstance(parent, list):
        parent.insert(0, parent[path[-1]])
    elif isinstance(parent, dict):
        parent[str(path[-1]).capitalize() + "X"] = parent[path[-1]]
    return parent is not None


def _retype(document: Any, path: tuple[Any, ...]) -> bool:
    if path:
        _at(document, path[:-1])[path[-1]] = [None, 5, "", {}, True][len(path) % 5]
    return bool(path)


def _change(document: Any, path: tuple[Any, ...]) -> bool:
    value = _at(document, path)
    if isinstance(value, str) and path:
        _at(document, path[:-1])[path[-1]] = value + "x"
    elif isinstance(value, int) and path:
        _at(document, path[:-1])[path[-1]] = value + 1
    return isinstance(value, str | int)


def _add(document: Any, path: tuple[Any, ...]) -> bool:
    node = _at(document, path)
    if isinstance(node, dict):
        node["annotations"] = {"a": "b"}
    return isinstance(node, dict)


def test_every_edit_of_the_manifest_is_named(made: DirectImage) -> None:
    count = 0
    for document in _edits(json.loads(made.manifest)):
        store = Store(made)
        store.manifest = document
        count += 1
        assert fails(store.compare()), document
    assert count > 80


def test_every_edit_of_the_config_is_named(made: DirectImage) -> None:
    count = 0
    for document in _edits(json.loads(made.config)):
        store = Store(made)
        store.config = document
        store.name_config()
        count += 1
        assert "config: " in fails(store.compare()), document
        assert "config: " in fails(store.compare(alike=False)), document
    assert count > 150


SPELLINGS: dict[str, Callable[[str], str]] = {
    "blanks": lambda text: text + "\n",
    "twice": lambda text: text.replace("{", '{"schemaVersion":3,"schemaVersion":2,', 1),
    "capitals": lambda text: text.replace("{", '{"Layers":[],', 1),
    "escape": lambda text: text.replace('"config"', '"\\u0063onfig"', 1),
    "order": lambda text: json.dumps(json.loads(text), sort_keys=False, indent=1),
    "NaN": lambda text: text.replace("{", '{"a":NaN,', 1),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_other_bytes_of_the_same_values_are_named(made: DirectImage, spelling: str) -> None:
    edit = SPELLINGS[spelling]
    assert fails(Store(made).compare(body=edit(made.manifest.decode()).encode()))
    store = Store(made)
    config = edit(made.config.decode()).encode()
    store.manifest["config"] |= {"digest": sha256_digest(config), "size": len(config)}
    assert "config: " in fails(store.compare(config=config))


def _header(name: str, *, kind: bytes = b"0", data: bytes = b"", size: int | None = None) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, len(data) if size is None else size
    return member.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def _pax(kind: bytes, **records: str) -> bytes:
    data = b""
    for key, value in records.items():
        text = f" {key.replace('_', '.')}={value}\n".encode()
        data += str(len(text) + len(str(len(text)))).encode() + text
    return _header("pax", kind=kind, data=data)


ENTRIES: dict[str, bytes] = {
    "pth": _header("opt/venv/lib/python3.11/site-packages/evil.pth", data=EVIL),
    "whiteout": _header("etc/.wh.passwd"),
    "opaque": _header("etc/.wh..wh..opq"),
    "link": _header("app/a/link", kind=b"2"),
    "folder": _header("app/", kind=b"5"),
    "device": _header("dev/x", kind=b"3"),
    "hidden by a global header": _pax(b"x", path="app/a/model.py", size="11") + _pax(b"g", comment="hi")
    + _header("opt/venv/evil.pth", data=EVIL),
    "sparse": _pax(b"x", GNU_sparse_map="0,11", GNU_sparse_numblocks="1", GNU_sparse_size="5000")
    + _header("app/a/model.py", data=b"layers = 2\n"),
    "long name": _header("x", kind=b"L", data=b"usr/bin/evil\0") + _header("app/a/model.py", data=EVIL),
    "digits": _pax(b"x", size="9" * 5000) + _header("app/a/x", data=EVIL),
    "garbage": b"no header" * 100,
    "zeros": bytes(4096),
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("where", ["front", "end", "behind"])
def test_every_entry_more_is_named(made: DirectImage, entry: str, where: str) -> None:
    store, more = Store(made), ENTRIES[entry]
    archive = store.archive(1)
    edited = {"front": more + archive, "end": archive[:-1024] + more + archive[-1024:], "behind": archive + more}[where]
    store.put_archive(1, edited)
    store.name_config()
    assert "layers: layer 2 (COPY a /app/a)" in fails(store.compare())
    store.put_archive(1, archive)
    store.config = json.loads(made.config)
    store.name_config()
    assert fails(store.compare()) == ""


def test_every_bit_counts(made: DirectImage) -> None:
    plain = Store(made).archive(1)
    chosen = random.Random(4)
    for position in [*range(0, 512, 7), *(chosen.randrange(len(plain)) for _ in range(60))]:
        store = Store(made)
        store.put_archive(1, plain[:position] + bytes([plain[position] ^ 1]) + plain[position + 1 :])
        store.name_config()
        assert "layer 2" in fails(store.compare()), position


def test_the_path_that_differs_is_named(made: DirectImage) -> None:
    store = Store(made)
    store.put_archive(2, store.archive(2).replace(b"layers = 2", b"layers = 3"))
    store.name_config()
    assert "layer 3 (COPY b /app/b): /app/b/model.py differs" in fails(store.compare())
    with tarfile.open(fileobj=io.BytesIO(store.archive(2))) as archive:
        assert "app/b/model.py" in archive.getnames()


def _named_gzip(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile("x" * 600, "wb", fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "named": _named_gzip,
    "two members": lambda data: gzip.compress(data[:5000]) + gzip.compress(data[5000:]),
    "an empty member more": lambda data: gzip.compress(data) + gzip.compress(b""),
    "tail": lambda data: gzip.compress(data) + b"tail",
    "cut": lambda data: gzip.compress(data)[:-9],
    "zstd": zstandard.compress,
    "empty": lambda _: b"",
    "bomb": lambda data: gzip.compress(data + bytes(200 << 20), 1),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_other_streams_of_the_same_archive_are_named(made: DirectImage, stream: str) -> None:
    store = Store(made)
    store.put_layer(1, STREAMS[stream](store.archive(1)))
    assert "layers: layer 2" in fails(store.compare())


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 1, 3), (0, 1, 2), (0, 1, 2, 3, 3), (1, 1, 2, 3)])
def test_layers_in_another_order_are_named(made: DirectImage, order: tuple[int, ...]) -> None:
    store = Store(made)
    store.manifest["layers"] = [store.manifest["layers"][number] for number in order]
    store.config["rootfs"]["diff_ids"] = [store.config["rootfs"]["diff_ids"][number] for number in order]
    store.name_config()
    assert fails(store.compare())


def test_a_size_of_the_base_that_is_not_its_own_is_named(made: DirectImage) -> None:
    store = Store(made)
    store.manifest["layers"][0]["size"] += 1
    assert fails(store.compare()).startswith("base: layer 1 is ")
