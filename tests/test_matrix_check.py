"""`scripts/matrix-check` against an index and a registry on loopback: no false alarm, every seeded difference named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.registry.support import image, machine
from tests.servers.scripted import Asked, Reply, ScriptedServer
from training_imgtool.pipeline.current_lock import find_moved_bases
from training_imgtool.plan import Lock
from training_imgtool.registry.manifests import OCI_INDEX, OCI_MANIFEST, sha256_digest
from training_imgtool.versions.matrix import Matrix, load_matrix

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/matrix-check"
PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-tpu")
MATRIX = load_matrix()


@dataclass
class World:
    """What the index and the registry answer: just what the matrix says, until a test changes it."""

    pages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    images: dict[str, bytes] = field(default_factory=dict)  # a tag's config, by REPOSITORY:TAG
    platforms: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of tags that name an index

    def reply(self, asked: Asked) -> Reply:
        """An answer of the index below /simple, else of the registry."""
        kind, _, name = asked.target.strip("/").partition("/")
        if kind == "simple":
            page = json.dumps({"meta": {"api-version": "1.0"}, "files": self.pages[name]}).encode()
            return Reply(200, page, {"Content-Type": "application/vnd.pypi.simple.v1+json"})
        repository, what, reference = name.rsplit("/", 2)
        if what == "blobs":
            return Reply(200, next(c for c in self.images.values() if sha256_digest(c) == reference))
        content = self.images.get(f"{repository}:{reference}", self.images.get(reference))
        if content is None:
            return Reply(404)
        body, kind = image(config_content=content), OCI_MANIFEST
        if platforms := self.platforms.get(f"{repository}:{reference}"):
            row = {"mediaType": OCI_MANIFEST, "digest": sha256_digest(body), "size": len(body)}
            names = [dict(zip(("os", "architecture"), name.split("/"), strict=True)) for name in platforms]
            rows = [row | {"platform": name} for name in names]
            body, kind = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": rows}).encode(), OCI_INDEX
            self.images[row["digest"]] = content  # type: ignore[index]
        return Reply(200, body, {"Content-Type": kind, "Docker-Content-Digest": sha256_digest(body)})

    def page(self, package: str, version: str) -> list[dict[str, Any]]:
        """The files of one version on a package's page."""
        return [row for row in self.pages[package] if row["filename"].split("-")[1] == version]


def _tag(python: str, machine: str = "x86_64") -> str:
    name = f"cp{python.replace('.', '')}"
    return f"{name}-{name}-manylinux_2_17_{machine}.manylinux2014_{machine}"


def _pages(matrix: Matrix) -> dict[str, list[dict[str, Any]]]:
    pages: dict[str, list[dict[str, Any]]] = {package: [] for package in PACKAGES}
    for minor in matrix.minors.values():
        for release in minor.releases.values():
            for package in release.packages:
                names = [f"{package.replace('-', '_')}-{release.version}-{_tag(p)}.whl" for p in release.pythons]
                if package == "tensorflow":
                    names += [f"tensorflow-{release.version}-{_tag(p, 'aarch64')}.whl" for p in release.pythons_arm]
                pages[package] += [{"filename": name, "url": name, "hashes": {}, "yanked": False} for name in names]
    for strange in (
        "tensorflow-2.99.0rc1-cp312-cp312-manylinux_2_17_x86_64.whl",
        "tensorflow-1.0.tar.gz",
        "tensorflow-2.15.1-cp313-cp313t-manylinux_2_17_x86_64.whl",  # a free-threaded Python
        "tensorflow-2.15.1-cp314-cp314-musllinux_1_2_x86_64.whl",
        "tensorflow-2.15.1-cp314-cp314-macosx_12_0_x86_64.whl",
    ):
        pages["tensorflow"].append({"filename": strange, "url": strange, "hashes": {}})
    return pages


def _images(matrix: Matrix) -> dict[str, bytes]:
    tags = {base.tag for minor in matrix.minors.values() for base in minor.bases}
    cuda = {
        f"nvidia/cuda:{tag}": [
            f"CUDA_VERSION={matrix.cuda_images[tag].cuda}",
            f"NV_CUDNN_VERSION={matrix.cuda_images[tag].cudnn}-1",
        ]
        for tag in tags
    }
    python = {f"library/python:{row.tag}": ["PYTHON_VERSION=3.11.9"] for row in matrix.python_images.values()}
    return {
        name: json.dumps({"os": "linux", "architecture": "amd64", "config": {"Env": env}}).encode()
        for name, env in {**cuda, **python}.items()
    }


@pytest.fixture
def world() -> World:
    return World(_pages(MATRIX), _images(MATRIX))


