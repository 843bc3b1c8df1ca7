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
        "config.yaml": "# Written by imgtool 0.1.0 for vertex; spec 0123.\nworkerPoolSpecs: []\n",
        "params.yaml": "learning_rate: 0.1\n",
    }
    config, names = _push(host, tmp_path, "trainer: train.py", files)
    assert config["Entrypoint"] == ["/opt/venv/bin/python", "/app/train.py"]
    assert names == {"app/train.py", "app/util.py", "app/params.yaml"}


def test_a_src_layout(host: str, tmp_path: Path) -> None:
    files = {"src/my_pkg/__init__.py": "", "src/my_pkg/train.py": "", "README.md": ""}
    config, names = _push(host, tmp_path, "trainer: {source: src, module: my_pkg.train}", files)
    assert config["Entrypoint"] == ["/opt/venv/bin/python", "-m", "my_pkg.train"]
    assert "PYTHONPATH=/app/src" in config["Env"]
    assert names == {"app/src", "app/src/my_pkg", "app/src/my_pkg/__init__.py", "app/src/my_pkg/train.py"}


def test_a_script_with_a_dash_and_its_neighbour(host: str, tmp_path: Path) -> None:
    files = {"dist-mnist/dist-mnist.py": "import mnist_utils\n", "dist-mnist/mnist_utils.py": ""}
    config, names = _push(host, tmp_path, "trainer: dist-mnist/dist-mnist.py", files)
    assert config["Entrypoint"] == ["/opt/venv/bin/python", "/app/dist-mnist/dist-mnist.py"]
    assert names == {"app/dist-mnist", *(f"app/{path}" for path in files)}
