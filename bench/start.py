"""`python -m bench.start`: from an empty node to the line that a trainer prints after all its imports.

A containerd with nothing in its stores pulls an image from a registry whose loopback lets 1 Gbit/s through, unpacks it,
and starts `import trainer.task` in it. Registry and containerd are in a network namespace of their own, each run begins
with new folders for the daemon, and the contenders take turns. The contenders have the same base, code and wheels:

- one, plain: all wheels in one gzip layer without bytecode, as `uv pip install` in a Dockerfile makes it;
- one, compiled: the same with the wheels' bytecode;
- gzip: imgtool's image;
- zstd: imgtool's image with `compression: zstd`.

The first two are made of the layers of an image that imgtool makes with `trim: false`, compressed anew with gzip -6,
BuildKit's level. `fetch` is a run of its own in the first round that only fetches; a pull fetches and unpacks side by
side. `trained` is the time from the pull to the first epoch's loss.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.installed import CHECKOUT, install
from bench.processes import FailedError, end, process_seconds, run
from bench.project import environment
from bench.report import size
from bench.world import copy_base
from tests.servers.registry_process import run_registry

BASE = "library/python:3.11-slim-bookworm"
PROGRAMS = ("mnist", "keras-jax")
CONTENDERS = ("plain", "compiled", "gzip", "zstd")
_SETTINGS = {"gzip": "compression=gzip", "zstd": "compression=zstd", "whole": "trim=false"}  # by repository
HOST = "127.0.0.1:5000"  # of the registry in the namespace
_RATE = ("rate", "1gbit", "burst", "2mb", "latency", "400ms")
_PARTS = ("fetch", "pull", "start", "imports", "total", "trained", "pull_cpu", "cpu", "bytes", "layers")
_TYPES = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
_OCI = "application/vnd.oci.image.manifest.v1+json"
_TRAINER = (
    "import sys, time; print(time.time(), flush=True)\n"
    "import trainer.task; print(time.time(), time.process_time(), flush=True)\n"
    "sys.argv = ['trainer.task', '--epochs=1', '--job-dir=/tmp/job']\n"
    "trainer.task.main(); print(time.time(), flush=True)"
)
_CONFIG = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/socket"
[plugins."io.containerd.transfer.v1.local"]
max_concurrent_unpacks = {unpacks}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run: seconds, and what the image weighs. `total` is pull, start and imports; CPU time is of all processes.

    `fetch` is 0 but in the first round.
    """

    containerd: str
    program: str
    contender: str
    round: int
    fetch: float
    pull: float
    start: float
    imports: float
    total: float
    trained: float
    loss: float
    pull_cpu: float
    cpu: float
    bytes: int
    layers: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="only this one; repeatable")
    parser.add_argument("--without", action="append", default=[], choices=CONTENDERS)
    parser.add_argument(
        "--newer", type=Path, metavar="FOLDER", help="a newer containerd and ctr, such as those of Ubuntu's package"
    )
    parser.add_argument("--unpacks", type=int, default=5, help="max_concurrent_unpacks of the newer one (5)")
    parser.add_argument(
        "--folder", type=Path, help="where to work, 12 GiB; a folder that is kept has the images for another run"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    options = parser.parse_args()
    mirrors = dict(part.split("=") for part in os.environ.get("IMGTOOL_MIRRORS", "").split(",") if "=" in part)
    if "docker.io" not in mirrors or os.geteuid() != 0:
        sys.exit('this needs root and the base: eval "$(scripts/services env)" sets IMGTOOL_MIRRORS')
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="imgtool-start-")))
        folder.mkdir(exist_ok=True)
        programs, kept = options.program or list(PROGRAMS), folder / "images.json"
        if not kept.exists():
            images = _make_images(folder, mirrors["docker.io"], programs, without=options.without)
            kept.write_text(json.dumps([[*names, digest] for names, digest in images.items()]))
        rows = json.loads(kept.read_text())
        images = {(row[0], row[1]): row[2] for row in rows if row[0] in programs and row[1] not in options.without}
        samples = list(_measure(folder, images, options))
    print(table(samples))
    return 0


