"""A project whose images are busybox with a script: `imgtool run` as users run it, without TensorFlow or a registry.

The engine gets the images under their content keys, where `imgtool run` finds them when no registry is named.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import forked_imgtool
from tests.make.engines.support import build, busybox_base
from tests.outputs import check_output
from tests.plans import wheel
from training_imgtool.base.settings import from_environment
from training_imgtool.make.engines.docker.containers import Containers
from training_imgtool.make.engines.docker.engine import STAGES, DockerEngine, remove_image
from training_imgtool.model.load import load
from training_imgtool.model.lock import Lock, LockedVariant
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import RoleImage, prepare
from training_imgtool.plan.project_files import SpecChoice
from training_imgtool.resolve.lock.lockfile import dump_lock, lock_inputs
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.versions.resolve import resolve

IMGTOOL = Path(sys.executable).parent / "imgtool"
SPEC: dict[str, Any] = {
    "name": "demo",
    "tensorflow": "2.15.1",
    "python": "3.11",
    "args": ["--epochs=3"],
    "roles": {"master": {"machine": "n1-standard-4"}, "worker": {"machine": "n1-standard-4"}},
    "job": {"target": "ai-platform", "region": "us-central1", "job_dir": "gs://bucket/demo", "pass_job_dir": True},
}
SERVE = "trap 'exit 0' TERM; while :; do sleep 0.2; done\n"  # what workers do until they are stopped
STARTS = 'echo started >> "/job/starts-$(hostname)"; hostname -i >> "/job/addresses-$(hostname)"\n'


def write_lock(folder: Path, numpy: str = "1.26.4") -> None:
    """Writes the lock of a folder's spec, without asking anybody."""
    spec_file = load(folder / "image.yaml")
    variants = tuple(
        LockedVariant(
            variant=one,
            base_digest="sha256:" + "0" * 64,
            installer=wheel("pip", "24.3.1"),
            wheels=(wheel("numpy", numpy),),
        )
        for one in resolve(spec_file.spec, load_matrix()).variants
    )
    lock = Lock(inputs=lock_inputs(spec_file), platform=spec_file.spec.platform, variants=variants)
    (folder / "image.lock").write_text(dump_lock(lock))


class Project:
    """A spec, its lock, and a container script per role; `volume` is one that the images declare."""

    def __init__(
        self, root: Path, engine: DockerEngine, scripts: Mapping[str, str], *, volume: str = "", **changes: Any
    ) -> None:
        self.engine, self._volume = engine, f"VOLUME {volume}\n" if volume else ""
        self.containers = Containers(engine.api)
        self.folder, self.job = root / "project", root / "job"
        (self.folder / "trainer").mkdir(parents=True)
        (self.folder / "trainer/task.py").write_text(f"# {root}\n")  # keys of this test alone
        self.spec = {**SPEC, **changes}
        self.spec["roles"] = {
            role: {**given, "env": {"SCRIPT": role, **given.get("env", {})}}  # an image for each role's script
            for role, given in self.spec["roles"].items()
        }
        (self.folder / "image.yaml").write_text(json.dumps(self.spec))
        self.env = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(root),
            "IMGTOOL_CACHE": str(root / "cache"),
            **{name: os.environ[name] for name in ("DOCKER_HOST",) if name in os.environ},
        }
        self._lock()
        self.images = self._images(scripts)

    def _lock(self) -> None:
        write_lock(self.folder)

    def _images(self, scripts: Mapping[str, str]) -> dict[str, str]:
        inputs = prepare(
            load(self.folder / "image.yaml"), Machine.open(from_environment(self.env)), SpecChoice(locked=True)
        )
        return {str(image.role): self._image(image, scripts[str(image.role)]) for image in inputs.images}

    def _image(self, image: RoleImage, script: str) -> str:
        data = f"#!/bin/sh\n{script}".encode()
        text = (
            f'FROM {busybox_base(self.engine)}\nCOPY run.sh /run.sh\n{self._volume}ENTRYPOINT ["/bin/sh", "/run.sh"]\n'
        )
        build(self.engine, text, {"run.sh": data})  # its made-up key is what the fixture removes at the end
        return build(self.engine, text, {"run.sh": data}, key=image.key)

    def command(self, *arguments: str) -> list[str]:
        return [str(IMGTOOL), "run", str(self.folder), "--job-dir", str(self.job), *arguments]

    def run(self, *arguments: str, code: int = 0, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs `imgtool run … ARGUMENTS` and expects it to end with `code`."""
        command = self.command(*arguments)
        ended, out, err = forked_imgtool.run(command[1:], self.env, self.folder, timeout)
        done = subprocess.CompletedProcess(command, ended, out.decode(), err.decode())
        assert done.returncode == code, f"{done.returncode}:\n{done.stdout}\n{done.stderr}"
        check_output(command[1:], done.stdout)
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts the same and returns."""
        return subprocess.Popen(
            ["env", "--default-signal=INT", *self.command(*arguments)],  # ignored where a shell runs pytest behind `&`
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def left(self) -> list[str]:
        """The names of this project's containers and networks in the engine."""
        mine = f"imgtool-{self.spec['name']}-"
        found = (*self.containers.containers_with("dev.imgtool.run"), *self.containers.networks_with("dev.imgtool.run"))
        return [one.name for one in found if one.name.startswith(mine)]

    def remove(self) -> None:
        """Removes its images, and what a failed test left."""
        mine = f"imgtool-{self.spec['name']}-"
        for container in self.containers.containers_with("dev.imgtool.run"):
            if container.name.startswith(mine):
                self.containers.remove(container.id)
        for network in self.containers.networks_with("dev.imgtool.run"):
            if network.name.startswith(mine):
                self.containers.remove_network(network.id)
        inputs = prepare(
            load(self.folder / "image.yaml"), Machine.open(from_environment(self.env)), SpecChoice(locked=True)
        )
        for image in inputs.images:
            remove_image(self.engine.api, f"{STAGES}:{image.key}")


def unique(root: Path) -> str:
    """A spec's name that no other test has."""
    return f"demo-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
