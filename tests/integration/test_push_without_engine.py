"""Without any engine: what works all the same, and what is said where only an engine could do it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.integration.push_world import Machine, Project, Wheels, check_whole, make_base

pytestmark = pytest.mark.registry


@pytest.fixture
def wheels(tmp_path: Path) -> Wheels:
    return Wheels(tmp_path / "wheels")


@pytest.fixture
def project(tmp_path: Path, wheels: Wheels) -> Project:
    return Project(tmp_path / "project", wheels, make_base())


@pytest.fixture
def gpu(tmp_path: Path, wheels: Wheels) -> Project:
    """A spec whose base has no Python: its `system` stage runs apt."""
    made = Project(tmp_path / "gpu", wheels, make_base())
    made.write(
        "image.yaml",
        (made.folder / "image.yaml")
        .read_text()
        .replace("n1-standard-4}", "n1-standard-4, gpus: {type: NVIDIA_TESLA_T4, count: 1}}")
        + "accelerator: gpu\n",
    )
    made.lock()
    return made


@pytest.fixture
def machine(tmp_path: Path, registry: str, wheels: Wheels) -> Machine:
    """It has no docker program either: PATH holds Python and nothing else of use."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("env", "sh"):
        (programs / name).symlink_to(shutil.which(name) or "")
    made = Machine(tmp_path / "machine", f"{registry}/{tmp_path.name.lower()}", registry, PATH=str(programs))
    made.give(wheels)
    return made


def test_build_push_and_config(machine: Machine, project: Project, registry: str) -> None:
    images = machine.push(project)
    check_whole(registry, images.values())
    out, _ = machine.run("push", "--locked", cwd=project.folder)
    assert dict(line.split(" ", 1) for line in out.splitlines()) == images
    machine.run("config", "--locked", "-o", "config.yaml", cwd=project.folder)
    job = yaml.safe_load((project.folder / "config.yaml").read_text())["trainingInput"]
    assert job["masterConfig"]["imageUri"] == images["master"]
    assert job["workerConfig"]["imageUri"] == images["worker"]
    assert job["parameterServerConfig"]["imageUri"] == images["ps"]


def test_into_an_oci_layout(machine: Machine, project: Project, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    out, _ = machine.run("build", "--locked", "--output", f"oci:{layout}", cwd=project.folder)
    assert [line.split(" ")[0] for line in out.splitlines()] == ["master", "worker", "ps"]
    index = json.loads((layout / "index.json").read_text())
    assert len(index["manifests"]) == 3
    if skopeo := shutil.which("skopeo"):
        for role in ("master", "worker", "ps"):
            subprocess.run([skopeo, "inspect", f"oci:{layout}:{role}"], check=True, capture_output=True)


@pytest.mark.long
def test_a_layout_of_what_was_made_before_fetches_wheels_while_it_is_written(
    machine: Machine, project: Project, tmp_path: Path
) -> None:
    machine.push(project)
    for made in ("wheels", "layers"):
        shutil.rmtree(machine.cache / made)
    _, err = machine.run("build", "--locked", "--output", f"oci:{tmp_path / 'layout'}", cwd=project.folder, code=8)
    assert "127.0.0.1:9" in err  # the index, which this machine cannot reach
    machine.give(project.wheels)
    machine.run("build", "--locked", "--output", f"oci:{tmp_path / 'layout'}", cwd=project.folder)


def test_a_build_that_goes_nowhere_says_where_it_could_go(machine: Machine, project: Project) -> None:
    _, err = machine.run("build", "--locked", cwd=project.folder, code=5)
    assert "Docker Engine not reachable" in err
    assert "build without one: --push, or --output oci:DIR" in err


@pytest.mark.parametrize(
    "where",
    [["--push"], ["--push", "--dry-run"], ["--push", "--engine", "direct"], ["--output", "oci:layout"]],
    ids=["push", "dry run", "direct push", "layout"],
)
def test_a_base_that_needs_packages_needs_an_engine(machine: Machine, gpu: Project, where: list[str]) -> None:
    _, err = machine.run("build", "--locked", *where, cwd=gpu.folder, code=5)
    assert "the stage system needs an engine" in err
    assert "nobody looked" in err
    assert not (gpu.folder / "layout").exists()
    assert "--push, or" not in err


def test_show_says_who_makes_each_stage(machine: Machine, project: Project, gpu: Project) -> None:
    out, _ = machine.run("show", "--locked", cwd=project.folder)
    assert out.count(" direct\n") == 6
    assert "engine" not in out
    out, _ = machine.run("show", "--locked", "--json", cwd=gpu.folder)
    stages = {stage["stage"]: stage for stage in json.loads(out)["roles"][0]["stages"]}
    assert {name: stage["builder"] for name, stage in stages.items()} == {
        "system": "engine",
        "packages": "direct",
        "image": "direct",
    }
    assert stages["system"]["why"] == "nobody looked"
    assert stages["packages"]["why"] is None


@pytest.mark.parametrize("engine", ["auto", "direct"])
def test_a_lock_that_lacks_what_a_wheel_requires_is_not_pushed(machine: Machine, project: Project, engine: str) -> None:
    project.wheels.add("reader", requires=("numpy<1.20", "gone>=2 ; python_version > '3'"))
    project.lock()  # as a hand writes it: its sum is right
    machine.give(project.wheels)
    _, err = machine.run("build", "--push", "--locked", "--engine", engine, cwd=project.folder, code=3)
    assert "reader 1.0 requires numpy<1.20, but 1.26.4 is there" in err
    assert "reader 1.0 requires gone, which is not there" in err
    machine.run("config", "--locked", cwd=project.folder, code=3)  # there is no image
