"""`imgtool compat --check` against an index and a registry on loopback: no false alarm, every seeded drift named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.registry.support import clients, image, machine
from tests.servers.scripted import Asked, Reply, ScriptedServer
from training_imgtool.commands.drift import PACKAGES, DriftReport, find_drifts, lock_drifts
from training_imgtool.core.settings import Settings
from training_imgtool.plan import Lock
from training_imgtool.registry.manifests import OCI_INDEX, OCI_MANIFEST, sha256_digest
from training_imgtool.versions.matrix import Matrix, load_matrix
from training_imgtool.wheels.index.index import open_index

MATRIX = load_matrix()
LOGIN = b"<!doctype html><title>Sign in</title><form action=/session><input name=user><a href=/reset>Forgot?</a></form>"


@dataclass
class World:
    """What the index and the registry answer: just what the matrix says, until a test changes it."""

    pages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    images: dict[str, bytes] = field(default_factory=dict)  # a tag's config, by REPOSITORY:TAG
    platforms: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of tags that name an index
    down: bool = False
    login: str = ""  # a page of people's own instead of every answer below this path
    status: dict[str, int] = field(default_factory=dict)  # an empty answer instead, by the start of its path
    moved: str = ""  # where the registry sends its readers

    def reply(self, asked: Asked) -> Reply:
        """An answer of the index below /simple, else of the registry."""
        if (odd := self._odd_reply(asked.target)) is not None:
            return odd
        kind, _, name = asked.target.removeprefix(self.moved).strip("/").partition("/")
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

    def _odd_reply(self, target: str) -> Reply | None:
        """What a server answers that is down, has no page, has moved its content, or wants a login on a web page."""
        if status := next((status for start, status in self.status.items() if target.startswith(start)), 0):
            return Reply(status)
        if self.moved and target.startswith("/v2/") and target != "/v2/":
            return Reply(307, b"", {"Location": f"{self.moved}{target}"})
        if self.down:
            return Reply(404) if "/simple/" in target else Reply(403)
        if target.startswith("/login"):
            return Reply(200, LOGIN, {"Content-Type": "text/html; charset=utf-8"})
        return Reply(302, b"", {"Location": "/login?next=here"}) if self.login and self.login in target else None

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


def _settings(server: ScriptedServer, folder: Path) -> Settings:
    index = f"http://{server.host}/simple"
    return machine(folder, IMGTOOL_MIRRORS=f"docker.io={server.host}", UV_DEFAULT_INDEX=index)


def _check(server: ScriptedServer, folder: Path, **options: Any) -> DriftReport:
    settings = _settings(server, folder)
    with clients(settings) as registries:
        return find_drifts(MATRIX, open_index(settings, folder), registries, **options)


def test_what_agrees_is_no_drift_and_takes_few_requests(server: ScriptedServer, tmp_path: Path) -> None:
    report = _check(server, tmp_path)
    assert (report.drifts, report.unanswered) == ((), ())
    assert report.subjects == 21
    assert len(server.asked) <= 60


def test_each_drift_is_named(world: World, server: ScriptedServer, tmp_path: Path) -> None:
    for name in ("tensorflow-2.15.9-cp311-cp311-manylinux2014_x86_64.whl", f"tensorflow-2.99.0-{_tag('3.14')}.whl"):
        world.pages["tensorflow"].append({"filename": name, "url": name, "hashes": {}})
    for row in world.page("tensorflow", "2.16.2"):
        row["yanked"] = "broken on purpose"
    for package in ("tensorflow", "tensorflow-cpu"):
        world.pages[package].remove(world.page(package, "2.17.1")[0])
    world.page("tensorflow", "2.18.0")[0]["yanked"] = "this file alone"
    world.pages["tensorflow"].remove(world.page("tensorflow", "2.19.0")[-1])
    world.pages["tensorflow-tpu"].clear()
    del world.images["library/python:3.11-slim-bookworm"]
    other = world.images["nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"]
    world.images["nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"] = other.replace(b"8.9.6.50-1", b"8.9.7.29-1")
    del world.images["nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04"]
    pythons, some = MATRIX.release("2.17.1")[1].pythons, MATRIX.release("2.18.0")[1].pythons
    arm = MATRIX.release("2.19.0")[1].pythons_arm
    assert {drift.subject: (drift.expected, drift.actual) for drift in _check(server, tmp_path).drifts} == {
        "tensorflow 2.15.9": ("not in the matrix", "on the index"),
        "tensorflow 2.99.0": ("not in the matrix", "on the index"),
        "tensorflow 2.16.2": ("on the index", "yanked: broken on purpose"),
        "tensorflow 2.17.1": (f"Python {' '.join(pythons)}", f"Python {' '.join(pythons[1:])}"),
        "tensorflow-cpu 2.17.1": (f"Python {' '.join(pythons)}", f"Python {' '.join(pythons[1:])}"),
        "tensorflow 2.18.0": (f"Python {' '.join(some)}", f"Python {' '.join(some[1:])}"),
        "tensorflow 2.19.0 for aarch64": (f"Python {' '.join(arm)}", f"Python {' '.join(arm[:-1])}"),
        "tensorflow-tpu": ("on the index", "no wheel for Linux on x86_64 of any release"),
        "python:3.11-slim-bookworm": ("a tag of the registry", "no such tag"),
        "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04": ("cuDNN 8.9.6.50", "cuDNN 8.9.7.29"),
        "nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04": ("a tag of the registry", "no such tag"),
    }


def test_one_minor_alone(world: World, server: ScriptedServer, tmp_path: Path) -> None:
    for package in ("tensorflow", "tensorflow-cpu"):
        world.pages[package] = [row for row in world.pages[package] if "-2.15.1-" not in row["filename"]]
    report = _check(server, tmp_path, release="2.15")
    assert [drift.subject for drift in report.drifts] == ["tensorflow 2.15.1", "tensorflow-cpu 2.15.1"]
    assert _check(server, tmp_path, release="2.14").drifts == ()


def test_a_locked_base_that_moved_or_went(world: World, server: ScriptedServer, tmp_path: Path) -> None:
    name = "library/python:3.11-slim-bookworm"
    digest = sha256_digest(image(config_content=world.images[name]))
    variants = (replace(plans.locked(base="python:3.11-slim-bookworm"), base_digest=digest),)
    lock = Lock(inputs="", platform="linux/amd64", variants=variants)
    settings = _settings(server, tmp_path)
    assert lock_drifts(lock, settings) == ()
    world.images[name] = world.images[name].replace(b"3.11.9", b"3.11.10")
    moved = sha256_digest(image(config_content=world.images[name]))
    assert [(drift.expected, drift.actual) for drift in lock_drifts(lock, settings)] == [(digest, moved)]
    del world.images[name]
    assert [drift.actual for drift in lock_drifts(lock, settings)] == ["no such tag any more"]
    assert "no such tag any more" in _check(server, tmp_path, locks=(lock,)).as_text()


def test_no_answer_is_not_agreement(world: World, server: ScriptedServer, tmp_path: Path) -> None:
    world.down = True
    report = _check(server, tmp_path, release="2.20")
    assert any(row.subject.startswith("nvidia/cuda:") for row in report.unanswered)
    assert {row.error.exit_code for row in report.unanswered} == {7}


def test_a_base_that_lost_a_platform(world: World, server: ScriptedServer, tmp_path: Path) -> None:
    python, cuda = "library/python:3.11-slim-bookworm", "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"
    world.platforms = {python: ("linux/amd64", "linux/arm64"), cuda: ("linux/amd64", "linux/arm64")}
    assert _check(server, tmp_path).drifts == ()
    variants = (
        replace(
            plans.locked(base="python:3.11-slim-bookworm"),
            base_digest=sha256_digest(image(config_content=world.images[python])),
        ),
    )
    lock = Lock(inputs="", platform="linux/amd64", variants=variants)
    settings = _settings(server, tmp_path)
    assert lock_drifts(lock, settings) == ()
    world.platforms = {python: ("linux/arm64",), cuda: ("linux/arm64", "linux/ppc64le")}
    report = _check(server, tmp_path)
    assert report.unanswered == ()
    assert {drift.subject: (drift.expected, drift.actual) for drift in report.drifts} == {
        "python:3.11-slim-bookworm": ("an image for linux/amd64", "images for linux/arm64"),
        cuda: ("an image for linux/amd64", "images for linux/arm64, linux/ppc64le"),
    }
    (drift,) = lock_drifts(lock, settings)
    assert "has no image for linux/amd64" in drift.actual


@pytest.mark.parametrize(
    ("below", "who"), [("/simple/tensorflow-gpu", "tensorflow-gpu"), ("/v2/nvidia", "nvidia/cuda:")]
)
def test_a_login_page_is_no_answer(world: World, server: ScriptedServer, tmp_path: Path, below: str, who: str) -> None:
    """Its code is not that of a difference."""
    world.login = below
    report = _check(server, tmp_path, release="2.15")
    assert report.drifts == ()
    assert report.unanswered
    assert all(row.subject.startswith(who) and row.code == 6 for row in report.unanswered)


@pytest.mark.parametrize(("status", "codes"), [(404, None), (410, None), (304, [8]), (204, [8]), (401, [7])])
def test_an_index_without_a_page(
    world: World, server: ScriptedServer, tmp_path: Path, status: int, codes: list[int] | None
) -> None:
    """Only an answer that the package is not there is a difference."""
    world.status["/simple/tensorflow-gpu"] = status
    report = _check(server, tmp_path, release="2.5")
    assert [drift.subject for drift in report.drifts] == ([] if codes else ["tensorflow-gpu"])
    assert [row.code for row in report.unanswered] == (codes or [])


def test_a_registry_that_redirects_is_followed(world: World, server: ScriptedServer, tmp_path: Path) -> None:
    world.moved = "/storage"
    report = _check(server, tmp_path)
    assert (report.drifts, report.unanswered) == ((), ())
    assert len(server.asked) <= 60
