"""Our reading of .dockerignore against a real Docker Engine's."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from training_imgtool.base.context.context import scan
from training_imgtool.base.context.entries import Kind

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    import docker

    engine = docker.from_env()
    yield engine
    engine.close()


@pytest.fixture
def removed(client: Any) -> Iterator[list[Any]]:
    images: list[Any] = []
    yield images
    for image in images:
        client.images.remove(image.id, force=True)


def tree(root: Path) -> Path:
    names = "a.txt b.md c.py d/a.txt d/b.md d/e/a.txt d/e/f.py .hidden .env2 x/keep/y x/drop/y README.md docs/README.md"
    for name in names.split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "link").symlink_to("d/a.txt")
    return root


def files_of(client: Any, image: Any) -> set[str]:
    """The paths of files and links in an image."""
    container = client.containers.create(image.id, command="x")
    try:
        data = b"".join(container.export())
    finally:
        container.remove()
    made_by_docker = {".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab", "dev/console"}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = {member.name for member in archive if not member.isdir()}
    return names - made_by_docker


IGNORES = [
    "",
    "*.txt\n",
    "**/*.txt\n",
    "d\n",
    "/d/\n",
    "d/*\n!d/e\n",
    "*\n!d\n!README.md\n",
    "*\n!d/e/f.py\n",
    "x\n!x/keep\n",
    "# comment\n\n  *.md  \n!README*.md\n",
    "**/README.md\n!docs/README.md\n",
    "d/**\n!d/e/a.txt\n",
    "x/../d\r\n*.py\r\n",
    ".*\n",
    "d\n!d/e\nd*\n",
    "?.md\n[a-b].txt\n",
    "**\n!a.txt\n",
    "**/e\n",
    "link\n",
    "!a.txt\na.txt\n",
    "d/e/../b.md\n",
    "\\*.txt\n",
]


@pytest.mark.long
def test_dockerignore_is_dockers(client: Any, removed: list[Any], tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("no docker command: the Engine's client reads .dockerignore, docker-py has a reading of its own")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM scratch\nCOPY . /\n")
    command = [docker, "build", "--quiet", "--no-cache", "--file", str(dockerfile)]
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}

    def files_by(number: int) -> tuple[set[str], set[str]]:
        root = tree(tmp_path / f"context{number}")
        (root / ".dockerignore").write_text(IGNORES[number], newline="")
        done = subprocess.run([*command, root], capture_output=True, text=True, check=True, env=environment)
        image = client.images.get(done.stdout.strip())
        removed.append(image)
        ours = {one.path for one in scan(root).entries if one.kind is not Kind.DIRECTORY}
        return files_of(client, image), ours

    with ThreadPoolExecutor(4) as pool:
        for patterns, (theirs, ours) in zip(IGNORES, pool.map(files_by, range(len(IGNORES))), strict=True):
            assert theirs == ours, patterns
