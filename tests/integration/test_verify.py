"""`imgtool verify` against a registry: a good image passes, and what somebody put in its place is named."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.conftest import Run
from tests.integration.verify_world import Toy, open_toy
from training_imgtool.base.settings import from_environment
from training_imgtool.oci.repository.stored_wheels import StoredWheels
from training_imgtool.resolve.wheels.store import WheelStore

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


def test_a_tampered_image_ends_with_10_and_a_line(toy: Toy, imgtool: Run) -> None:
    env = toy.faulty("more", {f"{SITE}/evil.pth": b"import os\n"})
    done = imgtool("verify", "--locked", toy.folder, env=env, check=False)
    assert done.returncode == 10, done.stderr
    assert "Error: master: layers: found " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_image_that_is_not_there(toy: Toy, imgtool: Run) -> None:
    env = {**toy.env, "IMGTOOL_REGISTRY": f"{toy.place}/nowhere"}
    done = imgtool("verify", "--locked", toy.folder, env=env, check=False)
    assert done.returncode == 3
    assert "1 of 1 images of the current spec, lock and code are not in the registry: master" in done.stderr


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
        (locked,) = toy.inputs.lock.variants
        settings = from_environment({**os.environ, **toy.env})
        for wheel in (locked.installer, *locked.wheels):
            path = WheelStore(settings).require(wheel)
            StoredWheels(toy.registries, toy.good.repository).keep(wheel, path)
        kept = imgtool("verify", "--locked", toy.folder, env=env)
        server.shutdown()
    assert done.returncode == 10
    assert "Error: master: image: not proven: no index of this machine has " in done.stderr
    assert "accepted" in accepted.stdout
    assert "\nlayers        master  ok" in kept.stdout


@pytest.mark.engine
def test_the_smoke_test_imports_tensorflow_and_the_trainer(toy: Toy, imgtool: Run) -> None:
    shown = json.loads(imgtool("verify", "--locked", "--smoke", "--json", toy.folder, env=toy.env).stdout)
    checks = {check["check"]: check for check in shown["images"][0]["checks"]}
    assert {"tensorflow", "compute", "trainer"} <= checks.keys()
    assert checks["tensorflow"]["found"] == "2.15.1"
    assert checks["trainer"]["found"] == "/app/trainer/task.py"


@pytest.mark.engine
def test_a_trainer_that_reads_tf_config_as_it_is_imported_is_fine(toy: Toy, imgtool: Run) -> None:
    code = b"import json, os\nassert json.loads(os.environ['TF_CONFIG'])['task'] == {'type': 'chief', 'index': 0}\n"
    env = toy.faulty("reads", {"app/trainer/task.py": code})
    done = imgtool("verify", "--locked", "--smoke", "--role", "master", toy.folder, env=env, check=False)
    assert "master: layers: found" in done.stderr  # it is another image than the one made here
    assert "trainer: found" not in done.stderr


@pytest.mark.engine
def test_a_trainer_that_raises_fails_the_smoke_test(toy: Toy, imgtool: Run) -> None:
    env = toy.faulty("raises", {"app/trainer/task.py": b"raise ValueError('no data')\n"})
    done = imgtool("verify", "--locked", "--smoke", toy.folder, env=env, check=False)
    assert done.returncode == 10
    assert "Error: master: trainer: found ValueError: no data at /app/trainer/task.py:1" in done.stderr
