"""Sound images pass: made by one machine and verified by another, whose Python and whose compressor are others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.other_python import DIFFERS, HERE_RELEASE, OTHER, two_releases
from tests.servers.memory_registry import MemoryRegistry, like_distribution

OTHER_ISAL = "isal==1.7.0"
# The spec's lines, whether the base is of Docker's family, which release it names, whether referrers have an API
IMAGES = {
    "plain": ("", True, "", False),
    "a base of OCI": ("", False, "", False),
    "zstd": ("compression: zstd\n", True, "", True),
    "zstd on a base of OCI": ("compression: zstd\n", False, "", True),
    "a user": ("user: '1000:1000'\n", True, "", True),
    "a user by name": ("user: nobody\n", False, "", False),
    "environment": ("env: {A: '1', B: 'ä ö', PATH_MORE: '/x'}\n", True, "", False),
    "environment and zstd": ("env: {TF_CPP_MIN_LOG_LEVEL: '2'}\ncompression: zstd\n", False, "", False),
    "args": ("args: ['--epochs=10']\n", True, "", True),
    "without attestations": ("attestations: false\n", True, "", False),
    "a folder left out": ("exclude: [extra/more]\n", True, "", False),
    "nothing trimmed": ("trim: false\n", False, "", False),
    "a role of its own": ("OWN", True, "", False),
    "a role of its own on a base of OCI": ("OWN", False, "", True),
    "a release": ("", True, HERE_RELEASE, False),
    "a release on a base of OCI": ("", False, HERE_RELEASE, True),
    "a release and zstd": ("compression: zstd\n", True, HERE_RELEASE, False),
    "a release and a user": ("user: '5'\n", False, HERE_RELEASE, False),
    "a release and a role of its own": ("OWN", True, HERE_RELEASE, True),
    "all": ("user: '5'\ncompression: zstd\nenv: {A: '1'}\n", False, HERE_RELEASE, True),
}


@pytest.fixture(scope="module")
def isal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another version of isal, in a folder."""
    folder = tmp_path_factory.mktemp("isal")
    uv = Path(sys.executable).parent / "uv"
    options = ("--quiet", "--no-deps", "--only-binary=:all:", f"--python={OTHER}", f"--target={folder}")
    subprocess.run((uv, "pip", "install", *options, OTHER_ISAL), check=True)
    return folder


@pytest.mark.long
@pytest.mark.network
@two_releases
@pytest.mark.parametrize("name", IMAGES)
def test_a_sound_image_passes_on_another_machine(tmp_path: Path, isal: Path, name: str) -> None:
    more, docker, release, referrers = IMAGES[name]
    base = make_base(docker=docker, env=[f"PYTHON_VERSION={release}"] if release else [])
    wheels = Wheels(tmp_path / "wheels")
    wheels.add("extra", {"extra/__init__.py": DIFFERS, "extra/more/x.py": DIFFERS, "single.py": b"x = 1\n"})
    project = Project(tmp_path / "project", wheels, base)
    spec = (project.folder / "image.yaml").read_text()
    own = spec.replace("  ps: {machine: n1-standard-4}", "  ps: {machine: n1-standard-4, env: {OWN: '1'}}")
    project.write("image.yaml", own if more == "OWN" else more + spec)
    project.lock()
    with MemoryRegistry(like_distribution, referrers=referrers) as server:
        base.put(server.host)
        machines = []
        for number in range(2):
            path = f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"  # where both releases are
            machine = Machine(tmp_path / f"machine{number}", server.host, server.host, PATH=path)
            machine.give(wheels)
            machines.append(machine)
        machines[1].python(OTHER)
        machines[1].env["PYTHONPATH"] = os.pathsep.join([str(isal), machines[1].env["PYTHONPATH"]])
        for number, machine in enumerate(machines):
            for each in machines:
                each.env["IMGTOOL_REGISTRY"] = f"{server.host}/team{number}"
            machine.push(project)
            verifier = machines[1 - number]
            if release:
                out, _ = verifier.run("verify", "--locked", cwd=project.folder)
                assert "NOT PROVEN" not in out
            else:  # the releases compile some of the files in other ways
                out, _ = verifier.run("verify", "--locked", "--accept", "bytecode", cwd=project.folder)
                _, said = verifier.run("verify", "--locked", cwd=project.folder, code=10)
                assert {line.split(": ")[2] for line in said.splitlines() if line.startswith("Error: ")} == {"bytecode"}
            assert "MISMATCH" not in out
