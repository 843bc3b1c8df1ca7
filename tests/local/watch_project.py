"""A project whose images have Python, a module that stands for a wheel, and the spec's own code: for `run --watch`.

The engine gets the images under their content keys, so a run finds them without a registry; `build` makes those of the
files as they are, for a fresh run beside the one that watches.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import queue
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.local.project import IMGTOOL, Project
from tests.make.engines.support import build, tar_of
from tests.oci.direct.wheels import INIT_SCRIPT
from tests.outputs import check_document
from training_imgtool.base.context.tar import MTIME
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.settings import from_environment
from training_imgtool.make.engines.docker.engine import STAGES, DockerEngine, remove_image
from training_imgtool.model.load import load
from training_imgtool.model.spec import INIT
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import RoleImage, prepare
from training_imgtool.plan.project_files import SpecChoice

BASE = "127.0.0.1:5000/library/python:{}"
SITE = "/opt/wheels/site-packages"  # where an interpreter looks for its own differs between bases
BIG = "import time\ntime.sleep(0.5)\nprint('big loads', flush=True)\nX = 1\n"
TASK = "import big\nfrom trainer import values\nprint('value', values.VALUE, flush=True)\n"


def _layer_of(files: Mapping[str, bytes | None]) -> bytes:
    """A layer as imgtool makes it; None for a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            entry.size, entry.mtime = len(data or b""), MTIME
            entry.mode = 0o755 if data in {None, INIT_SCRIPT} else 0o644
            tar.addfile(entry, io.BytesIO(data or b""))
    return buffer.getvalue()


def python_base(engine: DockerEngine, python: str) -> str:
    """A stand-in base with that Python; skips where neither the engine nor a registry has one."""
    names = [BASE.format(f"{python}{kind}") for kind in ("-slim-bookworm", "-bookworm")]
    for name in names:
        with suppress(ImgtoolError):
            if engine.api.inspect(name) is None:
                with engine.api.ask("pulling a base") as client:
                    client.pull(name)
            return name
    pytest.skip(f"neither {' nor '.join(names)} (scripts/services up pythons)")


