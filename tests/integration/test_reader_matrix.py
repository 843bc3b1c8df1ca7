"""Every compression, read by programs that others wrote: the sha256 of every file is the right one.

The image is of a few MB in layers of many wheel members, since containerd's native snapshotter copies layers whole.
`scripts/services up engine28 podman5 readers` fetches what this machine lacks; a reader that is not here is a skip.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import json
import random
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.engines.support import SERVICES, PrivateEngine, private_engine, private_podman, wait_for
from tests.integration.push_world import Machine, Project, Wheels, make_base, noise
from tests.servers.registry_process import PROGRAM, installed, run_registry

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow, pytest.mark.long]
COMPRESSIONS = ("gzip", "zstd")
SOCI, GO = SERVICES / "soci/root/usr/bin/soci", SERVICES / "go/root/usr/lib/go-1.19"
CONTAINERD = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = "{folder}/socket"
"""
FIRST_MEMBER = """\
package main
import ("bufio"; "compress/gzip"; "crypto/sha256"; "fmt"; "io"; "os")
func main() {
	for _, name := range os.Args[1:] {
		file, err := os.Open(name)
		if err != nil { panic(err) }
		reader, err := gzip.NewReader(bufio.NewReader(file))
		if err != nil { panic(err) }
		reader.Multistream(false)
		hash := sha256.New()
		if _, err := io.Copy(hash, reader); err != nil { panic(err) }
		fmt.Printf("%x\\n", hash.Sum(nil))
	}
}
"""
Tree = dict[str, str]  # the sha256 of each regular file, by its path


@dataclass(frozen=True)
class Layer:
    """A layer as it lies in a layout."""

    blob: Path
    tar: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{self.blob.name}"

    def files(self) -> Tree:
        with tarfile.open(fileobj=io.BytesIO(self.tar)) as archive:
            return _hash_archive(archive)


@dataclass(frozen=True)
class Image:
    """One image in a registry, and in a layout; what is in it as Python's own modules read it."""

    reference: str
    layout: Path
    layers: tuple[Layer, ...]
    configuration: Path  # of the registry, which a test may serve in another network too

    @property
    def tree(self) -> Tree:
        return {path: value for layer in self.layers for path, value in layer.files().items()}


def _hash_archive(archive: tarfile.TarFile) -> Tree:
    found: Tree = {}
    for entry in archive:
        if entry.isfile():
            stream = archive.extractfile(entry)
            assert stream is not None
            found[entry.name.removeprefix("./").strip("/")] = hashlib.sha256(stream.read()).hexdigest()
    return found


