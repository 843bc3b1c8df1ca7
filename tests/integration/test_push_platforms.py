"""`platform: [linux/amd64, linux/arm64]`: an image per platform without emulation, and an index that names them."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cosign import Recorder
from tests.integration.platforms_world import PLATFORMS, lock_platforms, other_platform, put_index
from tests.integration.push_world import Machine, Project, Wheels, check_whole, make_base
from tests.oci.registry.support import machine as settings_of
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import run_registry
from training_imgtool.base.reference import parse_repository
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import DOCKER_INDEX, OCI_INDEX

pytestmark = pytest.mark.registry
CRANE = shutil.which("crane")


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    with run_registry(tmp_path / "registry") as registry, FaultProxy(registry.host) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, proxy: FaultProxy) -> Project:
    base = make_base()
    project = Project(tmp_path / "project", Wheels(tmp_path / "wheels"), base)
    bases = {"linux/amd64": base, "linux/arm64": other_platform(base)}
    put_index(proxy.upstream, bases)
    spec = (project.folder / "image.yaml").read_text()
    project.write("image.yaml", f"platform: [{', '.join(PLATFORMS)}]\n{spec}")
    lock_platforms(project, bases)
    return project


@pytest.fixture
def machine(tmp_path: Path, proxy: FaultProxy, project: Project) -> Machine:
    made = Machine(tmp_path / "machine", f"{proxy.host}/team", proxy.host)
    made.give(project.wheels)
    return made


def _read(host: str, reference: str) -> dict[str, Any]:
    path, _, digest = reference.partition("/")[2].partition("@")
    request = urllib.request.Request(f"http://{host}/v2/{path}/manifests/{digest}")
    request.add_header("Accept", f"{DOCKER_INDEX}, {OCI_INDEX}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return dict(json.load(answer))


def _crane(*arguments: str) -> str:
    done = subprocess.run([str(CRANE), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_an_index_of_the_platforms(machine: Machine, project: Project, proxy: FaultProxy) -> None:
    assert (project.folder / "image.lock").is_file()
    assert (project.folder / "image.platform-linux-arm64.lock").is_file()
    images = machine.push(project)
    assert list(images) == ["master", "worker", "ps"]
    for reference in images.values():
        index = _read(proxy.host, reference)
        named = [f"{entry['platform']['os']}/{entry['platform']['architecture']}" for entry in index["manifests"]]
        assert named == PLATFORMS
        children = [f"{reference.partition('@')[0]}@{entry['digest']}" for entry in index["manifests"]]
        check_whole(proxy.host, children)
        if CRANE:
            assert "PASS" in _crane("validate", "--remote", reference)
            assert json.loads(_crane("config", "--platform", PLATFORMS[1], reference))["architecture"] == "arm64"
    proxy.clear()
    assert machine.push(project) == images
    assert sorted(proxy.methods()) == ["GET"] + ["HEAD"] * 3
    out, _ = machine.run("config", cwd=project.folder)
    assert all(reference in out for reference in images.values())


def test_one_changed_line(machine: Machine, project: Project, proxy: FaultProxy) -> None:
    before = machine.push(project)
    project.write("trainer/task.py", "print('training more')\n")
    proxy.clear()
    after = machine.push(project)
    assert not set(after.values()) & set(before.values())
    assert proxy.bytes_up() < 128 << 10
    reads = [exchange for exchange in proxy.log if exchange.method == "GET" and "/blobs/" in exchange.path]
    assert len(reads) == len(PLATFORMS)  # the configs, for the platforms in the index


@pytest.mark.long
def test_verify_looks_at_each_platform_and_at_the_index(machine: Machine, project: Project, proxy: FaultProxy) -> None:
    images = machine.push(project)

    def checks() -> list[tuple[str, str, str]]:
        process = machine.start("verify", "--role", "worker", "--json", cwd=project.folder)
        out, _ = process.communicate(timeout=120)
        rows = json.loads(out)["images"]
        assert len({row["image"] for row in rows}) == len(PLATFORMS)
        return [(row["role"], item["check"], item["status"]) for row in rows for item in row["checks"]]

    assert checks().count(("worker", "index", "ok")) == 2
    assert checks().count(("worker", "manifest", "ok")) == 2
    repository = parse_repository(images["worker"].partition("@")[0])
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        registry = registries.at(repository)
        index = registry.manifest(repository.digest(images["worker"].partition("@")[2]))
        document = json.loads(index.body)
        document["manifests"].reverse()
        for entry, platform in zip(document["manifests"], PLATFORMS, strict=True):
            entry["platform"]["architecture"] = platform.partition("/")[2]
        out, _ = machine.run("push", "--json", "--locked", cwd=project.folder)
        tag = next(row["tag"] for row in json.loads(out)["images"] if row["role"] == "worker")
        registry.put_manifest(repository.tag(tag.rpartition(":")[2]), index.media_type, json.dumps(document).encode())
    assert checks().count(("worker", "index", "MISMATCH")) == 2


def test_an_index_is_signed_after_its_images(machine: Machine, project: Project, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "bin")
    images = machine.push(project)
    machine.env["PATH"] = f"{recorder.folder}:{machine.env['PATH']}"
    out, _ = machine.run("sign", cwd=project.folder)
    assert dict(line.split(" ") for line in out.splitlines()) == images
    (call,) = recorder.calls()
    signed = [word for word in call["arguments"] if "@sha256:" in word]
    assert len(set(images.values())) == 1
    assert (len(signed), signed[-1]) == (len(PLATFORMS) + 1, images["master"])


def test_where_no_index_can_be(machine: Machine, project: Project, tmp_path: Path) -> None:
    _, said = machine.run("build", "--output", f"oci:{tmp_path / 'layout'}", cwd=project.folder, code=2)
    assert "an index of linux/amd64, linux/arm64 needs a registry" in said
    out, _ = machine.run("push", "--set", "platform=linux/arm64", "--locked", cwd=project.folder)
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize("platform", ["[]", "[linux/amd64, linux/amd64]", "[linux/amd64, linux/s390x]", "{a: b}"])
def test_lists_that_are_none(machine: Machine, project: Project, platform: str) -> None:
    text = (project.folder / "image.yaml").read_text()
    project.write("image.yaml", text.replace(f"[{', '.join(PLATFORMS)}]", platform))
    _, said = machine.run("push", cwd=project.folder, code=3)
    assert "image.yaml:1:" in said
    assert "platform" in said
