"""Records in the registry: found by siblings, kept with their layers, and nobody's trouble where they cannot be."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.direct.registry import Bench
from tests.servers.fault_proxy import Action, Fault
from training_imgtool.core.reference import parse_repository
from training_imgtool.direct.layers.layer_cache import LayerRecord, Record, dump_record, read_record
from training_imgtool.direct.layers.shared_records import RECORD, RegistryRecords, store_of
from training_imgtool.registry.manifests import OCI_EMPTY, OCI_MANIFEST, Descriptor, sha256_digest

pytestmark = pytest.mark.registry
KEY = "ab" * 32
KEY_DIGEST = f"sha256:{KEY}"


def _record(bench: Bench, data: bytes = b"a layer") -> bytes:
    """The record of a layer that is in the bench's repository."""
    blob = bench.put(bench.repository, data)
    layer = LayerRecord(name="one", blob=blob, diff_id=blob.digest)
    return dump_record(KEY, Record((layer,), {"opt/venv/x": "0644:1"}))


def _left(bench: Bench, *faults: Fault) -> bytes:
    record = _record(bench)
    bench.proxy.add(*faults)
    records = RegistryRecords(bench.registries, bench.repository)
    records.put(KEY, record)
    assert bench.proxy.log == []  # nothing goes out before the layers are up
    records.leave()
    return record


@pytest.mark.parametrize(
    ("repository", "store"),
    [
        ("us-docker.pkg.dev/project/repo/mnist", "us-docker.pkg.dev/project/repo/imgtool-layers"),
        ("127.0.0.1:5000/mnist", "127.0.0.1:5000/imgtool-layers"),
        ("ghcr.io/org/a/b", "ghcr.io/org/a/imgtool-layers"),
        ("ghcr.io/org/imgtool-layers", "ghcr.io/org/imgtool-layers"),
        ("docker.io/somebody/mnist", "docker.io/somebody/mnist"),
    ],
)
def test_records_lie_beside_the_images(repository: str, store: str) -> None:
    assert str(store_of(parse_repository(repository))) == store


def test_a_sibling_finds_it_with_one_request(pushing: Bench) -> None:
    record = _left(pushing)
    pushing.proxy.clear()
    assert RegistryRecords(pushing.registries, pushing.at("sibling")).get(KEY) == record
    assert pushing.proxy.methods() == ["GET"]
    store = store_of(pushing.repository)
    (layer,) = read_record(record, KEY).layers
    assert pushing.registries.at(store).has_blob(store, layer.blob)


def test_no_record(pushing: Bench) -> None:
    assert RegistryRecords(pushing.registries, pushing.repository).get(KEY) is None
    assert pushing.proxy.methods() == ["GET", "GET"]


@pytest.mark.parametrize(
    "refused",
    [
        Fault(action=Action.ANSWER, method="POST", path="mount=", status=405, times=-1),
        Fault(action=Action.ANSWER, path="/imgtool-layers/", status=403, times=-1),
        Fault(action=Action.ANSWER, method="PUT", path="/imgtool-layers/manifests", status=400, times=-1),
    ],
    ids=["no mounts", "no rights", "no artifacts there"],
)
def test_where_the_store_cannot_be_written_the_repository_has_it(pushing: Bench, refused: Fault) -> None:
    record = _left(pushing, refused)
    pushing.proxy.clear()
    assert RegistryRecords(pushing.registries, pushing.repository).get(KEY) == record
    assert RegistryRecords(pushing.registries, pushing.at("sibling")).get(KEY) is None


def test_a_registry_that_takes_no_records_is_no_error(pushing: Bench) -> None:
    records = RegistryRecords(pushing.registries, pushing.repository)
    records.put(KEY, _record(pushing))
    pushing.proxy.add(Fault(action=Action.ANSWER, path="/manifests/", status=400, times=-1))
    records.leave()
    assert records.get(KEY) is None


def test_a_registry_that_is_unwell_is_asked_once(pushing: Bench) -> None:
    records = RegistryRecords(pushing.registries, pushing.repository)
    for number in range(9):
        key = f"{number:064d}"
        layer = LayerRecord(name="one", blob=pushing.put(pushing.repository, b"%d" % number), diff_id=KEY_DIGEST)
        records.put(key, dump_record(key, Record((layer,))))
    pushing.proxy.add(Fault(action=Action.ANSWER, method="PUT", path="/manifests/", status=503, times=-1))
    records.leave()
    tags = {exchange.path for exchange in pushing.proxy.log if "/manifests/" in exchange.path}
    assert 0 < len(tags) <= 4  # those that were begun side by side


def test_the_store_itself_needs_no_mounts(pushing: Bench) -> None:
    store = pushing.at("imgtool-layers")
    bench = Bench(pushing.proxy, pushing.folder, pushing.registries, store, [])
    record = _left(bench)
    assert not [e for e in bench.proxy.log if e.query.get("mount") == [read_record(record, KEY).layers[0].blob.digest]]
    assert RegistryRecords(pushing.registries, store).get(KEY) == record


def test_records_of_the_same_layer_mount_it_once(pushing: Bench) -> None:
    """docker-registry empties a mounted layer's link for a moment: a manifest that names the layer is refused then."""
    records = RegistryRecords(pushing.registries, pushing.repository)
    layer = LayerRecord(name="one", blob=pushing.put(pushing.repository, b"a layer"), diff_id=KEY_DIGEST)
    keys = [f"{number:064d}" for number in range(9)]
    for key in keys:
        records.put(key, dump_record(key, Record((layer,))))
    records.leave()
    mounts = [exchange for exchange in pushing.proxy.log if exchange.query.get("mount") == [layer.blob.digest]]
    assert len(mounts) == 1
    assert all(records.get(key) for key in keys)
    assert not [line for line in pushing.proxy.log if f"{pushing.repository.path}/manifests" in line.path]


def test_a_record_that_was_wrong_is_not_read_again_and_put_right(pushing: Bench) -> None:
    _left(pushing)
    records = RegistryRecords(pushing.registries, pushing.repository)
    records.disbelieve()
    assert records.get(KEY) is None
    better = _record(pushing, b"another layer")
    records.put(KEY, better)
    records.leave()
    assert RegistryRecords(pushing.registries, pushing.repository).get(KEY) == better


@pytest.mark.parametrize(
    "annotations", [None, {}, [], {RECORD: 7}, {"other": "x"}], ids=["none", "empty", "a list", "a number", "others"]
)
def test_a_manifest_that_is_no_record(pushing: Bench, annotations: object) -> None:
    empty = Descriptor(OCI_EMPTY, sha256_digest(b"{}"), 2)
    store = store_of(pushing.repository)
    client = pushing.registries.at(store)
    client.upload(store, empty, partial(iter, (b"{}",)))
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": empty.document(), "layers": []}
    body = json.dumps(document if annotations is None else {**document, "annotations": annotations}).encode()
    if not isinstance(annotations, list) and annotations != {RECORD: 7}:
        client.put_manifest(store.tag(f"layers-{KEY[:32]}"), OCI_MANIFEST, body)
    else:  # docker-registry itself refuses these; another may not
        headers = {"content-type": OCI_MANIFEST}
        pushing.proxy.add(
            Fault(action=Action.ANSWER, method="GET", path="/imgtool-layers/", status=200, headers=headers, body=body)
        )
    assert RegistryRecords(pushing.registries, pushing.repository).get(KEY) is None