class WatchProject(Project):
    """One; `files` are those of its folder; `builds` says that the engine makes images from instructions alone."""

    def __init__(
        self,
        root: Path,
        engine: DockerEngine,
        files: Mapping[str, str],
        *,
        base_python: str = "3.11",
        builds: bool = False,
        **changes: Any,
    ) -> None:
        self._builds = builds
        self._files = {"trainer/task.py": TASK, "trainer/values.py": "VALUE = 0\n", **files}
        self._keys: set[str] = set()
        self._base = python_base(engine, base_python)
        super().__init__(root, engine, {}, **changes)

    def _lock(self) -> None:
        for name, text in self._files.items():
            self.write(name, text)
        super()._lock()

    def _images(self, scripts: Mapping[str, str]) -> dict[str, str]:
        del scripts
        return self.build()

    def build(self, folder: Path | None = None) -> dict[str, str]:
        """Makes the images of the files as they are in the project's folder, or in a copy of it; returns their keys."""
        folder = folder or self.folder
        inputs = prepare(load(folder / "image.yaml"), Machine.open(from_environment(self.env)), SpecChoice(locked=True))
        for image in inputs.images:
            self._build(image, folder)
        return {str(image.role): image.key for image in inputs.images}

    def _build(self, image: RoleImage, folder: Path) -> None:
        self._keys.add(image.key)
        if self.engine.image_id(image.key):
            return
        root = folder / "trainer"
        paths = [path for path in sorted(root.rglob("*")) if "__pycache__" not in path.parts and path.is_file()]
        folders = {f"app/{path.relative_to(folder)}": None for path in [root, *root.rglob("*")] if path.is_dir()}
        files = {f"app/{path.relative_to(folder)}": path.read_bytes() for path in paths}
        wanted = folder / "requirements.txt"
        big = f"{BIG}REQUIREMENTS = {wanted.read_text() if wanted.exists() else ''!r}\n"
        site = {f"{SITE.strip('/')}/big/__init__.py": big.encode(), INIT[0].strip("/"): INIT_SCRIPT}
        data = _layer_of({"app": None, **folders, **site, **files})
        if self._builds:
            self._build_slowly(image, data)
        else:
            self._load(image, data)

    def _build_slowly(self, image: RoleImage, layer: bytes) -> None:
        """Has an engine make the image that reads no archive without the base's layers."""
        text = (
            f"FROM {self._base}\nADD layer.tar /\nWORKDIR /app\n"
            f'ENV PYTHONUNBUFFERED="1" PYTHONPATH="{SITE}"\nENTRYPOINT ["python", "-m", "trainer.task"]\n'
        )
        build(self.engine, text, {"layer.tar": layer}, key=image.key)

    def _load(self, image: RoleImage, layer: bytes) -> None:
        """Makes an image of the base and one layer: the engine has the base's, so the archive leaves them out."""
        with self.engine.api.ask("looking at the base") as client:
            base = client.inspect_image(self._base)
        below = base["RootFS"]["Layers"]
        mode = [f"{name}={value}" for name, value in image.recipe.env.items() if name == "MODE"]
        settings = {
            "Env": [*base["Config"]["Env"], "PYTHONUNBUFFERED=1", f"PYTHONPATH={SITE}", *mode],
            "WorkingDir": "/app",
            "Entrypoint": ["python", "-m", "trainer.task"],
        }
        diff_ids = [*below, f"sha256:{hashlib.sha256(layer).hexdigest()}"]
        config = {
            "architecture": base["Architecture"],
            "os": base["Os"],
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": [{"created_by": image.key} for _ in diff_ids],
        }
        name = f"{STAGES}:{image.key}"
        layers = [*(f"{number}/layer.tar" for number in range(len(below))), "layer.tar"]
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": layers}]
        files = {"config.json": json.dumps(config).encode(), "layer.tar": layer}
        archive = tar_of(files | {"manifest.json": json.dumps(manifest).encode()})
        self.engine.load(iter([archive]), image.key)

    def write(self, name: str, text: str) -> None:
        """Writes a file as editors do: another one, and a rename."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.swp")
        new.write_text(text)
        new.rename(path)

    def watch(self, *arguments: str) -> Watching:
        """Starts `imgtool run --watch`."""
        return Watching(self.folder, self.job, self.env, *arguments)

    def remove(self) -> None:
        super().remove()
        for key in self._keys:
            remove_image(self.engine.api, f"{STAGES}:{key}")


class Watching:
    """A run that watches: its events, and what it prints."""

    def __init__(self, folder: Path, job: Path, env: Mapping[str, str], *arguments: str) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.lines: list[str] = []
        command = [str(IMGTOOL), "run", str(folder), "--watch", "--json", "--progress", "plain", "--job-dir", str(job)]
        self.popen = subprocess.Popen(
            ["env", "--default-signal=INT", *command, *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        takes: tuple[Callable[[str], object], Callable[[str], object]]
        takes = (lambda line: self.events.put(json.loads(line)), self.lines.append)
        self._threads = [
            threading.Thread(target=self._read, args=pair)
            for pair in zip((self.popen.stdout, self.popen.stderr), takes, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: Any, take: Callable[[str], object]) -> None:
        with stream:
            for line in stream:
                take(line)

    def wait(self, event: str, seconds: float = 180) -> dict[str, Any]:
        """Waits for the next event of that name."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event} in {seconds} s:\n{''.join(self.lines[-40:])}") from None
            check_document("run", found)
            if found["event"] == event:
                return found

    def printed(self, replica: str = "master") -> list[str]:
        """What a replica printed, also the lines that are on their way here when an event has come by stdout."""
        for _ in range(20):
            before = len(self.lines)
            time.sleep(0.05)
            if len(self.lines) == before:
                break
        begin = f"{replica} "
        return [line.partition("| ")[2].rstrip("\n") for line in self.lines if line.startswith(begin)]

    def wait_for_line(self, text: str, seconds: float = 180) -> None:
        """Waits for a line with that text on stderr."""
        deadline = time.monotonic() + seconds
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline, "".join(self.lines[-40:])
            time.sleep(0.02)

    def end(self, signum: int = signal.SIGINT) -> int:
        """Ends it; returns its exit code."""
        if self.popen.poll() is None:
            os.kill(self.popen.pid, signum)
        code = self.popen.wait(60)
        for thread in self._threads:
            thread.join(10)
        return code