def _make_images(folder: Path, source: str, programs: list[str], *, without: list[str]) -> dict[tuple[str, str], str]:
    """Fills the registry's folder; returns the digest of the image of each program and contender."""
    imgtool, images = str(install(folder / "imgtool").command), {}
    with run_registry(folder / "registry", data=folder / "data") as registry:
        copy_base(source, BASE, registry.host)
        environ = environment(Path.home() / ".cache" / "imgtool", registry.host)
        for program in programs:
            project = folder / program
            shutil.copytree(CHECKOUT / "images" / program, project, ignore=shutil.ignore_patterns(".*", "*.lock"))
            for place, setting in _SETTINGS.items():
                words = ["push", "--set", setting, "--registry", f"{registry.host}/{place}", "--json"]
                run([imgtool, "lock", "--set", setting], environ=environ, folder=project)
                answer = json.loads(run([imgtool, *words], environ=environ, folder=project).output)
                images[program, place] = str(answer["images"][0]["reference"]).partition("@")[2]
            whole = images.pop((program, "whole"))
            repository = Repository(registry.host, f"whole/{program}")
            for contender in ("plain", "compiled"):
                if contender in without:
                    continue
                print(f"making {program} {contender}", flush=True)
                images[program, contender] = repository.merge(whole, compiled=contender == "compiled")
    return images


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of a loopback registry."""

    host: str
    path: str

    def _url(self, rest: str) -> str:
        return f"http://{self.host}/v2/{self.path}/{rest}"

    def manifest(self, digest: str) -> dict[str, Any]:
        request = urllib.request.Request(self._url(f"manifests/{digest}"), headers={"Accept": _TYPES})
        with urllib.request.urlopen(request, timeout=60) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def _blob(self, digest: str) -> bytes:
        with urllib.request.urlopen(self._url(f"blobs/{digest}"), timeout=600) as answer:
            data: bytes = answer.read()
        return data

    def _put(self, data: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        with urllib.request.urlopen(self._url("blobs/uploads/"), data=b"", timeout=60) as answer:
            place = answer.headers["Location"]
        place = f"{place}{'&' if '?' in place else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream"}
        urllib.request.urlopen(urllib.request.Request(place, data, headers, method="PUT"), timeout=600).close()
        return {"digest": digest, "size": len(data)}

    def merge(self, digest: str, *, compiled: bool) -> str:
        """Puts an image whose layers of /opt/venv are one; without the standard library's bytecode, or with none."""
        manifest = self.manifest(digest)
        config = json.loads(self._blob(manifest["config"]["digest"]))
        history = [line for line in config["history"] if not line.get("empty_layer")]
        rows = list(zip(manifest["layers"], config["rootfs"]["diff_ids"], history, strict=True))
        wheels = [row for row in rows if "/opt/venv:" in row[2]["created_by"]]
        others = [row for row in rows if row not in wheels and "compileall" not in row[2]["created_by"]]
        archive = self._merge_archives([row[0]["digest"] for row in wheels], compiled=compiled)
        packed = subprocess.run(["gzip", "-6", "-n"], input=archive, capture_output=True, check=True).stdout
        layer = {**manifest["layers"][-1], **self._put(packed)}
        diff_id = f"sha256:{hashlib.sha256(archive).hexdigest()}"
        rows = [*others[:-1], (layer, diff_id, {"created_by": "RUN uv pip install"}), others[-1]]
        config["rootfs"]["diff_ids"] = [row[1] for row in rows]
        config["history"] = [row[2] for row in rows]
        manifest["config"] |= self._put(json.dumps(config).encode())
        manifest["layers"] = [row[0] for row in rows]
        body, media_type = json.dumps(manifest).encode(), manifest.get("mediaType", _OCI)
        name = f"sha256:{hashlib.sha256(body).hexdigest()}"
        headers = {"Content-Type": media_type}
        request = urllib.request.Request(self._url(f"manifests/{name}"), body, headers, method="PUT")
        urllib.request.urlopen(request, timeout=60).close()
        return name

    def _merge_archives(self, digests: list[str], *, compiled: bool) -> bytes:
        stream, seen = io.BytesIO(), set()
        with tarfile.open(fileobj=stream, mode="w") as merged:
            for digest in digests:
                with tarfile.open(fileobj=io.BytesIO(_inflate(self._blob(digest)))) as layer:
                    for member in layer:
                        if member.name in seen or ("__pycache__" in member.name and not compiled):
                            continue
                        seen.add(member.name)
                        merged.addfile(member, layer.extractfile(member) if member.isreg() else None)
        return stream.getvalue()


