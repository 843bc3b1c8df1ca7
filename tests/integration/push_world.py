"""A small world for pushes: bases, projects with tiny wheels, and machines that share nothing but a registry.

Everything runs through the real `imgtool`, as a process; the index is a dead address unless a test gives another, so a
wheel that is not in a machine's cache cannot be had.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests import forked_imgtool, plans
from tests.oci.direct.tars import add_entries
from tests.oci.direct.wheels import as_wheel, make_init, make_wheel
from tests.oci.registry.support import machine as settings_of
from tests.outputs import check_output
from tests.servers.fault_proxy import Exchange, FaultProxy
from training_imgtool.base.reference import parse_repository
from training_imgtool.model.load import load
from training_imgtool.model.lock import Lock, LockedVariant
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER_GZIP,
    OCI_MANIFEST,
    Descriptor,
    sha256_digest,
)
from training_imgtool.resolve.lock.lockfile import dump_lock, lock_inputs
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.versions.resolve import resolve

PACKAGES = str(Path(__file__).resolve().parents[2] / "builder")
IMGTOOL = Path(sys.executable).parent / "imgtool"
ROLES = ("master", "worker", "ps")
NO_ENGINE = "unix:///nonexistent/docker.sock"
BASE = "library/python"
BASE_TAG = "3.11-slim-bookworm"
SPEC = """\
name: {name}
tensorflow: "2.15.1"
python: "3.11"
trainer: {{source: trainer, module: trainer.task}}
roles:
  master: {{machine: n1-standard-4}}
  worker: {{machine: n1-standard-4}}
  ps: {{machine: n1-standard-4}}
{more}job: {{target: ai-platform, region: us-central1}}
"""
PIP_SCRIPT = "script_template = '''import sys\nfrom %(module)s import %(import_name)s\nsys.exit(%(func)s())\n'''\n"


@dataclass(frozen=True)
class Base:
    """A base image's parts, of Docker's family or OCI's."""

    manifest: bytes
    config: bytes
    layer: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return sha256_digest(self.manifest)

    def put(self, host: str, name: str = BASE, tag: str = BASE_TAG) -> None:
        """Puts it into the registry at HOST:PORT, under the name that specs ask for unless they have another."""
        repository = parse_repository(f"{host}/{name}")
        with Registries(settings_of(Path("/nonexistent"))) as registries:
            client = registries.at(repository)
            for data in (self.layer, self.config):
                client.upload(repository, Descriptor("", sha256_digest(data), len(data)), partial(io.BytesIO, data))
            client.put_manifest(repository.tag(tag), self.media_type, self.manifest)


