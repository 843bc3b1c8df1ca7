"""Whole images: config, manifest, archives, layouts, and bases that contradict themselves."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.oci.direct.builds import BASE_LAYER, Maker, make_base
from training_imgtool.base.context.context import Context
from training_imgtool.base.errors import LocalFileError, NeedsEngineError, VerificationError
from training_imgtool.oci.image.docker_archive import load_archive
from training_imgtool.oci.image.image import History, assemble, read_config
from training_imgtool.oci.image.oci_layout import write_layout
from training_imgtool.oci.layers.codecs import Compression, choose_codec
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.registry.manifests import (
    DOCKER_LAYER_GZIP,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_LAYER_GZIP,
    OCI_LAYER_ZSTD,
    OCI_MANIFEST,
    Descriptor,
    parse_manifest,
    sha256_digest,
)

B_TXT = {"b.txt": "/opt/b.txt"}


def test_config_and_manifest(make: Maker) -> None:
    changes: dict[str, Any] = {"env": {"B": "2 3"}, "labels": {"x.y": "z"}, "entrypoint": ("go",)}
    image = make({"code": "/app/code"}, working_folder="/app", **changes)
    config, manifest = json.loads(image.config), json.loads(image.manifest)
    key = config["config"]["Labels"].pop("dev.imgtool.key")
    assert len(key) == 64
    assert config["config"] == {
        "Env": ["PATH=/usr/bin:/bin", "A=1", "B=2 3"],
        "WorkingDir": "/app",
        "Labels": {"x.y": "z"},
        "Entrypoint": ["go"],
    }
    assert config["variant"] == "kept"
    assert config["created"] == "1970-01-01T00:00:00Z"
    layers = [line for line in config["history"] if not line.get("empty_layer")]
    assert len(layers) == len(manifest["layers"]) == len(config["rootfs"]["diff_ids"]) == 2
    assert manifest["layers"][0]["future"] == "field"
    assert {layer["mediaType"] for layer in manifest["layers"]} == {DOCKER_LAYER_GZIP}
    assert manifest["config"]["digest"] == sha256_digest(image.config)
    assert image.digest == sha256_digest(image.manifest)
    assert image.manifest_type == manifest["mediaType"] == DOCKER_MANIFEST
    assert make({"code": "/app/code"}, oci=True).manifest_type == OCI_MANIFEST


def test_the_same_inputs_give_the_same_digest(make: Maker, context: Context, tmp_path: Path) -> None:
    code = {"code": "/app/code"}
    assert make(code).digest == make(code).digest == Maker(context, tmp_path / "other")(code).digest


def test_the_order_of_a_base_s_keys_is_no_part_of_the_image() -> None:
    base, config = make_base()
    turned = parse_manifest(json.dumps(dict(reversed([*base.document.items()]))).encode(), base.media_type, "base")
    assert assemble(turned, config, {}, ()).digest == assemble(base, config, {}, ()).digest


def test_127_layers_are_the_limit() -> None:
    base, config = make_base()
    layers = [
        LayerSource(descriptor=base.layers[0], diff_id=f"sha256:{n:064d}", history="x", open=lambda: iter((b"",)))
        for n in range(127)
    ]
    history = tuple(History(text="x", layer=layer) for layer in layers)
    assert len(assemble(base, config, {}, history[:126]).layers) == 126
    with pytest.raises(NeedsEngineError, match="127"):
        assemble(base, config, {}, history)


def test_a_zstd_layer_below_makes_the_manifest_an_oci_one(make: Maker) -> None:
    with pytest.raises(NeedsEngineError, match="must not be pushed"):
        make(B_TXT, layer="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", oci=True)
    image = make(B_TXT, layer=OCI_LAYER_ZSTD, oci=True)
    assert [layer["mediaType"] for layer in json.loads(image.manifest)["layers"]] == [OCI_LAYER_ZSTD, OCI_LAYER_GZIP]


def test_a_base_that_contradicts_itself() -> None:
    manifest, config = make_base()
    broken = config.replace(b'["sha256:' + b"d" * 64 + b'"]', b"[]")
    with pytest.raises(VerificationError, match="different numbers of layers"):
        assemble(manifest, broken, {}, ())
    with pytest.raises(VerificationError, match="not JSON"):
        assemble(manifest, b"{", {}, ())


@pytest.mark.parametrize(
    "settings",
    [
        {"Env": [1, 2]},
        {"WorkingDir": ["/"]},
        {"Labels": {"a": 1}},
        {"Entrypoint": "x"},
        {"Volumes": ["/v"]},
        {"User": 5},
        {"User": "\ud800"},
    ],
)
def test_a_hostile_config_is_refused(make: Maker, settings: dict[str, Any]) -> None:
    with pytest.raises(VerificationError, match="config"):
        make(None, settings)


@pytest.mark.parametrize(
    "config",
    [
        b"[" * 200_000,
        b'{"rootfs": {"diff_ids": [5]}}',
        b'{"rootfs": {"diff_ids": "x"}}',
        b'{"rootfs": {"diff_ids": []}, "history": ["x"]}',
        b'{"rootfs": {"diff_ids": []}, "history": "x"}',
        b'{"rootfs": {"diff_ids": []}, "config": "x"}',
        b'{"rootfs": []}',
        b"5",
    ],
)
def test_what_is_no_config_is_refused(config: bytes) -> None:
    with pytest.raises(VerificationError, match="config"):
        read_config(config)


@pytest.mark.parametrize("rootfs", [{}, {"diff_ids": None}])
def test_a_config_without_diff_ids_has_none(rootfs: dict[str, Any]) -> None:
    assert read_config(json.dumps({"rootfs": rootfs}).encode())["rootfs"]["diff_ids"] == []


def test_load_archive(make: Maker) -> None:
    image = make({"code": "/app"})
    data = b"".join(load_archive("a:1", image, lambda _: iter((BASE_LAYER,))))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = archive.getnames()
        listed = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
        assert len(names) == len(set(names)) == 4
        assert archive.extractfile(listed[0]["Layers"][0]).read() == BASE_LAYER  # type: ignore[union-attr]
        assert archive.extractfile(listed[0]["Config"]).read() == image.config  # type: ignore[union-attr]
    assert [one["RepoTags"] for one in listed] == [["a:1"]]


def test_an_archive_has_no_zstd(make: Maker) -> None:
    image, content = make(B_TXT, layer=OCI_LAYER_ZSTD, oci=True), BASE_LAYER * 300
    packed = b"".join(choose_codec(Compression.ZSTD).compress([content]))
    data = b"".join(load_archive("a:1", image, lambda _: iter((packed,))))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.extractfile(archive.getnames()[0]).read() == content  # type: ignore[union-attr]


def test_a_docker_image_as_an_oci_one(make: Maker) -> None:
    from training_imgtool.oci.image.image import as_oci

    docker, oci = make(B_TXT), as_oci(make(B_TXT))
    manifest = json.loads(oci.manifest)
    assert {layer["mediaType"] for layer in manifest["layers"]} == {OCI_LAYER_GZIP}
    assert manifest["config"]["mediaType"] == oci.config_descriptor.media_type == OCI_CONFIG
    assert oci.manifest_type == manifest["mediaType"] == OCI_MANIFEST
    assert oci.digest == sha256_digest(oci.manifest) != docker.digest
    assert (oci.config, oci.diff_ids) == (docker.config, docker.diff_ids)
    assert as_oci(oci) is oci


def test_layout(make: Maker, tmp_path: Path) -> None:
    image, folder = make({"code": "/app"}, oci=True), tmp_path / "layout"
    platform = {"os": "linux", "architecture": "amd64"}
    read: list[Descriptor] = []

    def read_base(descriptor: Descriptor) -> Any:
        read.append(descriptor)
        return iter((BASE_LAYER,))

    for name in ("master", "worker"):
        write_layout(folder, name, image, read_base, platform)
    index = json.loads((folder / "index.json").read_bytes())
    others = [{key: one[key] for key in ("mediaType", "digest", "size")} for one in index["manifests"]]  # without names
    (folder / "index.json").write_text(json.dumps({**index, "manifests": index["manifests"] + others}))
    write_layout(folder, "master", image, read_base, platform)
    assert len(read) == 1
    index = json.loads((folder / "index.json").read_bytes())
    names = [one.get("annotations", {}).get("org.opencontainers.image.ref.name") for one in index["manifests"]]
    assert names == ["worker", None, None, "master"]
    for blob in (folder / "blobs/sha256").iterdir():
        assert sha256_digest(blob.read_bytes()) == f"sha256:{blob.name}"
    damaged = folder / "blobs/sha256" / sha256_digest(BASE_LAYER).removeprefix("sha256:")
    damaged.write_bytes(b"x" * len(BASE_LAYER))
    write_layout(folder, "master", image, read_base, platform)
    assert damaged.read_bytes() == BASE_LAYER
    damaged.unlink()
    with pytest.raises(VerificationError, match="damaged"):
        write_layout(folder, "master", image, lambda _: iter((b"other",)), platform)
    assert not damaged.exists()
    (folder / "index.json").write_text("{}")
    with pytest.raises(LocalFileError, match="not an OCI index"):
        write_layout(folder, "master", image, read_base, platform)


def test_a_file_that_changes_after_the_scan(make: Maker, tmp_path: Path) -> None:
    from training_imgtool.base.errors import InputError

    (tmp_path / "spec/b.txt").write_text("other")
    with pytest.raises(InputError, match="changed while reading"):
        make(B_TXT)
