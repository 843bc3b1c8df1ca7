"""Where a direct image goes besides a registry: into an engine's store, and into an OCI layout that skopeo reads."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import plans
from training_imgtool.context.context import Context
from training_imgtool.core.reference import parse_repository
from training_imgtool.core.settings import from_environment
from training_imgtool.direct import base_files
from training_imgtool.direct.build import ParentImage, build_image, plan_stages
from training_imgtool.direct.files import Files
from training_imgtool.direct.image.docker_archive import load_archive
from training_imgtool.direct.image.image import DirectImage, StoredImage
from training_imgtool.direct.image.oci_layout import write_layout
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.stage_plan import StageInputs
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile.parse import parse
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import Descriptor


@pytest.mark.long
@pytest.mark.engine
def test_load_and_layout(registry_address: str, tmp_path: Path) -> None:
    source = parse_repository(f"{registry_address}/library/python")
    with Registries(from_environment({"HOME": str(tmp_path), "IMGTOOL_CACHE": str(tmp_path)})) as registries:
        client = registries.at(source)
        base = client.manifest(source.tag("3.11-slim-bookworm"), "linux/amd64")
        dockerfile = parse(
            f"FROM {source.digest(base.digest)} AS role\nCOPY trainer/ /app/trainer/\nWORKDIR /app\n"
            'ENV SAID="hello from here"\nENTRYPOINT ["python3", "-m", "trainer.say"]\n'
        )
        inputs = StageInputs(
            context=Context().with_bytes("trainer/say.py", b"import os\nprint(os.environ['SAID'])\n"),
            locked=plans.locked(),
        )
        tools = LayerTools(
            cache=LayerCache(tmp_path / "c"), wheel_path=lambda _: Path(), find_interpreter=lambda _: None
        )
        config = client.read(source, base.config)
        facts = base_files.find_matrix_tree("docker.io/library/python:3.11-slim-bookworm")
        assert facts
        parent = ParentImage(stored=StoredImage(base, config, source), files=Files((lambda: facts,)))
        planned = plan_stages(dockerfile, dockerfile.stages, inputs, parent)
        image = build_image(planned, inputs, tools, parent=parent)

        def read(layer: Descriptor) -> Iterator[bytes]:
            return client.blob(source, layer)

        name = f"imgtool-test/direct-{os.getpid()}:loaded"
        _loads(name, image, load_archive(name, image, read))
        digest = write_layout(tmp_path / "layout", "role", image, read, {"os": "linux", "architecture": "amd64"})
    inspected = json.loads(_run("skopeo", "inspect", f"oci:{tmp_path / 'layout'}:role"))
    assert digest == inspected["Digest"]
    assert "SAID=hello from here" in inspected["Env"]
    _run("skopeo", "copy", "--quiet", f"oci:{tmp_path / 'layout'}:role", f"dir:{tmp_path / 'unpacked'}")


def _loads(name: str, image: DirectImage, archive: Iterator[bytes]) -> None:
    """The engine takes the archive, has the image under its config's digest, and runs it."""
    with subprocess.Popen(["docker", "load", "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as load:
        assert load.stdin
        for block in archive:
            load.stdin.write(block)
        load.stdin.close()
    assert load.returncode == 0
    try:
        assert _run("docker", "inspect", "--format", "{{.Id}}", name) == image.config_descriptor.digest
        assert _run("docker", "run", "--rm", name) == "hello from here"
    finally:
        _run("docker", "rmi", "--force", name)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()