def make_base(
    *,
    docker: bool = True,
    size: int = 50_000,
    seed: int = 0,
    env: Sequence[str] = (),
    files: Sequence[str] = (),
    texts: Mapping[str, bytes] | None = None,
) -> Base:
    """A base of one layer, with `files` as `tests.oci.direct.tars.add_entries` has them; nothing in it runs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        add_entries(tar, files)
        for name, text in (texts or {}).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        entry = tarfile.TarInfo("usr/lib/data")
        entry.size = size
        noise = b"".join(hashlib.sha256(b"%d %d" % (seed, n)).digest() for n in range(size // 32 + 1))
        tar.addfile(entry, io.BytesIO(noise[:size]))
    settings = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", *env], "Cmd": ["python3"]}
    return wrap_layer(buffer.getvalue(), settings, docker=docker)


def wrap_layer(
    archive: bytes, settings: Mapping[str, Any], *, docker: bool = True, platform: str = "linux/amd64"
) -> Base:
    """A base of one uncompressed layer."""
    layer = gzip.compress(archive, 1, mtime=0)
    config: dict[str, Any] = {
        **dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False)),
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]} | dict(settings),
        "rootfs": {"type": "layers", "diff_ids": [sha256_digest(archive)]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "tests"}],
    }
    data = json.dumps(config).encode()
    types = (
        (DOCKER_MANIFEST, DOCKER_CONFIG, DOCKER_LAYER_GZIP) if docker else (OCI_MANIFEST, OCI_CONFIG, OCI_LAYER_GZIP)
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": types[0],
        "config": Descriptor(types[1], sha256_digest(data), len(data)).document(),
        "layers": [Descriptor(types[2], sha256_digest(layer), len(layer)).document()],
    }
    return Base(json.dumps(manifest).encode(), data, layer, types[0])


def noise(size: int, seed: str = "") -> bytes:
    """Bytes that do not compress, the same each time."""
    return b"".join(hashlib.sha256(f"{seed}{n}".encode()).digest() for n in range(size // 32 + 1))[:size]


@dataclass
class Wheels:
    """The wheels of a lock: pip's, and the packages'."""

    folder: Path
    pip: Path = field(init=False)
    packages: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        files = {"pip/__init__.py": b"", "pip/_internal/operations/install/wheel.py": PIP_SCRIPT.encode()}
        self.pip = make_wheel(self.folder, "pip", files, version="24.3.1")
        if not self.packages:
            self.packages = [make_init(self.folder)]
            self.add("numpy", version="1.26.4")
            self.add("tensorflow_cpu", {"tensorflow/__init__.py": b"__version__ = '2.15.1'\n"}, version="2.15.1")

    def add(
        self,
        name: str,
        files: Mapping[str, bytes] | None = None,
        *,
        version: str = "1.0",
        size: int = 0,
        requires: Sequence[str] = (),
    ) -> Path:
        """Adds a package, or renews it; `size` bytes of noise make it large."""
        content = dict(files or {f"{name}/__init__.py": f"version = {version!r}\n".encode()})
        if size:
            content[f"{name}/data.bin"] = noise(size, f"{name}{version}")
        made = make_wheel(self.folder, name, content, version=version, requires=requires)
        self.packages = [*(path for path in self.packages if not path.name.startswith(f"{name}-")), made]
        return made


class Project:
    """A spec with its trainer and lock, in a folder of its own."""

    def __init__(self, folder: Path, wheels: Wheels, base: Base, *, name: str = "demo", more: str = "") -> None:
        self.folder, self.wheels, self.base = folder, wheels, base
        self.write("trainer/__init__.py", "")
        self.write("trainer/task.py", 'print("training")\n')
        self.write("image.yaml", SPEC.format(name=name, more=more))
        self.lock()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def lock(self) -> None:
        """Writes the lock by hand, for the wheels as they are; every variant has the same base."""
        spec_file = load(self.folder / "image.yaml")
        wheels = tuple(sorted(map(as_wheel, self.wheels.packages), key=lambda wheel: wheel.name))
        variants = tuple(
            LockedVariant(
                variant=variant,
                base_digest=self.base.digest,
                installer=as_wheel(self.wheels.pip),
                wheels=wheels,
                debian=plans.unresolved_packages(variant, spec_file.spec.system_packages),
            )
            for variant in resolve(spec_file.spec, load_matrix()).variants
        )
        lock = Lock(inputs=lock_inputs(spec_file), platform=spec_file.spec.platform, variants=variants)
        self.write("image.lock", dump_lock(lock))


class Machine:
    """A user on a machine: home, cache, environment."""

    def __init__(self, root: Path, registry: str, mirror: str, **env: str) -> None:
        self.root = root
        self.cache = root / "cache"
        self.command = [str(IMGTOOL)]
        (root / "home").mkdir(parents=True)
        self.env = {
            "PATH": f"{IMGTOOL.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(root / "home"),
            "IMGTOOL_CACHE": str(self.cache),
            "IMGTOOL_REGISTRY": registry,
            "IMGTOOL_MIRRORS": f"docker.io={mirror}",
            "DOCKER_HOST": NO_ENGINE,
            "UV_INDEX_URL": "http://127.0.0.1:9/simple",
            "NO_GCE_CHECK": "true",
            **env,
        }

    def python(self, program: Path) -> None:
        """Has `imgtool` run by another interpreter, with the packages of this one."""
        self.command = [str(program), "-m", "training_imgtool.cli.main"]
        self.env["PYTHONPATH"] = os.pathsep.join([*(path for path in sys.path if "site-packages" in path), PACKAGES])

    def give(self, wheels: Wheels) -> None:
        """Puts wheels into this machine's cache."""
        for path in (wheels.pip, *wheels.packages):
            digest = as_wheel(path).sha256
            place = self.cache / "wheels" / digest[:2] / digest / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())

    def start(self, *arguments: str | Path, cwd: Path, **options: Any) -> subprocess.Popen[bytes]:
        """Begins an `imgtool`."""
        command = [*self.command, *map(str, arguments)]
        env = {**self.env, **options.pop("env", {})}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=env, cwd=cwd, **{**pipes, **options})

    def run(
        self, *arguments: str | Path, cwd: Path, code: int = 0, timeout: float = 120, **options: Any
    ) -> tuple[str, str]:
        """Runs an `imgtool` that must end with `code`; what it wrote to stdout and stderr."""
        env = {**self.env, **options.get("env", {})}
        if self.command == [str(IMGTOOL)] and options.keys() <= {"env"} and forked_imgtool.reads_late(env):
            ended, *streams = forked_imgtool.run(arguments, env, cwd, timeout)
        else:
            process = self.start(*arguments, cwd=cwd, **options)
            streams = [*process.communicate(timeout=timeout)]
            ended = process.returncode
        out, err = (text.decode() for text in streams)
        assert ended == code, f"{ended}: {err}{out}"
        assert "Traceback" not in err, err
        check_output(arguments, out)
        return out, err

    def push(self, project: Project, *arguments: str, **options: Any) -> dict[str, str]:
        """`imgtool build --push`: a reference by role."""
        out, _ = self.run("build", "--push", "--locked", *arguments, cwd=project.folder, **options)
        return dict(line.split(" ", 1) for line in out.splitlines())


