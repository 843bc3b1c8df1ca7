"""The direct image against the one that the Docker Engine builds from the same text: tree, settings, and use."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests import plans
from tests.direct import wheels
from tests.direct.wheels import Node
from training_imgtool.context.context import Context, scan
from training_imgtool.core.reference import Digest, Repository, Tag, parse_repository
from training_imgtool.core.settings import from_environment
from training_imgtool.direct.base_files import BaseReader
from training_imgtool.direct.build import ParentImage, build_image, plan_stages
from training_imgtool.direct.image.image import DirectImage, StoredImage
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.stage_plan import StageInputs, split_stages
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.parse import parse
from training_imgtool.dockerfile.render import TemplateRoots, render
from training_imgtool.pipeline.run_wheels import with_wheels
from training_imgtool.plan import LockedVariant, Wheel
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import Manifest
from training_imgtool.spec.model import Role
from training_imgtool.wheels.interpreters import find_interpreter

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

PIP = "pip==24.3.1"
COMPARED = (
    *("Cmd", "Entrypoint", "Env", "ExposedPorts", "Healthcheck", "Labels"),
    *("Shell", "StopSignal", "User", "Volumes", "WorkingDir"),
)
OF_THE_ENGINE = ("/.dockerenv", "/dev", "/etc/hostname", "/etc/hosts", "/etc/mtab", "/etc/resolv.conf", "/proc", "/sys")
MODULES = {
    "scripts-and-data": "rich, jupyter_core, clang.cindex",
    "namespaces-and-pth": "zope.interface, google.api_core, setuptools",
    "tensorflow": "tensorflow, sklearn",
}

# What instructions a role's own template may add; everything the direct builder takes on.
EXTRA = """
EXPOSE 2222 6006/tcp 8470-8472/udp
VOLUME ["/scratch"]
STOPSIGNAL SIGINT
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
HEALTHCHECK --interval=1m30s --timeout=3s --retries=2 CMD test -e /app/trainer
ARG flavour=plain
ENV FLAVOUR="${flavour} one" PLACE=$PATH
ADD trainer/task.py /opt/extra/
COPY --chown=1000:1000 trainer /home-of-one
COPY trainer/task.py /home-of-one/again/
WORKDIR sub/folder
CMD ["--epochs=1"]
"""


@dataclass(frozen=True)
class Place:
    """A repository of this test, the base in it, and the client."""

    registries: Registries
    repository: Repository
    base: Manifest
    base_config: bytes
    base_repository: Repository

    @property
    def base_digest(self) -> Digest:
        return self.base_repository.digest(self.base.digest)


@pytest.fixture
def place(registry_address: str, tmp_path: Path) -> Iterator[Place]:
    source = parse_repository(f"{registry_address}/library/python")
    settings = from_environment({"HOME": str(tmp_path), "IMGTOOL_CACHE": str(tmp_path / "cache")})
    with Registries(settings) as registries:
        client = registries.at(source)
        base = client.manifest(source.tag("3.11-slim-bookworm"), "linux/amd64")
        config = client.read(source, base.config)
        name = f"{registry_address}/test/direct-{os.getpid()}-{tmp_path.name.replace('_', '-')}"
        yield Place(registries, parse_repository(name.lower()), base, config, source)


SETS = {
    "scripts-and-data": ["ninja==1.11.1.1", "jupyter-core==5.7.2", "libclang==18.1.1", "rich==13.9.4"],
    "namespaces-and-pth": [
        "zope.interface==7.1.1",
        "zope.event==5.0",
        "sphinxcontrib-jsmath==1.0.1",
        "google-api-core==2.23.0",
        "setuptools==75.6.0",
    ],
    "tensorflow": ["tensorflow-cpu==2.15.1", "scikit-learn==1.5.2"],
}


@dataclass(frozen=True)
class Case:
    """One image: its text, and all that it is made from."""

    text: str
    locked: LockedVariant
    exclude: tuple[str, ...]
    folder: Path
    files: dict[str, Path]
    work: Path

    @property
    def context(self) -> Context:
        return with_wheels(scan(self.folder, only=("trainer",)), self.locked)


def _case(name: str, place: Place, work: Path) -> Case:
    files = wheels.download(work / "wheels", *SETS[name])
    (pip,) = wheels.download(work / "pip", PIP)
    locked = wheels.locked([file for file in files if not file.name.startswith("pip-")], pip)
    exclude = ("tensorflow/include", "rich/__main__.py")
    folder = _spec_folder(work)
    plan = plans.role_plan(
        Role.WORKER, locked_variant=locked, base=place.base_digest, exclude=exclude, env={"A": 'b "c"'}
    )
    text = render(plan, roots=TemplateRoots(folder), key=None) + EXTRA
    return Case(text, locked, exclude, folder, {file.name: file for file in [*files, pip]}, work)


@pytest.mark.long  # test_direct_pip and test_campaign are its sample
@pytest.mark.parametrize("name", SETS)
def test_the_direct_image_is_the_engines(name: str, place: Place, tmp_path: Path) -> None:
    case = _case(name, place, tmp_path)
    direct = _direct(case, place)
    assert len(direct.layers) > 4
    assert len({*direct.diff_ids}) == len(direct.diff_ids)
    pushed = _push(direct, place)
    built = _engine_build(case, place)
    _docker("pull", "--quiet", str(pushed))
    try:
        differing = _differences(_export(built), _export(str(pushed)))
        assert not differing, f"{len(differing)} differ:\n" + "\n".join(differing[:20])
        _equal_settings(built, str(pushed))
        command = f"import {MODULES[name]}; print('imported')"
        ran = _docker("run", "--rm", "--entrypoint", "/opt/venv/bin/python", str(pushed), "-c", command)
        assert ran.endswith("imported")
        inspected = json.loads(_run("skopeo", "inspect", "--tls-verify=false", f"docker://{pushed}"))
        assert inspected["Digest"] == direct.digest
        assert len(inspected["Layers"]) == len(direct.diff_ids)
        layout = f"oci:{tmp_path / 'skopeo'}:image"
        _run("skopeo", "copy", "--quiet", "--src-tls-verify=false", f"docker://{pushed}", layout)
    finally:
        _docker("rmi", "--force", str(pushed), built)


def _spec_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "spec"
    (folder / "trainer" / "deep" / "er").mkdir(parents=True)
    (folder / "trainer" / "__init__.py").write_text("")
    (folder / "trainer" / "task.py").write_text("print('trained')\n")
    script = folder / "trainer" / "deep" / "er" / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o750)
    (folder / "trainer" / "link.py").symlink_to("task.py")
    (folder / "trainer" / ("long" * 40)).write_text("a long name\n")
    return folder


def _direct(case: Case, place: Place) -> DirectImage:
    dockerfile = parse(case.text)
    inputs = StageInputs(context=case.context, locked=case.locked, exclude=case.exclude)
    way = split_stages(dockerfile, "worker", inputs)
    assert way.base == place.base_digest
    assert way.engine_stage is None

    def wheel_path(wheel: Wheel) -> Path:
        return case.files[wheel.file]

    tools = LayerTools(
        cache=LayerCache(case.work / "layers"),
        wheel_path=wheel_path,
        find_interpreter=lambda python: find_interpreter(python, os.environ),
    )
    cache = LayerCache(case.work / "files")
    client = place.registries.at(place.base_repository)
    files = BaseReader(cache).files(
        "docker.io/library/python:3.11-slim-bookworm",
        lambda: place.base.layers,
        lambda layer: client.blob(place.base_repository, layer),
    )
    parent = ParentImage(stored=StoredImage(place.base, place.base_config, place.base_repository), files=files)
    planned = plan_stages(dockerfile, way.stages, inputs, parent)
    return build_image(planned, inputs, tools, parent=parent)


def _push(image: DirectImage, place: Place) -> Digest:
    client = place.registries.at(place.repository)
    for layer in image.base_layers:
        place.registries.copy_blob(place.base_repository, layer, place.repository)
    for source in image.layers:
        client.upload(place.repository, source.descriptor, source.open)
    client.upload(place.repository, image.config_descriptor, lambda: iter((image.config,)))
    tag: Tag = place.repository.tag("direct")
    assert client.put_manifest(tag, image.manifest_type, image.manifest) == image.digest
    return place.repository.digest(image.digest)


def _engine_build(case: Case, place: Place) -> str:
    root, locked = case.work / "context", case.locked
    folder = root / install_step.context_folder(locked)
    (folder / "installer").mkdir(parents=True)
    for wheel in locked.wheels:
        os.link(case.files[wheel.file], folder / wheel.file)
    os.link(case.files[locked.installer.file], folder / "installer" / locked.installer.file)
    (folder / install_step.REQUIREMENTS).write_text(install_step.requirements_text(locked))
    with (case.work / "trainer.tar").open("wb") as stream:
        scan(case.folder, only=("trainer",)).write_tar(stream)
    subprocess.run(["tar", "-xpf", case.work / "trainer.tar", "-C", root], check=True)
    (root / "Dockerfile").write_text(case.text)
    _docker("pull", "--quiet", str(place.base_digest))
    return _docker("build", "--quiet", str(root), env={"DOCKER_BUILDKIT": "0"})


def _differences(built: dict[str, Node], direct: dict[str, Node]) -> list[str]:
    """Paths that differ. Of bytecode only the bytes may, as its compiler was another release of the same minor."""

    def compared(path: str, node: Node | None) -> Node | None:
        return replace(node, size=0, content="") if node and path.endswith(".pyc") else node

    return [
        f"{path}: engine {built.get(path)}, direct {direct.get(path)}"
        for path in sorted({*built, *direct})
        if not path.startswith(OF_THE_ENGINE) and compared(path, built.get(path)) != compared(path, direct.get(path))
    ]


def _equal_settings(built: str, direct: str) -> None:
    found = [json.loads(_docker("inspect", name))[0] for name in (built, direct)]
    settings: list[dict[str, Any]] = [{key: one["Config"].get(key) or None for key in COMPARED} for one in found]
    assert settings[1] == settings[0]
    assert [one["Architecture"] for one in found] == ["amd64"] * 2


def _export(image: str) -> dict[str, Node]:
    container = _docker("create", image)
    found: dict[str, Node] = {}
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
            assert export.stdout
            wheels.tar_tree(export.stdout, found)
        assert export.returncode == 0
    finally:
        _docker("rm", "--force", "--volumes", container)
    return found


def _docker(*arguments: str, env: dict[str, str] | None = None) -> str:
    return _run("docker", *arguments, env=env)


def _run(*command: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False)
    assert done.returncode == 0, f"{' '.join(command[:3])}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()