def _hash_folder(folder: Path) -> Tree:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _run(*command: object, **options: Any) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=300, **options)
    if done.returncode:
        raise RefusedError(f"{command[0]} {command[1]}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return str(done.stdout).strip()


class RefusedError(Exception):
    """A reader said no."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Image]]:
    if not installed():
        pytest.skip(f"no {PROGRAM}")
    folder = tmp_path_factory.mktemp("matrix")
    base = make_base(files=["bin/", "etc/", "tmp/"])
    made = random.Random(7)
    words = {f"heavy/part{n}.py": f"WORDS = {made.choices(range(9), k=300)}\n".encode() for n in range(150)}
    large = {"heavy/table.txt": bytes(made.choices(b"abcdefgh \n", k=3_000_000)), "heavy/data.bin": noise(700_000)}
    with run_registry(folder / "registry") as registry:
        base.put(registry.host)
        found = {}
        for compression in COMPRESSIONS:
            wheels = Wheels(folder / compression / "wheels")
            wheels.add("heavy", {"heavy/__init__.py": b"", **words, **large})
            more = f"compression: {compression}\n"
            project = Project(folder / compression / "project", wheels, base, more=more)
            machine = Machine(folder / compression / "machine", f"{registry.host}/team/{compression}", registry.host)
            machine.give(wheels)
            reference = machine.push(project)["worker"]
            layout = folder / compression / "layout"
            output = ("build", "--locked", "--role", "worker", "--output", f"oci:{layout}")
            machine.run(*output, cwd=project.folder)
            found[compression] = Image(reference, layout, _read_layers(layout), folder / "registry/config.yml")
        trees = [image.tree for image in found.values()]
        assert trees[0] == trees[1] == trees[2]
        assert len(trees[0]) > 300
        yield found


def _read_layers(layout: Path) -> tuple[Layer, ...]:
    blobs = layout / "blobs/sha256"
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
    layers = []
    for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        data = (blobs / layer["digest"][7:]).read_bytes()
        is_zstd = layer["mediaType"].endswith("zstd")
        tar = zstandard.ZstdDecompressor().decompressobj().decompress(data) if is_zstd else gzip.decompress(data)
        assert f"sha256:{hashlib.sha256(tar).hexdigest()}" == diff_id
        layers.append(Layer(blobs / layer["digest"][7:], tar))
    return tuple(layers)


def _export(image: Image, host: str = "") -> Tree:
    """What an engine unpacks, by its own export of a container that never runs."""
    docker = ["docker", *(["--host", host] if host else [])]
    _run(*docker, "pull", "--quiet", image.reference)
    container = _run(*docker, "create", "--network", "none", image.reference)
    try:
        with subprocess.Popen([*docker, "export", container], stdout=subprocess.PIPE) as export:
            assert export.stdout is not None
            with tarfile.open(fileobj=export.stdout, mode="r|") as archive:
                return _hash_archive(archive)
    finally:
        _run(*docker, "rm", container)
        _run(*docker, "rmi", image.reference)


def read_by_docker(image: Image, _: Path) -> Tree:
    if not shutil.which("docker"):
        pytest.skip("no docker")
    return _export(image)


def _read_beside_registry(image: Image, engine: PrivateEngine) -> Tree:
    """The engine has a network of its own, and the registry is served there too."""
    program = ["nsenter", f"--net=/proc/{engine.process.pid}/ns/net", "--", PROGRAM, "serve"]
    with subprocess.Popen([*program, str(image.configuration)], stderr=subprocess.DEVNULL) as registry:
        try:
            time.sleep(1)
            return _export(image, engine.host)
        finally:
            registry.kill()


def read_by_docker_28(image: Image, _: Path) -> Tree:
    with private_engine("engine28", options="") as engine:
        return _read_beside_registry(image, engine)


def read_by_podman_5(image: Image, _: Path) -> Tree:
    with private_podman(image.reference.partition("/")[0]) as engine:
        return _read_beside_registry(image, engine)


def read_by_skopeo(image: Image, folder: Path) -> Tree:
    """It decompresses each layer by itself; the tars that it writes are read by Python."""
    if not shutil.which("skopeo"):
        pytest.skip("no skopeo")
    source, target = f"docker://{image.reference}", folder / "copy"
    _run("skopeo", "copy", "--quiet", "--src-tls-verify=false", "--dest-decompress", source, f"dir:{target}")
    manifest = json.loads((target / "manifest.json").read_text())
    found: Tree = {}
    for layer in manifest["layers"]:
        with tarfile.open(target / layer["digest"][7:], mode="r:") as archive:
            found |= _hash_archive(archive)
    return found


def read_by_umoci(image: Image, folder: Path) -> Tree:
    if not shutil.which("umoci"):
        pytest.skip("no umoci")
    _run("umoci", "unpack", "--image", f"{image.layout}:worker", folder / "bundle")
    return _hash_folder(folder / "bundle/rootfs")


def read_by_go(image: Image, folder: Path) -> Tree:
    """Go's gzip, which sees the first member only: it must be the whole layer."""
    if not GO.exists():
        pytest.skip("no Go (scripts/services up readers)")
    (folder / "main.go").write_text(FIRST_MEMBER)
    environ = {"PATH": "/usr/bin:/bin", "GOROOT": str(GO), "GOCACHE": str(folder / "cache"), "CGO_ENABLED": "0"}
    environ |= {"GO111MODULE": "off", "HOME": str(folder)}
    _run(GO / "bin/go", "build", "-o", folder / "first", folder / "main.go", env=environ)
    hashes = _run(folder / "first", *(layer.blob for layer in image.layers)).split()
    assert hashes == [hashlib.sha256(layer.tar).hexdigest() for layer in image.layers]
    return image.tree


def read_by_zran(image: Image, _: Path) -> Tree:
    """zlib's zran, as indexed_gzip has it: each file is read from the nearest point of the index."""
    indexed_gzip: Any = importlib.import_module("indexed_gzip")
    found: Tree = {}
    for layer in image.layers:
        with (
            tarfile.open(fileobj=io.BytesIO(layer.tar)) as archive,
            indexed_gzip.IndexedGzipFile(str(layer.blob), spacing=1 << 16) as reader,
        ):
            reader.build_full_index()
            entries = [entry for entry in archive if entry.isfile()]
            random.Random(3).shuffle(entries)
            for entry in entries:
                reader.seek(entry.offset_data)
                found[entry.name] = hashlib.sha256(reader.read(entry.size)).hexdigest()
    return found


@contextmanager
def _containerd(folder: Path) -> Iterator[list[object]]:
    """Runs Debian's newer containerd; yields the words that begin a `ctr` of it."""
    programs = SERVICES / "engine28/bin"
    if not (programs / "containerd").exists():
        pytest.skip("no containerd 2 (scripts/services up engine28)")
    folder.mkdir()
    (folder / "config.toml").write_text(CONTAINERD.format(folder=folder))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "containerd", "--config", folder / "config.toml"], stdout=log, stderr=log
        )
    ctr: list[object] = [programs / "ctr", "--address", folder / "socket"]
    try:
        ask = [*map(str, ctr), "version"]
        assert wait_for(lambda: not subprocess.run(ask, capture_output=True, check=False).returncode, 60)
        yield ctr
    finally:
        process.terminate()
        process.wait(20)