def _inflate(data: bytes) -> bytes:
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else zlib.decompress(data)


def _measure(folder: Path, images: dict[tuple[str, str], str], options: argparse.Namespace) -> Iterator[Sample]:
    """Runs every contender in turn, round by round, under each containerd."""
    daemons = [Path(found).parent for found in (shutil.which("containerd"),) if found]
    daemons += [options.newer.resolve()] if options.newer else []
    samples: list[Sample] = []
    with _namespace() as inside, _registry(folder, inside):
        for number in range(options.rounds):
            for programs in daemons:
                for (program, contender), digest in sorted(images.items(), key=lambda row: _order(row[0], number)):
                    path = f"{contender if contender in _SETTINGS else 'whole'}/{program}"
                    node = Node(folder / "node", programs, inside, options.unpacks, f"{HOST}/{path}@{digest}")
                    sample = node.measure(program=program, contender=contender, round=number)
                    samples.append(sample)
                    print(" ".join(f"{value:.2f}" if isinstance(value, float) else str(value)
                                   for value in asdict(sample).values()), flush=True)  # fmt: skip
                    if options.json:
                        options.json.write_text(json.dumps([asdict(sample) for sample in samples], indent=1))
                    yield sample


def _order(names: tuple[str, str], number: int) -> tuple[str, int]:
    return names[0], (CONTENDERS.index(names[1]) + number) % len(CONTENDERS)


@contextlib.contextmanager
def _namespace() -> Iterator[list[str]]:
    """Makes a network namespace whose loopback lets 1 Gbit/s through; yields the command that enters it."""
    name = f"imgtool-start-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    inside = ["nsenter", f"--net=/run/netns/{name}"]  # `ip netns exec` hides the control groups, which runc needs
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*inside, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", *_RATE], check=True)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


