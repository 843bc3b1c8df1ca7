"""Direct pushes from the command line, counted: what each kind of change costs in requests and bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.push_world import (
    Machine,
    Project,
    blobs_sent,
    check_whole,
    digests,
    document,
    lines,
    outcomes,
)
from tests.servers.fault_proxy import FaultProxy

pytestmark = pytest.mark.registry
ROLES = ["master", "worker", "ps"]
CHANGED = 12  # requests of three roles with one image whose code alone changed, without those for its old layers
ATTESTED = 7  # requests that a new image's attestations cost on a registry without the referrers API


def _blobs(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [manifest["config"], *manifest["layers"]]


def _machine(folder: Path, proxy: FaultProxy, name: str = "one", **env: str) -> Machine:
    place = f"{proxy.host}/{folder.name.replace('_', '-').lower()}"
    return Machine(folder / name, place, proxy.host, **env)


@pytest.fixture
def machine(tmp_path: Path, proxy: FaultProxy, project: Project) -> Machine:
    """A machine that has the wheels."""
    made = _machine(tmp_path, proxy)
    made.give(project.wheels)
    return made


def test_a_first_push(machine: Machine, project: Project, proxy: FaultProxy) -> None:
    images = machine.push(project)
    assert list(images) == ROLES
    check_whole(proxy.host, images.values())
    sent = blobs_sent(proxy.log)
    assert len(sent) == len(set(sent)), lines(proxy)
    shared = [layer["digest"] for layer in document(proxy.host, images["master"])["layers"]]
    assert shared == [layer["digest"] for layer in document(proxy.host, images["ps"])["layers"]]


def test_nothing_changed_is_a_question_per_tag_and_one_manifest(
    machine: Machine, project: Project, proxy: FaultProxy
) -> None:
    machine.push(project)
    proxy.clear()
    assert outcomes(machine, project) == dict.fromkeys(ROLES, "found")
    assert Counter(proxy.methods()) == {"HEAD": 3, "GET": 1}
    assert proxy.bytes_up() == 0


@pytest.mark.long
def test_nothing_changed_loads_no_engine_no_templates_and_no_builder(machine: Machine, project: Project) -> None:
    machine.push(project)
    _, said = machine.run("push", "--locked", cwd=project.folder, env={"PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {line.rpartition("|")[2].strip() for line in said.splitlines()}
    assert "training_imgtool.base.yamlfile.tree" in loaded
    assert not loaded & {"docker", "google", "jinja2", "rich.live"}
    assert not loaded & {
        "training_imgtool.make.direct_builder",
        "training_imgtool.make.sinks",
        "training_imgtool.oci.direct.build",
        "training_imgtool.oci.registry.upload",
        "training_imgtool.resolve.versions.matrix",
        "packaging",
    }
    project.write("trainer/task.py", "print('training more')\n")
    _, said = machine.run("push", "--locked", cwd=project.folder, env={"PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {line.rpartition("|")[2].strip() for line in said.splitlines()}
    assert "training_imgtool.oci.attest.cyclonedx" in loaded
    assert "packaging" not in loaded  # 8 ms


@pytest.mark.parametrize("known", [True, False], ids=["same machine", "a machine that has seen nothing"])
@pytest.mark.parametrize("attestations", ["on", "off"])
def test_one_line_changed(
    machine: Machine, project: Project, proxy: FaultProxy, tmp_path: Path, *, known: bool, attestations: str
) -> None:
    machine.env["IMGTOOL_ATTESTATIONS"] = attestations
    before = machine.push(project)
    project.write("trainer/task.py", "print('training more')\n")
    proxy.clear()
    second = machine if known else _machine(tmp_path, proxy, "two")
    second.env["IMGTOOL_ATTESTATIONS"] = attestations
    after = second.push(project)
    requests = len(proxy.log)
    layers = document(proxy.host, after["master"])["layers"]
    most = CHANGED + len(layers) - 1 + (0 if known else 1)  # a question for each old layer; the manifest of `packages`
    attested = ATTESTED + 1 if attestations == "on" else 0  # and whether the bill is there
    assert requests == most + attested, lines(proxy)
    assert proxy.methods().count("PUT") >= 5 + (1 if attestations == "on" else 0), lines(proxy)
    assert layers[:-1] == document(proxy.host, before["master"])["layers"][:-1]
    sent = blobs_sent(proxy.log)
    assert sent.count(layers[-1]["digest"]) == 1
    assert not {layer["digest"] for layer in layers[:-1]} & set(sent)
    assert proxy.bytes_up() - layers[-1]["size"] < 64 << 10
    assert not [exchange for exchange in proxy.log if exchange.method == "GET" and "/blobs/" in exchange.path]
    assert not list(second.root.rglob("*.whl")) or known
    check_whole(proxy.host, after.values())
    assert len({*digests(after).values(), *digests(before).values()}) == 2  # one image for the three roles


def test_no_cache_makes_everything_again_and_the_same(machine: Machine, project: Project, proxy: FaultProxy) -> None:
    images = machine.push(project)
    proxy.clear()
    assert machine.push(project, "--no-cache") == images
    assert blobs_sent(proxy.log) == []
    asked = {e.path.rpartition("/")[2] for e in proxy.log if e.method == "HEAD"} | {
        digest for e in proxy.log for digest in e.query.get("mount", ())
    }
    blobs = {blob["digest"] for name in images.values() for blob in _blobs(document(proxy.host, name))}
    assert blobs <= asked, lines(proxy)


def test_one_role_and_then_the_others(machine: Machine, project: Project, proxy: FaultProxy, tmp_path: Path) -> None:
    worker = machine.push(project, "--role", "worker")
    assert list(worker) == ["worker"]
    assert not [exchange for exchange in proxy.log if "/master-" in exchange.path or "/ps-" in exchange.path]
    sent = blobs_sent(proxy.log)
    proxy.clear()
    images = _machine(tmp_path, proxy, "two").push(project)
    assert images["worker"] == worker["worker"]
    assert not {*sent} & {*blobs_sent(proxy.log)}
