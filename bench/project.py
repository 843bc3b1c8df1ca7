"""The project that everybody builds, one of images/, in variations, each with its lock and its Dockerfiles made up front.

Resolving versions takes the index's time, not the builder's, so no row has it in it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.installed import Installed
from bench.processes import run

SMALL_PACKAGES = ("tabulate", "toolz", "more-itertools", "sortedcontainers", "colorama")  # one is added per round


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One state of the project."""

    name: str
    package: str = ""


BASE = Variation(name="base")


def environment(cache: Path, host: str) -> dict[str, str]:
    """What imgtool sees."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**inherited, "IMGTOOL_CACHE": str(cache), "IMGTOOL_MIRRORS": f"docker.io={host}"}


class Projects:
    """Makes variations of the project once, and copies of them."""

    def __init__(
        self, folder: Path, host: str, installed: Installed, example: str = "mnist", spec: str = "image.yaml"
    ) -> None:
        self.imgtool = str(installed.command)
        self._source = installed.checkout / "images" / example
        self._folder = folder
        self._host = host
        self._spec = spec
        self.cache = folder / "cache"  # the wheel cache that is copied to where wheels shall be warm
        self.roles = tuple(yaml.safe_load((self._source / spec).read_text())["roles"])

    def spec(self, variation: Variation) -> Path:
        """The folder of a variation's spec, with a current lock; not to be changed."""
        target = self._folder / "specs" / variation.name
        if not target.exists():
            left_out = shutil.ignore_patterns(".*", "__pycache__", "*.lock")  # the lock's base may be another
            shutil.copytree(self._source, target, ignore=left_out)
            (target / self._spec).replace(target / "image.yaml")
            _changed(target, variation)
            run([self.imgtool, "lock", str(target)], environ=self._environ, folder=target)
        return target

    def rendered(self, variation: Variation) -> Path:
        """What `imgtool render -o` writes for a variation; not to be changed. Fills the wheel cache."""
        target = self._folder / "rendered" / variation.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            command = [self.imgtool, "render", str(self.spec(variation)), "-o", str(target), "--registry", self._host]
            run(command, environ=self._environ, folder=self._folder)
        return target

    @property
    def _environ(self) -> Mapping[str, str]:
        return environment(self.cache, self._host)


def _changed(folder: Path, variation: Variation) -> None:
    if variation.package:
        requirements = folder / "requirements.txt"
        requirements.write_text(requirements.read_text().rstrip("\n") + f"\n{variation.package}\n")


def edit(source: Path, mark: str) -> None:
    """Changes one line of the trainer's code."""
    task = source / "task.py"
    lines = [line for line in task.read_text().splitlines() if not line.startswith("# changed: ")]
    task.write_text("\n".join([*lines, f"# changed: {mark}"]) + "\n")


def bake_targets(folder: Path) -> dict[str, dict[str, object]]:
    """The targets of a rendered folder's bake file."""
    targets: dict[str, dict[str, object]] = json.loads((folder / "docker-bake.json").read_text())["target"]
    return targets
