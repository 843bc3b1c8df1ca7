"""Direct images, read by others: Docker runs it; crane, skopeo, buildah and umoci find nothing wrong.

Bases of both families and every compression. A reader that is not on this machine is a skip that says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.integration.conftest import BASE
from tests.integration.push_world import Base, Machine, Project, Wheels, document
from tests.oci.registry.support import machine as settings_of
from training_imgtool.base.reference import Digest, parse_reference, parse_repository
from training_imgtool.base.settings import from_environment
from training_imgtool.make.engines.docker.connect import connect
from training_imgtool.make.engines.pull import pull_image
from training_imgtool.oci.machine import Machine as OpenMachine
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import DOCKER_MANIFEST, OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST

pytestmark = [pytest.mark.engine]
PATH = f"{os.environ.get('IMGTOOL_PEERS', '')}/bin{os.pathsep}{os.environ.get('PATH', '')}"
MODULE = b"""
import sys, pathlib
here = pathlib.Path(__file__).parent
compiled = pathlib.Path(__cached__).exists()
print(len((here / "data.bin").read_bytes()), compiled, __cached__.endswith("cpython-311.pyc"))
"""
SAID = "1500000 True True"
FAMILIES = {"docker": DOCKER_MANIFEST, "oci": OCI_MANIFEST}
KINDS = [f"{family} {how}" for family in FAMILIES for how in ("gzip", "zstd")]
SAMPLE = ("docker gzip", "oci zstd")  # of each family one, of each kind of compressed data one


def _tool(name: str) -> str:
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"{name} is not on this machine (PATH, IMGTOOL_PEERS)")
    return found


def _run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]} {command[1]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout.strip()


def _base(registry: str, family: str) -> Base:
    """The services' base with a manifest of the family; the other one is put beside it."""
    repository = parse_repository(f"{registry}/{BASE.partition(':')[0]}")
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        client = registries.at(repository)
        manifest = client.manifest(repository.tag(BASE.partition(":")[2]), "linux/amd64")
        base = Base(manifest.body, client.read(repository, manifest.config), b"", manifest.media_type)
        if family == "docker" or manifest.media_type == OCI_MANIFEST:
            return base
        oci = json.loads(base.manifest)
        oci["mediaType"] = OCI_MANIFEST
        oci["config"]["mediaType"] = OCI_CONFIG
        for layer in oci["layers"]:
            layer["mediaType"] = OCI_LAYER_GZIP
        base = replace(base, manifest=json.dumps(oci).encode(), media_type=OCI_MANIFEST)
        client.put_manifest(repository.digest(base.digest), OCI_MANIFEST, base.manifest)
    return base


class Pushed:
    """One image of each role, pushed by `imgtool`, and the same in an OCI layout."""

    def __init__(self, folder: Path, registry: str, family: str, compression: str) -> None:
        self.registry, self.family, self.compression = registry, family, compression
        wheels = Wheels(folder / "wheels")
        wheels.add("heavy", {"heavy/__init__.py": MODULE, "heavy/data.bin": bytes(1_500_000)})
        self.project = Project(
            folder / "project", wheels, _base(registry, family), more=f"compression: {compression}\n"
        )
        self.project.write("trainer/task.py", "import heavy\n")
        place = f"{registry}/test/readers-{os.getpid()}-{family}-{compression}"
        self.machine = Machine(folder / "machine", place, registry)
        self.machine.give(wheels)
        self.images = self.machine.push(self.project)

    def layout(self, folder: Path) -> Path:
        """An OCI layout of the same."""
        self.machine.run("build", "--locked", "--output", f"oci:{folder}", cwd=self.project.folder)
        return folder


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=() if kind in SAMPLE else pytest.mark.long) for kind in KINDS]
)
def pushed(
    request: pytest.FixtureRequest, registry_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pushed]:
    family, compression = request.param.split()
    folder = tmp_path_factory.mktemp(f"{family}-{compression}")
    yield Pushed(folder, registry_address, family, compression)
    shutil.rmtree(folder)


def test_the_manifest_is_of_the_bases_family(pushed: Pushed) -> None:
    manifest = document(pushed.registry, pushed.images["worker"])
    zstd = pushed.compression == "zstd"  # which exists in OCI's family only
    assert manifest["mediaType"] == (OCI_MANIFEST if zstd else FAMILIES[pushed.family])
    assert any(layer["mediaType"].endswith("zstd") for layer in manifest["layers"]) is zstd
    assert len({layer["digest"] for layer in manifest["layers"]}) == len(manifest["layers"])


@pytest.mark.long
def test_docker_runs_it(pushed: Pushed, tmp_path: Path) -> None:
    """Docker before 23 reads no zstd layers, and gets the same image loaded."""
    image = parse_reference(pushed.images["worker"])
    assert isinstance(image, Digest)
    version = _run("docker", "version", "--format", "{{.Server.Version}}")
    settings = from_environment({**os.environ, "IMGTOOL_CACHE": str(tmp_path)})
    engine = connect(settings)
    old = int(version.partition(".")[0]) < 23
    assert engine.reads_zstd is not old
    with OpenMachine.open(settings) as machine:
        key = image.digest.partition(":")[2]
        pull = partial(pull_image, image, key, platform="linux/amd64", engine=engine, machine=machine)
        names = [pull() for _ in "12"]
    try:
        config = document(pushed.registry, str(image))["config"]["digest"]
        assert names == [config if old and pushed.compression == "zstd" else str(image)] * 2
        assert _run("docker", "run", "--rm", "--network=none", names[0]) == SAID
    finally:
        engine.close()
        _run("docker", "rmi", "--force", names[0])


@pytest.mark.long
def test_docker_loads_it(pushed: Pushed) -> None:
    """`build --engine direct`: an archive that never was in a registry, of the same image under any compression."""
    env = {"DOCKER_HOST": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")}
    out, _ = pushed.machine.run(
        *("build", "--locked", "--engine", "direct", "--role", "ps"), cwd=pushed.project.folder, env=env
    )
    image = out.split()[1]
    try:
        assert _run("docker", "run", "--rm", "--network=none", image) == SAID
        config = document(pushed.registry, pushed.images["ps"])["config"]["digest"]
        assert _run("docker", "inspect", "--format", "{{.Id}}", image) == config
    finally:
        _run("docker", "rmi", "--force", image)


def test_crane_validates_it(pushed: Pushed) -> None:
    """Every digest, every size, every diff ID."""
    if pushed.compression == "zstd":
        pytest.skip("crane takes every layer for gzip")
    assert "PASS" in _run(_tool("crane"), "validate", "--remote", pushed.images["worker"])


def test_skopeo_copies_it(pushed: Pushed, tmp_path: Path) -> None:
    source = f"docker://{pushed.images['worker']}"
    skopeo = _tool("skopeo")
    inspected = json.loads(_run(skopeo, "inspect", "--tls-verify=false", source))
    assert pushed.images["worker"].endswith(inspected["Digest"])
    _run(skopeo, "copy", "--quiet", "--src-tls-verify=false", source, f"oci:{tmp_path / 'copy'}:image")
