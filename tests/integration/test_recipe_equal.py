"""The image that imgtool makes of a recipe against the one that BuildKit makes of the Dockerfile that it prints.

This is what keeps both honest: equal file trees and equal run settings. Drawn at random: the base's folders, owners,
links and settings, the code's layout, files, lines for a shell, variables, users, and CUDA's wheels.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import trees
from tests.faults.project import Project
from tests.make.engines.support import SERVICES, private_engine
from tests.oci.direct.wheels import as_wheel, download, make_init, make_wheel
from tests.oci.registry.support import machine
from tests.servers.registry_process import PROGRAM, run_registry
from training_imgtool.base.reference import parse_repository
from training_imgtool.model.load import load
from training_imgtool.model.lock import Lock, LockedVariant, Wheel
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_MANIFEST,
    Descriptor,
    sha256_digest,
)
from training_imgtool.resolve.lock.lockfile import dump_lock, lock_inputs
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.versions.resolve import resolve

pytestmark = [pytest.mark.registry, pytest.mark.network, pytest.mark.slow]

CASES, SAMPLE = 64, 4
ON_OLD = 6  # cases that this machine's own engine builds, too
_TAG = "3.11-slim-bookworm"
_FOLDERS = (
    "app/ 700 1000 1000", "app/", "app/old.txt", "app/trainer/ 750 5 5", "srv/", "srv/data/ 755 7 8", "app -> srv",
    "etc/conf/ 750 0 9", "data/ 1777", "data/link -> ../srv", "var/shared/ 777 3 3", "app/conf/ 711",
    "app/task.py 600 5 6", "etc/conf/app.yaml 600 7 7", "opt/tools/ 755 4 4",
)  # fmt: skip
_SETTINGS: dict[str, list[Any]] = {
    "User": [None, None, None, "1000", "0:0", "daemon"],
    "WorkingDir": [None, "/srv", "/", "/usr/lib"],
    "Cmd": [["python3"], ["sh", "-c", "x"], None],
    "Entrypoint": [["/entry"], None],
    "Labels": [{"a": "base", "z": "1"}, None],
    "Healthcheck": [{"Test": ["CMD", "true"], "Interval": 9_000_000_000}, None],
    "ExposedPorts": [{"53/tcp": {}}, None],
    "StopSignal": ["SIGINT", None],
    "Volumes": [{"/scratch": {}}, None, None, None],
    "Shell": [["/bin/bash", "-c"], None, None],
}
_TRAINERS = (
    "{source: trainer, module: trainer.task}", "{source: ., module: trainer.task}",
    "{source: trainer, script: task.py}",
    "{source: trainer, module: trainer.task, include: [conf, tools/run.sh]}", "trainer/task.py",
)  # fmt: skip
_FILES = (
    "conf/app.yaml: /etc/conf/app.yaml", "conf: /srv/data/conf", "tools: /usr/local/tools/", "tools/run.sh: /data/",
    "conf: /data/link/deep/er", "link.yaml: /opt/tools/link.yaml", "conf/deep: /var/shared/deep",
    "tools/run.sh: /tmp/run",
    f"conf/app.yaml: /srv/{'n' * 255}", f"conf: /data/{'/'.join(['d' * 200] * 15)}", "tools/run.sh: /srv/x.wh.y",
)  # fmt: skip
_LINES = (
    "echo begun > /begun",
    "install -d -m 1777 -o 5 /app-data && touch /app-data/x", "mkdir -m 700 -p /srv/data/made",
    "printf '%s' \"$WORD\" > /word; id -u > /who", "rm -rf /etc/conf && ln -s /srv /etc/conf",
    "for i in 1 2; do\n  echo $i\ndone > /loop",
)  # fmt: skip
_LATER = (
    "python -c 'import numpy' && ls /opt/venv/bin > /programs", 'echo "$PATH" > /path', "touch /opt/venv/touched",
    "mkdir -p /app && chmod 750 /app",
)  # fmt: skip
_WORDS = ("plain", 'say "hi" for $5', "it's # fine \\ `ok` é", "${PATH}", "a  b=c", "\\$x \\\\")


@dataclass(frozen=True)
class Case:
    """A base and a spec."""

    layers: tuple[tuple[str, ...], ...]
    settings: dict[str, Any]
    spec: str

    @property
    def base(self) -> str:
        """The base's repository: of what files imgtool knows only if it is as the version matrix has it."""
        return "team/base" if self.layers else "library/python"


