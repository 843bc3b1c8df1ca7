"""`imgtool verify` against a registry: a good image passes, and what somebody put in its place is named."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run
from tests.integration.verify_world import Toy, open_toy
from tests.verify.images import Change, Layer
from training_imgtool.core.reference import parse_repository
from training_imgtool.registry.manifests import OCI_INDEX, OCI_LAYER_GZIP, Descriptor, sha256_digest

pytestmark = pytest.mark.registry
SITE = "opt/venv/lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def toy(registry_address: str, services_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    with open_toy(registry_address, services_env, tmp_path_factory.mktemp("verify")) as made:
        yield made


def test_a_good_image_passes(toy: Toy, imgtool: Run) -> None:
    done = imgtool("verify", "--locked", "--json", toy.folder, env=toy.env)
    document = json.loads(done.stdout)
    assert document["ok"] is True
    (image,) = document["images"]
    assert image["image"] == str(toy.good)
    assert [(check["check"], check["status"]) for check in image["checks"]] == [
        ("blobs", "ok"),
        ("base", "ok"),
        ("layers", "ok"),
        ("config", "ok"),
        ("manifest", "ok"),
        ("attestations", "ok"),
    ]
    table = imgtool("verify", "--locked", toy.folder, env=toy.env).stdout
    assert "\nmanifest      master  ok" in table


def _start_up(config: dict[str, Any]) -> None:
    config["config"]["Env"].append("PYTHONSTARTUP=/srv/x.py")


FAULTS: dict[str, tuple[list[Layer | bytes], Change | None, str]] = {
    "a layer more": ([{f"{SITE}/evil.pth": b"import os\n"}], None, "layers: found "),
    "two layers more": ([{"etc/passwd": b""}, {"etc/passwd": None}], None, "layers: found "),
    "an environment": ([], _start_up, "config: found config.Env differ; expected "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tampered_image_ends_with_10_and_a_line(toy: Toy, imgtool: Run, fault: str) -> None:
    layers, change, says = FAULTS[fault]
    env = toy.faulty(fault.replace(" ", "-"), layers, change)
    done = imgtool("verify", "--locked", toy.folder, env=env, check=False)
    assert done.returncode == 10, done.stderr
    assert f"Error: master: {says}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_layer_of_the_same_place_with_other_content_is_named_by_its_path(toy: Toy, imgtool: Run) -> None:
    """The image's code is other code, and its config has the diff ID of that."""
    image = toy.inputs.images[0]
    registry = toy.registries.at(toy.good.repository)
    manifest = registry.manifest(toy.good)
    config = json.loads(registry.read(toy.good.repository, manifest.config))
    code = manifest.layers[-1]
    archive = gzip.decompress(b"".join(registry.blob(toy.good.repository, code)))
    other = archive.replace(b"layers = 2", b"layers = 3")
    data = gzip.compress(other)
    repository = parse_repository(f"{toy.place}/code/toy")
    target = toy.registries.at(repository)
    for layer in manifest.layers[:-1]:
        toy.registries.copy_blob(toy.good.repository, layer, repository)
    config["rootfs"]["diff_ids"][-1] = sha256_digest(other)
    body = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    document = json.loads(manifest.body)
    for row, blob in ((document["layers"][-1], data), (document["config"], body)):
        row |= {"digest": sha256_digest(blob), "size": len(blob)}
        descriptor = Descriptor(OCI_LAYER_GZIP, row["digest"], row["size"])
        target.upload(repository, descriptor, lambda blob=blob: iter((blob,)))  # type: ignore[misc]
    assert image.tag is not None
    put = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    target.put_manifest(repository.tag(image.tag.name), manifest.media_type, put)
    env = {**toy.env, "IMGTOOL_REGISTRY": f"{toy.place}/code"}
    done = imgtool("verify", "--locked", toy.folder, env=env, check=False)
    assert done.returncode == 10
    assert "/app/trainer/model.py differs" in done.stderr
    assert "config: found rootfs differ" in done.stderr