@pytest.fixture
def server(world: World) -> Iterator[ScriptedServer]:
    with ScriptedServer(world.reply) as server:
        yield server


def _check(server: ScriptedServer, folder: Path, *release: str) -> tuple[int, set[str]]:
    """The exit status and the differences."""
    own = {
        "IMGTOOL_MIRRORS": f"docker.io={server.host}",
        "UV_DEFAULT_INDEX": f"http://{server.host}/simple",
        "IMGTOOL_CACHE": str(folder / "cache"),
        "PIP_CONFIG_FILE": "/dev/null",
    }
    command = (sys.executable, str(SCRIPT), *release)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))} | own
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    lines = set(done.stdout.splitlines())
    assert done.stderr.endswith(f": {len(lines)} differences\n")
    return done.returncode, lines


def test_what_agrees_is_no_difference(server: ScriptedServer, tmp_path: Path) -> None:
    assert _check(server, tmp_path) == (0, set())
    assert len(server.asked) <= 60


def test_each_difference_is_named(world: World, server: ScriptedServer, tmp_path: Path) -> None:
    for name in ("tensorflow-2.15.9-cp311-cp311-manylinux2014_x86_64.whl", f"tensorflow-2.99.0-{_tag('3.14')}.whl"):
        world.pages["tensorflow"].append({"filename": name, "url": name, "hashes": {}})
    for row in world.page("tensorflow", "2.16.2"):
        row["yanked"] = "broken on purpose"
    world.pages["tensorflow-cpu"].remove(world.page("tensorflow-cpu", "2.17.1")[0])
    world.page("tensorflow", "2.18.0")[0]["yanked"] = "this file alone"
    world.pages["tensorflow"].remove(world.page("tensorflow", "2.19.0")[-1])
    del world.images["library/python:3.11-slim-bookworm"]
    cuda = "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"
    world.images[cuda] = world.images[cuda].replace(b"8.9.6.50-1", b"8.9.7.29-1")
    world.platforms["nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04"] = ("linux/arm64",)
    pythons, some = MATRIX.release("2.17.1")[1].pythons, MATRIX.release("2.18.0")[1].pythons
    arm = MATRIX.release("2.19.0")[1].pythons_arm
    status, lines = _check(server, tmp_path)
    assert status == 1
    expected = {
        "tensorflow 2.15.9: on the index, not in the matrix",
        "tensorflow 2.99.0: on the index, not in the matrix",
        "tensorflow 2.16.2: yanked: broken on purpose",
        f"tensorflow-cpu 2.17.1 for x86_64: expected {' '.join(pythons)}, found {' '.join(pythons[1:])}",
        f"tensorflow 2.18.0 for x86_64: expected {' '.join(some)}, found {' '.join(some[1:])}",
        f"tensorflow 2.19.0 for aarch64: expected {' '.join(arm)}, found {' '.join(arm[:-1])}",
        f"{cuda}: expected NV_CUDNN_VERSION 8.9.6.50, found 8.9.7.29",
    }
    assert expected < lines
    rest = {line.partition("-slim")[0].partition("-cudnn8")[0] for line in lines - expected}
    assert rest == {"python:3.11", "nvidia/cuda:11.2.2"}


def test_a_locked_base_that_moved_or_went(world: World, server: ScriptedServer, tmp_path: Path) -> None:
    """`imgtool lock` says so of a lock that stays."""
    name = "library/python:3.11-slim-bookworm"
    digest = sha256_digest(image(config_content=world.images[name]))
    variants = (replace(plans.locked(base="python:3.11-slim-bookworm"), base_digest=digest),)
    lock = Lock(inputs="", platform="linux/amd64", variants=variants)
    settings = machine(tmp_path, IMGTOOL_MIRRORS=f"docker.io={server.host}")
    assert find_moved_bases([lock], settings) == {}
    world.platforms[name] = ("linux/arm64",)
    assert "has no image for linux/amd64" in find_moved_bases([lock], settings)["python:3.11-slim-bookworm"]
    del world.platforms[name]
    world.images[name] = world.images[name].replace(b"3.11.9", b"3.11.10")
    moved = f"the lock has {digest}, the registry answers {sha256_digest(image(config_content=world.images[name]))}"
    assert find_moved_bases([lock], settings) == {"python:3.11-slim-bookworm": moved}
    del world.images[name]
    assert "no such tag any more" in find_moved_bases([lock], settings)["python:3.11-slim-bookworm"]
    settings = machine(tmp_path, IMGTOOL_MIRRORS="docker.io=127.0.0.1:9")
    assert find_moved_bases([lock], settings) == {}
