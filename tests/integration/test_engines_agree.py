"""One template, several engines: the trees are equal, or the engine's run is refused by a line of the template.

`scripts/services up engine28 podman5 buildx` fetches the programs; an engine that is not here is left out, and two are
needed. `make campaign` tries all templates, `make long` every fourth, other runs two.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.direct.wheels import Node, tar_tree
from tests.engines.support import BUSYBOX, PrivateEngine, private_engine, private_podman
from tests.faults.private import private_project
from tests.faults.project import SPEC, Project
from tests.integration.buildkit_world import buildkit_world
from tests.sampling import campaign

pytestmark = [pytest.mark.registry, pytest.mark.slow]
TEMPLATE = '{{% extends "base.Dockerfile.j2" %}}\n{{% block before_code %}}\n{}\n{{% endblock %}}\n'
STEPS = {
    "file": "RUN echo made > /made",
    "folders": "RUN mkdir -p /a/b && echo x > /a/b/c",
    "copy": "COPY trainer/a.txt /x/\nRUN cat /x/a.txt > /y",
    "copy with owner": "COPY --chown=1:2 trainer/sub /owned\nRUN true",
    "copy with mode": "COPY --chmod=600 trainer/a.txt /x\nRUN true",
    "copy with symbols": "COPY --chmod=u+x,g-r trainer/a.txt /x\nRUN true",
    "copy a folder with mode": "COPY --chmod=750 trainer/sub /folder\nRUN true",
    "copy linked": "COPY --link trainer/a.txt /linked\nRUN true",
    "copy by pattern": "COPY trainer/*.txt /some/\nRUN ls /some",
    "copy a link": "COPY trainer/link /x/\nRUN true",
    "copy without": "COPY --exclude=*.txt trainer/sub /some\nRUN true",
    "copy with parents": "COPY --parents trainer/sub/c.txt /some/\nRUN true",
    "copy a text": "COPY <<END /text\nline\nEND\nRUN true",
    "copy from a stage": "COPY --from=system /etc/os-release /copied\nRUN true",
    "archive": "ADD trainer/x.tar.gz /unpacked/",
    "archive kept": "ADD --unpack=false trainer/x.tar.gz /kept/\nRUN true",
    "heredoc": "RUN <<END\necho one > /one\nEND",
    "cache": "RUN --mount=type=cache,target=/cache echo x > /cache/x",
    "bind": "RUN --mount=type=bind,source=trainer,target=/code cat /code/a.txt > /copied",
    "platform": "ARG TARGETARCH\nRUN echo $TARGETARCH > /architecture",
    "variables": "ARG X=1\nENV Y=$X\nRUN echo $X $Y > /y",
    "workdir": "WORKDIR /w/deep\nRUN echo here > here\nWORKDIR /app",
    "user": "RUN mkdir /own && ls -ld /own\nUSER 1000\nRUN echo $HOME; cat /etc/os-release\nUSER 0",
    "shell": 'SHELL ["/bin/sh", "-ec"]\nRUN false || echo ok > /ok\nSHELL ["/bin/sh", "-c"]',
    "exec": 'RUN ["/bin/sh", "-c", "echo exec > /exec"]',
    "removed file": "RUN rm /etc/os-release",
    "removed folder": "RUN mkdir /box && echo x > /box/one\nRUN rm -r /box && mkdir /box && echo x > /box/other",
    "links": "RUN ln -s /made /symbolic && echo x > /first && ln /first /second",
    "volume": "VOLUME /data\nRUN mkdir -p /data && echo x > /data/file; echo y > /outside",
    "failing": "RUN echo no; exit 3",
    "continued": "RUN echo one > /one && \\\n    # a comment\n    echo two > /two",
    "settings": "LABEL a=b\nEXPOSE 80\nSTOPSIGNAL SIGINT\nHEALTHCHECK CMD true\nRUN true",
}
MOUNT_POINTS = {"/dev", "/proc", "/sys"}  # BuildKit leaves those that the base lacks, and every container has them
ENGINES = ("Docker of this machine", "Docker 28", "BuildKit", "Podman 5")


@dataclass(frozen=True)
class World:
    """A project beside one engine; `options` choose it."""

    project: Project
    before: tuple[str, ...]
    options: tuple[str, ...]

    def push(self, step: str) -> tuple[str, dict[str, Node]] | str:
        """Pushes the worker; its tag and tree, or the error's message."""
        self.project.write("own.j2", TEMPLATE.format(step))
        ended = self.project.run("push", "--role", "worker", "--json", *self.options, before=self.before, timeout=120)
        if ended.code:
            assert ended.code in {3, 4, 5}, ended.err
            return str(ended.document["error"]["message"])
        image = ended.document["images"][0]
        return str(image["tag"]).rpartition(":")[2], self._read_tree(image["digest"])

    def _read_tree(self, reference: str) -> dict[str, Node]:
        manifest = json.loads(self._blob(reference.rpartition("@")[2]))
        found: dict[str, Node] = {}
        for layer in manifest["layers"]:
            tar = zlib.decompress(self._blob(layer["digest"]), 47)
            _remove(found, tar)
            tar_tree(io.BytesIO(tar), found)
        return {
            path: replace(node, mode=node.mode & 0o7777)  # Docker 20.10 writes the type of a file too
            for path, node in found.items()
            if "/.wh." not in path and path not in MOUNT_POINTS
        }

    def _blob(self, digest: str) -> bytes:
        (path,) = (self.project.root.parent / "registry").rglob(f"blobs/sha256/{digest[7:9]}/{digest[7:]}/data")
        return path.read_bytes()