def test_an_index_in_the_place_of_the_image_is_refused(toy: Toy, imgtool: Run) -> None:
    """Readers take an entry without a platform for one of linux/amd64, others skip it."""
    image, repository = toy.inputs.images[0], parse_repository(f"{toy.place}/index/toy")
    evil_env = toy.faulty("index", [{"usr/bin/evil": b"x"}], None)
    assert image.tag is not None
    registry, tag = toy.registries.at(repository), repository.tag(image.tag.name)
    evil = registry.manifest(tag)
    good = toy.registries.at(toy.good.repository).manifest(toy.good)
    toy.registries.copy_blob(toy.good.repository, good.config, repository)
    registry.put_manifest(repository.digest(good.digest), good.media_type, good.body)
    entries = [
        evil.descriptor.document(),
        {**good.descriptor.document(), "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    registry.put_manifest(tag, OCI_INDEX, body)
    done = imgtool("verify", "--locked", toy.folder, env=evil_env, check=False)
    assert done.returncode == 10
    assert "Error: master: layers: found no list of layers" in done.stderr


def test_an_image_that_is_not_there(toy: Toy, imgtool: Run) -> None:
    env = {**toy.env, "IMGTOOL_REGISTRY": f"{toy.place}/nowhere"}
    done = imgtool("verify", "--locked", toy.folder, env=env, check=False)
    assert done.returncode == 3
    assert "1 of 1 images of the current spec, lock and code are not in the registry: master" in done.stderr


def test_another_word_to_accept_is_refused(toy: Toy, imgtool: Run) -> None:
    done = imgtool("verify", "--accept", "all", toy.folder, env=toy.env, check=False)
    assert done.returncode == 2
    assert "--accept all: expected bytecode, engine, gone, attached" in done.stderr


def test_a_wheel_that_no_index_has_is_not_proven(toy: Toy, imgtool: Run, tmp_path: Path) -> None:
    env = {**toy.env, "IMGTOOL_CACHE": str(tmp_path / "cache"), "UV_FIND_LINKS": str(tmp_path)}
    env["UV_INDEX_URL"] = "http://127.0.0.1:9/simple"
    unreachable = imgtool("verify", "--locked", toy.folder, env=env, check=False)
    assert unreachable.returncode == 8  # nobody said that the wheel is gone
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))  # an index without packages
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env["UV_INDEX_URL"] = f"http://127.0.0.1:{server.server_port}/simple"
        done = imgtool("verify", "--locked", toy.folder, env=env, check=False)
        accepted = imgtool("verify", "--locked", "--accept", "gone", toy.folder, env=env)
        server.shutdown()
    assert done.returncode == 10
    assert "Error: master: image: not proven: no index of this machine has " in done.stderr
    assert "accepted" in accepted.stdout


@pytest.mark.engine
def test_the_smoke_test_imports_tensorflow_and_the_trainer(toy: Toy, imgtool: Run) -> None:
    shown = json.loads(imgtool("verify", "--locked", "--smoke", "--json", toy.folder, env=toy.env).stdout)
    checks = {check["check"]: check for check in shown["images"][0]["checks"]}
    assert {"tensorflow", "compute", "trainer"} <= checks.keys()
    assert checks["tensorflow"]["found"] == "2.15.1"
    assert checks["trainer"]["found"] == "/app/trainer/task.py"


@pytest.mark.engine
def test_a_trainer_that_raises_fails_the_smoke_test(toy: Toy, imgtool: Run) -> None:
    env = toy.faulty("raises", [{"app/trainer/task.py": b"raise ValueError('no data')\n"}], None)
    done = imgtool("verify", "--locked", "--smoke", toy.folder, env=env, check=False)
    assert done.returncode == 10
    assert "Error: master: trainer: found ValueError: no data at /app/trainer/task.py:1" in done.stderr
