from __future__ import annotations

import json
from typing import Any

import pytest

from tests.oci.registry.support import config, image, layer
from training_imgtool.base.errors import InputError, RegistryRefusedError, VerificationError
from training_imgtool.base.reference import InvalidReferenceError
from training_imgtool.oci.registry.manifests import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    Platform,
    choose,
    index_body,
    parse_manifest,
    parse_platform,
    read_document,
    require_platform,
    sha256_digest,
)

DIGEST = f"sha256:{'a' * 64}"


def _index(*platforms: dict[str, str] | None, media_type: str = OCI_INDEX) -> Manifest:
    entries: list[dict[str, Any]] = []
    for number, platform in enumerate(platforms):
        entry: dict[str, Any] = {"mediaType": OCI_MANIFEST, "digest": f"sha256:{number:064x}", "size": 1}
        entries.append(entry | ({"platform": platform} if platform else {}))
    body = json.dumps({"schemaVersion": 2, "mediaType": media_type, "manifests": entries}).encode()
    return parse_manifest(body, media_type, "x")


@pytest.mark.parametrize(
    "body",
    [
        '{"a":1,"a":1}'.encode("utf-16"),
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        b'{"a":NaN}',
        b'{"a":"\\ud800"}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"a":' + b"9" * 5000 + b"}",
        b"",
    ],
)
def test_a_document_that_readers_may_read_in_other_ways(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_document(body)


def test_a_manifest_is_its_bytes_and_what_they_say() -> None:
    one, two = layer(b"1"), layer(b"2")
    body = image(one, two)
    manifest = parse_manifest(body, f"{OCI_MANIFEST}; charset=utf-8", "x")
    assert manifest.layers == (one, two)
    assert manifest.config == config()
    assert manifest.descriptor == Descriptor(OCI_MANIFEST, sha256_digest(body), len(body))
    assert not manifest.is_index
    assert manifest.body is body


@pytest.mark.parametrize(
    ("body", "header", "expected"),
    [
        (b'{"schemaVersion":2,"layers":[]}', "", OCI_MANIFEST),
        (b'{"schemaVersion":2,"manifests":[]}', "application/json", OCI_INDEX),
        (b'{"schemaVersion":2,"layers":[]}', DOCKER_MANIFEST, DOCKER_MANIFEST),
        (f'{{"mediaType":"{DOCKER_INDEX}"}}'.encode(), "", DOCKER_INDEX),
        (f'{{"mediaType":"{DOCKER_INDEX}"}}'.encode(), "text/plain", DOCKER_INDEX),
    ],
)
def test_the_media_type(body: bytes, header: str, expected: str) -> None:
    assert parse_manifest(body, header, "x").media_type == expected


@pytest.mark.parametrize(
    ("body", "header", "error", "says"),
    [
        (b"not json", OCI_MANIFEST, VerificationError, "not JSON"),
        (b"[" * 100_000, OCI_MANIFEST, VerificationError, "not JSON"),
        (b"[]", OCI_MANIFEST, VerificationError, "not a JSON object"),
        (b'{"mediaType":"%b"}' % OCI_INDEX.encode(), OCI_MANIFEST, VerificationError, "but the manifest names"),
        (
            b'{"schemaVersion":1}',
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            RegistryRefusedError,
            "v1",
        ),
        (b'{"mediaType":"text/html"}', "", RegistryRefusedError, "text/html"),
        (b"\xff\xfe", OCI_MANIFEST, VerificationError, "not JSON"),
        (b'{"layers":[],"layers":[]}', OCI_MANIFEST, VerificationError, "not JSON that every engine reads"),
        (b'{"schemaVersion":2,"layers":[],"manifests":[]}', "", VerificationError, "programs may read it differently"),
    ],
)
def test_what_is_no_manifest(body: bytes, header: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        parse_manifest(body, header, "x")


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "sha256:",
        {},
        {"digest": DIGEST, "size": -1},
        {"digest": DIGEST, "size": True},
        {"digest": "sha256:ab", "size": 3},
        {"digest": f"sha256:{'A' * 64}", "size": 3},
        {"digest": DIGEST, "size": 1 << 63},
        {"digest": DIGEST, "size": 3, "mediaType": 7},
        {"digest": DIGEST, "size": 3, "mediaType": "a\nb"},
    ],
)
def test_what_is_no_descriptor(entry: Any) -> None:
    body = json.dumps({"mediaType": OCI_MANIFEST, "config": entry, "layers": [entry]}).encode()
    manifest = parse_manifest(body, "", "x")
    with pytest.raises(VerificationError, match="config"):
        _ = manifest.config
    with pytest.raises(VerificationError, match=r"layers\[0\]"):
        _ = manifest.layers