def read_by_containerd_2(image: Image, folder: Path) -> Tree:
    with _containerd(folder / "containerd") as ctr:
        _run(*ctr, "images", "pull", "--plain-http", image.reference)
        (folder / "mount").mkdir()
        _run(*ctr, "images", "mount", image.reference, folder / "mount")
        try:
            return _hash_folder(folder / "mount")
        finally:
            _run("umount", folder / "mount")


def read_by_soci(image: Image, folder: Path) -> Tree:
    """SOCI's index of spans of 64 KiB, and each file by its span, as its snapshotter reads them."""
    if not SOCI.exists():
        pytest.skip("no SOCI (scripts/services up readers)")
    with _containerd(folder / "containerd") as ctr:
        _run(*ctr, "images", "pull", "--plain-http", image.reference)
        (folder / "files").mkdir()
        own = f"{SOCI} --address {folder / 'containerd/socket'}"
        script = [  # its database has a fixed place
            "set -e; mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/soci-snapshotter-grpc",
            f"{own} create --min-layer-size 0 --span-size 65536 {image.reference} >&2",
            f"{own} ztoc list > {folder / 'ztocs'}",
        ]
        paths: list[str] = []
        for layer in image.layers:
            script.append(f"ztoc=$(grep {layer.digest} {folder / 'ztocs'} | cut -d' ' -f1)")
            for path in layer.files():
                script.append(f"{own} ztoc get-file --output {folder}/files/{len(paths)} $ztoc '{path}'")
                paths.append(path)
        (folder / "script").write_text("\n".join(script))
        _run("unshare", "--mount", "sh", folder / "script")
    return {path: hashlib.sha256((folder / f"files/{n}").read_bytes()).hexdigest() for n, path in enumerate(paths)}


GZIP = ("gzip",)
MATRIX: dict[str, tuple[Callable[[Image, Path], Tree], tuple[str, ...]]] = {
    "Docker 20.10": (read_by_docker, GZIP),
    "Docker 28": (read_by_docker_28, COMPRESSIONS),
    "Podman 5": (read_by_podman_5, COMPRESSIONS),
    "containerd 2.1": (read_by_containerd_2, COMPRESSIONS),
    "skopeo 1.9": (read_by_skopeo, COMPRESSIONS),
    "umoci 0.4": (read_by_umoci, GZIP),
    "Go's gzip, first member": (read_by_go, GZIP),
    "zran": (read_by_zran, GZIP),
    "SOCI 0.4.1": (read_by_soci, GZIP),
}


REFUSED = [("Docker 20.10", "zstd"), ("umoci 0.4", "zstd"), ("SOCI 0.4.1", "zstd")]


@pytest.mark.parametrize(
    ("reader", "compression"), [(reader, how) for reader, (_, read) in MATRIX.items() for how in read]
)
def test_every_file_is_read(images: dict[str, Image], reader: str, compression: str, tmp_path: Path) -> None:
    image = images[compression]
    found, expected = MATRIX[reader][0](image, tmp_path), image.tree
    assert {path: found.get(path) for path in expected} == expected


@pytest.mark.parametrize(("reader", "compression"), REFUSED)
def test_what_a_reader_does_not_read_is_refused(
    images: dict[str, Image], reader: str, compression: str, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError):
        MATRIX[reader][0](images[compression], tmp_path)
