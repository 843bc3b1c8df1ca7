"""What an image must have, by this machine: from records and wheels, with no byte of an equal layer in the registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.push_world import Machine, Project, document
from tests.registry.support import Events
from tests.servers.fault_proxy import FaultProxy
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.core.settings import Settings, from_environment
from training_imgtool.pipeline.inputs import Inputs, RoleImage, prepare
from training_imgtool.registry.client import Registry
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_INDEX, Descriptor, sha256_digest
from training_imgtool.spec.load import load
from training_imgtool.spec.model import Role
from training_imgtool.verify import inspect_registry
from training_imgtool.verify.expected_image import expect
from training_imgtool.verify.facts import Expected
from training_imgtool.verify.inspect_registry import LayerReader, read_base, read_image
from training_imgtool.verify.layers import overlay

pytestmark = pytest.mark.registry
VENV = "opt/venv"
OWN = """\
{% extends "worker.Dockerfile.j2" %}
{% block entrypoint %}
RUN make
{{ super() }}
{% endblock %}
"""


@pytest.fixture
def machine(tmp_path: Path, proxy: FaultProxy, project: Project) -> Machine:
    made = Machine(tmp_path / "one", f"{proxy.host}/{tmp_path.name.replace('_', '-').lower()}", proxy.host)
    made.give(project.wheels)
    return made


def _prepare(machine: Machine, project: Project) -> tuple[Settings, Inputs, RoleImage]:
    settings = from_environment(machine.env)
    inputs = prepare(load(project.folder / "image.yaml"), settings, Events(), locked=True)
    (image,) = inputs.selected((Role.WORKER,))
    return settings, inputs, image


def _expect(machine: Machine, project: Project, reference: str | None = None) -> tuple[Expected, LayerReader]:
    """What the worker must have; with a reference, its own nodes are in the reader's listings too."""
    settings, inputs, image = _prepare(machine, project)
    with Registries(settings) as registries:
        reader = LayerReader(registries, Events())
        base = read_base(image.plan.base, image.plan.platform, registries)
        stored = None
        if reference is not None:
            where = parse_reference(reference)
            assert isinstance(where, Digest)
            stored = read_image(where, image.plan.platform, base, registries)
        made = expect(inputs, image, base.config or {}, reader=reader, stored=stored, settings=settings)
        if stored is not None:
            listings = reader.read(stored, subject="worker")
            assert overlay(listings, len(listings)).nodes.keys() == made.nodes.keys()
    return made, reader


def test_an_equal_layer_costs_no_byte(machine: Machine, project: Project, proxy: FaultProxy) -> None:
    worker = machine.push(project)["worker"]
    layers = [layer["digest"] for layer in document(proxy.host, worker)["layers"]]
    proxy.clear()
    made, _ = _expect(machine, project, worker)
    assert made.whole
    assert made.compiled
    assert {"app/trainer/task.py", f"{VENV}/pyvenv.cfg"} <= made.nodes.keys()
    read = {digest for digest in layers for exchange in proxy.log if exchange.path.endswith(digest)}
    assert read <= {layers[0]}  # the base's


def test_large_layers_of_the_base_are_not_read(
    machine: Machine, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = parse_reference(machine.push(project)["worker"])
    assert isinstance(where, Digest)
    monkeypatch.setattr(inspect_registry, "LARGEST_BASE_LAYER", 0)
    settings, _, image = _prepare(machine, project)
    with Registries(settings) as registries:
        base = read_base(image.plan.base, image.plan.platform, registries)
        stored = read_image(where, image.plan.platform, base, registries)
        own = {number for number, layer in enumerate(stored.layers) if layer.own}
        assert LayerReader(registries, Events()).read(stored, subject="worker").keys() == own == {1, 2, 3, 4}


def test_what_hides_behind_a_digest(machine: Machine, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index with an image for other processors too; a layer that is the base's by the config's word alone."""
    where = parse_reference(machine.push(project)["worker"])
    assert isinstance(where, Digest)
    monkeypatch.setattr(inspect_registry, "LARGEST_BASE_LAYER", 0)
    settings, _, image = _prepare(machine, project)
    with Registries(settings) as registries:
        registry, base = registries.at(where.repository), read_base(image.plan.base, image.plan.platform, registries)
        good = registry.manifest(where)
        other = Descriptor("", sha256_digest(b"other"), 5)
        registry.upload(where.repository, other, lambda: iter((b"other",)))
        document = json.loads(good.body)
        document["layers"][0] |= {"digest": other.digest, "size": other.size}
        swapped = _put(registry, where, good.media_type, document)
        stored = read_image(swapped, image.plan.platform, base, registries)
        assert not stored.layers[0].own
        assert LayerReader(registries, Events()).read(stored, subject="worker")[0].faults
        entries = [
            {**registry.manifest(one).descriptor.document(), "platform": {"os": "linux", "architecture": name}}
            for one, name in ((where, "amd64"), (swapped, "arm64"))
        ]
        alone, both = (
            _put(registry, where, OCI_INDEX, {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": part})
            for part in (entries[:1], entries)
        )
        assert read_image(alone, image.plan.platform, base, registries).descriptors == good.layers
        with pytest.raises(VerificationError, match="names other images"):
            read_image(both, image.plan.platform, base, registries)


def _put(registry: Registry, beside: Digest, media_type: str, document: dict[str, Any]) -> Digest:
    body = json.dumps(document).encode()
    where = beside.repository.digest(sha256_digest(body))
    registry.put_manifest(where, media_type, body)
    return where


def test_a_machine_with_records_and_no_wheels_reads_equal_layers(machine: Machine, project: Project) -> None:
    worker = machine.push(project)["worker"]
    for wheel in (machine.cache / "wheels").rglob("*.whl"):
        wheel.unlink()
    made, _ = _expect(machine, project, worker)
    assert f"{VENV}/lib/python3.11/site-packages/numpy/__init__.py" in made.nodes


def test_where_only_an_engine_can_make_the_rest_the_wheels_still_count(machine: Machine, project: Project) -> None:
    project.write("own.j2", OWN)
    text = (project.folder / "image.yaml").read_text()
    project.write("image.yaml", text.replace("  worker: {machine", "  worker: {template: own.j2, machine"))
    project.lock()
    made, _ = _expect(machine, project)
    assert (made.whole, made.compiled) == (False, True)
    assert "RUN" in made.why
    assert f"{VENV}/lib/python3.11/site-packages/numpy/__init__.py" in made.nodes
    assert all(path in {"opt", VENV} or path.startswith(f"{VENV}/") for path in made.nodes)


def test_verify_says_so_of_images_that_this_machine_made(machine: Machine, project: Project) -> None:
    """They hold no Python, which is the only mismatch."""
    machine.push(project)
    out, _ = machine.run("verify", "--engine", "direct", "--json", cwd=project.folder, code=10)
    for image in json.loads(out)["images"]:
        found = {row["check"]: row["status"] for row in image["checks"]}
        assert {found[name] for name in ("base", "wheels", "bytecode", "pip check", "layers")} == {"ok"}
        assert {name for name, status in found.items() if status == "MISMATCH"} == {"python"}
        (bytecode,) = (row["found"] for row in image["checks"] if row["check"] == "bytecode")
        assert int(bytecode.removesuffix(" files")) > 0