def _remove(found: dict[str, Node], tar: bytes) -> None:
    """Takes away what the layer's whiteouts name (OCI image specification, layer.md)."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for name in archive.getnames():
            folder, _, base = f"/{name}".rpartition("/")
            gone = f"{folder}/" if base == ".wh..wh..opq" else f"{folder}/{base.removeprefix('.wh.')}"
            if base.startswith(".wh."):
                for path in [path for path in found if f"{path}/".startswith(f"{gone.rstrip('/')}/")]:
                    if path != gone.rstrip("/") or base != ".wh..wh..opq":
                        del found[path]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, World]]:
    if not BUSYBOX.is_file():
        pytest.skip("no /bin/busybox (apt install busybox-static)")
    with ExitStack() as stack:
        found: dict[str, World] = {}
        for name in ENGINES:
            try:
                found[name] = stack.enter_context(_open_world(name, tmp_path_factory.mktemp("world")))
            except pytest.skip.Exception:
                continue
        if len(found) < 2:
            pytest.skip("fewer than two engines (scripts/services up engine28)")
        for world in found.values():
            _write_files(world.project)
        yield found


@contextmanager
def _open_world(name: str, folder: Path) -> Iterator[World]:
    if name == "BuildKit":
        with buildkit_world(folder, "docker") as made:
            yield World(made.project, made.before, made.options)
        return

    def start(registry: str) -> AbstractContextManager[PrivateEngine]:
        if name == "Podman 5":
            return private_podman(registry)
        return private_engine("engine28", options="") if name == "Docker 28" else private_engine()

    with private_project(folder, start) as private:
        private.project.write("own.j2", TEMPLATE.format(""))
        private.project.spec(SPEC.replace("  worker: {machine", "  worker: {template: own.j2, machine"))
        yield World(private.project, private.before, ())


def _write_files(project: Project) -> None:
    for name in ("a.txt", "b.txt", "sub/c.txt", "sub/d.sh"):
        project.write(f"trainer/{name}", f"{name}\n")
    (project.folder / "trainer/sub/d.sh").chmod(0o755)
    (project.folder / "trainer/link").symlink_to("a.txt")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("inside/file")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"abc"))
    project.write("trainer/x.tar.gz", archive.getvalue())


@pytest.mark.parametrize("name", campaign(STEPS, {*list(STEPS)[::4], "copy with mode", "removed folder"}))
def test_engines_make_equal_trees_or_name_the_line(worlds: dict[str, World], name: str) -> None:
    results = {engine: world.push(STEPS[name]) for engine, world in worlds.items()}
    made = {engine: result for engine, result in results.items() if not isinstance(result, str)}
    for engine, result in results.items():
        if isinstance(result, str):
            assert re.search(r"line \d+|:\d+:", result), f"{engine}: {result}"
    assert made or name == "failing"
    assert len({tag for tag, _ in made.values()}) <= 1
    first = next(iter(made.values()), None)
    for engine, (_, tree) in made.items():
        assert first is not None
        different = {path for path in {*tree, *first[1]} if tree.get(path) != first[1].get(path)}
        assert not different, {path: (engine, tree.get(path), first[1].get(path)) for path in sorted(different)[:5]}