def draw(number: int) -> Case:
    """The case of a number: half of all bases are plain, and half of all specs have lines."""
    chance = random.Random(f"recipe {number}")
    entries = [entry for entry in _FOLDERS if chance.random() < (0.25 if number % 2 else 0.05)]
    names: dict[str, str] = {}
    for entry in entries:
        name = entry.partition(" ")[0].rstrip("/")
        above = name.rpartition("/")[0]
        if not above or (
            above in {"app", "srv", "etc", "data", "var", "opt", "etc/conf"} and "->" not in names.get(above, "")
        ):
            names.setdefault(name, entry)
    names = {name: entry for name, entry in names.items() if not any("->" in names.get(up, "") for up in _above(name))}
    chosen = {key: chance.choice(values) for key, values in _SETTINGS.items()} if number % 3 else {}
    settings = {key: value for key, value in chosen.items() if value is not None}
    layer = tuple(names[name] for name in sorted(names))
    base = [f"base: docker.io/team/base:{_TAG}"] if layer else []
    return Case((layer,) if layer else (), settings, "\n".join([*base, _draw_spec(chance, settings)]))


def _above(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _draw_spec(chance: random.Random, settings: dict[str, Any]) -> str:
    lines = ["name: demo", 'tensorflow: "2.15.1"', 'python: "3.11"', f"trainer: {chance.choice(_TRAINERS)}"]
    env = {f"WORD{number or ''}": chance.choice(_WORDS) for number in range(chance.randrange(3))}
    lines += [f"env: {json.dumps(env)}"] if env else []
    files = chance.sample(_FILES, chance.choice((0, 0, 1, 1, 2, 3)))
    targets = {line.partition(": ")[0]: line for line in files}
    lines += ["files:", *(f"  {line}" for line in targets.values())] if targets else []
    has_lines = False
    for key, choices in (("run", _LINES), ("run_after_packages", _LATER)):
        if chance.random() < 0.3:
            has_lines = True
            lines.append(f"{key}: {json.dumps(chance.sample(choices, chance.choice((1, 2))))}")
    user = chance.choice((None, None, "1000:1000", "daemon", "2147483647"))
    if has_lines and settings.get("User") not in {None, "0:0"}:
        user = user or "1000"
    lines += [f'user: "{user}"'] if user else []
    if chance.random() < 0.2:
        lines += ["accelerator: gpu", "cuda_from: wheels"]
    lines += ["compression: zstd"] if chance.random() < 0.2 else []
    return "\n".join([*lines, "roles: {worker: {machine: n1-standard-4}}", "job: {region: us-central1}", ""])


@dataclass(frozen=True)
class StandIn:
    """The base that `scripts/services` made: its config, and its layers as the registry has them."""

    config: dict[str, Any]
    layers: tuple[bytes, ...]

    @classmethod
    def read(cls, host: str, folder: Path) -> StandIn:
        """Reads it from the registry at HOST:PORT."""
        repository = parse_repository(f"{host}/library/python")
        with Registries(machine(folder)) as registries:
            client = registries.at(repository)
            manifest = client.manifest(repository.tag(_TAG), "linux/amd64")
            layers = tuple(b"".join(client.blob(repository, layer)) for layer in manifest.layers)
            return cls(json.loads(client.read(repository, manifest.config)), layers)

    def put(self, case: Case, host: str, folder: Path) -> str:
        """Puts the case's base into the registry at HOST:PORT; returns its digest."""
        added = tuple(_archive(entries) for entries in case.layers)
        config = json.loads(json.dumps(self.config))
        config["config"] |= case.settings
        config["rootfs"]["diff_ids"] += [sha256_digest(layer) for layer in added]
        config["history"] = [{"created_by": "made up"} for _ in config["rootfs"]["diff_ids"]]
        blobs = [json.dumps(config).encode(), *self.layers, *(gzip.compress(layer, mtime=0) for layer in added)]
        types = [DOCKER_CONFIG, *[DOCKER_LAYER_GZIP] * (len(blobs) - 1)]
        first, *others = (
            Descriptor(kind, sha256_digest(blob), len(blob)) for kind, blob in zip(types, blobs, strict=True)
        )
        layers = [each.document() for each in others]
        document = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": first.document(), "layers": layers}
        repository = parse_repository(f"{host}/{case.base}")
        with Registries(machine(folder)) as registries:
            client = registries.at(repository)
            for blob, each in zip(blobs, (first, *others), strict=True):
                if not client.has_blob(repository, each):
                    client.upload(repository, each, partial(iter, (blob,)))
            return client.put_manifest(repository.tag(_TAG), DOCKER_MANIFEST, json.dumps(document).encode())


def _archive(entries: tuple[str, ...]) -> bytes:
    """Writes `PATH [MODE UID GID]`, `PATH/ …` for a folder, and `PATH -> TARGET` as an archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for entry in entries:
            name, *rest = entry.split(" ")
            info = tarfile.TarInfo(name.rstrip("/"))
            if rest[:1] == ["->"]:
                info.type, info.linkname = tarfile.SYMTYPE, rest[1]
            else:
                info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
                info.mode = int(rest[0], 8) if rest else 0o755 if name.endswith("/") else 0o644
                info.uid, info.gid = (*map(int, rest[1:]), 0, 0)[:2]
            tar.addfile(info)
    return stream.getvalue()


@dataclass(frozen=True)
class World:
    """A project, a Docker Engine and a registry in a network of their own, with buildx."""

    project: Project
    host: str
    storage: Path
    before: tuple[str, ...]
    bases: dict[str, str]
    wheels: tuple[Wheel, ...]

    def prepare(self, case: Case) -> None:
        """Writes the case's spec and its lock."""
        self.project.spec(case.spec, lock=False)
        spec_file = load(self.project.folder / "image.yaml")
        installer, *wheels = self.wheels
        left_out = ("tensorflow-cpu",) if "cuda_from" in case.spec else ("nvidia-cuda-nvrtc-cu12", "tensorflow")
        wheels = [wheel for wheel in wheels if wheel.name not in left_out]
        variants = tuple(
            LockedVariant(variant=each, base_digest=self.bases[_key(case)], installer=installer, wheels=tuple(wheels))
            for each in resolve(spec_file.spec, load_matrix()).variants
        )
        lock = Lock(inputs=lock_inputs(spec_file), platform=spec_file.spec.platform, variants=variants)
        self.project.write("image.lock", dump_lock(lock))

    def push(self, place: str, *options: str) -> tuple[trees.Tree, dict[str, Any], str]:
        """Pushes the image to a place of its own; returns its files, its run settings, and what imgtool said."""
        registry = f"{self.host}/{place}"
        words = ("push", "--no-check", "--registry", registry, *options)
        ended = self.project.run(*words, before=self.before, timeout=300)
        assert ended.code == 0, ended.err
        manifest = json.loads(self._read(ended.out.split()[1].rpartition("@")[2]))
        config = json.loads(self._read(manifest["config"]["digest"]))
        archives = [_unpack(self._read(layer["digest"])) for layer in manifest["layers"]]
        settings = {
            key: value for key, value in config["config"].items() if value is not None
        }  # Docker 20.10 writes null
        return trees.tree_of(archives), settings, ended.err

    def _read(self, digest: str) -> bytes:
        name = digest.removeprefix("sha256:")
        return (self.storage / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data").read_bytes()


def _key(case: Case) -> str:
    return json.dumps([case.layers, case.settings], sort_keys=True)


def _unpack(layer: bytes) -> bytes:
    program = "gzip" if layer.startswith(b"\x1f\x8b") else "zstd"
    return subprocess.run([program, "-dc"], input=layer, capture_output=True, check=True).stdout


@contextmanager
def make_world(folder: Path, source: StandIn, engine: str, wheels: list[Path]) -> Iterator[World]:
    """Starts everything, with the bases of the cases in the registry; no name means this machine's engine."""
    cases = [draw(number) for number in range(CASES if engine else ON_OLD)]
    if not (SERVICES / "buildx/bin/docker-buildx").exists():
        pytest.skip("no buildx (scripts/services up buildx)")
    with run_registry(folder / "registry") as registry:
        bases = {_key(case): source.put(case, registry.host, folder) for case in cases}
    (folder / "user").mkdir()
    project = Project(folder / "user")
    _write_code(project)
    for wheel in wheels:
        digest = as_wheel(wheel).sha256
        place = project.cache / "wheels" / digest[:2] / digest / wheel.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(wheel.read_bytes())
    daemon = {"features": {"containerd-snapshotter": True}} if engine else {"features": {"buildkit": True}}
    with private_engine(engine, options="", daemon=daemon) as running, (folder / "log").open("ab") as log:
        before = ("nsenter", f"--net=/proc/{running.process.pid}/ns/net", "--")
        project.env |= {
            "DOCKER_HOST": running.host,
            "IMGTOOL_MIRRORS": f"docker.io={registry.host}",
            "IMGTOOL_BUILDER_REGISTRIES": f"docker.io={registry.host}",
            "PATH": f"{SERVICES / 'buildx/bin'}:{project.env['PATH']}",
        }
        command = [*before, PROGRAM, "serve", str(folder / "registry/config.yml")]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                storage = folder / "registry/data"
                yield World(project, registry.host, storage, before, bases, tuple(map(as_wheel, wheels)))
            finally:
                process.kill()


def _write_code(project: Project) -> None:
    files = {
        "trainer/deep/er/run.sh": "#!/bin/sh\n", "conf/app.yaml": "a: 1\n", "conf/deep/er/x.txt": "x",
        "tools/run.sh": "#!/bin/sh\n", "tools/readme.txt": "tools\n", f"trainer/{'long' * 40}": "a long name\n",
    }  # fmt: skip
    for name, text in files.items():
        path = project.write(name, text)
        path.chmod(0o750 if name.endswith(".sh") else 0o600)
    (project.folder / "trainer/link.py").symlink_to("task.py")
    (project.folder / "link.yaml").symlink_to("conf/app.yaml")
    (project.folder / "conf/empty").mkdir()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    (pip,) = download(folder / "pip", "pip==24.3.1")
    library = {"nvidia/cuda_nvrtc/lib/libnvrtc.so.12": b"no library", "nvidia/__init__.py": b""}
    numbers = {"numpy/__init__.py": b"# numbers\n", "numpy/data/x.bin": bytes(5)}
    tensorflow, names = {"tensorflow/__init__.py": b"__version__ = '2.15.1'\n"}, ("tensorflow", "tensorflow_cpu")
    scripts = "[console_scripts]\nsaved_model_cli = tensorflow:main\n"
    return [
        pip,
        make_init(folder),
        make_wheel(folder, "numpy", numbers, version="1.26.4"),
        make_wheel(folder, "nvidia_cuda_nvrtc_cu12", library, version="12.2.140"),
        *(make_wheel(folder, name, tensorflow, version="2.15.1", entry_points=scripts) for name in names),
    ]


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, registry_address: str, wheels: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with make_world(folder, StandIn.read(registry_address, folder), request.param, wheels) as made:
        yield made


def _list_parameters() -> Iterator[Any]:
    for number in range(CASES):
        yield pytest.param("engine28", number, marks=() if number < SAMPLE else pytest.mark.long, id=f"28-{number}")
    for number in range(ON_OLD):
        yield pytest.param("", number, marks=pytest.mark.long, id=f"own-{number}")


@pytest.mark.parametrize(("world", "number"), list(_list_parameters()), indirect=["world"])
def test_the_image_is_the_one_that_buildkit_makes(world: World, number: int) -> None:
    case = draw(number)
    world.prepare(case)
    tree, settings, said = world.push(f"direct-{number}")
    other_tree, other_settings, _ = world.push(f"engine-{number}", "--engine", "buildx")
    assert settings == other_settings, case
    differing = [
        f"{path}: imgtool {tree.get(path)}, BuildKit {other_tree.get(path)}"
        for path in sorted({*tree, *other_tree})
        if _compared(path, tree.get(path)) != _compared(path, other_tree.get(path))
    ]
    assert not differing, "\n".join([*differing[:20], str(case), said])


def _compared(path: str, node: trees.Path | None) -> trees.Path | None:
    """Bytecode may differ in its bytes: its compiler may be another release of the same minor."""
    return replace(node, content="") if node is not None and path.endswith(".pyc") else node