def digests(images: Mapping[str, str]) -> dict[str, str]:
    """The digests alone, for images of different repositories."""
    return {role: reference.partition("@")[2] for role, reference in images.items()}


def outcomes(machine: Machine, project: Project, **options: Any) -> dict[str, str]:
    """How each role came to be, of a push."""
    out, _ = machine.run("build", "--push", "--locked", "--json", cwd=project.folder, **options)
    return {image["role"]: image["outcome"] for image in json.loads(out)["images"]}


def document(host: str, reference: str) -> dict[str, Any]:
    """The manifest that a reference `HOST/PATH@DIGEST` names, read from `host`."""
    path, _, digest = reference.partition("/")[2].partition("@")
    request = urllib.request.Request(f"http://{host}/v2/{path}/manifests/{digest}")
    request.add_header("Accept", f"{OCI_MANIFEST}, {DOCKER_MANIFEST}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        body = answer.read()
        assert sha256_digest(body) == digest
        return dict(json.loads(body))


def referrers(reference: str) -> list[dict[str, Any]]:
    """What refers to an image `HOST/PATH@DIGEST`: by the registry's own list, else by that under the tag."""
    host, _, rest = reference.partition("/")
    path, _, digest = rest.partition("@")
    for place in (f"referrers/{digest}", f"manifests/{digest.replace(':', '-')}"):
        request = urllib.request.Request(f"http://{host}/v2/{path}/{place}", headers={"Accept": OCI_INDEX})
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=10) as answer:
            return list(json.load(answer)["manifests"])
    return []


def check_whole(host: str, references: Iterable[str]) -> None:
    """Every blob of every image is in its repository, with the size that its manifest says."""
    for reference in references:
        manifest = document(host, reference)
        path = reference.partition("/")[2].partition("@")[0]
        for blob in (manifest["config"], *manifest["layers"]):
            url = f"http://{host}/v2/{path}/blobs/{blob['digest']}"
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10) as answer:
                assert int(answer.headers["Content-Length"]) == blob["size"]


def blobs_sent(log: Iterable[Exchange]) -> list[str]:
    """The digests of blobs whose content went up whole and was taken."""
    return [
        exchange.query["digest"][0]
        for exchange in log
        if exchange.method == "PUT" and "/blobs/uploads/" in exchange.path and exchange.upstream_status == 201
    ]


def lines(proxy: FaultProxy) -> list[str]:
    """What went through a proxy, for messages."""
    return [exchange.line for exchange in proxy.log]
