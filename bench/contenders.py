"""imgtool and what it is measured against, each with its best practice. All build the same Dockerfile's file tree.

A contender owns a copy of the project, a repository in the registry, and what it keeps on the machine.
"""

from __future__ import annotations

import itertools
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench import project
from bench.processes import Usage, run
from bench.project import BASE, Projects, Variation
from bench.world import World

OURS = "imgtool"
_INSTALL = " set -eu;"  # how the step that installs the wheels begins in what imgtool renders
_OURS = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Where contenders run: the registry directly or through the proxy."""

    world: World
    projects: Projects
    counted: bool

    @property
    def host(self) -> str:
        return self.world.host(counted=self.counted)

    @property
    def name(self) -> str:
        return "counted" if self.counted else "direct"

    @property
    def roles(self) -> tuple[str, ...]:
        return self.projects.roles


class Contender(Protocol):
    """What every one of them can do. Nothing but `build` is timed."""

    @property
    def name(self) -> str:
        """As the tables call it."""

    @property
    def track(self) -> Track:
        """Where it runs."""

    def take(self, variation: Variation) -> None:
        """Has the project in this state, as after a checkout."""

    def edit(self, mark: str) -> None:
        """One line of the trainer's code changes."""

    def new_repository(self) -> None:
        """From now on everything goes to a repository that holds nothing."""

    def new_machine(self) -> None:
        """Forgets all local state."""

    def new_packages(self, mark: str) -> None:
        """Forgets what became of the wheels, not the wheels; nor the base image and the context that were sent."""

    def build(self, roles: tuple[str, ...], *, watch: bool = False) -> Usage:
        """Builds and pushes the roles; raises FailedError."""

    def service_seconds(self) -> float:
        """CPU seconds that daemons have spent on it so far."""


@dataclass
class Imgtool:
    """Ours: `imgtool push`. No two of them share a folder or a repository: it finds again what it pushed before."""

    track: Track
    name: str = OURS
    compression: str = "gzip"
    _folder: Path = field(init=False)
    _cache: Path = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self._own = f"ours-{self.track.name}-{next(_OURS)}"
        self._folder = self.track.world.folder / self._own
        self._cache = self._folder / "cache"
        self._spec = self._folder / "spec"

    def take(self, variation: Variation) -> None:
        shutil.rmtree(self._spec, ignore_errors=True)
        shutil.copytree(self.track.projects.spec(variation), self._spec)
        if self.compression != "gzip":
            spec = self._spec / "image.yaml"
            spec.write_text(f"{spec.read_text()}compression: {self.compression}\n")

    def edit(self, mark: str) -> None:
        project.edit(self._spec / "trainer", mark)

    def new_repository(self) -> None:
        self._number += 1

    def new_machine(self) -> None:
        shutil.rmtree(self._cache, ignore_errors=True)
        self._cache.mkdir(parents=True)

    def new_packages(self, mark: str) -> None:  # noqa: ARG002 nothing is left that a mark would tell apart
        self.track.projects.rendered(BASE)  # fetches the wheels
        self.new_machine()
        shutil.copytree(self.track.projects.cache / "wheels", self._cache / "wheels", copy_function=os.link)

    @property
    def repository(self) -> str:
        return f"{self.track.host}/{self._own}-{self._number}"

    @property
    def cache(self) -> Path:
        return self._cache

    def build(self, roles: tuple[str, ...], *, watch: bool = False) -> Usage:
        command = [self.track.projects.imgtool, "push", str(self._spec), "--registry", self.repository]
        command += [part for role in roles for part in ("--role", role)] if roles != self.track.roles else []
        environ = project.environment(self._cache, self.track.host)
        return run(command, environ=environ, folder=self._folder, watch=watch)

    def service_seconds(self) -> float:
        return 0.0


def copied(source: Path, target: Path, old: str, new: str) -> None:
    """Copies a rendered folder: wheels as links, the rest as files, with another registry in the texts."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=_linked)
    for path in (*target.glob("*.Dockerfile"), target / "docker-bake.json"):
        path.write_text(path.read_text().replace(old, new))


def mark_packages(folder: Path, mark: str) -> None:
    """Makes the step that installs the wheels another one, and what it installs too, in a file of its own.

    BuildKit knows a `COPY --from` by the content that is copied: an equal tree would get the layer of the round before.
    """
    for path in folder.glob("*.Dockerfile"):
        text = path.read_text()
        path.write_text(text.replace(_INSTALL, f"{_INSTALL} mkdir -p /opt/venv; echo '{mark}' >/opt/venv/mark;"))


def before_packages(text: str, command: str = "true") -> str:
    """A Dockerfile that ends where the wheels would be installed, with another command; base and context are needed."""
    return f"{text[: text.index(_INSTALL)]} {command}\n"


def _linked(source: str, target: str) -> str:
    if source.endswith(".whl"):
        os.link(source, target)
        return target
    return str(shutil.copy2(source, target))


def ready(contender: Contender, *, first: bool) -> None:
    """The everyday state: the machine has built and pushed the project before, and nothing is cold."""
    if first:
        contender.new_repository()
    contender.take(BASE)
    contender.build(contender.track.roles)
    contender.build(contender.track.roles)