AMD = {"os": "linux", "architecture": "amd64"}
ARM = {"os": "linux", "architecture": "arm64", "variant": "v8"}
ARM7 = {"os": "linux", "architecture": "arm", "variant": "v7"}
ARM6 = {"os": "linux", "architecture": "arm", "variant": "v6"}
AMD_V3 = {"os": "linux", "architecture": "amd64", "variant": "v3"}
ATTESTATION = {"os": "unknown", "architecture": "unknown"}


@pytest.mark.parametrize(
    ("platforms", "wanted", "number"),
    [
        ((AMD, ARM), "linux/amd64", 0),
        ((ATTESTATION, ARM, AMD), "linux/amd64", 2),
        ((AMD, ARM), "linux/arm64", 1),
        ((AMD, ARM), "linux/arm64/v8", 1),
        ((ARM6, ARM7), "linux/arm/v7", 1),
        ((ARM6, ARM7), "linux/arm", 1),
        ((AMD_V3, AMD), "linux/amd64", 1),
        ((AMD_V3, {**AMD, "variant": "v1"}), "linux/amd64", 1),
        ((None, AMD), "linux/amd64", 1),
        ((AMD, AMD), "linux/amd64", 0),
        ((ARM, {**ARM, "variant": ""}), "linux/arm64", 1),
        (({**ARM, "variant": ""}, ARM), "linux/arm64/v8", 1),
    ],
)
def test_the_platforms_image_is_chosen(platforms: tuple[dict[str, str] | None, ...], wanted: str, number: int) -> None:
    for media_type in (OCI_INDEX, DOCKER_INDEX):
        found = choose(_index(*platforms, media_type=media_type), parse_platform(wanted), "x")
        assert found.digest == f"sha256:{number:064x}"


@pytest.mark.parametrize("wanted", ["windows/amd64", "linux/arm/v5", "linux/arm64/v9", "unknown/unknown"])
def test_no_image_for_a_platform(wanted: str) -> None:
    with pytest.raises(RegistryRefusedError, match="it has: linux/amd64, linux/arm/v7, linux/arm64/v8"):
        choose(_index(AMD, ARM, ARM7, ATTESTATION), parse_platform(wanted), "x")


def test_an_image_for_newer_processors_is_none_for_all() -> None:
    with pytest.raises(RegistryRefusedError, match="it has: linux/amd64/v3"):
        choose(_index(AMD_V3), parse_platform("linux/amd64"), "x")


def test_an_index_without_images() -> None:
    with pytest.raises(RegistryRefusedError, match="it has: none"):
        choose(_index(), Platform("linux", "amd64"), "x")
    with pytest.raises(VerificationError, match="no readable list"):
        choose(parse_manifest(b'{"schemaVersion":2,"manifests":{}}', "", "x"), Platform("linux", "amd64"), "x")


@pytest.mark.parametrize(
    ("config", "platform"),
    [
        ({"os": "linux", "architecture": "amd64"}, "linux/amd64"),
        ({"os": "linux", "architecture": "arm64", "variant": "v8"}, "linux/arm64"),
        ({"os": "linux", "architecture": "arm64", "variant": None}, "linux/arm64/v8"),
    ],
)
def test_a_config_for_the_platform(config: dict[str, str], platform: str) -> None:
    require_platform(json.dumps(config).encode(), platform, "base x")


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (b'{"os": "linux", "architecture": "arm64"}', InputError),
        (b'{"os": "windows", "architecture": "amd64"}', InputError),
        (b'{"os": "linux", "architecture": "amd64", "variant": "v3"}', InputError),
        (b'{"os": "linux", "architecture": "\\u001b[31m"}', InputError),
        (b'{"os": "linux"}', VerificationError),
        (b'{"os": ["linux"], "architecture": "amd64"}', VerificationError),
        (b"[]", VerificationError),
        (b"[" * 100_000, VerificationError),
    ],
)
def test_a_config_for_another_platform_or_for_none(config: bytes, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        require_platform(config, "linux/amd64", "base x")
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("text", ["linux", "linux/", "/amd64", "a/b/c/d", ""])
def test_what_is_no_platform(text: str) -> None:
    with pytest.raises(InvalidReferenceError, match="not a platform"):
        parse_platform(text)


@pytest.mark.parametrize(
    ("images", "kind"),
    [
        ((DOCKER_MANIFEST,) * 2, DOCKER_INDEX),
        ((OCI_MANIFEST,) * 2, OCI_INDEX),
        ((DOCKER_MANIFEST, OCI_MANIFEST), OCI_INDEX),
    ],
)
def test_an_index_is_of_the_family_of_its_images(images: tuple[str, ...], kind: str) -> None:
    media_type, body = index_body({"mediaType": image, "digest": f"sha256:{'0' * 64}", "size": 1} for image in images)
    document = json.loads(body)
    assert (media_type, document["mediaType"], document["schemaVersion"]) == (kind, kind, 2)
    assert [entry["mediaType"] for entry, _ in parse_manifest(body, kind, "x").entries] == list(images)
