"""Projects as people have them: what `trainer:` names lies in the image where Python looks for it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.integration.push_world import SPEC, Machine, Project, Wheels, document, make_base
from tests.servers.registry_process import run_registry
from training_imgtool.base.context.own_files import JOB_MARK
from training_imgtool.model.spec import INIT

pytestmark = pytest.mark.registry
OLD = "trainer: {source: trainer, module: trainer.task}"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_registry(tmp_path_factory.mktemp("registry")) as running:
        make_base().put(running.host)
        yield running.host


def _push(host: str, folder: Path, trainer: str, files: Mapping[str, str]) -> tuple[dict[str, Any], set[str]]:
    """The config of an image of such a project, and the files that it has below /app."""
    project = Project(folder / "project", Wheels(folder / "wheels"), make_base())
    for path in ("trainer/task.py", "trainer/__init__.py"):
        (project.folder / path).unlink()
    (project.folder / "trainer").rmdir()
    for path, text in files.items():
        project.write(path, text)
    project.write("image.yaml", SPEC.format(name="demo", more="").replace(OLD, trainer))
    machine = Machine(folder / "machine", f"{host}/{folder.name.replace('_', '-').lower()}", host)
    machine.give(project.wheels)
    project.lock()
    images = machine.push(project, "--role", "worker")
    manifest = document(host, images["worker"])
    path = images["worker"].partition("/")[2].partition("@")[0]
    config = urlopen(f"http://{host}/v2/{path}/blobs/{manifest['config']['digest']}", timeout=10).read()
    names: set[str] = set()
    for layer in manifest["layers"]:
        data = urlopen(f"http://{host}/v2/{path}/blobs/{layer['digest']}", timeout=10).read()
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
            names |= {name for name in tar.getnames() if name.startswith("app/")}
    again = machine.push(project, "--role", "worker")
    assert again == images
    return dict(json.loads(config)["config"]), names


def test_a_file_beside_the_spec(host: str, tmp_path: Path) -> None:
    files = {
        "train.py": "import util\n",
        "util.py": "",
        "venv/pyvenv.cfg": "home = /usr\n",
        f"job/{JOB_MARK}": "",
        "job/ckpt-1.index": "",
        "config.yaml": "# Written by imgtool 0.1.0 for vertex; spec 0123.\nworkerPoolSpecs: []\n",
        "params.yaml": "learning_rate: 0.1\n",
    }
    config, names = _push(host, tmp_path, "trainer: train.py", files)
    assert config["Entrypoint"] == [*INIT, "/opt/venv/bin/python", "/app/train.py"]
    assert names == {"app/train.py", "app/util.py", "app/params.yaml"}


def test_a_src_layout(host: str, tmp_path: Path) -> None:
    files = {"src/my_pkg/__init__.py": "", "src/my_pkg/train.py": "", "README.md": ""}
    config, names = _push(host, tmp_path, "trainer: {source: src, module: my_pkg.train}", files)
    assert config["Entrypoint"] == [*INIT, "/opt/venv/bin/python", "-m", "my_pkg.train"]
    assert "PYTHONPATH=/app/src" in config["Env"]
    assert names == {"app/src", "app/src/my_pkg", "app/src/my_pkg/__init__.py", "app/src/my_pkg/train.py"}


def test_a_script_with_a_dash_and_its_neighbour(host: str, tmp_path: Path) -> None:
    files = {"dist-mnist/dist-mnist.py": "import mnist_utils\n", "dist-mnist/mnist_utils.py": ""}
    config, names = _push(host, tmp_path, "trainer: dist-mnist/dist-mnist.py", files)
    assert config["Entrypoint"] == [*INIT, "/opt/venv/bin/python", "/app/dist-mnist/dist-mnist.py"]
    assert names == {"app/dist-mnist", *(f"app/{path}" for path in files)}


SHARED = {
    "train.py": "import common.io\n",
    "team.txt": "",
    "../common/__init__.py": "",
    "../common/io.py": "",
    "../common/data/large.bin": "",
    "../common/.dockerignore": "data\n",
    "../other/x.py": "",
}


def test_shared_code_above_the_spec(host: str, tmp_path: Path) -> None:
    """The folders keep their places below the lowest one that has them all; each obeys its own .dockerignore."""
    config, names = _push(host, tmp_path, "trainer: {source: train.py, include: [../common]}", SHARED)
    assert config["Entrypoint"] == [*INIT, "/opt/venv/bin/python", "/app/project/train.py"]
    assert config["WorkingDir"] == "/app/project"
    assert "PYTHONPATH=/app:/app/project" in config["Env"]
    folders = {"app/common", "app/project"}
    files = {"app/common/__init__.py", "app/common/io.py", "app/project/train.py", "app/project/team.txt"}
    assert names == files | folders


@pytest.mark.long
def test_two_specs_share_the_layer_of_their_common_code(host: str, tmp_path: Path) -> None:
    layers = []
    for team in ("a", "b"):
        project = Project(tmp_path / team, Wheels(tmp_path / "wheels"), make_base())
        project.write("../common/io.py", "")
        project.write("trainer/task.py", f"import common.io\nprint({team!r})\n")
        project.write("image.yaml", SPEC.format(name=team, more="").replace("module:", "include: [../common], module:"))
        machine = Machine(tmp_path / f"machine-{team}", f"{host}/teams", host)
        machine.give(project.wheels)
        project.lock()
        images = machine.push(project, "--role", "worker")
        layers.append({layer["digest"] for layer in document(host, images["worker"])["layers"]})
    base, packages, common, code, workdir = 1, 1, 1, 1, 0
    assert len(layers[0]) >= base + packages + common + code + workdir
    assert len(layers[0] - layers[1]) == 1  # the team's own code


@pytest.mark.parametrize(
    ("allow", "code"), [("", 3), ("../common/id_rsa", 0), ("../common", 0), ("common/id_rsa", 3), ("../common/*", 0)]
)
def test_secrets_of_shared_code(allow: str, code: int, host: str, tmp_path: Path) -> None:
    more = f"allow_secrets: [{allow}]\n" if allow else ""
    project = Project(tmp_path / "team", Wheels(tmp_path / "wheels"), make_base())
    project.write("../common/id_rsa", "")
    project.write("image.yaml", SPEC.format(name="x", more=more).replace("module:", "include: [../common], module:"))
    project.lock()
    machine = Machine(tmp_path / "machine", f"{host}/secrets", host)
    machine.give(project.wheels)
    _, error = machine.run("show", "--locked", cwd=project.folder, code=code)
    assert ("../common: 1 file looks like a secret in the build context: id_rsa" in error) is bool(code)