@contextlib.contextmanager
def _registry(folder: Path, inside: list[str]) -> Iterator[None]:
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {folder}/data}}\n"
        f"http: {{addr: {HOST}}}\n"
    )
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([*inside, "docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        time.sleep(1)
        yield
    finally:
        end(process)


@dataclass(frozen=True, slots=True)
class Node:
    """A node with an empty containerd.

    Attributes:
        folder: for the daemon's stores and socket.
        programs: the folder with containerd and ctr.
        inside: the command that enters the namespace.
        unpacks: how many layers a containerd that can do so unpacks at once.
        reference: the image.
    """

    folder: Path
    programs: Path
    inside: list[str]
    unpacks: int
    reference: str

    def measure(self, *, program: str, contender: str, round: int) -> Sample:  # noqa: A002
        """Pulls the image into an empty store, and trains until the first loss; in round 0, also fetches it alone."""
        fetch = 0.0
        if not round:
            with self._daemon():
                fetch = self._ctr("content", "fetch", "--plain-http", self.reference).wall
        with self._daemon() as daemon:
            before, began = process_seconds(daemon.pid), time.time()
            pulled = self._ctr("images", "pull", "--plain-http", self.reference)
            pull, started = time.time() - began, time.time()
            pull_cpu = pulled.cpu + process_seconds(daemon.pid) - before
            ran = self._ctr("run", "--rm", self.reference, self._container, "python", "-c", _TRAINER)
            lines = [line.split() for line in ran.output.splitlines() if line[:1].isdigit()]
            (up,), (imported, inner), (trained,) = (list(map(float, line)) for line in lines)
            cpu = pulled.cpu + ran.cpu + process_seconds(daemon.pid) - before + inner
        layers = self._layers()
        return Sample(
            containerd=self._version(),
            program=program,
            contender=contender,
            round=round,
            fetch=fetch,
            pull=pull,
            start=up - started,
            imports=imported - up,
            total=imported - began,
            trained=trained - began,
            loss=float(re.findall(r"loss\W*([\d.]+)", ran.output)[0]),
            pull_cpu=pull_cpu,
            cpu=cpu,
            bytes=sum(layer["size"] for layer in layers),
            layers=len(layers),
        )

    @property
    def _container(self) -> str:
        return f"imgtool-start-{os.getpid()}"

    def _layers(self) -> list[dict[str, Any]]:
        path, _, digest = self.reference.removeprefix(f"{HOST}/").partition("@")
        url = f"http://{HOST}/v2/{path}/manifests/{digest}"
        command = [*self.inside, "curl", "-fsS", "-H", f"Accept: {_TYPES}", url]
        rows: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)[
            "layers"
        ]
        return rows

    def _version(self) -> str:
        words = subprocess.run([self.programs / "containerd", "--version"], capture_output=True, text=True, check=True)
        return words.stdout.split()[2].partition("~")[0].partition("+")[0]

    def _ctr(self, *words: str) -> Any:
        command = [*self.inside, str(self.programs / "ctr"), "--address", f"{self.folder}/socket", *words]
        return run(command, environ=os.environ, folder=Path("/"))

    @contextlib.contextmanager
    def _daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        config = self.folder / "config.toml"
        config.write_text(_CONFIG.format(folder=self.folder, unpacks=self.unpacks))
        environ = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        os.sync()  # so that no earlier run's writes are part of this one
        command = [*self.inside, str(self.programs / "containerd"), "--config", str(config)]
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        try:
            self._wait(process)
            yield process
        finally:
            with contextlib.suppress(FailedError):  # what an interrupted run left behind
                self._ctr("tasks", "kill", "--signal", "SIGKILL", self._container)
            end(process)
            for mount in _mounts_below(self.folder):
                subprocess.run(["umount", "--lazy", mount], check=False)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(200):
            with contextlib.suppress(FailedError):
                self._ctr("version")
                return
            if process.poll() is not None:
                break
            time.sleep(0.05)
        raise FailedError(f"containerd does not answer: {(self.folder / 'log').read_text()[-1000:]}")


def _mounts_below(folder: Path) -> list[str]:
    places = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    return sorted((place for place in places if place.startswith(f"{folder}/")), reverse=True)


def table(samples: list[Sample]) -> str:
    """Formats the medians of each part, and the medians of the ratios to `compiled` and `gzip` within a round."""
    lines = ["| containerd | program | contender | " + " | ".join(_PARTS) + " | to compiled | to gzip |"]
    lines.append("|---|---|---|" + "--:|" * (len(_PARTS) + 2))
    totals = {(row.containerd, row.program, row.contender, row.round): row.total for row in samples}
    for key in dict.fromkeys((row.containerd, row.program, row.contender) for row in samples):
        rows = [row for row in samples if (row.containerd, row.program, row.contender) == key]
        cells = [
            statistics.median(getattr(row, part) for row in rows[: 1 if part == "fetch" else None]) for part in _PARTS
        ]
        texts = [f"{cell:.2f}" for cell in cells[:-2]] + [size(cells[-2]), f"{cells[-1]:.0f}"]
        for other in ("compiled", "gzip"):
            ratios = [
                row.total / totals[(*key[:2], other, row.round)]
                for row in rows
                if (*key[:2], other, row.round) in totals
            ]
            texts.append(f"{statistics.median(ratios):.2f} (≤ {max(ratios):.2f})" if ratios else "")
        lines.append(f"| {' | '.join((*key, *texts))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
