"""`lint --images`: images that a registry lacks, and layers that the target cannot read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.support import clients, config, image, layer, machine
from tests.servers.registry_process import run_registry
from training_imgtool.commands.job_files.lint import lint_job_file
from training_imgtool.core.progress import silent
from training_imgtool.core.reference import parse_repository
from training_imgtool.registry.manifests import OCI_LAYER_ZSTD, OCI_MANIFEST

pytestmark = pytest.mark.registry
CONTENT = b"a layer"
VERTEX = """\
workerPoolSpecs:
- machineSpec: {{machineType: n1-standard-4}}
  containerSpec: {{imageUri: "{image}"}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: train}}
spec: {{containers: [{{name: main, image: "{image}"}}]}}
"""
CACHE = """\
apiVersion: eci.alibabacloud.com/v1
kind: ImageCache
metadata: {{name: train}}
spec: {{images: ["{image}"]}}
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An image with gzip layers, one with zstd layers, and one that is nowhere."""
    folder = tmp_path_factory.mktemp("images")
    with run_registry(folder / "registry") as running, clients(machine(folder)) as registries:
        repository = parse_repository(f"{running.host}/team/mnist")
        registry = registries.at(repository)
        registry.upload(repository, layer(CONTENT), lambda: iter((CONTENT,)))
        registry.upload(repository, config(), lambda: iter((b"{}",)))
        body = json.loads(image(layer(CONTENT)))
        gzip = registry.put_manifest(repository.tag("gzip"), OCI_MANIFEST, json.dumps(body).encode())
        body["layers"][0]["mediaType"] = OCI_LAYER_ZSTD
        zstd = registry.put_manifest(repository.tag("zstd"), OCI_MANIFEST, json.dumps(body).encode())
        made = {name: str(repository.digest(digest)) for name, digest in (("gzip", gzip), ("zstd", zstd))}
        yield {**made, "missing": str(repository.digest("sha256:" + "0" * 64)), "tag": str(repository.tag("zstd"))}


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (VERTEX, "gzip", None),
        (VERTEX, "zstd", "Vertex AI is not known to read layers compressed with zstd"),
        (VERTEX, "tag", "Vertex AI is not known to read layers compressed with zstd"),
        (VERTEX, "missing", "is not in the registry: the job fails when it starts"),
        (POD, "zstd", None),
        (CACHE, "zstd", "Alibaba Cloud's image acceleration does not read layers compressed with zstd"),
    ],
)
def test_what_the_registry_says(
    text: str, name: str, message: str | None, images: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(text.format(image=images[name]))
    messages = lint_job_file(
        tmp_path / "job.yaml",
        machine(tmp_path),
        silent,
        allow_unknown=False,
        region="us-central1",
        strict=False,
        images=True,
    )
    words = ("compressed with zstd", "not in the registry")
    said = [str(item) for item in messages if any(word in item.message for word in words)]
    assert [message is not None and message in line for line in said] == [True] * (message is not None)
    assert all(": warning: " in line for line in said)
